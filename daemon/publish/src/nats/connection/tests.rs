#![allow(clippy::unwrap_used)]

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use visiond_config::types::{Config, SinkKind};
use visiond_nats::protocol::{PING, PONG};
use visiond_nats::wire::{MOST_PINGS, MOST_UNREAD, PING_INTERVAL};
use visiond_system::testing::{HANG, at_once};

use super::*;

fn config(keys: &str) -> NatsSinkConfig {
    let text = format!("[[sink]]\ntype = \"nats\"\nurl = [\"nats://localhost\"]\n{keys}");
    let config = Config::parse(&text, std::path::Path::new("test.toml")).unwrap();
    let SinkKind::Nats(nats) = &config.sinks[0].kind else { panic!() };
    nats.clone()
}

/// A connection whose server is the test, and whose pipe holds `capacity` bytes.
fn connection_with(pipe_bytes: usize) -> (NatsConnection, DuplexStream) {
    let (ours, theirs) = duplex(pipe_bytes);
    let accepted = Accepted { stream: Box::new(ours), input: BytesMut::new(), max_payload: 200 };
    let connection =
        NatsConnection::new(accepted, "_INBOX.x.".to_owned(), "nats://test".to_owned(), "nats", &config(""));
    (connection, theirs)
}

fn message(number: u64, line: &'static str) -> QueuedMessage {
    let id = format!("0-{number}").into();
    QueuedMessage { number, id, camera: "door".into(), line: Bytes::from_static(line.as_bytes()) }
}

async fn says(server: &mut DuplexStream, text: &str) {
    server.write_all(text.as_bytes()).await.unwrap();
}

/// Returns the bytes that the server has received.
async fn got(server: &mut DuplexStream) -> String {
    let mut bytes = BytesMut::new();
    while at_once(server.read_buf(&mut bytes)).await.is_some_and(|n| n.unwrap() > 0) {}
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the number of the next acknowledged message; `None` if nothing is ready.
async fn acknowledged(connection: &mut NatsConnection) -> Option<Result<Option<u64>, String>> {
    Some(at_once(connection.next()).await?.map(|answer| match answer {
        Answer::Acknowledged(message) => Some(message.number),
        Answer::Nothing => None,
        refused => panic!("{refused:?}"),
    }))
}

/// Returns the number of the next message that the server refuses, and why.
async fn refused(connection: &mut NatsConnection) -> (u64, String) {
    match at_once(connection.next()).await {
        Some(Ok(Answer::Refused(number, reason))) => (number, reason),
        other => panic!("{other:?}"),
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
}

const ACKNOWLEDGED: &str = "{\"stream\":\"v\",\"seq\":1}";

fn answer(number: u64, payload: &str) -> String {
    format!("MSG _INBOX.x.{number} 1 {}\r\n{payload}\r\n", payload.len())
}

#[test]
fn messages_are_acknowledged_in_any_order_and_by_their_own_answers() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        connection.send("a", &message(7, "{}"), true).await;
        connection.send("a", &message(8, "{}"), true).await;
        connection.send("a", &message(6, "{}"), false).await;
        let sent = got(&mut server).await;
        assert!(sent.starts_with("HPUB a _INBOX.x.1 30 32\r\nNATS/1.0\r\nNats-Msg-Id: 0-7\r\n\r\n{}\r\n"), "{sent}");
        assert_eq!(acknowledged(&mut connection).await, None);
        // Answers to none of them, one in two parts.
        says(&mut server, &answer(9, ACKNOWLEDGED)).await;
        says(&mut server, &answer(2, ACKNOWLEDGED).replace("_INBOX.x", "_INBOX.y")).await;
        let whole = answer(2, ACKNOWLEDGED);
        says(&mut server, &whole[..20]).await;
        assert_eq!(acknowledged(&mut connection).await, None);
        says(&mut server, &whole[20..]).await;
        assert_eq!(acknowledged(&mut connection).await, Some(Ok(Some(8))));
        says(&mut server, &(answer(3, ACKNOWLEDGED) + &answer(1, ACKNOWLEDGED))).await;
        assert_eq!(acknowledged(&mut connection).await, Some(Ok(None)), "the sink does not wait for it");
        assert_eq!(acknowledged(&mut connection).await, Some(Ok(Some(7))));
        assert_eq!(acknowledged(&mut connection).await, None);
    });
}

#[test]
fn a_message_that_no_stream_accepts_is_refused_and_the_connection_goes_on() {
    run(async {
        for (said, words) in [
            (
                "HMSG _INBOX.x.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n".to_owned(),
                "no stream accepts the messages of camera door",
            ),
            (
                answer(1, r#"{"error":{"code":400,"err_code":10060,"description":"no"}}"#),
                "of camera door: no (code 400",
            ),
            (answer(1, "{}"), "its answer is not an acknowledgement"),
            ("-ERR 'Permissions Violation for Publish to \"a\"'\r\n".to_owned(), "allow this login to publish"),
        ] {
            let (mut connection, mut server) = connection_with(1 << 16);
            connection.send("a", &message(7, "{}"), true).await;
            connection.send("b", &message(8, "{}"), true).await;
            says(&mut server, &said).await;
            let (number, reason) = refused(&mut connection).await;
            assert!(number == 7 && reason.starts_with("nats://test: ") && reason.contains(words), "{reason}");
            says(&mut server, &answer(2, ACKNOWLEDGED)).await;
            assert_eq!(acknowledged(&mut connection).await, Some(Ok(Some(8))));
        }
    });
}

#[test]
fn a_message_that_the_stream_can_never_accept_is_given_up() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        connection.send("a", &message(7, "{}"), true).await;
        connection.send("a", &message(8, "{}"), false).await;
        let too_large =
            r#"{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}"#;
        says(&mut server, &(answer(1, too_large) + &answer(2, too_large))).await;
        let words = "nats://test: the stream rejects 0-7 of camera door: message size exceeds maximum allowed";
        match connection.next().await {
            Ok(Answer::Impossible(7, reason)) if reason.starts_with(words) && reason.contains("max_msg_size") => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(acknowledged(&mut connection).await, Some(Ok(None)), "the sink does not wait for it");
    });
}

#[test]
fn a_subject_whose_messages_are_not_acknowledged_is_refused_if_others_are() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        connection.ack_timeout = Duration::from_secs(3600);
        connection.send("a", &message(7, "{}"), true).await;
        connection.send("b", &message(8, "{}"), true).await;
        says(&mut server, &answer(2, ACKNOWLEDGED)).await;
        assert_eq!(acknowledged(&mut connection).await, Some(Ok(Some(8))));
        connection.ack_timeout = Duration::ZERO;
        assert!(
            matches!(connection.next().await, Ok(Answer::Refused(7, reason)) if reason.contains("camera door: no ack"))
        );
        // Nothing is acknowledged: another server of the cluster may do better.
        connection.send("a", &message(9, "{}"), true).await;
        assert!(connection.next().await.is_err());
    });
}

#[test]
fn the_servers_own_reason_comes_before_the_end() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        connection.send("a", &message(7, "{}"), true).await;
        says(&mut server, "-ERR 'Permissions Violation for Publish to \"b\"'\r\n").await;
        drop(server);
        connection.send("a", &message(8, "{}"), true).await;
        let reason = acknowledged(&mut connection).await.unwrap().unwrap_err();
        let words = "nats://test: the server says: Permissions Violation for Publish to \"b\"; allow this login";
        assert!(reason.starts_with(words), "{reason}");
        let (mut connection, server) = connection_with(1 << 16);
        drop(server);
        let ended = "nats://test: the server has ended the connection".to_owned();
        assert_eq!(acknowledged(&mut connection).await, Some(Err(ended)));
    });
}

#[test]
fn a_message_too_large_for_the_server_is_left_out() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        let long: &'static str = Box::leak("x".repeat(200).into_boxed_str());
        connection.send("a", &message(7, long), true).await;
        connection.send("a", &message(6, long), false).await;
        assert_eq!(got(&mut server).await, "");
        assert!(
            matches!(connection.left_out.make_contiguous(), [(Some(7), reason), (None, _)] if reason.contains("as too large"))
        );
        // A server may change its limit.
        says(&mut server, "INFO {\"max_payload\":1000}\r\n").await;
        assert_eq!(acknowledged(&mut connection).await, None);
        connection.send("a", &message(8, long), true).await;
        assert!(got(&mut server).await.contains("0-8"));
    });
}

#[test]
fn a_slow_reader_gets_every_byte_although_each_wait_is_given_up() {
    run(async {
        let (mut connection, mut server) = connection_with(7);
        for number in 0..20 {
            connection.send("a", &message(number, "{}"), true).await;
        }
        let mut received = String::new();
        for _ in 0..600 {
            assert_eq!(acknowledged(&mut connection).await, None);
            received += &got(&mut server).await;
        }
        for number in 0..20 {
            assert!(received.contains(&format!("Nats-Msg-Id: 0-{number}\r\n\r\n{{}}\r\n")), "{received}");
        }
        assert_eq!(received.matches("HPUB").count(), 20);
    });
}

#[test]
fn a_server_that_never_stops_is_given_up_and_fills_no_memory() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 20);
        // It reads none of the answers.
        let chunk = "PING\r\n".repeat((1 << 20) / 6);
        for _ in 0..4 {
            says(&mut server, &chunk).await;
            assert_eq!(acknowledged(&mut connection).await, None);
            assert!(connection.wire.output.len() <= MOST_UNREAD + PONG.len(), "{}", connection.wire.output.len());
        }
        says(&mut server, &chunk).await;
        let given_up = "nats://test: the server sent 4 MiB that visiond did not request".to_owned();
        assert_eq!(acknowledged(&mut connection).await, Some(Err(given_up)));
    });
}

#[test]
fn a_silent_server_is_asked_and_then_given_up() {
    run(async {
        let (mut connection, mut server) = connection_with(1 << 16);
        for _ in 0..2 {
            // As if it had been silent since then.
            for _ in 0..MOST_PINGS {
                connection.wire.received_at -= PING_INTERVAL;
                let mut ping = [0; PING.len()];
                tokio::select! {
                    lost = connection.next() => panic!("{lost:?}"),
                    read = server.read_exact(&mut ping) => drop(read.unwrap()),
                }
                assert_eq!(ping, PING);
            }
            says(&mut server, "PONG\r\n").await;
            assert_eq!(acknowledged(&mut connection).await, None, "it answers");
        }
        connection.wire.received_at -= PING_INTERVAL * (MOST_PINGS + 1);
        let given_up = "nats://test: no word from the server for 30 s: check the server and the network".to_owned();
        assert_eq!(connection.next().await, Err(given_up));
    });
}

#[test]
fn a_stream_that_does_not_acknowledge_in_time_is_given_up() {
    run(async {
        let (mut connection, _server) = connection_with(1 << 16);
        connection.send("a", &message(7, "{}"), true).await;
        assert_eq!(acknowledged(&mut connection).await, None);
        let ack_timeout = connection.ack_timeout;
        connection.in_flight.values_mut().for_each(|sent| sent.sent -= ack_timeout);
        let given_up = format!("nats://test: no acknowledgement within {} s", ack_timeout.as_secs_f32());
        assert_eq!(connection.next().await, Err(given_up));
    });
}
