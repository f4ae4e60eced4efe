//! One connection's bytes, of either kind of socket.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Sleep, sleep};
use visiond_config::types::Address;
use visiond_system::unix_socket::SocketFile;

/// A socket that waits for connections.
pub enum ListeningSocket {
    /// A TCP address.
    Tcp(std::net::TcpListener),
    /// A Unix socket, with its file if visiond made it.
    Unix(std::os::unix::net::UnixListener, Option<SocketFile>),
}

/// Who takes nothing for so long of what it asked for is cut off.
const STALL: Duration = Duration::from_secs(30);
/// What the kernel may hold of answers for who reads slowly, bytes; by itself it grows that to 4 MB. It is a few pictures, so
/// that who watches through a thin wire sees what is, and who never reads has no more made for him; and 10 MB/s at 20 ms.
const SEND_BUFFER: usize = 208 << 10;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine that the socket's permissions let in.
    Unix,
    /// Anybody who reaches the address.
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

/// A socket that connections come from.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Waits on the socket; the file that is to be removed with it.
    pub fn new(opened: ListeningSocket) -> io::Result<(Self, Option<SocketFile>)> {
        Ok(match opened {
            ListeningSocket::Tcp(listener) => {
                // Its connections have it from there; without it they are served as well.
                let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
                (Self::Tcp(TcpListener::from_std(listener)?), None)
            }
            ListeningSocket::Unix(listener, file) => (Self::Unix(UnixListener::from_std(listener)?), file),
        })
    }

    /// `address` as it can be asked for: with the port that the system chose.
    pub fn shown(&self, address: &Address) -> String {
        match self {
            Self::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| address.to_string(), |a| format!("http://{a}"))
            }
            Self::Unix(_) => address.to_string(),
        }
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<(Connection, Peer)> {
        let (socket, peer) = match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept().await?;
                // Messages are small and are wanted now. One that is closed already fails here, and soon anyway.
                let _ = socket.set_nodelay(true);
                (Box::new(socket) as Box<dyn Socket>, Peer::Tcp(peer))
            }
            Self::Unix(listener) => (Box::new(listener.accept().await?.0) as _, Peer::Unix),
        };
        Ok((Connection { socket, stalled: None }, peer))
    }
}

/// The bytes of either kind of socket.
trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that gives up on who does not read.
pub struct Connection {
    socket: Box<dyn Socket>,
    /// Runs while the other side takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    /// Says that all connections are taken.
    pub async fn refuse(mut self) {
        // First the request: closing with bytes unread would take the answer away from who sent them.
        let _ = self.read(&mut [0; 4096]).await;
        let _ = self.write_all(&full()).await;
        let _ = self.shutdown().await;
    }

    /// What a write came to; an error when the other side has taken nothing for too long.
    fn patient(&mut self, written: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().socket).poll_read(context, to)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut *this.socket).poll_write(context, bytes);
        this.patient(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut *this.socket).poll_write_vectored(context, parts);
        this.patient(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().socket).poll_shutdown(context)
    }
}

/// The answer of a server without a connection to spare.
fn full() -> Vec<u8> {
    let body = r#"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"all connections are taken: come again, or raise http.max_connections"}"#;
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close";
    format!("{head}\r\nRetry-After: 5\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn for_who_does_not_read_little_is_held() {
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
