//! Sockets that accept connections, and the bytes of one connection, for TCP and Unix sockets alike.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio_io_timeout::TimeoutWriter;
use visiond_config::types::Address;
use visiond_system::unix_socket::SocketFile;

/// An opened socket that is not served yet.
pub enum ListeningSocket {
    /// A TCP address.
    Tcp(std::net::TcpListener),
    /// A Unix socket, with its file if visiond created it.
    Unix(std::os::unix::net::UnixListener, Option<SocketFile>),
}

/// A connection is closed if its client reads nothing of an answer for this time.
const STALL: Duration = Duration::from_secs(30);
/// The kernel's buffer for answers to a slow client, in bytes; by default it grows to 4 MB. It holds a few pictures, so that a
/// slow client sees recent ones and none are made for a client that never reads, and gives 10 MB/s at 20 ms.
const SEND_BUFFER: usize = 208 << 10;

/// The client of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine that the socket's permissions let in.
    Unix,
    /// A client that can reach the TCP address.
    Tcp(SocketAddr),
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix => f.write_str("a process of this machine"),
            Self::Tcp(address) => address.ip().fmt(f),
        }
    }
}

/// A socket that accepts connections.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Registers the socket with the runtime; also returns the file that has to be removed with it.
    pub fn new(opened: ListeningSocket) -> io::Result<(Self, Option<SocketFile>)> {
        Ok(match opened {
            ListeningSocket::Tcp(listener) => {
                // Connections inherit it; if it fails, they are served all the same.
                let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
                (Self::Tcp(TcpListener::from_std(listener)?), None)
            }
            ListeningSocket::Unix(listener, file) => (Self::Unix(UnixListener::from_std(listener)?), file),
        })
    }

    /// Returns `address` as clients use it: with the port that the system chose.
    pub fn shown(&self, address: &Address) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| address.to_string(), |a| format!("http://{a}"))
            }
            Self::Unix(_) => address.to_string(),
        }
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<(Connection, Peer)> {
        let (socket, peer) = match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                // Messages are small and urgent. This fails only if the connection is closed already.
                let _ = socket.set_nodelay(true);
                (Box::new(socket) as Box<dyn Socket>, Peer::Tcp(peer))
            }
            Self::Unix(listener) => (Box::new(listener.accept().await?.0) as _, Peer::Unix),
        };
        let mut connection = TimeoutWriter::new(socket);
        connection.set_timeout(Some(STALL));
        Ok((Box::pin(connection), peer))
    }
}

/// The bytes of a TCP or Unix socket.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection; its writes fail if the client reads nothing for [`STALL`].
pub type Connection = Pin<Box<TimeoutWriter<Box<dyn Socket>>>>;

/// Answers that all connections are taken, and closes the connection.
pub async fn refuse(mut connection: Connection) {
    // Reads the request first: closing a socket with unread bytes discards the answer.
    let _ = connection.read(&mut [0; 4096]).await;
    let body = r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"all connections are taken: try again later, or raise http.max_connections"}"#;
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close";
    let answer = format!("{head}\r\nRetry-After: 5\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let _ = connection.write_all(answer.as_bytes()).await;
    let _ = connection.shutdown().await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn little_is_held_for_a_client_that_does_not_read() {
        let held = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let (listener, _) = Listener::new(ListeningSocket::Tcp(listener)).unwrap();
            let _reader = std::net::TcpStream::connect(address).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut held = 0;
            while let Ok(written) = tokio::time::timeout(Duration::from_millis(200), stream.write(&[0; 1 << 14])).await
            {
                held += written.unwrap();
            }
            held
        });
        assert!((64 << 10..1 << 20).contains(&held), "{held} bytes");
    }
}
