#![allow(clippy::unwrap_used)]

use std::fs;

use visiond_system::testing::at_once;

use super::*;

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
    assert!(!format!("{rules:?}").contains(&cookie) && !format!("{rules:?}").contains(TOKEN));
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
