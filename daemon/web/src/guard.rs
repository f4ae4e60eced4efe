//! Who may ask.
//!
//! Over a Unix socket whoever the socket's permissions let in. Over an address: whoever knows the token, in a header or by
//! the cookie that logging in gives; without a token, on loopback alone, whoever asks by one of the machine's own names,
//! so that no page from elsewhere can have a browser ask (DNS rebinding). What changes something, and a WebSocket, must come
//! from a page that was served here (cross-site requests), however it was let in, unless a program sends the token itself.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State as Extract};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, UPGRADE, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::sleep;
use visiond_config::is_loopback;
use visiond_system::credentials::Token;

use crate::errors::Problem;
use crate::listen::connection::Peer;
use crate::page;
use crate::status::StatusCollector;

/// The session's cookie.
pub const COOKIE_NAME: &str = "visiond_session";
/// How long a wrong token takes; all that come at once wait for each other.
const SLOW: Duration = Duration::from_millis(250);
/// How often wrong tokens are told at most.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What is asked of whoever comes.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The secret and its cookie, as digests.
    token: Option<Digests>,
    allow_hosts: Vec<String>,
}

#[derive(Clone)]
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
    /// With that token, if any, and these names of the machine.
    pub fn new(token: Option<&Token>, allow_hosts: &[String]) -> Self {
        let digests = |token: &Token| {
            // It outlives a restart of the daemon and dies with the token, from which it is made and which it does not tell.
            let session = digest(format!("visiond session\0{}", token.as_str()).as_bytes());
            let cookie: String = session.iter().map(|byte| format!("{byte:02x}")).collect();
            let cookie_digest = digest(cookie.as_bytes());
            Digests { token: digest(token.as_str().as_bytes()), cookie, cookie_digest }
        };
        Self { token: token.map(digests), allow_hosts: allow_hosts.to_vec() }
    }

    /// Whether somebody who knows `token` may ask; the cookie that stands for it then.
    pub fn cookie_for(&self, token: &str) -> Option<&str> {
        let digests = self.token.as_ref()?;
        same(&digest(token.as_bytes()), &digests.token).then_some(&*digests.cookie)
    }

    /// Whether a token is asked for.
    pub fn asks(&self) -> bool {
        self.token.is_some()
    }

    fn judge(&self, peer: Peer, method: &Method, headers: &HeaderMap) -> Verdict {
        let mut by_header = false;
        if let (Some(digests), Peer::Tcp(_)) = (&self.token, peer) {
            let (header, cookie) = (bearer(headers), session(headers));
            by_header = header.is_some_and(|token| same(&digest(token), &digests.token));
            let by_cookie = cookie.is_some_and(|cookie| same(&digest(cookie), &digests.cookie_digest));
            if !by_header && !by_cookie {
                return if headers.contains_key(AUTHORIZATION) { Verdict::Wrong } else { Verdict::Unknown };
            }
        } else if let Peer::Tcp(_) = peer
            && !self.is_our_name(headers)
        {
            return Verdict::Elsewhere(
                "asked by a name that is not this machine's loopback: ask for http://127.0.0.1, or add the name to \
                 http.allow_hosts",
            );
        }
        let changes = !matches!(*method, Method::GET | Method::HEAD) || headers.contains_key(UPGRADE);
        if changes && !by_header && !is_same_origin(headers) {
            return Verdict::Elsewhere(
                "asked by a page from elsewhere: open the page that visiond serves; a proxy has to pass the Host header on",
            );
        }
        Verdict::Welcome
    }

    fn is_our_name(&self, headers: &HeaderMap) -> bool {
        let Some(host) = authority(headers.get(HOST)) else { return false };
        let name = host.host();
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        ip.is_ok_and(is_loopback)
            || name.eq_ignore_ascii_case("localhost")
            || self.allow_hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
    }
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Welcome,
    /// Brought no token.
    Unknown,
    /// Brought a wrong one.
    Wrong,
    /// A browser was made to ask by a page from elsewhere.
    Elsewhere(&'static str),
}

/// Stands before every request.
pub struct Guard {
    rules: RwLock<Arc<Rules>>,
    observer: Arc<StatusCollector>,
    /// Held by whoever brought a wrong token, for a while.
    slow: Mutex<Wrong>,
}

/// Wrong tokens.
#[derive(Default)]
struct Wrong {
    told: Option<Instant>,
    /// Since it was told last.
    more: u64,
}

/// Whether who asks may know more than that the daemon lives.
#[derive(Debug, Clone, Copy)]
pub struct Trusted(pub bool);

impl Guard {
    /// Counts what it refuses at `observer`.
    pub fn new(observer: &Arc<StatusCollector>) -> Arc<Self> {
        Arc::new(Self { rules: RwLock::default(), observer: Arc::clone(observer), slow: Mutex::default() })
    }

    /// What holds from now on.
    pub fn set(&self, rules: Rules) {
        *self.rules.write() = Arc::new(rules);
    }

    /// What holds now.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Takes its time over a wrong token, so that guessing is slow however many guess at once.
    pub async fn refuse_slowly(&self, peer: Peer) {
        refuse_slowly(&self.slow, peer).await;
    }
}

async fn refuse_slowly(slow: &Mutex<Wrong>, peer: Peer) {
    let mut wrong = slow.lock().await;
    sleep(SLOW).await;
    if wrong.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
        wrong.more += 1;
        return;
    }
    let more = std::mem::replace(&mut *wrong, Wrong { told: Some(Instant::now()), more: 0 }).more;
    match more {
        0 => log::warn!("http: {peer} came with a wrong token"),
        more => log::warn!("http: {peer} came with a wrong token, after {more} more since the last was told"),
    }
}

/// Lets a request through, or answers it.
pub async fn check(Extract(guard): Extract<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    // Every connection says where it comes from.
    let Some(peer) = peer else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let verdict = guard.rules().judge(peer, request.method(), request.headers());
    let path = request.uri().path();
    let is_health = matches!(path, "/healthz" | "/readyz") && matches!(*request.method(), Method::GET | Method::HEAD);
    let is_login = path == "/login" && request.method() == Method::POST;
    match verdict {
        Verdict::Welcome => {}
        _ if is_health => {}
        Verdict::Unknown if is_login && is_same_origin(request.headers()) => {}
        Verdict::Elsewhere(why) => return Problem::new(StatusCode::FORBIDDEN, why).into_response(),
        Verdict::Unknown | Verdict::Wrong => {
            guard.observer.http.unauthorized.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if verdict == Verdict::Wrong {
                guard.refuse_slowly(peer).await;
            }
            let mut answer = if path == "/" && request.method() == Method::GET {
                (StatusCode::UNAUTHORIZED, page::login("")).into_response()
            } else {
                let why = "the token is missing or wrong: send it as `Authorization: Bearer TOKEN`, or log in at /";
                Problem::new(StatusCode::UNAUTHORIZED, why).into_response()
            };
            let scheme = HeaderValue::from_static("Bearer realm=\"visiond\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return answer;
        }
    }
    request.extensions_mut().insert(Trusted(verdict == Verdict::Welcome));
    next.run(request).await
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Whether two digests are the same, in a time that tells nothing of where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b))) == 0
}

/// What stands behind `Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// The session's cookie.
fn session(headers: &HeaderMap) -> Option<&[u8]> {
    let cookies = headers.get_all(COOKIE).into_iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    cookies.map(<[u8]>::trim_ascii).find_map(|cookie| {
        let (name, value) = cookie.split_at_checked(COOKIE_NAME.len())?;
        (name == COOKIE_NAME.as_bytes()).then(|| value.strip_prefix(b"="))?
    })
}

/// Whether no browser asks, or one that shows a page from here.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let asked = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, rest)| rest);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    matches!((asked, host), (Some(asked), Some(host)) if asked.eq_ignore_ascii_case(host))
}

fn authority(value: Option<&HeaderValue>) -> Option<Authority> {
    value?.to_str().ok()?.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@'))
}

#[cfg(test)]
mod tests;
