//! Finds out whether a camera can be reached, by TCP connections beside the session's, which are closed at once.
//!
//! A session learns late that its camera was away. The kernel repeats what was lost at intervals that double (the first packet of
//! a connection after 1, 3 and 7 s), so a connection stays silent after the cable is back. A camera that lost its power closes no
//! connection, and one that comes back with another address never answers the old one.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{interval, sleep, timeout};
use url::Url;

/// How long a connection may take, and the time from one to the next. Where each direction loses a tenth of its packets, a fifth of
/// the connections take longer. That ends a session only if the camera also sends nothing meanwhile.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time from one question whether a camera accepts other connections to the next, where it did not.
const PAUSE: Duration = Duration::from_secs(5);

/// How a camera is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// It accepts no connection at any of its addresses.
    Unreachable,
    /// Its name has another address than at the start of the session.
    Moved,
}

/// Where a camera is, by its name when the session began.
#[derive(Debug)]
pub struct Reachability {
    host: String,
    port: u16,
    /// Empty if the name could not be resolved.
    addresses: Vec<SocketAddr>,
}

impl Reachability {
    /// Resolves the camera's name.
    pub async fn of(url: &Url) -> Self {
        // Brackets are the URL's, around an IPv6 address.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port().unwrap_or(554);
        let addresses = resolve(&host, port).await;
        Self { host, port, addresses }
    }

    /// Returns once the camera can be reached after it could not, or at another address: a connection that was begun before may
    /// wait for long.
    pub async fn returned(&self) {
        let (mut was_absent, mut ticks) = (false, interval(INTERVAL));
        // The first one is at once.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            match self.absence().await {
                Some(Absence::Moved) => return,
                Some(Absence::Unreachable) => was_absent = true,
                None if was_absent => return,
                None => {}
            }
        }
    }

    /// Returns once the camera has accepted a connection beside the session's. Some serve one client at a time.
    pub async fn accepts_others(&self) {
        while self.absence().await.is_some() {
            sleep(PAUSE).await;
        }
    }

    /// Returns once the camera cannot be reached.
    pub async fn lost(&self) -> Absence {
        loop {
            if let Some(absence) = self.absence().await {
                return absence;
            }
            sleep(INTERVAL).await;
        }
    }

    /// Resolves the name again and connects. Without an answer to that, the addresses are those that it had.
    async fn absence(&self) -> Option<Absence> {
        // Without a limit: one that is slow must neither look like an absence, nor be asked again meanwhile.
        let found = resolve(&self.host, self.port).await;
        let addresses = if found.is_empty() { &self.addresses } else { &found };
        for address in addresses {
            match timeout(INTERVAL, TcpStream::connect(address)).await {
                Ok(Ok(_)) => {
                    let is_known = self.addresses.is_empty() || self.addresses.contains(address);
                    return (!is_known).then_some(Absence::Moved);
                }
                Ok(Err(error)) if !is_of_network(error.kind()) => {
                    log::debug!("cannot find out whether {} can be reached: {error}", self.host);
                    return None;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        Some(Absence::Unreachable)
    }
}

/// Whether a connection failed on its way or at the camera, not because this process lacks something.
fn is_of_network(kind: ErrorKind) -> bool {
    use ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        TimedOut,
    };
    matches!(
        kind,
        ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
            | TimedOut
    )
}

/// Returns the addresses of a host; none if its name cannot be resolved.
async fn resolve(host: &str, port: u16) -> Vec<SocketAddr> {
    lookup_host((host, port)).await.map(Iterator::collect).unwrap_or_default()
}

#[cfg(test)]
mod tests;
