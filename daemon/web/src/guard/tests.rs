#![allow(clippy::unwrap_used)]

use std::fs;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use visiond_system::testing::at_once;

use super::*;
use crate::listen::connection::Counted;

const TOKEN: &str = "correct-horse-battery";

fn token() -> Secret {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), TOKEN).unwrap();
    Secret::read_token(&folder.path().join("token")).unwrap()
}

fn tcp() -> Peer {
    Peer::Tcp("127.0.0.1:4711".parse().unwrap())
}

/// Returns the verdict on a request with these headers, such as `host: localhost`.
fn verdict(rules: &Rules, peer: Peer, method: Method, lines: &[&str]) -> Verdict {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(axum::http::HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
    }
    rules.judge(peer, &method, &headers)
}

#[test]
fn without_a_token_only_the_machines_own_names_are_answered() {
    let rules = Rules::new(None, &["cams.example.org".to_owned()]);
    let get = |host: &str| verdict(&rules, tcp(), Method::GET, &[&format!("host: {host}")]) == Verdict::Welcome;
    for ours in ["localhost", "LOCALHOST:8790", "127.0.0.1:8790", "127.0.0.2", "[::1]:8790", "Cams.Example.Org"] {
        assert!(get(ours), "{ours}");
    }
    let others = [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.2:8790",
        "x@localhost",
        "[::2]",
        "",
    ];
    for other in others {
        assert!(!get(other), "{other}");
    }
    assert_ne!(verdict(&rules, tcp(), Method::GET, &[]), Verdict::Welcome, "no name at all");
    assert_eq!(verdict(&rules, Peer::Unix, Method::GET, &["host: anything"]), Verdict::Welcome);
}

#[test]
fn what_changes_something_comes_from_our_page_or_from_no_browser() {
    let rules = Rules::new(None, &[]);
    let host = "host: localhost:8790";
    let ask = |method, more: &[&str]| verdict(&rules, tcp(), method, &[&[host], more].concat()) == Verdict::Welcome;
    assert!(ask(Method::POST, &[]));
    assert!(ask(Method::POST, &["origin: http://localhost:8790"]));
    for origin in ["http://localhost:8791", "http://localhost", "https://evil.example", "null", "localhost:8790"] {
        let origin = format!("origin: {origin}");
        assert!(!ask(Method::POST, &[&origin]), "{origin}");
        assert!(!ask(Method::DELETE, &[&origin]), "{origin}");
        assert!(!ask(Method::GET, &["upgrade: websocket", &origin]), "{origin}");
        assert!(ask(Method::GET, &[&origin]), "reading is the browser's to forbid, and we allow nothing: {origin}");
    }
    let by_socket = verdict(&rules, Peer::Unix, Method::POST, &["host: gate", "origin: http://evil.example"]);
    assert_ne!(by_socket, Verdict::Welcome, "a proxy's browser");
}

#[test]
fn the_token_opens_by_header_and_by_the_cookie_it_is_exchanged_for() {
    let rules = Rules::new(Some(&token()), &[]);
    let ask = |method, lines: &[&str]| verdict(&rules, tcp(), method, lines);
    let bearer = format!("authorization: Bearer {TOKEN}");
    assert_eq!(ask(Method::GET, &[&bearer, "host: any.name"]), Verdict::Welcome);
    assert_eq!(
        ask(Method::POST, &[&bearer, "origin: http://elsewhere"]),
        Verdict::Welcome,
        "no browser sends it by itself"
    );
    assert_eq!(ask(Method::GET, &[]), Verdict::Unknown);
    for wrong in
        ["Bearer ", "Bearer wrong", "bearer correct-horse-batterY", "Basic Y29ycmVjdA==", "correct-horse-battery"]
    {
        assert_eq!(ask(Method::GET, &[&format!("authorization: {wrong}")]), Verdict::Wrong, "{wrong}");
    }
    assert_eq!(rules.cookie_for("wrong"), None);
    let cookie = rules.cookie_for(TOKEN).unwrap().to_owned();
    assert!(!cookie.contains(TOKEN));
    let with = |cookie: &str, more: &[&str]| {
        let cookie = format!("cookie: theme=dark; {COOKIE_NAME}={cookie}; x=y");
        ask(Method::POST, &[&[&*cookie, "host: gate:8790"], more].concat())
    };
    assert_eq!(with(&cookie, &[]), Verdict::Welcome);
    assert_eq!(with(&cookie, &["origin: http://gate:8790"]), Verdict::Welcome);
    assert_ne!(with(&cookie, &["origin: http://gate:8080"]), Verdict::Welcome, "a neighbour on another port");
    for wrong in ["", TOKEN, &cookie[1..], &format!("{cookie}0")] {
        assert_eq!(with(wrong, &[]), Verdict::Unknown, "{wrong}");
    }
    assert_eq!(
        verdict(&rules, Peer::Unix, Method::POST, &[]),
        Verdict::Welcome,
        "the socket's permissions are its guard"
    );
    assert_eq!(format!("{rules:?}"), "Rules { token: Some(Digests(***)), allow_hosts: [] }");
}

#[test]
fn another_token_ends_the_sessions_of_the_old_one() {
    let cookie = Rules::new(Some(&token()), &[]).cookie_for(TOKEN).unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "another-token-of-ours").unwrap();
    let rules = Rules::new(Some(&Secret::read_token(&folder.path().join("token")).unwrap()), &[]);
    let cookie = format!("cookie: {COOKIE_NAME}={cookie}");
    assert_eq!(verdict(&rules, tcp(), Method::GET, &[&cookie]), Verdict::Unknown);
}

#[test]
fn wrong_tokens_are_refused_slowly_and_one_at_a_time() {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let wrong_tokens = WrongTokens::new();
        let mut waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(wrong_tokens.slow_down(tcp()))).collect();
        for one in &mut waiting {
            assert!(at_once(one.as_mut()).await.is_none(), "at once");
        }
        assert!(wrong_tokens.log_limit.lock().pass(Instant::now()).is_none(), "it was logged");
        for _ in 0..1000 {
            assert_eq!(at_once(Box::pin(wrong_tokens.slow_down(tcp())).as_mut()).await, Some(false), "too many wait");
        }
        let mut left = waiting.split_off(1);
        assert!(waiting.remove(0).await);
        for one in &mut left[1..] {
            assert!(at_once(one.as_mut()).await.is_none(), "all after one pause");
        }
        assert!(at_once(Box::pin(wrong_tokens.slow_down(tcp())).as_mut()).await.is_none(), "a place was free again");
        drop(left);
        let again = (0..WAITING).map(|_| Box::pin(wrong_tokens.slow_down(tcp()))).collect::<Vec<_>>();
        for mut one in again {
            assert!(at_once(one.as_mut()).await.is_none(), "clients that are gone wait no more");
        }
    });
}

/// A guard in front of a page, and a client's answers.
struct Guarded {
    guard: Arc<Guard>,
    http: Arc<HttpCounts<AtomicU64>>,
    /// Connections end when it is dropped.
    serving: watch::Sender<()>,
}

impl Guarded {
    fn new(rules: Rules) -> Self {
        let http = Arc::<HttpCounts<AtomicU64>>::default();
        let guard = Guard::new(&http);
        guard.enforce(rules);
        Self { guard, http, serving: watch::Sender::default() }
    }

    fn client(&self, peer: Peer) -> Client {
        let counted = Counted::new(&self.http, &Arc::default(), 1).unwrap();
        Client { peer, ending: self.serving.subscribe(), _counted: counted }
    }

    /// Returns the answer to a request such as `GET /path` with these headers; handlers answer with whether they trust the client.
    async fn answer(&self, peer: Peer, line: &str, headers: &[&str], body: &str) -> (u16, HeaderMap, String) {
        let trusted = async |Extension(Trusted(trusted)): Extension<Trusted>| format!("trusted: {trusted}");
        let login = Router::new().route("/login", post(login)).with_state(Arc::clone(&self.guard));
        let pages = Router::new().route("/", get(trusted).post(trusted)).route("/healthz", get(trusted).post(trusted));
        let guarded = pages.merge(login).layer(from_fn_with_state(Arc::clone(&self.guard), check));
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = axum::http::Request::builder().method(method).uri(path);
        for header in headers {
            let (name, value) = header.split_once(": ").unwrap();
            request = request.header(name, value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request.extensions_mut().insert(self.client(peer));
        let (head, body) = TowerToHyperService::new(guarded).call(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    fn unauthorized(&self) -> u64 {
        self.http.unauthorized.load(Ordering::Relaxed)
    }
}

fn on_a_runtime(test: impl Future) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

#[test]
fn a_client_without_the_token_gets_the_login_page_health_and_nothing_else() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(Some(&token()), &[]));
        let bearer = format!("authorization: Bearer {TOKEN}");
        // A client's request, and the answer: its status and a part of its body.
        let cases = [
            ("GET /", vec![], 401, "<form"),
            ("POST /", vec![], 401, "the token is missing or wrong"),
            ("GET /other", vec![], 401, "the token is missing or wrong"),
            ("GET /", vec!["authorization: Bearer wrong"], 401, "<form"),
            ("GET /healthz", vec![], 200, "trusted: false"),
            ("POST /healthz", vec![], 401, "the token is missing or wrong"),
            ("GET /", vec![&*bearer], 200, "trusted: true"),
            ("GET /healthz", vec![&*bearer], 200, "trusted: true"),
            ("POST /login", vec!["origin: http://evil.example", "host: gate"], 403, "of another origin"),
            ("GET /login", vec![], 401, "the token is missing or wrong"),
        ];
        let mut refused = 0;
        for (line, headers, status, part) in cases {
            let (answered, head, body) = guarded.answer(tcp(), line, &headers, "").await;
            assert_eq!(answered, status, "{line} {headers:?}: {body}");
            assert!(body.contains(part), "{line} {headers:?}: {body}");
            assert_eq!(head.contains_key(WWW_AUTHENTICATE), status == 401, "{line}");
            assert_eq!(head.contains_key(CONNECTION), status == 401, "{line}");
            refused += u64::from(status == 401);
            assert_eq!(guarded.unauthorized(), refused, "{line}");
        }
        let (status, _, body) = guarded.answer(Peer::Unix, "GET /", &[], "").await;
        assert_eq!((status, &*body), (200, "trusted: true"), "the socket's permissions are its guard");
    });
}

#[test]
fn a_page_of_another_origin_is_refused_but_for_health() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(None, &[]));
        let foreign = ["host: evil.example"];
        let (status, _, body) = guarded.answer(tcp(), "GET /", &foreign, "").await;
        assert!(status == 403 && body.contains("the Host header does not name"), "{status} {body}");
        let (status, _, body) = guarded.answer(tcp(), "GET /healthz", &foreign, "").await;
        assert_eq!((status, &*body), (200, "trusted: false"));
        assert_eq!(guarded.unauthorized(), 0);
    });
}

#[test]
fn the_login_form_gives_the_cookie_for_the_right_token_alone() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(Some(&token()), &[]));
        let login = async |form: &str| guarded.answer(tcp(), "POST /login", &[], form).await;
        let (status, _, body) = login("name=x").await;
        assert!(status == 400 && body.contains("the form has no field `token`"), "{status} {body}");
        let (status, head, body) = login("token=wrong").await;
        assert!(status == 401 && body.contains("Wrong token.") && !head.contains_key(SET_COOKIE), "{status} {body}");
        assert_eq!(guarded.unauthorized(), 1);
        let (status, head, _) = login(&format!("x=y&token=+{TOKEN}")).await;
        assert_eq!((status, &head[LOCATION]), (303, &HeaderValue::from_static("./")));
        let cookie = head[SET_COOKIE].to_str().unwrap();
        let (cookie, kept) = cookie.split_once("; ").unwrap();
        assert_eq!(kept, "Max-Age=2592000; HttpOnly; SameSite=Strict", "30 days");
        let (status, _, body) = guarded.answer(tcp(), "GET /", &[&format!("cookie: {cookie}")], "").await;
        assert_eq!((status, &*body), (200, "trusted: true"));

        let open = Guarded::new(Rules::new(None, &[]));
        let (status, head, _) = open.answer(tcp(), "POST /login", &["host: localhost"], "token=any").await;
        assert!(status == 303 && !head.contains_key(SET_COOKIE), "without a token there is nothing to log in to");
    });
}

#[test]
fn a_login_leads_to_the_address_that_asked_for_it_on_this_host() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(Some(&token()), &[]));
        let (_, _, body) = guarded.answer(tcp(), "GET /?camera=gate&state=down", &[], "").await;
        assert!(body.contains("action=\"login?camera=gate&amp;state=down\""), "{body}");
        let (_, _, body) = guarded.answer(tcp(), "POST /login?camera=gate", &[], "token=wrong").await;
        assert!(body.contains("action=\"login?camera=gate\""), "{body}");
        let right = format!("token={TOKEN}");
        for (asked, page) in
            [("?camera=gate&state=down", "./?camera=gate&state=down"), ("?//evil.example", "./?//evil.example")]
        {
            let (status, head, _) = guarded.answer(tcp(), &format!("POST /login{asked}"), &[], &right).await;
            assert_eq!((status, head[LOCATION].to_str().unwrap()), (303, page));
        }
    });
}

#[test]
fn clients_with_a_wrong_token_beyond_those_that_wait_are_refused_at_once() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(Some(&token()), &[]));
        let wrong = ["authorization: Bearer wrong"];
        let mut waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(guarded.answer(tcp(), "GET /", &wrong, ""))).collect();
        for one in &mut waiting {
            assert!(at_once(one.as_mut()).await.is_none());
        }
        for (line, headers, form, part) in [
            ("GET /", &wrong[..], "", "too many clients send a wrong token"),
            ("POST /login", &[], "token=wrong", "Too many clients send one"),
        ] {
            let answer = at_once(Box::pin(guarded.answer(tcp(), line, headers, form)).as_mut()).await;
            let (status, head, body) = answer.expect("an answer at once");
            assert!(status == 429 && body.contains(part), "{status} {body}");
            assert_eq!((&head[RETRY_AFTER], &head[CONNECTION]), (&"1".parse().unwrap(), &"close".parse().unwrap()));
        }
    });
}

#[test]
fn streams_end_when_other_rules_come_or_the_address_is_no_longer_served() {
    on_a_runtime(async {
        let guarded = Guarded::new(Rules::new(None, &[]));
        let admitted = |peer| Admission { client: guarded.client(peer), rules: guarded.guard.rules.subscribe() };
        let (mut remote, mut local) = (admitted(tcp()), admitted(Peer::Unix));
        guarded.guard.enforce(Rules::new(None, &[]));
        assert_eq!(at_once(Box::pin(remote.ended()).as_mut()).await, None, "the same rules");
        guarded.guard.enforce(Rules::new(Some(&token()), &[]));
        assert_eq!(at_once(Box::pin(remote.ended()).as_mut()).await, Some(Ended::Revoked));
        assert_eq!(at_once(Box::pin(local.ended()).as_mut()).await, None, "no rules for a socket");
        drop(guarded.serving);
        assert_eq!(at_once(Box::pin(local.ended()).as_mut()).await, Some(Ended::Closing));
    });
}

#[test]
fn every_byte_of_a_digest_counts() {
    let right = digest(TOKEN.as_bytes());
    assert!(is_digest_of(TOKEN.as_bytes(), &right));
    for at in 0..right.len() {
        let mut other = right;
        other[at] ^= 1;
        assert!(!is_digest_of(TOKEN.as_bytes(), &other), "byte {at}");
    }
}

#[test]
fn a_repeated_host_or_origin_is_refused() {
    let rules = Rules::new(None, &[]);
    let ask = |lines: &[&str]| verdict(&rules, tcp(), Method::POST, lines) == Verdict::Welcome;
    let (host, origin) = ("host: localhost:8790", "origin: http://localhost:8790");
    assert!(ask(&[host, origin]));
    assert!(!ask(&[host, "host: evil.example", origin]));
    assert!(!ask(&["host: evil.example", host, origin]));
    assert!(!ask(&[host, origin, "origin: http://evil.example"]));
    assert!(!ask(&[host, "origin: http://evil.example", origin]));
}

#[test]
fn the_rate_of_wrong_tokens_is_the_documented_one() {
    let documents = include_str!("../../../../docs/http.md");
    let rate = Duration::from_secs(1).div_duration_f64(SLOW);
    assert!(
        documents.contains(&format!("| {rate} answers per second, and {WAITING} that wait; ")),
        "{rate}, {WAITING}"
    );
}
