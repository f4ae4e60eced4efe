#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpListener;
use std::thread;

use socket2::{Domain, Socket, Type};

use super::*;

/// Tries once.
fn try_once(reachability: &mut Reachability) -> Option<Absence> {
    reachability.begin();
    loop {
        if let Some(outcome) = reachability.outcome(Instant::now()) {
            return outcome;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn resolved(url: &Url) -> Vec<SocketAddr> {
    let lookup = Lookup::of(url);
    loop {
        if let Some(answer) = lookup.answer() {
            return answer.unwrap();
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn at(url: &Url) -> Reachability {
    Reachability::new(url, resolved(url))
}

fn url(port: u16) -> Url {
    Url::parse(&format!("rtsp://127.0.0.1:{port}/live")).unwrap()
}

#[test]
fn a_camera_that_accepts_connections_is_there() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url(camera.local_addr().unwrap().port());
    assert_eq!(try_once(&mut at(&url)), None);
}

#[test]
fn a_camera_that_accepts_no_connection_is_absent_and_returns() {
    // It reserves the port, and refuses connections until it listens.
    let camera = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    camera.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let mut reachability = at(&url(camera.local_addr().unwrap().as_socket().unwrap().port()));
    assert_eq!(try_once(&mut reachability), Some(Absence::Unreachable));
    assert!(!reachability.is_trying());
    camera.listen(16).unwrap();
    assert_eq!(try_once(&mut reachability), None);
}

#[test]
fn a_camera_whose_name_has_another_address_has_moved() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = camera.local_addr().unwrap().port();
    let mut before = Reachability::new(&url(port), vec![([127, 0, 0, 2], port).into()]);
    assert_eq!(try_once(&mut before), Some(Absence::Moved));
}

#[test]
fn a_name_that_is_not_resolved_any_more_keeps_its_address() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = camera.local_addr().unwrap();
    let unknown = Url::parse(&format!("rtsp://camera.invalid:{}/live", address.port())).unwrap();
    assert_eq!(try_once(&mut Reachability::new(&unknown, vec![address])), None);
}

#[test]
fn a_name_that_was_not_resolved_at_first_has_not_moved() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = camera.local_addr().unwrap().port();
    assert_eq!(try_once(&mut Reachability::new(&url(port), Vec::new())), None);
}

#[test]
fn a_camera_is_there_if_one_of_its_addresses_answers() {
    // The first accepts no more connections, and does not refuse them.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let first = full.local_addr().unwrap().as_socket().unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&first, Duration::from_millis(200)).ok();
    let held: Vec<_> = std::iter::from_fn(connect).collect();
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = vec![first, camera.local_addr().unwrap()];
    let unknown = Url::parse("rtsp://camera.invalid:1/live").unwrap();
    assert_eq!(try_once(&mut Reachability::new(&unknown, addresses)), None);
    assert_eq!(try_once(&mut Reachability::new(&unknown, vec![first])), Some(Absence::Unreachable));
    drop(held);
}

#[test]
fn an_address_of_version_6_and_the_usual_port_are_understood() {
    let at = |text: &str| resolved(&Url::parse(text).unwrap());
    assert_eq!(at("rtsp://[::1]/live"), ["[::1]:554".parse().unwrap()]);
    assert_eq!(at("rtsps://127.0.0.1/live"), ["127.0.0.1:322".parse().unwrap()]);
    assert_eq!(at("rtsp://127.0.0.1:8554/live"), ["127.0.0.1:8554".parse().unwrap()]);
}

#[test]
fn a_camera_whose_sessions_end_at_another_connection_is_tried_no_more() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url(camera.local_addr().unwrap().port());
    let end = |after: Duration| {
        let mut reachability = at(&url);
        assert_eq!(try_once(&mut reachability), None);
        reachability.session_ended(Instant::now() + after);
        reachability.is_harmful()
    };
    let (soon, late) = (Duration::ZERO, Duration::from_secs(60));
    assert!(!end(soon) && !end(late) && !end(soon));
    assert!(end(soon));
    // A session without a test connection proves nothing.
    at(&url).session_ended(Instant::now());
    assert!(at(&url).is_harmful());
}
