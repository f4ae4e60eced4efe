#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpListener;

use socket2::{Domain, Socket, Type};

use super::*;

/// Runs a future on a runtime as a session has it.
fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn url(port: u16) -> Url {
    Url::parse(&format!("rtsp://127.0.0.1:{port}/live")).unwrap()
}

#[test]
fn a_camera_that_accepts_connections_is_there() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url(camera.local_addr().unwrap().port());
    assert_eq!(block_on(async { Reachability::of(&url).await.absence().await }), None);
}

#[test]
fn a_camera_that_accepts_no_connection_is_absent_and_returns() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    block_on(async {
        let reachability = Reachability::of(&url(port)).await;
        assert_eq!(reachability.lost().await, Absence::Unreachable);
        let start = async {
            // After it was found absent once.
            sleep(INTERVAL * 3 / 2).await;
            TcpListener::bind(("127.0.0.1", port)).unwrap()
        };
        let (_camera, ()) = tokio::join!(start, reachability.returned());
    });
}

#[test]
fn a_camera_whose_name_has_another_address_has_moved() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = camera.local_addr().unwrap().port();
    let before = Reachability { host: "127.0.0.1".into(), port, addresses: vec![([127, 0, 0, 2], port).into()] };
    block_on(async {
        assert_eq!(before.lost().await, Absence::Moved);
        before.returned().await;
    });
}

#[test]
fn a_name_that_is_not_resolved_any_more_keeps_its_address() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = camera.local_addr().unwrap();
    let unresolved = Reachability { host: "camera.invalid".into(), port: address.port(), addresses: vec![address] };
    assert_eq!(block_on(unresolved.absence()), None);
}

#[test]
fn a_name_that_was_not_resolved_at_first_has_not_moved() {
    let camera = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = camera.local_addr().unwrap().port();
    let late = Reachability { host: "127.0.0.1".into(), port, addresses: Vec::new() };
    assert_eq!(block_on(late.absence()), None);
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
    let both = Reachability { host: "camera.invalid".into(), port: 1, addresses: addresses.clone() };
    assert_eq!(block_on(both.absence()), None);
    let silent = Reachability { addresses: vec![first], ..both };
    assert_eq!(block_on(silent.absence()), Some(Absence::Unreachable));
    drop(held);
}

#[test]
fn an_address_of_version_6_and_the_usual_port_are_understood() {
    let at = |text: &str| block_on(Reachability::of(&Url::parse(text).unwrap())).addresses;
    assert_eq!(at("rtsp://[::1]/live"), ["[::1]:554".parse().unwrap()]);
    assert_eq!(at("rtsp://127.0.0.1:8554/live"), ["127.0.0.1:8554".parse().unwrap()]);
}
