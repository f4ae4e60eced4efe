//! Access control: decides for every request whether its client may make it.
//!
//! - Over a Unix socket, the permissions of the socket decide.
//! - Over TCP with a token, the client sends the token in a header, or the cookie that it got by logging in.
//! - Over TCP without a token, which is allowed on loopback only, the client must use one of the machine's own names, so that
//!   no foreign page can make a browser send requests (DNS rebinding).
//!
//! Requests that change state, and WebSockets, must be same-origin however the client authenticated, which prevents
//! cross-site requests, unless a program sends the token itself.
//!
//! A stream outlives the check of its request: it ends when other rules come into force, and its client must reconnect.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{Extension, Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, HOST, LOCATION, ORIGIN, RETRY_AFTER, SET_COOKIE, UPGRADE, WWW_AUTHENTICATE,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio::time::sleep;
use visiond_config::is_loopback;
use visiond_system::backoff::RateLimit;
use visiond_system::credentials::Secret;

use crate::errors::Problem;
use crate::listen::connection::{Client, Peer};
use crate::page;
use crate::status::report::HttpCounts;

/// The session's cookie.
const COOKIE_NAME: &str = "visiond_session";
/// How long a browser keeps the cookie, in seconds.
const KEPT_S: u32 = 30 * 24 * 3600;
/// How long the answer to a wrong token takes; concurrent ones wait for each other.
const SLOW: Duration = Duration::from_millis(250);
/// How many clients with a wrong token wait for their answer; more are refused at once, so that they hold no connections.
const WAITING: usize = 4;
/// How to authenticate.
const BEARER: (HeaderName, &str) = (WWW_AUTHENTICATE, "Bearer realm=\"visiond\"");
/// A client without the token does not keep its connection.
const CLOSE: (HeaderName, &str) = (CONNECTION, "close");
/// Why a request from a page on another site is refused.
const OTHER_ORIGIN: &str = "the request comes from a page of another origin: open the page that visiond serves; a proxy must pass on the \
                            Host header";
/// The shortest time between two log lines about wrong tokens.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The proof that a client must give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The token and its cookie, as digests.
    token: Option<Digests>,
    allow_hosts: Vec<String>,
}

#[derive(Clone, PartialEq, Eq)]
struct Digests {
    token: [u8; 32],
    cookie: String,
    cookie_digest: [u8; 32],
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digests(***)")
    }
}

impl Rules {
    /// Creates rules for this token, if there is one, and these names of the machine.
    pub fn new(token: Option<&Secret>, allow_hosts: &[String]) -> Self {
        let digests = |token: &Secret| {
            // The cookie is derived from the token without revealing it: it survives a restart and ends with the token.
            let cookie = format!("{:x}", Sha256::digest(format!("visiond session\0{}", token.as_str())));
            let cookie_digest = digest(cookie.as_bytes());
            Digests { token: digest(token.as_str().as_bytes()), cookie, cookie_digest }
        };
        Self { token: token.map(digests), allow_hosts: allow_hosts.to_vec() }
    }

    /// Returns the session cookie if `token` is right.
    fn cookie_for(&self, token: &str) -> Option<&str> {
        let digests = self.token.as_ref()?;
        is_digest_of(token.as_bytes(), &digests.token).then_some(&*digests.cookie)
    }

    fn judge(&self, peer: Peer, method: &Method, headers: &HeaderMap) -> Verdict {
        let mut by_header = false;
        if let (Some(digests), Peer::Tcp(_)) = (&self.token, peer) {
            let (header, cookie) = (bearer(headers), session(headers));
            by_header = header.is_some_and(|token| is_digest_of(token, &digests.token));
            let by_cookie = cookie.is_some_and(|cookie| is_digest_of(cookie, &digests.cookie_digest));
            if !by_header && !by_cookie {
                return if headers.contains_key(AUTHORIZATION) { Verdict::Wrong } else { Verdict::Unknown };
            }
        } else if let Peer::Tcp(_) = peer
            && !self.is_our_name(headers)
        {
            return Verdict::Elsewhere(
                "the Host header does not name this machine's loopback: use http://127.0.0.1, or add the name to `http.allow_hosts`",
            );
        }
        let changes = !matches!(*method, Method::GET | Method::HEAD) || headers.contains_key(UPGRADE);
        if changes && !by_header && !is_same_origin(headers) {
            return Verdict::Elsewhere(OTHER_ORIGIN);
        }
        Verdict::Welcome
    }

    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let Some(host) = authority(only(headers, HOST)) else { return false };
        let name = host.host();
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        ip.is_ok_and(is_loopback)
            || name.eq_ignore_ascii_case("localhost")
            || self.allow_hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
    }
}

/// The decision about a request.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Welcome,
    /// It has no token.
    Unknown,
    /// It has a wrong token.
    Wrong,
    /// A page of another origin made a browser send it.
    Elsewhere(&'static str),
}

/// Checks every request before its handler runs.
pub struct Guard {
    /// The rules in force.
    rules: watch::Sender<Arc<Rules>>,
    http: Arc<HttpCounts<AtomicU64>>,
    wrong_tokens: WrongTokens,
}

/// Whether the client may see more than whether the daemon runs.
#[derive(Debug, Clone, Copy)]
pub struct Trusted(pub bool);

impl Guard {
    /// Creates a guard that counts refused requests in `http`.
    pub fn new(http: &Arc<HttpCounts<AtomicU64>>) -> Arc<Self> {
        Arc::new(Self { rules: watch::Sender::default(), http: Arc::clone(http), wrong_tokens: WrongTokens::new() })
    }

    /// Puts `rules` in force; streams that began under others end.
    pub fn enforce(&self, rules: Rules) {
        if **self.rules.borrow() == rules {
            return;
        }
        // Not at the start, when there are none.
        if self.rules.receiver_count() > 0 {
            log::info!("http: the token or `allow_hosts` changed: streams over TCP end");
        }
        self.rules.send_replace(Arc::new(rules));
    }
}

/// The permission of a request, for streams to watch.
#[derive(Clone)]
pub struct Admission {
    client: Client,
    /// Changes when the rules differ from those at the request.
    rules: watch::Receiver<Arc<Rules>>,
}

/// Why visiond ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The rules changed: the client must authenticate again.
    Revoked,
    /// The address is no longer served, or the daemon ends.
    Closing,
}

impl Admission {
    /// Waits until the stream must end.
    pub async fn ended(&mut self) -> Ended {
        let by_rules = matches!(self.client.peer, Peer::Tcp(_));
        // An error in the first: the guard is gone with the server. In the second: the address is no longer served.
        tokio::select! {
            _ = self.rules.changed(), if by_rules => Ended::Revoked,
            _ = self.client.ending.changed() => Ended::Closing,
        }
    }
}

/// Slows down wrong tokens, and logs them.
struct WrongTokens {
    waiting: Semaphore,
    /// Held for a while by each waiting client in turn.
    turn: AsyncMutex<()>,
    log_limit: Mutex<RateLimit>,
}

impl WrongTokens {
    fn new() -> Self {
        let log_limit = Mutex::new(RateLimit::new(LOG_INTERVAL));
        Self { waiting: Semaphore::new(WAITING), turn: AsyncMutex::default(), log_limit }
    }

    /// Returns true after a delay, for one client at a time; returns false at once if too many wait.
    async fn slow_down(&self, peer: Peer) -> bool {
        match self.log_limit.lock().pass(Instant::now()) {
            None => {}
            Some(0) => log::warn!("http: {peer} sent a wrong token"),
            Some(more) => log::warn!("http: {peer} sent a wrong token; {more} more since the last such line"),
        }
        let Ok(_waiting) = self.waiting.try_acquire() else { return false };
        let _turn = self.turn.lock().await;
        sleep(SLOW).await;
        true
    }
}

/// Passes a request on, or refuses it.
pub async fn check(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Client>().cloned();
    // Every connection has a client.
    let Some(client) = client else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let rules = guard.rules.subscribe();
    let verdict = rules.borrow().judge(client.peer, request.method(), request.headers());
    let path = request.uri().path();
    let is_health = is_health(request.method(), request.uri());
    let is_login = path == "/login" && request.method() == Method::POST;
    match verdict {
        Verdict::Welcome => {}
        _ if is_health => {}
        Verdict::Unknown if is_login => {
            if !is_same_origin(request.headers()) {
                return Problem::new(StatusCode::FORBIDDEN, OTHER_ORIGIN).into_response();
            }
        }
        Verdict::Elsewhere(why) => return Problem::new(StatusCode::FORBIDDEN, why).into_response(),
        Verdict::Unknown | Verdict::Wrong => {
            guard.http.unauthorized.fetch_add(1, Ordering::Relaxed);
            if verdict == Verdict::Wrong && !guard.wrong_tokens.slow_down(client.peer).await {
                let why = "too many clients send a wrong token: send the right one as `Authorization: Bearer TOKEN`";
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, why);
                return ([(RETRY_AFTER, "1"), CLOSE], problem).into_response();
            }
            let answer = if path == "/" && request.method() == Method::GET {
                (StatusCode::UNAUTHORIZED, page::login(request.uri().query(), "")).into_response()
            } else {
                let why = "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`, or log in on the live page";
                Problem::new(StatusCode::UNAUTHORIZED, why).into_response()
            };
            return ([BEARER, CLOSE], answer).into_response();
        }
    }
    request.extensions_mut().insert(Trusted(verdict == Verdict::Welcome));
    request.extensions_mut().insert(Admission { client, rules });
    next.run(request).await
}

/// `POST /login` with the form's field `token`. Redirects to the live page with the request's query, such as a bookmark's filter.
pub async fn login(
    State(guard): State<Arc<Guard>>,
    Extension(client): Extension<Client>,
    uri: Uri,
    form: String,
) -> Response {
    let query = uri.query();
    let rules = Arc::clone(&guard.rules.borrow());
    if rules.token.is_none() {
        return to_page(query, None);
    }
    let Some((_, token)) = form_urlencoded::parse(form.as_bytes()).find(|(name, _)| name == "token") else {
        return Problem::bad_request("the form has no field `token`").into_response();
    };
    match rules.cookie_for(token.trim()) {
        Some(cookie) => to_page(query, Some(cookie)),
        None => {
            guard.http.unauthorized.fetch_add(1, Ordering::Relaxed);
            if !guard.wrong_tokens.slow_down(client.peer).await {
                let say = page::login(query, "Wrong token. Too many clients send one: try again in a second.");
                return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1"), CLOSE], say).into_response();
            }
            (StatusCode::UNAUTHORIZED, [BEARER, CLOSE], page::login(query, "Wrong token.")).into_response()
        }
    }
}

/// Whether a request is for the daemon's health, which needs no token.
pub fn is_health(method: &Method, uri: &Uri) -> bool {
    matches!(uri.path(), "/healthz" | "/readyz") && matches!(*method, Method::GET | Method::HEAD)
}

fn to_page(query: Option<&str>, cookie: Option<&str>) -> Response {
    // Relative, so that no query can lead to another host.
    let page = query.and_then(|query| HeaderValue::try_from(format!("./?{query}")).ok());
    let page = page.unwrap_or(HeaderValue::from_static("./"));
    // Without a path, the cookie applies to the folder of /login, which contains the page, even below a proxy's /cam/.
    let cookie = cookie
        .map(|cookie| [(SET_COOKIE, format!("{COOKIE_NAME}={cookie}; Max-Age={KEPT_S}; HttpOnly; SameSite=Strict"))]);
    (StatusCode::SEE_OTHER, [(LOCATION, page)], cookie, ()).into_response()
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Whether `expected` is the digest of `bytes`; takes the same time regardless of where they differ.
fn is_digest_of(bytes: &[u8], expected: &[u8; 32]) -> bool {
    digest(bytes).ct_eq(expected).into()
}

/// Returns the token of a `Bearer` header.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns the session cookie.
fn session(headers: &HeaderMap) -> Option<&[u8]> {
    let cookies = headers.get_all(COOKIE).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    cookies.map(<[u8]>::trim_ascii).find_map(|cookie| {
        let (name, value) = cookie.split_at_checked(COOKIE_NAME.len())?;
        (name == COOKIE_NAME.as_bytes()).then(|| value.strip_prefix(b"="))?
    })
}

/// Whether the request has no origin, or the origin is this server.
fn is_same_origin(headers: &HeaderMap) -> bool {
    if !headers.contains_key(ORIGIN) {
        return true;
    }
    let asked = only(headers, ORIGIN)
        .and_then(|origin| origin.to_str().ok())
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, rest)| rest);
    let host = only(headers, HOST).and_then(|host| host.to_str().ok());
    matches!((asked, host), (Some(asked), Some(host)) if asked.eq_ignore_ascii_case(host))
}

/// Returns the value of a header that must not be repeated: a proxy or browser may use a different line than visiond.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).into_iter();
    values.next().filter(|_| values.next().is_none())
}

fn authority(value: Option<&HeaderValue>) -> Option<Authority> {
    value?.to_str().ok()?.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@'))
}

#[cfg(test)]
mod tests;
