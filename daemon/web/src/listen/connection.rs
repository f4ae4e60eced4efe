//! Sockets that accept connections, and the bytes of one connection, for TCP and Unix sockets alike.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio_io_timeout::TimeoutWriter;
use visiond_config::types::Address;
use visiond_system::unix_socket::SocketFile;

use crate::status::report::HttpCounts;

/// An opened socket that is not served yet.
pub enum ListeningSocket {
    /// A TCP address.
    Tcp(std::net::TcpListener),
    /// A Unix socket, with its file if visiond created it.
    Unix(std::os::unix::net::UnixListener, Option<SocketFile>),
}

/// A connection is closed if its client reads nothing of an answer for this time, or if its machine does not answer.
const STALL: Duration = Duration::from_secs(30);
/// The kernel's buffer for answers to a slow client, in bytes; by default it grows to 4 MB. It holds a few images, so that
/// a slow client sees recent ones and none are encoded for a client that never reads. It allows 10 MB/s at a round-trip time
/// of 20 ms.
const SEND_BUFFER: usize = 208 << 10;

/// The client of a request and its connection; the connection is counted while a clone lives.
#[derive(Clone)]
pub struct Client {
    /// Where the client is.
    pub peer: Peer,
    /// Closed when the address is no longer served.
    pub ending: watch::Receiver<()>,
    /// Also held by a WebSocket after the upgrade, when hyper is done with the connection.
    pub _counted: Arc<Counted>,
}

/// Counts a connection until it is dropped.
pub struct Counted {
    http: Arc<HttpCounts<AtomicU64>>,
    kind: Arc<AtomicU64>,
}

impl Counted {
    /// Counts a connection, in total and by kind, unless `limit` of its kind are open.
    pub fn new(http: &Arc<HttpCounts<AtomicU64>>, kind: &Arc<AtomicU64>, limit: u64) -> Option<Arc<Self>> {
        let open = kind.fetch_add(1, Ordering::Relaxed) + 1;
        http.connections.fetch_add(1, Ordering::Relaxed);
        let counted = Self { http: Arc::clone(http), kind: Arc::clone(kind) };
        (open <= limit).then(|| Arc::new(counted))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.kind.fetch_sub(1, Ordering::Relaxed);
        self.http.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The location of a connection's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A process on this machine that the socket's permissions admit.
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
    /// Registers the socket with the runtime; also returns the file that must be removed with it.
    pub fn new(opened: ListeningSocket) -> io::Result<(Self, Option<SocketFile>)> {
        Ok(match opened {
            ListeningSocket::Tcp(listener) => {
                let socket = SockRef::from(&listener);
                let probes = TcpKeepalive::new().with_time(STALL / 2).with_interval(STALL / 6);
                // Connections inherit these options; if one fails, they are served anyway.
                let _ = socket.set_send_buffer_size(SEND_BUFFER);
                let _ = socket.set_tcp_keepalive(&probes);
                let _ = socket.set_tcp_user_timeout(Some(STALL));
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
                // Messages are small and urgent. This fails only if the connection is already closed.
                let _ = socket.set_nodelay(true);
                (Box::new(socket) as Box<dyn Socket>, Peer::Tcp(peer))
            }
            Self::Unix(listener) => (Box::new(listener.accept().await?.0) as _, Peer::Unix),
        };
        Ok((limited(socket), peer))
    }
}

/// Returns the connection of a socket.
pub fn limited(socket: Box<dyn Socket>) -> Connection {
    let mut connection = TimeoutWriter::new(socket);
    connection.set_timeout(Some(STALL));
    Box::pin(connection)
}

/// The bytes of a TCP or Unix socket.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection; its writes fail if the client reads nothing for [`STALL`].
pub type Connection = Pin<Box<TimeoutWriter<Box<dyn Socket>>>>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn a_machine_that_is_gone_is_noticed_though_nothing_is_sent() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, accepting) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        listener.set_nonblocking(true).unwrap();
        let _listener = runtime.block_on(async { Listener::new(ListeningSocket::Tcp(listener)).unwrap() });
        let _client = std::net::TcpStream::connect(address).unwrap();
        accepting.set_nonblocking(false).unwrap();
        let (accepted, _) = accepting.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
    }

    #[test]
    fn an_address_is_shown_with_the_port_that_the_system_chose() {
        let folder = tempfile::tempdir().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let unix = std::os::unix::net::UnixListener::bind(folder.path().join("a.sock")).unwrap();
        let port = tcp.local_addr().unwrap().port();
        tcp.set_nonblocking(true).unwrap();
        unix.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let shown = |socket, address: &Address| Listener::new(socket).unwrap().0.shown(address);
        let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
        assert_eq!(shown(ListeningSocket::Tcp(tcp), &any), format!("http://127.0.0.1:{port}"));
        let path = Address::Unix("/run/visiond/http.sock".into());
        assert_eq!(shown(ListeningSocket::Unix(unix, None), &path), path.to_string());
    }

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
