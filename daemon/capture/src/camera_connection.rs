//! A TCP connection with a camera, in the clear or with TLS. Nothing here waits: the caller polls its socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use socket2::{Domain, Protocol, Socket, Type};
use url::Url;

use super::camera_tls::{CameraTls, NO_TLS};
use super::source::SourceError;

/// How often in a row to read a TLS session that may hold no more bytes.
const MOST_RECORDS: u32 = 64;

/// How long a camera may take to answer the first TLS message. A camera without TLS on that port may never answer.
const TLS_ANSWER_WAIT: Duration = Duration::from_secs(5);

/// A host name that is being resolved, on its own thread because that may take long and must not delay the end of the source.
#[derive(Debug)]
pub struct Lookup {
    answer: Receiver<io::Result<Vec<SocketAddr>>>,
}

impl Lookup {
    /// Starts to resolve the host of a camera's URL, with the default port if the URL has none. An IP address is ready at once.
    pub fn of(url: &Url) -> Self {
        // In a URL, an IPv6 address has brackets.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(if url.scheme() == "rtsps" { 322 } else { 554 });
        let (tell, answer) = mpsc::channel();
        if let Ok(address) = host.parse::<IpAddr>() {
            let _ = tell.send(Ok(vec![SocketAddr::new(address, port)]));
            return Self { answer };
        }
        let resolve = move || {
            // The receiver may be gone.
            let _ = tell.send((host.as_str(), port).to_socket_addrs().map(Iterator::collect));
        };
        // Without a thread, the sender is dropped.
        if let Err(error) = thread::Builder::new().name("resolve".to_owned()).spawn(resolve) {
            log::debug!("cannot start a thread that resolves a name: {error}");
        }
        Self { answer }
    }

    /// Returns the addresses once they are known.
    pub fn answer(&self) -> Option<io::Result<Vec<SocketAddr>>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(io::Error::other("cannot start a thread"))),
        }
    }
}

/// Starts a connection without waiting for it: it has succeeded or failed once the socket is writable.
pub fn begin_connection(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Err(error) if !is_under_way(&error) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn is_under_way(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS) || error.kind() == io::ErrorKind::WouldBlock
}

/// Returns whether a connection that was started is established; `None` while that is not known.
pub fn connection_result(stream: &TcpStream) -> Option<io::Result<()>> {
    match stream.take_error() {
        Err(error) | Ok(Some(error)) => Some(Err(error)),
        Ok(None) => match stream.peer_addr() {
            Ok(_) => Some(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => Some(Err(error)),
        },
    }
}

/// A TCP connection with a camera, with or without TLS.
#[derive(Debug)]
pub struct CameraConnection {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    /// Whether the TLS session may hold bytes that were not read yet.
    has_more: bool,
}

/// The TLS state of a connection.
#[derive(Debug)]
struct TlsSession {
    session: ClientConnection,
    /// Explains why a handshake fails.
    camera: Arc<CameraTls>,
    /// Until when the camera must have answered; `None` once it has.
    answer_deadline: Option<Instant>,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum ConnectionError {
    /// The camera has closed it.
    Closed,
    /// The network failed.
    Failed(io::Error),
    /// One side refused the TLS handshake, for this reason.
    Tls(String),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Returns `None` where the socket would block.
fn unless_waiting<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

impl CameraConnection {
    /// Takes a connected socket and starts the TLS handshake.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(stream: TcpStream, tls: Option<Arc<CameraTls>>) -> Result<Self, SourceError> {
        let answer_deadline = Some(Instant::now() + TLS_ANSWER_WAIT);
        let session = |camera: Arc<CameraTls>| {
            Ok(Box::new(TlsSession { session: camera.connection()?, camera, answer_deadline }))
        };
        Ok(Self { stream, tls: tls.map(session).transpose()?, has_more: false })
    }

    /// Returns the addresses of both ends.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    /// Whether the TLS handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking())
    }

    /// The deadline for the camera's answer to the first TLS message, after which [`send`](Self::send) fails; `None` once it
    /// has arrived.
    pub fn answer_deadline(&self) -> Option<Instant> {
        self.tls.as_ref()?.answer_deadline
    }

    /// Whether the TLS session holds bytes to send.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.wants_write())
    }

    /// Whether there is more to read even if the socket is not readable.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Sends as much of `output` as the socket accepts, and removes it from there. With TLS, the rest may stay in the session: see
    /// [`wants_write`](Self::wants_write).
    pub fn send(&mut self, output: &mut Vec<u8>) -> Result<(), ConnectionError> {
        if let Some(tls) = &mut self.tls {
            if tls.answer_deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                // Bytes that arrived and were not read yet are an answer.
                tls.read_from(&mut self.stream)?;
                if tls.answer_deadline.is_some() {
                    // A camera that hangs does the same, so this does not count as a refusal.
                    return Err(ConnectionError::Failed(io::Error::new(ErrorKind::TimedOut, NO_TLS)));
                }
            }
            if !output.is_empty() {
                let written = tls.session.writer().write(output)?;
                output.drain(..written);
            }
            return Ok(tls.write_to(&mut self.stream)?);
        }
        while !output.is_empty() {
            match unless_waiting(self.stream.write(output))? {
                Some(written) => drop(output.drain(..written)),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads the bytes that have arrived into `space`; 0 if there are none.
    pub fn receive(&mut self, space: &mut [u8]) -> Result<usize, ConnectionError> {
        let Some(tls) = &mut self.tls else {
            return match unless_waiting(self.stream.read(space))? {
                Some(0) => Err(ConnectionError::Closed),
                received => Ok(received.unwrap_or(0)),
            };
        };
        // Bounded, because a camera may send records without content forever.
        for _ in 0..MOST_RECORDS {
            match tls.session.reader().read(space) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(received) => {
                    self.has_more = true;
                    return Ok(received);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            if !tls.read_from(&mut self.stream)? {
                self.has_more = false;
                return Ok(0);
            }
        }
        self.has_more = true;
        Ok(0)
    }

    /// Continues the TLS handshake with the bytes that have arrived.
    pub fn shake_hands(&mut self) -> Result<(), ConnectionError> {
        match &mut self.tls {
            Some(tls) if tls.session.is_handshaking() => tls.read_from(&mut self.stream).map(drop),
            _ => Ok(()),
        }
    }
}

impl TlsSession {
    /// Reads the records that have arrived; returns whether there were any.
    fn read_from(&mut self, stream: &mut TcpStream) -> Result<bool, ConnectionError> {
        match unless_waiting(self.session.read_tls(stream))? {
            // Few cameras close the TLS session before the connection.
            Some(0) => return Err(ConnectionError::Closed),
            Some(_) => self.answer_deadline = None,
            None => return Ok(false),
        }
        let processed = self.session.process_new_packets();
        // Send the alert as well, so that the camera's log shows the reason.
        let written = self.write_to(stream);
        processed.map_err(|error| ConnectionError::Tls(self.camera.failure(&error)))?;
        written?;
        Ok(true)
    }

    fn write_to(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        while self.session.wants_write() && unless_waiting(self.session.write_tls(stream))?.is_some() {}
        Ok(())
    }
}

impl AsFd for CameraConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
