//! A connection with an HTTP camera; every wait ends with [`Stop`] or a deadline.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use url::Url;
use visiond_system::stop::{Stop, Wake};

use super::failure::Failure;
use crate::camera_connection::{CameraConnection, ConnectionError, Lookup, begin_connection, connection_result};
use crate::camera_tls::CameraTls;

/// How often a wait for name resolution checks the result.
const STEP: Duration = Duration::from_millis(5);

/// The result of a read.
pub enum Received {
    /// This many bytes.
    Bytes(usize),
    /// No data yet.
    Nothing,
    Closed,
}

pub struct Connection {
    inner: CameraConnection,
    /// Scheme, host and port.
    origin: url::Origin,
}

impl Connection {
    /// Connects to the host of `url`: tries its addresses in order until one answers.
    pub fn open(url: &Url, tls: Option<Arc<CameraTls>>, stop: &Stop, deadline: Instant) -> Result<Self, Failure> {
        let lookup = Lookup::of(url);
        let addresses = loop {
            stop.mark_progress();
            let cannot = |reason: &dyn std::fmt::Display| {
                let host = url.host_str().unwrap_or_default();
                Failure::Absent(format!("cannot resolve {host}: {reason}; check the name and the DNS server"))
            };
            match lookup.answer() {
                Some(answer) => break answer.map_err(|error| cannot(&error))?,
                None if stop.is_raised() => return Err(Failure::Stopped),
                None if Instant::now() >= deadline => return Err(cannot(&"no answer")),
                None => thread::sleep(STEP),
            }
        };
        let mut failure = Failure::Absent("its name has no address: correct the host in `url`".to_owned());
        for (tried, address) in addresses.iter().enumerate() {
            // Each address gets the same share of the time, so that a silent one leaves some for the others.
            let left = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            let connected = begin_connection(*address).and_then(|socket| connected(socket, stop, share));
            match connected {
                Ok(Some(socket)) => {
                    let inner = CameraConnection::new(socket, tls);
                    let inner = inner.map_err(|error| Failure::Refused(error.to_string()))?;
                    return Ok(Self { inner, origin: url.origin() });
                }
                Ok(None) => return Err(Failure::Stopped),
                Err(error) => {
                    let reason = format!("cannot connect to {address}: {error}; check the address and the network");
                    failure = Failure::Absent(reason);
                }
            }
        }
        Err(failure)
    }

    /// Whether the connection serves `url`.
    pub fn is_to(&self, url: &Url) -> bool {
        self.origin == url.origin()
    }

    /// Sends all of `bytes`, after the TLS handshake.
    pub fn send(&mut self, bytes: &[u8], stop: &Stop, deadline: Instant) -> Result<(), Failure> {
        let mut output = bytes.to_vec();
        loop {
            self.inner.send(&mut output).map_err(failed)?;
            let (waits_for_room, shakes_hands) =
                (!output.is_empty() || self.inner.wants_write(), self.inner.is_handshaking());
            if !waits_for_room && !shakes_hands {
                return Ok(());
            }
            if shakes_hands {
                // No HTTP data arrives before the handshake is complete.
                match self.inner.shake_hands() {
                    Ok(()) => {}
                    Err(ConnectionError::Closed) => {
                        let reason =
                            "the camera closed the connection while TLS was set up; check that the port is that of TLS";
                        return Err(Failure::Absent(reason.to_owned()));
                    }
                    Err(error) => return Err(failed(error)),
                }
                if !self.inner.is_handshaking() || self.inner.wants_write() {
                    continue;
                }
            }
            let events = if waits_for_room { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
            let answer_deadline = self.inner.answer_deadline().unwrap_or(deadline);
            match self.wait(events, stop, deadline.min(answer_deadline))? {
                Wake::Ready => {}
                Wake::Stopped => return Err(Failure::Stopped),
                Wake::TimedOut if answer_deadline < deadline => {}
                Wake::TimedOut => {
                    return Err(Failure::Absent("no answer; check the camera and the network".to_owned()));
                }
            }
        }
    }

    /// Reads into `chunk` the bytes that have arrived, without waiting. Call [`wait`](Self::wait) only after [`Received::Nothing`].
    pub fn receive(&mut self, chunk: &mut [u8]) -> Result<Received, Failure> {
        match self.inner.receive(chunk) {
            Ok(0) => Ok(Received::Nothing),
            Ok(received) => Ok(Received::Bytes(received)),
            Err(ConnectionError::Closed) => Ok(Received::Closed),
            Err(ConnectionError::Failed(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                Ok(Received::Closed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits for `events` of poll(2).
    pub fn wait(&self, events: i16, stop: &Stop, deadline: Instant) -> Result<Wake, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = stop.wait_events(self.inner.as_fd(), events, Some(left));
        waited.map_err(|error| failed(ConnectionError::Failed(error)))
    }
}

fn failed(error: ConnectionError) -> Failure {
    match error {
        ConnectionError::Closed => Failure::Absent("the camera closed the connection".to_owned()),
        ConnectionError::Failed(error) => {
            Failure::Absent(format!("the connection failed: {error}; check the camera and the network"))
        }
        ConnectionError::Tls(reason) => Failure::Refused(reason),
    }
}

/// Waits until a connection is established; `None` if the wait was stopped.
fn connected(socket: TcpStream, stop: &Stop, share: Duration) -> io::Result<Option<TcpStream>> {
    match stop.wait_events(socket.as_fd(), libc::POLLOUT, Some(share))? {
        Wake::Stopped => Ok(None),
        Wake::TimedOut => Err(io::ErrorKind::TimedOut.into()),
        Wake::Ready => match connection_result(&socket) {
            Some(result) => result.map(|()| Some(socket)),
            None => Err(io::ErrorKind::NotConnected.into()),
        },
    }
}
