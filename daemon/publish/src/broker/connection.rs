//! Whether a sink is connected, when to try again, and what to log: one line when the connection is lost, one when it is back,
//! and one in between only for another reason.

use std::time::{Duration, Instant};

use visiond_system::backoff::Backoff;

/// The first and the longest pause before another attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// The state of the connection to a broker.
#[derive(Debug)]
pub struct ConnectionState {
    backoff: Backoff,
    /// Whether there ever was a connection.
    before: bool,
    outage: Option<Outage>,
    next_try: Instant,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    reason: String,
}

impl ConnectionState {
    /// Starts unconnected; the first attempt may be made at once.
    pub fn new() -> Self {
        let backoff = Backoff::new(PAUSES[0], PAUSES[1]);
        Self { backoff, before: false, outage: None, next_try: Instant::now() }
    }

    /// Returns when to try next.
    pub fn next_try(&self) -> Instant {
        self.next_try
    }

    /// Returns why there is no connection, if an attempt failed.
    pub fn outage(&self) -> Option<&str> {
        self.outage.as_ref().map(|outage| outage.reason.as_str())
    }

    /// Notes that an attempt failed or the connection is lost, and logs it. `meanwhile` says what happens to the messages.
    pub fn is_lost(&mut self, name: &str, reason: String, meanwhile: &str) {
        let now = Instant::now();
        self.next_try = now + self.backoff.pause();
        match &mut self.outage {
            Some(outage) if outage.reason == reason => {}
            Some(outage) => {
                log::error!("sink {name}: still not connected: {reason}");
                outage.reason = reason;
            }
            None => {
                let what = if self.before { "connection lost" } else { "not connected" };
                log::error!("sink {name}: {what}: {reason}; retrying, {meanwhile}");
                self.outage = Some(Outage { since: now, reason });
            }
        }
    }

    /// Lets the sink connect again at once, because its settings changed.
    pub fn renew(&mut self) {
        self.next_try = Instant::now();
    }

    /// Notes and logs that the sink is connected; `waiting` messages go out late. Returns whether it was connected before.
    pub fn works(&mut self, name: &str, waiting: u64) -> bool {
        match self.outage.take() {
            Some(outage) => {
                let seconds = outage.since.elapsed().as_secs_f32();
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
