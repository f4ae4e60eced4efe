//! Whether a sink is connected, when to try again, and what to log: one line when the connection is lost, one when it is back,
//! and one in between only for another reason.

use std::time::{Duration, Instant};

use visiond_system::backoff::Backoff;

#[derive(Debug)]
pub struct ConnectionState {
    backoff: Backoff,
    /// Whether there ever was a connection.
    before: bool,
    /// Since when there is no connection, and why.
    lost: Option<(Instant, String)>,
    pub next_try: Instant,
}

impl ConnectionState {
    /// Starts unconnected; the first attempt may be made at once.
    pub fn new() -> Self {
        let backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        Self { backoff, before: false, lost: None, next_try: Instant::now() }
    }

    /// Returns why there is no connection, if an attempt failed.
    pub fn outage(&self) -> Option<&str> {
        self.lost.as_ref().map(|(_, reason)| reason.as_str())
    }

    /// Notes that an attempt failed or the connection is lost, and logs it. `meanwhile` says what happens to the messages.
    pub fn is_lost(&mut self, name: &str, reason: String, meanwhile: &str) {
        let now = Instant::now();
        self.next_try = now + self.backoff.pause();
        match &mut self.lost {
            Some((_, known)) if *known == reason => {}
            Some((_, known)) => {
                log::error!("sink {name}: still not connected: {reason}");
                *known = reason;
            }
            None => {
                let what = if self.before { "connection lost" } else { "not connected" };
                log::error!("sink {name}: {what}: {reason}; retrying, {meanwhile}");
                self.lost = Some((now, reason));
            }
        }
    }

    /// Notes and logs that the sink is connected; `waiting` messages go out late. Returns whether it was connected before.
    pub fn works(&mut self, name: &str, waiting: u64) -> bool {
        match self.lost.take() {
            Some((since, _)) => {
                let seconds = since.elapsed().as_secs_f32();
                log::info!("sink {name}: connected after {seconds:.1} s; {waiting} messages waited");
            }
            None => log::info!("sink {name}: connected"),
        }
        std::mem::replace(&mut self.before, true)
    }

    /// Makes the next pause short again, because a message went through.
    pub fn is_good(&mut self) {
        self.backoff.reset();
    }
}
