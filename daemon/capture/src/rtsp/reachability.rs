//! Checks whether a camera is reachable with extra TCP connections, which it closes at once.
//!
//! A session notices late that its camera was away. The kernel retransmits at doubling intervals (the first packet of a
//! connection after 1, 3 and 7 s), so a connection stays silent after the cable is back. A camera that lost power closes no
//! connection, and one that returns with another address never answers at the old one.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::super::camera_connection::{Lookup, begin_connection, connection_result};

/// How long a connection attempt may take, and the interval between attempts. If each direction loses a tenth of its packets,
/// a fifth of the attempts take longer. That ends a session only if the camera also sends nothing meanwhile.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The interval after which to check again whether a camera that refused extra connections accepts them.
pub const PAUSE: Duration = Duration::from_secs(5);

/// How a camera is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It accepts no connection at any of its addresses.
    Unreachable,
    /// Its name has another address than at the start of the session.
    Moved,
}

/// Cameras whose session ended when visiond tried an extra connection, by host and port, and how often in a row. Bounded by
/// the configured cameras.
static HARMED: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());

/// After this many such ends in a row, the camera serves only one client.
const MOST_HARM: u32 = 2;

/// How soon after such a connection the end of a session must follow to be blamed on it.
const CONSEQUENCE: Duration = Duration::from_millis(1500);

/// The camera's addresses when the session began, and the connection that checks whether it is reachable.
#[derive(Debug)]
pub struct Reachability {
    url: Url,
    /// Empty if the name could not be resolved.
    addresses: Vec<SocketAddr>,
    probe: Option<Probe>,
    /// When the camera last accepted a connection.
    accepted: Option<Instant>,
}

/// One attempt. It resolves the name again first.
#[derive(Debug)]
struct Probe {
    /// `Some` until the addresses are known.
    lookup: Option<Lookup>,
    addresses: VecDeque<SocketAddr>,
    connection: Option<(TcpStream, SocketAddr, Instant)>,
}

impl Reachability {
    /// Creates the check for a camera with these addresses.
    pub fn new(url: &Url, addresses: Vec<SocketAddr>) -> Self {
        Self { url: url.clone(), addresses, probe: None, accepted: None }
    }

    fn place(&self) -> String {
        format!("{}:{:?}", self.url.host_str().unwrap_or_default(), self.url.port())
    }

    /// Notes that the camera ended the session. Some cameras serve one client, and a new connection replaces the old one:
    /// visiond stops checking such a camera. It takes two sessions in a row, because one may have ended by chance.
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
                "{host} ends its session when another connection is opened, so visiond stops checking whether it is reachable"
            );
        }
    }

    /// Whether an attempt would end the camera's session.
    pub fn is_harmful(&self) -> bool {
        HARMED.lock().get(&self.place()).is_some_and(|times| *times >= MOST_HARM)
    }

    /// Starts an attempt, unless one is in progress.
    pub fn begin(&mut self) {
        self.probe.get_or_insert_with(|| Probe {
            lookup: Some(Lookup::of(&self.url)),
            addresses: VecDeque::new(),
            connection: None,
        });
    }

    /// Whether an attempt is in progress.
    pub const fn is_trying(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns the connection to poll until it is writable.
    pub fn connection(&self) -> Option<&TcpStream> {
        Some(&self.probe.as_ref()?.connection.as_ref()?.0)
    }

    /// Continues the attempt, and returns its outcome once it is over: how the camera is absent, or `None` if it is reachable
    /// or this process lacks the resources to check.
    pub fn outcome(&mut self, now: Instant) -> Option<Option<Absence>> {
        let outcome = self.go_on(now)?;
        self.probe = None;
        Some(outcome)
    }

    fn go_on(&mut self, now: Instant) -> Option<Option<Absence>> {
        let probe = self.probe.as_mut()?;
        if let Some(lookup) = &probe.lookup {
            // Without a timeout: a slow name server must not look like an absent camera, and must not get a second query
            // meanwhile.
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

/// Whether a connection failed in the network or at the camera, and not because this process lacks something.
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
