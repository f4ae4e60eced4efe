//! Loopback ports that are reserved for a test.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

/// A port that the kernel assigns to no other process, even while no server listens there: a killed server can restart on it,
/// and until then connections are refused.
///
/// A socket that is bound but does not listen reserves it. Servers that set SO_REUSEADDR, as Mosquitto and nats-server do,
/// may listen beside it.
#[derive(Debug)]
pub struct Port {
    /// Reserved until this value is dropped.
    pub number: u16,
    _held: Socket,
}

impl Port {
    /// Takes a free one.
    pub fn reserve() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("SO_REUSEADDR");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        Self { number: address.expect("an address").port(), _held: socket }
    }
}
