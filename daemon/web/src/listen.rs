//! Addresses, sockets, connections and their limits.
//!
//! A connection has so long to say what it wants, and so long to take what it asked for; what it sends is bounded. Who
//! keeps a connection open without a word is cut off, and who comes when all are taken is told so at once.

pub mod connection;

use std::env;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use visiond_config::is_loopback;
use visiond_config::types::{Address, HttpConfig};
use visiond_service::HttpError;
use visiond_system::credentials::Token;
use visiond_system::systemd;
use visiond_system::unix_socket::{self, SocketFile};

use self::connection::{Connection, Listener, ListeningSocket, Peer};
use crate::descriptor_limit;
use crate::guard::Rules;
use crate::status::StatusCollector;

/// From a connection's begin, or an answer's end, to the end of the next request's head.
const HEAD: Duration = Duration::from_secs(15);
/// Bytes of a request's head at most.
const HEAD_BYTES: usize = 32 << 10;
/// Nobody is let in for so long after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// Who is turned away while so many are being told so is not told.
const REFUSALS: usize = 32;

/// A endpoint that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    address: Address,
    /// systemd made its socket, and keeps it.
    passed: bool,
}

/// What is to be served, opened and not yet served.
pub struct PreparedListeners {
    /// With a socket where it is not served yet.
    endpoints: Vec<(Endpoint, Option<ListeningSocket>)>,
    socket_mode: u32,
    max_connections: usize,
    max_fps: f64,
    rules: Rules,
}

impl PreparedListeners {
    /// Opens what `config` asks for, and what systemd hands over, as far as it is not among `served`.
    pub fn new(config: &HttpConfig, served: &[Endpoint]) -> Result<Self, HttpError> {
        let token = config.token.as_deref().map(Token::read).transpose()?;
        let mut endpoints: Vec<(Endpoint, Option<ListeningSocket>)> = Vec::new();
        for socket in systemd::passed_sockets() {
            let (address, opened) = passed(socket)?;
            endpoints.push((Endpoint { address, passed: true }, Some(opened)));
        }
        endpoints.extend(served.iter().filter(|endpoint| endpoint.passed).map(|endpoint| (endpoint.clone(), None)));
        for (Endpoint { address, .. }, _) in &endpoints {
            if token.is_none() && matches!(address, Address::Tcp(tcp) if !is_loopback(tcp.ip())) {
                return Err(HttpError::NoToken(address.clone()));
            }
        }
        for address in addresses(config) {
            if endpoints.iter().any(|(endpoint, _)| endpoint.passed && endpoint.address == address) {
                continue;
            }
            let endpoint = Endpoint { address, passed: false };
            let socket =
                if served.contains(&endpoint) { None } else { Some(open(&endpoint.address, config.socket_mode)?) };
            endpoints.push((endpoint, socket));
        }
        descriptor_limit::raise_for(config);
        let rules = Rules::new(token.as_ref(), &config.allow_hosts);
        let HttpConfig { socket_mode, max_connections, max_fps, .. } = *config;
        Ok(Self { endpoints, socket_mode, max_connections, max_fps, rules })
    }

    /// What will be served.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.iter().map(|(endpoint, _)| endpoint.clone()).collect()
    }

    /// What will be asked of whoever comes.
    pub fn rules(&self) -> Rules {
        self.rules.clone()
    }

    /// Pictures a second of a camera.
    pub fn max_fps(&self) -> f64 {
        self.max_fps
    }
}

/// A socket of systemd's, with its address.
fn passed(socket: OwnedFd) -> Result<(Address, ListeningSocket), HttpError> {
    let fail = HttpError::PassedSocket;
    let tcp = TcpListener::from(socket);
    if let Ok(address) = tcp.local_addr() {
        tcp.set_nonblocking(true).map_err(fail)?;
        return Ok((Address::Tcp(address), ListeningSocket::Tcp(tcp)));
    }
    let unix = UnixListener::from(OwnedFd::from(tcp));
    let address = unix.local_addr().map_err(fail)?;
    unix.set_nonblocking(true).map_err(fail)?;
    let path = address.as_pathname().unwrap_or(Path::new("without a path")).to_owned();
    Ok((Address::Unix(path), ListeningSocket::Unix(unix, None)))
}

/// What the configuration says, or what goes without saying.
fn addresses(config: &HttpConfig) -> Vec<Address> {
    if !config.listen.is_empty() {
        return config.listen.clone();
    }
    // systemd separates several by colons; ours is the first.
    let folders = env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    let folder = folders.to_string_lossy().split(':').next().map(PathBuf::from);
    folder
        .filter(|folder| folder.is_absolute())
        .map(|folder| Address::Unix(folder.join("http.sock")))
        .into_iter()
        .collect()
}

fn open(address: &Address, socket_mode: u32) -> Result<ListeningSocket, HttpError> {
    match address {
        Address::Unix(path) => {
            let opened = unix_socket::bind(path, socket_mode).map_err(|error| HttpError::UnixSocket(error.to_string()));
            opened.map(|(listener, file)| ListeningSocket::Unix(listener, Some(file)))
        }
        Address::Tcp(tcp) => {
            let opened = TcpListener::bind(tcp).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(ListeningSocket::Tcp(listener))
            });
            opened.map_err(|error| HttpError::Bind { address: address.clone(), error })
        }
    }
}

/// Everything that accepts connections, and the connections.
pub struct Acceptors {
    serving: Vec<(Endpoint, AbortHandle, Option<Arc<SocketFile>>)>,
    tasks: JoinSet<()>,
    connections: Arc<Connections>,
    ending: watch::Sender<bool>,
}

/// What connections share.
struct Connections {
    router: TowerToHyperService<Router>,
    observer: Arc<StatusCollector>,
    limit: AtomicUsize,
    refusing: AtomicUsize,
    ending: watch::Receiver<bool>,
}

impl Acceptors {
    /// Nothing is served yet.
    pub fn new(router: Router, observer: Arc<StatusCollector>) -> Self {
        let (ending, ends) = watch::channel(false);
        let connections = Connections {
            router: TowerToHyperService::new(router),
            observer,
            limit: AtomicUsize::new(0),
            refusing: AtomicUsize::new(0),
            ending: ends,
        };
        Self { serving: Vec::new(), tasks: JoinSet::new(), connections: Arc::new(connections), ending }
    }

    /// Serves what was prepared, and nothing else from now on.
    pub fn serve(&mut self, prepared: PreparedListeners) {
        self.connections.limit.store(prepared.max_connections, Ordering::Relaxed);
        self.serving.retain(|(endpoint, task, _)| {
            let stays = prepared.endpoints.iter().any(|(other, _)| other == endpoint);
            if !stays {
                task.abort();
                log::info!("http: {} is no longer served", endpoint.address);
            }
            stays
        });
        for (_, _, file) in &self.serving {
            if let Some(Err(error)) = file.as_deref().map(|file| file.set_mode(prepared.socket_mode)) {
                log::error!("http: who may connect cannot be changed: {error}");
            }
        }
        for (endpoint, socket) in prepared.endpoints {
            let Some(socket) = socket else { continue };
            match Listener::new(socket) {
                Ok((listener, file)) => {
                    log::info!("http: serving at {}", listener.shown(&endpoint.address));
                    let file = file.map(Arc::new);
                    let task = self.tasks.spawn(accept(listener, file.clone(), Arc::clone(&self.connections)));
                    self.serving.push((endpoint, task, file));
                }
                Err(error) => log::error!("http: {} cannot be served: {error}", endpoint.address),
            }
        }
    }

    /// Lets nobody in any more; who is in has `grace` to end.
    pub async fn end(mut self, grace: Duration) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.serving.clear();
        let _ = self.ending.send(true);
        let observer = Arc::clone(&self.connections.observer);
        let all_gone = async {
            while observer.http.connections.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // Who does not end is cut off with the runtime.
        let _ = timeout(grace, all_gone).await;
    }
}

/// Lets connections in, for as long as the task lives. `_file` is removed with it.
async fn accept(listener: Listener, _file: Option<Arc<SocketFile>>, connections: Arc<Connections>) {
    let mut complained = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                complained = false;
                connections.let_in(stream, peer);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    log::error!("http: nobody can be let in for the moment: {error}");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One of the connections, counted as long as it lives.
struct Counted(Arc<Connections>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.observer.http.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    fn let_in(self: &Arc<Self>, stream: Connection, peer: Peer) {
        let open = self.observer.http.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let counted = Counted(Arc::clone(self));
        if open > self.limit.load(Ordering::Relaxed) as u64 {
            self.observer.http.refused.fetch_add(1, Ordering::Relaxed);
            drop(counted);
            self.turn_away(stream);
            return;
        }
        self.observer.http.accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connection(counted, stream, peer));
    }

    /// Says that there are too many, where few enough are being told so.
    fn turn_away(self: &Arc<Self>, stream: Connection) {
        let this = Arc::clone(self);
        if this.refusing.fetch_add(1, Ordering::Relaxed) >= REFUSALS {
            this.refusing.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        tokio::spawn(async move {
            let _ = timeout(Duration::from_secs(1), stream.refuse()).await;
            this.refusing.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn connection(counted: Counted, stream: Connection, peer: Peer) {
    let shared = Arc::clone(&counted.0);
    let mut ending = shared.ending.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let (router, observer) = (shared.router.clone(), Arc::clone(&shared.observer));
        async move {
            let answer = AssertUnwindSafe(async move { router.call(request).await }).catch_unwind().await;
            // The router has no errors; a panic was logged by the hook.
            let answer: Response<Body> = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(never)) => match never {},
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            };
            observer.http.answered(answer.status().as_u16());
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // Whatever was wrong with it, it is over, and nobody but the other side can do anything about it.
    tokio::select! {
        _ = &mut connection => return,
        _ = ending.wait_for(|ending| *ending) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
