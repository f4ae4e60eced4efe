//! Finds out whether a camera can be reached, by TCP connections beside the session's, which are closed at once.
//!
//! A session learns late that its camera was away. The kernel repeats what was lost at intervals that double (the first packet of
//! a connection after 1, 3 and 7 s), so a connection stays silent after the cable is back. A camera that lost its power closes no
//! connection, and one that comes back with another address never answers the old one.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::super::camera_connection::{Lookup, begin_connection, connection_result};

/// How long a connection may take, and the time from one to the next. Where each direction loses a tenth of its packets, a fifth of
/// the connections take longer. That ends a session only if the camera also sends nothing meanwhile.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The time from one question whether a camera accepts other connections to the next, where it did not.
pub const PAUSE: Duration = Duration::from_secs(5);

/// How a camera is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It accepts no connection at any of its addresses.
    Unreachable,
    /// Its name has another address than at the start of the session.
    Moved,
}

/// Cameras whose session ended when visiond tried a connection beside it, by host and port, and how often in turn. As many as have been
/// configured.
static HARMED: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// So many sessions in turn that ended so show that the camera serves one client.
const MOST_HARM: u32 = 2;

/// How soon after such a connection the end of a session counts as its consequence.
const CONSEQUENCE: Duration = Duration::from_millis(1500);

/// Where a camera is, by its name when the session began, and the connection that tries whether it is there.
#[derive(Debug)]
pub struct Reachability {
    url: Url,
    /// Empty if the name could not be resolved.
    addresses: Vec<SocketAddr>,
    probe: Option<Probe>,
    /// When a connection was accepted last.
    accepted: Option<Instant>,
}

/// One try. The name is resolved again first.
#[derive(Debug)]
struct Probe {
    /// `Some` until the addresses are known.
    lookup: Option<Lookup>,
    addresses: VecDeque<SocketAddr>,
    connection: Option<(TcpStream, SocketAddr, Instant)>,
}

impl Reachability {
    /// Makes it for a camera that has these addresses.
    pub fn new(url: &Url, addresses: Vec<SocketAddr>) -> Self {
        Self { url: url.clone(), addresses, probe: None, accepted: None }
    }

    fn place(&self) -> String {
        format!("{}:{:?}", self.url.host_str().unwrap_or_default(), self.url.port())
    }

    /// Takes note that the camera has ended the session. Some serve one client, and the next one takes its place: such a camera is not
    /// tried any more. Two sessions in turn show it; one may have ended by chance.
    pub fn session_ended(&self, now: Instant) {
        let Some(accepted) = self.accepted else { return };
        let mut harmed = HARMED.lock();
        if now.saturating_duration_since(accepted) > CONSEQUENCE {
            harmed.remove(&self.place());
            return;
        }
        let times = harmed.entry(self.place()).or_default();
        *times += 1;
        if *times == MOST_HARM {
            let host = self.url.host_str().unwrap_or_default();
            log::info!(
                "{host} ends its session when another connection comes, so visiond tries no more whether it is there"
            );
        }
    }

    /// Whether a try would end the camera's session.
    pub fn is_harmful(&self) -> bool {
        HARMED.lock().get(&self.place()).is_some_and(|times| *times >= MOST_HARM)
    }

    /// Begins a try, unless one is under way.
    pub fn begin(&mut self) {
        self.probe.get_or_insert_with(|| Probe {
            lookup: Some(Lookup::of(&self.url)),
            addresses: VecDeque::new(),
            connection: None,
        });
    }

    /// Whether a try is under way.
    pub const fn is_trying(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the connection to wait for, until it can be written to.
    pub fn connection(&self) -> Option<&TcpStream> {
        Some(&self.probe.as_ref()?.connection.as_ref()?.0)
    }

    /// Goes on with the try, and returns its outcome once it is over: how the camera is absent, or `None` if it is there or this
    /// process lacks what it needs to find out.
    pub fn outcome(&mut self, now: Instant) -> Option<Option<Absence>> {
        let outcome = self.go_on(now)?;
        self.probe = None;
        Some(outcome)
    }

    fn go_on(&mut self, now: Instant) -> Option<Option<Absence>> {
        let probe = self.probe.as_mut()?;
        if let Some(lookup) = &probe.lookup {
            // Without a limit: one that is slow must neither look like an absence, nor be asked again meanwhile.
            let found = lookup.answer()?.unwrap_or_default();
            probe.addresses = if found.is_empty() { self.addresses.clone() } else { found }.into();
            probe.lookup = None;
        }
        loop {
            if let Some((stream, address, begun)) = &probe.connection {
                match connection_result(stream) {
                    Some(Ok(())) => {
                        self.accepted = Some(now);
                        let is_known = self.addresses.is_empty() || self.addresses.contains(address);
                        return Some((!is_known).then_some(Absence::Moved));
                    }
                    Some(Err(error)) if !is_of_network(&error) => return Some(self.cannot_tell(&error)),
                    Some(Err(_)) => {}
                    None if now.saturating_duration_since(*begun) < INTERVAL => return None,
                    None => {}
                }
                probe.connection = None;
            }
            let Some(address) = probe.addresses.pop_front() else { return Some(Some(Absence::Unreachable)) };
            match begin_connection(address) {
                Ok(stream) => probe.connection = Some((stream, address, now)),
                Err(error) if is_of_network(&error) => {}
                Err(error) => return Some(self.cannot_tell(&error)),
            }
        }
    }

    fn cannot_tell(&self, error: &io::Error) -> Option<Absence> {
        let host = self.url.host_str().unwrap_or_default();
        log::debug!("cannot find out whether {host} can be reached: {error}");
        None
    }
}

/// Whether a connection failed on its way or at the camera, not because this process lacks something.
fn is_of_network(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
            | TimedOut
    )
}

#[cfg(test)]
mod tests;
