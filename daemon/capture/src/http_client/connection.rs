//! A TCP connection, with or without TLS, whose every wait ends with [`Stop`] or a deadline.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use socket2::{Domain, Socket, Type};
use url::{Host, Url};
use visiond_system::stop::{Stop, Wake};

use super::failure::Failure;
use crate::camera_tls::CameraTls;

/// How often a wait for a name looks at [`Stop`].
const STEP: Duration = Duration::from_millis(20);

/// What the camera has sent.
pub enum Received {
    /// So many bytes.
    Bytes(usize),
    /// Nothing more so far.
    Nothing,
    Closed,
}

pub struct Connection {
    socket: TcpStream,
    tls: Option<(ClientConnection, Arc<CameraTls>)>,
    /// Scheme, host and port.
    origin: url::Origin,
}

impl Connection {
    /// Connects to the host of `url`: to each of its addresses until one answers.
    pub fn open(url: &Url, tls: Option<Arc<CameraTls>>, stop: &Stop, deadline: Instant) -> Result<Self, Failure> {
        let mut addresses = resolve(url, stop, deadline)?;
        let mut left = addresses.len();
        let socket = loop {
            let Some(address) = addresses.pop() else {
                return Err(Failure::Absent("its name has no address: correct the host in `url`".to_owned()));
            };
            // Each gets the same share of the time, so that one that is silent leaves some for the others.
            let share = deadline.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1).max(1);
            left -= 1;
            match connect(address, stop, Instant::now() + share) {
                Ok(socket) => break socket,
                Err(Failure::Absent(_)) if left > 0 => {}
                Err(failure) => return Err(failure),
            }
        };
        let tls = match tls {
            Some(tls) => {
                let connection = tls.connection().map_err(|error| Failure::Refused(error.to_string()))?;
                Some((connection, tls))
            }
            None => None,
        };
        Ok(Self { socket, tls, origin: url.origin() })
    }

    /// Whether it goes where `url` is.
    pub fn is_to(&self, url: &Url) -> bool {
        self.origin == url.origin()
    }

    /// Sends all of `bytes`, after the handshake of TLS.
    pub fn send(&mut self, bytes: &[u8], stop: &Stop, deadline: Instant) -> Result<(), Failure> {
        let Some((tls, _)) = &mut self.tls else { return self.send_plain(bytes, stop, deadline) };
        tls.writer().write_all(bytes).map_err(|error| broken(&error))?;
        loop {
            let Some((tls, camera)) = &mut self.tls else { return Ok(()) };
            let mut events = 0;
            if tls.wants_write() {
                match tls.write_tls(&mut &self.socket) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => events |= libc::POLLOUT,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(broken(&error)),
                }
            } else if !tls.is_handshaking() {
                return Ok(());
            }
            match tls.read_tls(&mut &self.socket) {
                Ok(0) => {
                    let reason =
                        "the camera closed the connection while TLS was set up; check that the port is that of TLS";
                    return Err(Failure::Absent(reason.to_owned()));
                }
                Ok(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        // The alert, so that the camera's log says why.
                        let _ = tls.write_tls(&mut &self.socket);
                        return Err(Failure::Refused(camera.failure(&error)));
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => events |= libc::POLLIN,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(broken(&error)),
            }
            self.wait_or_fail(events, stop, deadline)?;
        }
    }

    fn send_plain(&mut self, mut bytes: &[u8], stop: &Stop, deadline: Instant) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_or_fail(libc::POLLOUT, stop, deadline)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    /// Reads into `chunk` what has come, without waiting. After [`Received::Nothing`] alone, [`wait`](Self::wait) waits for more.
    pub fn receive(&mut self, chunk: &mut [u8]) -> Result<Received, Failure> {
        loop {
            let read = match &mut self.tls {
                None => (&self.socket).read(chunk),
                Some((tls, camera)) => match tls.reader().read(chunk) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match tls.read_tls(&mut &self.socket) {
                        Ok(_) => {
                            let processed = tls.process_new_packets();
                            // What TLS 1.3 has to say meanwhile; if the socket is full, it goes out later.
                            if tls.wants_write() {
                                let _ = tls.write_tls(&mut &self.socket);
                            }
                            processed.map_err(|error| Failure::Refused(camera.failure(&error)))?;
                            continue;
                        }
                        Err(error) => Err(error),
                    },
                    // Few cameras end TLS before they close the connection.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                    read => read,
                },
            };
            return match read {
                Ok(0) => Ok(Received::Closed),
                Ok(read) => Ok(Received::Bytes(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Received::Closed),
                Err(error) => Err(broken(&error)),
            };
        }
    }

    /// Waits for `events` of poll(2).
    pub fn wait(&self, events: i16, stop: &Stop, deadline: Instant) -> Result<Wake, Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        stop.wait_events(self.socket.as_fd(), events, Some(left)).map_err(|error| broken(&error))
    }

    fn wait_or_fail(&self, events: i16, stop: &Stop, deadline: Instant) -> Result<(), Failure> {
        match self.wait(events, stop, deadline)? {
            Wake::Ready => Ok(()),
            Wake::Stopped => Err(Failure::Stopped),
            Wake::TimedOut => Err(Failure::Absent("no answer; check the camera and the network".to_owned())),
        }
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::Absent(format!("the connection failed: {error}; check the camera and the network"))
}

fn connect(address: SocketAddr, stop: &Stop, deadline: Instant) -> Result<TcpStream, Failure> {
    let refused = |error: &io::Error| {
        Failure::Absent(format!("cannot connect to {address}: {error}; check the address and the network"))
    };
    let begin = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    let socket = begin().map_err(|error| refused(&error))?;
    let left = deadline.saturating_duration_since(Instant::now());
    match stop.wait_events(socket.as_fd(), libc::POLLOUT, Some(left)).map_err(|error| refused(&error))? {
        Wake::Ready => {}
        Wake::Stopped => return Err(Failure::Stopped),
        Wake::TimedOut => return Err(refused(&io::ErrorKind::TimedOut.into())),
    }
    match socket.take_error() {
        Ok(None) => {
            // A request is one small packet.
            let _ = socket.set_tcp_nodelay(true);
            Ok(socket.into())
        }
        Ok(Some(error)) | Err(error) => Err(refused(&error)),
    }
}

/// Returns the addresses of a URL's host, the first last. A name is looked up on a thread of its own, which nothing can stop.
fn resolve(url: &Url, stop: &Stop, deadline: Instant) -> Result<Vec<SocketAddr>, Failure> {
    let port = url.port_or_known_default().unwrap_or(80);
    let name = match url.host() {
        Some(Host::Ipv4(address)) => return Ok(vec![SocketAddr::new(IpAddr::V4(address), port)]),
        Some(Host::Ipv6(address)) => return Ok(vec![SocketAddr::new(IpAddr::V6(address), port)]),
        Some(Host::Domain(name)) => name.to_owned(),
        None => return Err(Failure::Refused("it has no host: write http://HOST/PATH in `url`".to_owned())),
    };
    let unknown = |name: &str, reason: &dyn std::fmt::Display| {
        Failure::Absent(format!("cannot resolve {name}: {reason}; check the name and the DNS server"))
    };
    let (sender, answer) = channel();
    let lookup = {
        let name = name.clone();
        move || {
            // Whoever asked may be gone.
            let _ = sender.send((name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>));
        }
    };
    thread::Builder::new().name("resolve".to_owned()).spawn(lookup).map_err(|error| unknown(&name, &error))?;
    loop {
        stop.mark_progress();
        match answer.recv_timeout(STEP) {
            Ok(Ok(mut addresses)) => {
                addresses.reverse();
                return Ok(addresses);
            }
            Ok(Err(error)) => return Err(unknown(&name, &error)),
            Err(RecvTimeoutError::Disconnected) => return Err(unknown(&name, &"the lookup failed")),
            Err(RecvTimeoutError::Timeout) if stop.is_raised() => return Err(Failure::Stopped),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                return Err(unknown(&name, &"no answer"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
