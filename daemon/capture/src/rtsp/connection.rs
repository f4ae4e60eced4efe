//! The sockets of a session: a TCP connection, in the clear or with TLS, and two UDP sockets where datagrams are asked for. None of
//! them waits.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use rustls::ClientConnection;
use socket2::SockRef;

/// The most that the kernel keeps of datagrams, if it lets us: a key frame of 4K comes at once.
const DATAGRAM_BYTES: usize = 4 << 20;

/// The most datagrams in turn of others that are passed over.
const MOST_FOREIGN: u32 = 256;

/// How many pairs of ports are tried.
const MOST_PAIRS: u32 = 64;

/// A connection with a camera.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Whether the TLS session may have bytes that were not taken yet.
    has_more: bool,
}

/// Why a connection is over.
#[derive(Debug)]
pub enum ConnectionError {
    /// The camera has closed it.
    Closed,
    Failed(io::Error),
    Tls(rustls::Error),
}

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

/// Returns `None` where a socket would have to wait.
fn unless_waiting<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Connection {
    /// Takes a socket that is connected.
    pub fn new(stream: TcpStream, tls: Option<ClientConnection>) -> Self {
        Self { stream, tls: tls.map(Box::new), has_more: false }
    }

    /// Returns the addresses of both ends.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    /// Whether TLS is still to be agreed upon.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether bytes wait to be sent in the TLS session.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Whether there is more to read although the socket may have nothing.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// Sends as much of `output` as the socket takes, and removes it from there.
    pub fn send(&mut self, output: &mut Vec<u8>) -> Result<(), ConnectionError> {
        if let Some(tls) = &mut self.tls {
            let written = tls.writer().write(output)?;
            output.drain(..written);
            while tls.wants_write() && unless_waiting(tls.write_tls(&mut self.stream))?.is_some() {}
            return Ok(());
        }
        while !output.is_empty() {
            match unless_waiting(self.stream.write(output))? {
                Some(written) => drop(output.drain(..written)),
                None => break,
            }
        }
        Ok(())
    }

    /// Reads what has come into `space`; 0 if nothing has.
    pub fn receive(&mut self, space: &mut [u8]) -> Result<usize, ConnectionError> {
        let Some(tls) = &mut self.tls else {
            return match unless_waiting(self.stream.read(space))? {
                Some(0) => Err(ConnectionError::Closed),
                received => Ok(received.unwrap_or(0)),
            };
        };
        self.has_more = true;
        loop {
            match tls.reader().read(space) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
            match unless_waiting(tls.read_tls(&mut self.stream))? {
                Some(0) => return Err(ConnectionError::Closed),
                Some(_) => {
                    let processed = tls.process_new_packets();
                    // An alert says why.
                    while tls.wants_write() && unless_waiting(tls.write_tls(&mut self.stream))?.is_some() {}
                    processed.map_err(ConnectionError::Tls)?;
                }
                None => {
                    self.has_more = false;
                    return Ok(0);
                }
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The sockets of RTP and RTCP. What does not come from the camera's own address is not read.
#[derive(Debug)]
pub struct DatagramPorts {
    pub rtp: UdpSocket,
    pub rtcp: UdpSocket,
    camera: IpAddr,
}

impl DatagramPorts {
    /// Opens a pair of ports, an even one and the next (RFC 3550 section 11), for datagrams of the camera to `own`.
    pub fn open(own: IpAddr, camera: IpAddr) -> io::Result<Self> {
        let camera = camera.to_canonical();
        let mut tries = 0;
        loop {
            let rtp = UdpSocket::bind((own, 0))?;
            let port = rtp.local_addr()?.port();
            let pair = (port % 2 == 0).then(|| UdpSocket::bind((own, port + 1)));
            tries += 1;
            match pair {
                Some(Ok(rtcp)) => {
                    rtp.set_nonblocking(true)?;
                    rtcp.set_nonblocking(true)?;
                    // The kernel gives as much as it allows.
                    let _ = SockRef::from(&rtp).set_recv_buffer_size(DATAGRAM_BYTES);
                    return Ok(Self { rtp, rtcp, camera });
                }
                Some(Err(error)) if tries > MOST_PAIRS => return Err(error),
                None if tries > MOST_PAIRS => return Err(io::Error::other("no even port is free")),
                _ => {}
            }
        }
    }

    /// Returns the port of RTP.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.rtp.local_addr()?.port())
    }

    /// Sends a datagram to each of the camera's ports, so that routers let the camera's through.
    pub fn open_way(&self, (rtp, rtcp): (u16, u16), report: &[u8]) {
        /// An RTP packet without a payload.
        const EMPTY: [u8; 12] = [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        // One that is lost is made up for by the next report.
        let _ = self.rtp.send_to(&EMPTY, (self.camera, rtp));
        self.send_report(rtcp, report);
    }

    /// Sends an RTCP packet to the camera's port.
    pub fn send_report(&self, port: u16, report: &[u8]) {
        let _ = self.rtcp.send_to(report, (self.camera, port));
    }

    /// Reads the next datagram of the camera that has come to a socket.
    pub fn receive<'b>(&self, socket: &UdpSocket, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        // Others may send without end.
        for _ in 0..MOST_FOREIGN {
            match socket.recv_from(buffer) {
                Ok((length, from)) if from.ip().to_canonical() == self.camera => return buffer.get(..length),
                Ok(_) => {}
                // The camera's port is closed: an answer to a report, no end of the video.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
        None
    }
}
