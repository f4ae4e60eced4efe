//! Addresses, sockets, connections and their limits.
//!
//! A client has a limited time to send a request and to read the answer, and a request has a limited size. An idle connection is
//! closed. TCP and Unix sockets each have `max_connections`, so that clients from the network cannot keep out those of the
//! machine. A client that connects when all are taken gets an error, or the daemon's health if it requested that.

pub mod connection;

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::http::header::RETRY_AFTER;
use axum::http::{Request, Response, StatusCode};
use axum::response::IntoResponse;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use visiond_config::is_loopback;
use visiond_config::types::{Address, HttpConfig};
use visiond_service::HttpError;
use visiond_system::backoff::RateLimit;
use visiond_system::credentials::Secret;
use visiond_system::systemd;
use visiond_system::unix_socket::{self, SocketFile};

use self::connection::{Client, Connection, Counted, Listener, ListeningSocket, Peer};
use crate::errors::Problem;
use crate::guard::{Rules, is_health};
use crate::status::StatusCollector;

/// Time for the head of a request, from the connection or the end of the last answer.
const HEAD: Duration = Duration::from_secs(15);
/// How many connections may wait to be accepted, the same as in the standard library.
const BACKLOG: i32 = 128;
/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 32 << 10;
/// Pause before the next accept after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// The shortest time between two log lines about that. Each connection that ends lets one in, and then the next error
/// follows.
const ACCEPT_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The most files that the daemon itself opens: cameras, files, sinks, libraries.
const OWN_DESCRIPTORS: u64 = 512;
/// How many clients at a time are answered when all connections are taken; further ones are closed without an answer.
const SPARE: u64 = 32;
/// Time for such a client to send its request and to read the answer.
const SPARE_TIME: Duration = Duration::from_secs(3);

/// An address that is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    address: Address,
    /// Whether systemd opened the socket, and keeps it.
    passed: bool,
}

/// The listeners of a configuration, opened and not served yet.
pub struct PreparedListeners {
    /// Each with its socket, unless it is already served.
    endpoints: Vec<(Endpoint, Option<ListeningSocket>)>,
    /// Why the user's own socket, the default of a daemon started by hand, cannot be opened: a sentence for the log.
    no_user_socket: Option<String>,
    socket_mode: u32,
    max_connections: usize,
    /// The maximum number of images per second of a camera.
    pub(crate) max_fps: f64,
    /// The proof that clients must give.
    pub(crate) rules: Rules,
}

impl PreparedListeners {
    /// Opens the addresses of `config` and takes the sockets that systemd passes, except those in `served`.
    pub fn new(config: &HttpConfig, served: &[Endpoint]) -> Result<Self, HttpError> {
        let token = config.token.as_deref().map(Secret::read_token).transpose()?;
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
        let mut no_user_socket = None;
        if endpoints.is_empty()
            && let Some(path) = user_socket()
        {
            let endpoint = Endpoint { address: Address::Unix(path.clone()), passed: false };
            let socket = match served.contains(&endpoint) {
                true => Ok(None),
                false => open_for_user(&path, config.socket_mode).map(Some),
            };
            match socket {
                Ok(socket) => endpoints.push((endpoint, socket)),
                // This is not an error: the user did not configure this socket, and another daemon of theirs may have it.
                Err(error) => no_user_socket = Some(error),
            }
        }
        raise_descriptor_limit(config);
        let rules = Rules::new(token.as_ref(), &config.allow_hosts);
        let HttpConfig { socket_mode, max_connections, max_fps, .. } = *config;
        Ok(Self { endpoints, no_user_socket, socket_mode, max_connections, max_fps, rules })
    }

    /// Returns the addresses that will be served.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.iter().map(|(endpoint, _)| endpoint.clone()).collect()
    }
}

/// Raises the process's limit of open files to what `max_connections` and the daemon itself need, so that a camera can always be
/// reopened; logs a warning if the system does not allow it.
fn raise_descriptor_limit(config: &HttpConfig) {
    let needed = 2 * config.max_connections as u64 + SPARE + OWN_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(needed.min(allowed)), ..limit });
    if raised.is_err() || allowed < needed {
        log::warn!(
            "http: {} connections over TCP, as many over Unix sockets, and the daemon need {needed} file descriptors, but \
             the process may have {allowed}: raise LimitNOFILE= in the unit (`ulimit -Hn` in a shell), or lower max_connections",
            config.max_connections
        );
    }
}

/// Returns the address of a socket that systemd passes, and the socket.
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

/// Returns the configured addresses, or the default one of a service.
fn addresses(config: &HttpConfig) -> Vec<Address> {
    if !config.listen.is_empty() {
        return config.listen.clone();
    }
    // systemd separates several values with colons; ours is the first.
    let folders = env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    let folder = folders.to_string_lossy().split(':').next().map(PathBuf::from);
    folder
        .filter(|folder| folder.is_absolute())
        .map(|folder| Address::Unix(folder.join("http.sock")))
        .into_iter()
        .collect()
}

/// Returns the path of the socket on which this user's daemon listens by default: `visiond/http.sock` in `$XDG_RUNTIME_DIR`.
///
/// `None` if that is not a folder of this user, or if other users may write to it.
pub fn user_socket() -> Option<PathBuf> {
    let folder = PathBuf::from(env::var_os("XDG_RUNTIME_DIR")?);
    let found = fs::metadata(&folder).ok().filter(|_| folder.is_absolute())?;
    let is_private = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    is_private.then(|| folder.join("visiond/http.sock"))
}

/// Opens the user's socket in its folder, which only the user may enter. The error is a sentence for the log.
fn open_for_user(path: &Path, socket_mode: u32) -> Result<ListeningSocket, String> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let set_up = || -> io::Result<OwnedFd> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        // Not through a link, which would change the mode of another folder.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty())?;
        fchmod(&opened, Mode::RWXU)?;
        Ok(opened)
    };
    let opened = set_up().map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            format!("{} is a file or a link: remove it", folder.display())
        }
        _ => format!("cannot set up {}: {error}", folder.display()),
    })?;
    // Without the lock, when two daemons replace a stale socket at the same time, one could remove the other's new socket.
    flock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => format!("another daemon of this user is starting: it has locked {}", folder.display()),
        error => format!("cannot lock {}: {error}", folder.display()),
    })?;
    let (listener, file) = unix_socket::bind(path, socket_mode).map_err(|error| error.to_string())?;
    Ok(ListeningSocket::Unix(listener, Some(file)))
}

fn open(address: &Address, socket_mode: u32) -> Result<ListeningSocket, HttpError> {
    match address {
        Address::Unix(path) => {
            let (listener, file) = unix_socket::bind(path, socket_mode)?;
            Ok(ListeningSocket::Unix(listener, Some(file)))
        }
        Address::Tcp(tcp) => {
            let opened = bind(*tcp).and_then(|socket| {
                socket.listen(BACKLOG)?;
                socket.set_nonblocking(true)?;
                Ok(ListeningSocket::Tcp(socket.into()))
            });
            opened.map_err(|error| HttpError::Bind { address: address.clone(), error })
        }
    }
}

/// Binds a TCP socket, which does not listen yet and so does not block the address.
fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of an earlier run that linger in the kernel do not block the address.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Returns the reasons why [`PreparedListeners::new`] would reject `config`, each with its address. Listens nowhere and
/// connects to nothing.
///
/// Sockets that systemd passes are not checked.
pub fn check(config: &HttpConfig) -> Vec<(Option<Address>, HttpError)> {
    let token = config.token.as_deref().and_then(|token| Secret::read_token(token).err());
    let refused = addresses(config).into_iter().filter_map(|address| {
        let checked = match &address {
            Address::Unix(path) => unix_socket::check(path).map_err(HttpError::from),
            Address::Tcp(tcp) => {
                bind(*tcp).map(drop).map_err(|error| HttpError::Bind { address: address.clone(), error })
            }
        };
        checked.err().map(|error| (Some(address), error))
    });
    token.map(|error| (None, error.into())).into_iter().chain(refused).collect()
}

/// The listeners that are served, and their connections.
pub struct Acceptors {
    serving: Vec<Serving>,
    tasks: JoinSet<()>,
    connections: Arc<Connections>,
}

/// A listener that is served.
struct Serving {
    endpoint: Endpoint,
    task: AbortHandle,
    file: Option<Arc<SocketFile>>,
    /// Dropped to end the listener's connections.
    _open: watch::Sender<()>,
}

/// The state that all connections share.
struct Connections {
    router: TowerToHyperService<Router>,
    status: Arc<StatusCollector>,
    /// `max_connections`, for each kind of socket.
    limit: AtomicU64,
    tcp: Arc<AtomicU64>,
    unix: Arc<AtomicU64>,
    /// Clients for which no connection was left.
    spare: Arc<AtomicU64>,
}

impl Acceptors {
    /// Creates it without listeners.
    pub fn new(router: Router, status: Arc<StatusCollector>) -> Self {
        let connections = Connections {
            router: TowerToHyperService::new(router),
            status,
            limit: AtomicU64::new(0),
            tcp: Arc::default(),
            unix: Arc::default(),
            spare: Arc::default(),
        };
        Self { serving: Vec::new(), tasks: JoinSet::new(), connections: Arc::new(connections) }
    }

    /// Serves a client that has no socket.
    #[cfg(feature = "fuzz")]
    pub fn serve_one(&self, stream: impl connection::Socket + 'static, peer: Peer, ending: watch::Receiver<()>) {
        self.connections.limit.store(16, Ordering::Relaxed);
        self.connections.let_in(connection::limited(Box::new(stream)), peer, ending);
    }

    /// Serves the prepared listeners, and stops serving all others.
    pub fn serve(&mut self, prepared: PreparedListeners) {
        self.connections.limit.store(prepared.max_connections as u64, Ordering::Relaxed);
        self.serving.retain(|served| {
            let stays = prepared.endpoints.iter().any(|(other, _)| *other == served.endpoint);
            if !stays {
                served.task.abort();
                log::info!("http: {} is no longer served", served.endpoint.address);
            }
            stays
        });
        for served in &self.serving {
            if let Some(Err(error)) = served.file.as_deref().map(|file| file.set_mode(prepared.socket_mode)) {
                log::error!("http: cannot change the mode of the socket: {error}");
            }
        }
        for (endpoint, socket) in prepared.endpoints {
            let Some(socket) = socket else { continue };
            match Listener::new(socket) {
                Ok((listener, file)) => {
                    log::info!("http: serving at {}", listener.shown(&endpoint.address));
                    let file = file.map(Arc::new);
                    let (open, ending) = watch::channel(());
                    let accepting = accept(listener, file.clone(), ending, Arc::clone(&self.connections));
                    let task = self.tasks.spawn(accepting);
                    self.serving.push(Serving { endpoint, task, file, _open: open });
                }
                Err(error) => log::error!("http: cannot serve {}: {error}", endpoint.address),
            }
        }
        match prepared.no_user_socket {
            _ if !self.serving.is_empty() => {}
            Some(error) => log::warn!(
                "http: listening nowhere, so `visiond top` cannot watch this daemon: {error}; set [http] `listen`"
            ),
            None => log::info!(
                "http: listening nowhere; set [http] `listen` for the live page and for `visiond top`, `reload` and `trace`"
            ),
        }
    }

    /// Accepts no more connections, and gives open ones `grace` to finish.
    pub async fn end(mut self, grace: Duration) {
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.serving.clear();
        let status = Arc::clone(&self.connections.status);
        let all_gone = async {
            while status.http.connections.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // Dropping the runtime closes the others.
        let _ = timeout(grace, all_gone).await;
    }
}

/// Accepts connections until the task is aborted, which also removes `_file`.
async fn accept(
    listener: Listener,
    _file: Option<Arc<SocketFile>>,
    ending: watch::Receiver<()>,
    connections: Arc<Connections>,
) {
    let mut limit = RateLimit::new(ACCEPT_LOG_INTERVAL);
    loop {
        match listener.accept().await {
            // The header `Date` cannot express such a time, and hyper would panic.
            Ok(_) if SystemTime::now() < SystemTime::UNIX_EPOCH => {
                if limit.pass(Instant::now()).is_some() {
                    log::error!("http: cannot answer while this machine's clock is before 1970: set the clock");
                }
            }
            Ok((stream, peer)) => connections.let_in(stream, peer, ending.clone()),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                if let Some(line) = limit.pass(Instant::now()).map(|more| cannot_accept(&error, more)) {
                    log::error!("{line}");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Returns the log line about an error of accept(2); `more` further ones were suppressed.
fn cannot_accept(error: &io::Error, more: u64) -> String {
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            "; raise LimitNOFILE= in the unit (`systemctl edit visiond`; `ulimit -n` in a shell), or lower `http.max_connections`"
        }
        Some(Errno::NFILE) => "; the whole machine has none left: end other programs, or raise `sysctl fs.file-max`",
        _ => "",
    };
    let more = if more > 0 { format!(" ({more} more such errors since the last line)") } else { String::new() };
    format!("http: cannot accept connections: {error}{remedy}{more}")
}

impl Connections {
    fn let_in(self: &Arc<Self>, stream: Connection, peer: Peer, ending: watch::Receiver<()>) {
        let kind = match peer {
            Peer::Tcp(_) => &self.tcp,
            Peer::Unix => &self.unix,
        };
        if let Some(counted) = Counted::new(&self.status.http, kind, self.limit.load(Ordering::Relaxed)) {
            self.status.http.accepted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(Arc::clone(self), stream, Client { peer, ending, _counted: counted }, false));
            return;
        }
        self.status.http.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(counted) = Counted::new(&self.status.http, &self.spare, SPARE) {
            let client = Client { peer, ending, _counted: counted };
            tokio::spawn(timeout(SPARE_TIME, serve(Arc::clone(self), stream, client, true)));
        }
    }
}

/// Serves a connection; if `is_spare`, for one request, which must be a health check.
async fn serve(connections: Arc<Connections>, stream: Connection, client: Client, is_spare: bool) {
    let mut ending = client.ending.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client.clone());
        let (router, status) = (connections.router.clone(), Arc::clone(&connections.status));
        async move {
            let answer: Response<Body> = if is_spare && !is_health(request.method(), request.uri()) {
                all_taken()
            } else {
                match AssertUnwindSafe(async move { router.call(request).await }).catch_unwind().await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(never)) => match never {},
                    // A panic, which the hook logged; the router has no errors.
                    Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                }
            };
            status.http.answered(answer.status().as_u16());
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(!is_spare)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    // An error here ends the connection; only the client could do something about it.
    tokio::select! {
        _ = &mut connection => return,
        // An error: the sender was dropped.
        _ = ending.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn all_taken() -> Response<Body> {
    let why = "all connections are taken: try again later, or raise http.max_connections";
    ([(RETRY_AFTER, "5")], Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Not a test: prints the default sockets in the environment that the next test gives it.
    #[test]
    fn default_sockets() {
        print!("<{:?}|{:?}>", addresses(&HttpConfig::default()), user_socket());
    }

    #[test]
    fn the_default_sockets_are_in_the_services_folder_or_in_the_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let found = |runtime: &str, user: &Path| {
            let mut alone = Command::new(env::current_exe().unwrap());
            let alone = alone.args(["--exact", "listen::tests::default_sockets", "--nocapture"]);
            let output = alone.env("RUNTIME_DIRECTORY", runtime).env("XDG_RUNTIME_DIR", user).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let said = said.split_once('<').and_then(|(_, rest)| rest.split_once('>')).unwrap().0;
            said.split_once('|').map(|(service, user)| (service.to_owned(), user.to_owned())).unwrap()
        };
        let service = Address::Unix("/run/visiond/http.sock".into());
        let mine = Some(path.join("visiond/http.sock"));
        assert_eq!(found("/run/visiond:/run/other", path), (format!("{:?}", [service]), format!("{mine:?}")));
        fs::write(path.join("file"), "").unwrap();
        fs::create_dir(path.join("open")).unwrap();
        for mode in [0o720, 0o702] {
            fs::set_permissions(path.join("open"), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(found("run/visiond", &path.join("open")), ("[]".to_owned(), "None".to_owned()), "{mode:o}");
        }
        fs::set_permissions(path.join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_ne!(found("", &path.join("open")).1, "None");
        for none in ["file", "nothing"] {
            assert_eq!(found("", &path.join(none)), ("[]".to_owned(), "None".to_owned()));
        }
    }

    #[test]
    fn the_users_socket_is_opened_in_a_folder_of_the_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o777;
        let open = |name: &str| open_for_user(&folder.path().join(name).join("http.sock"), 0o600).map(drop);
        assert_eq!((open("new"), mode("new")), (Ok(()), 0o700));
        fs::create_dir(folder.path().join("wide")).unwrap();
        fs::set_permissions(folder.path().join("wide"), fs::Permissions::from_mode(0o755)).unwrap();
        let held = open_for_user(&folder.path().join("wide/http.sock"), 0o600).unwrap();
        assert_eq!((mode("wide"), mode("wide/http.sock")), (0o700, 0o600));
        drop(held);

        // Through a link, the mode of another folder would change.
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::set_permissions(folder.path().join("other"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("other", folder.path().join("link")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            let refused = open(name).unwrap_err();
            assert!(refused.ends_with(&format!("/{name} is a file or a link: remove it")), "{refused}");
        }
        assert_eq!(mode("other"), 0o755);

        let lock = fs::File::open(folder.path().join("wide")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let refused = open("wide").unwrap_err();
        assert!(refused.starts_with("another daemon of this user is starting"), "{refused}");
        drop(lock);
        assert_eq!(open("wide"), Ok(()));
    }

    #[test]
    fn the_process_may_open_what_its_connections_need() {
        let before = getrlimit(Resource::Nofile);
        let current = before.current.unwrap_or(u64::MAX);
        let limit = |max_connections| {
            raise_descriptor_limit(&HttpConfig { max_connections, ..HttpConfig::default() });
            getrlimit(Resource::Nofile)
        };
        assert_eq!(limit(1), before, "it has more already");
        // Twice the connections, for TCP and Unix sockets, plus a reserve; at most the system's limit.
        let connections = current.min(1 << 20) / 2;
        let needed = 2 * connections + SPARE + OWN_DESCRIPTORS;
        let raised = limit(connections as usize);
        let expected = needed.min(before.maximum.unwrap_or(u64::MAX)).max(current);
        assert_eq!((raised.current.unwrap_or(u64::MAX), raised.maximum), (expected, before.maximum));
    }

    #[test]
    fn an_error_of_accept_has_its_remedy_and_what_was_not_logged() {
        let said = |errno: Errno, more| cannot_accept(&io::Error::from_raw_os_error(errno.raw_os_error()), more);
        let full = said(Errno::MFILE, 0);
        assert!(
            full.contains("Too many open files") && full.contains("LimitNOFILE=") && !full.contains("more such"),
            "{full}"
        );
        let machine = said(Errno::NFILE, 119);
        assert!(
            machine.contains("fs.file-max") && machine.ends_with("(119 more such errors since the last line)"),
            "{machine}"
        );
    }
}
