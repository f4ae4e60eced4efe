//! The HTTP server without a socket, for `tests/fuzz`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::watch;
use tokio::time::timeout;
use visiond_system::credentials::Secret;

use crate::guard::{Guard, Rules};
use crate::listen::Acceptors;
use crate::listen::connection::Peer;
use crate::routes;
use crate::state::AppState;

/// Longer than every limit of a connection. Time is simulated, so this passes at once.
const PATIENCE: Duration = Duration::from_secs(300);

/// The HTTP server.
pub struct MemoryServer(Acceptors);

impl MemoryServer {
    /// Creates the server; with a token, clients from the network must send it.
    pub fn new(state: &AppState, token: Option<&Secret>) -> Self {
        let guard = Guard::new(&state.status.http);
        guard.enforce(Rules::new(token, &["camera.example".to_owned()]));
        Self(Acceptors::new(routes::router(state.clone(), &guard), Arc::clone(&state.status)))
    }

    /// Returns the answer to a client that sends `bytes` and then waits until the server closes the connection.
    ///
    /// Needs a runtime with one thread whose clock is paused.
    pub async fn answer(&self, bytes: &[u8], is_remote: bool) -> Vec<u8> {
        let (ours, mut theirs) = duplex(1 << 20);
        let peer = if is_remote { Peer::Tcp(SocketAddr::from(([192, 0, 2, 1], 4711))) } else { Peer::Unix };
        // The address is served until this is dropped.
        let (_serving, ending) = watch::channel(());
        self.0.serve_one(ours, peer, ending);
        let mut answer = Vec::new();
        let talk = async {
            // The server may close the connection before it has read everything.
            let _ = theirs.write_all(bytes).await;
            let _ = theirs.read_to_end(&mut answer).await;
        };
        let _ = timeout(PATIENCE, talk).await;
        answer
    }
}
