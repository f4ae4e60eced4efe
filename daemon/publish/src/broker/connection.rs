//! Whether there is a connection, when to try again if not, and what is told of it: one line when it is lost, one when it is
//! there again, and one in between only for another reason.

use std::time::{Duration, Instant};

use visiond_system::backoff::Backoff;

/// The first pause before another attempt, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// The connection to a broker.
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
    /// Not connected yet; the first attempt may be made at once.
    pub fn new() -> Self {
        let backoff = Backoff::new(PAUSES[0], PAUSES[1]);
        Self { backoff, before: false, outage: None, next_try: Instant::now() }
    }

    /// When to try next.
    pub fn next_try(&self) -> Instant {
        self.next_try
    }

    /// Why there is no connection, if one was tried for.
    pub fn outage(&self) -> Option<&str> {
        self.outage.as_ref().map(|outage| outage.reason.as_str())
    }

    /// An attempt failed, or the connection is gone. `meanwhile` says what becomes of the messages.
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
                let what = if self.before { "the connection is lost" } else { "not connected" };
                log::error!("sink {name}: {what}: {reason}; {meanwhile}, trying again");
                self.outage = Some(Outage { since: now, reason });
            }
        }
    }

    /// It is to be connected anew without anything being wrong.
    pub fn renew(&mut self) {
        self.next_try = Instant::now();
    }

    /// It is connected; `waiting` messages go out late. Tells whether it was before.
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

    /// Something went through, so that the next pause is a short one.
    pub fn is_good(&mut self) {
        self.backoff.reset();
    }
}
