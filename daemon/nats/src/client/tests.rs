#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ops::ControlFlow;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use visiond_system::testing::HANG;

use super::*;
use crate::kv::Bucket;
use crate::object::{ObjectInfo, Position, Store};

const INFO: &str = "INFO {\"max_payload\":1048576,\"headers\":true}\r\n";
const STREAM: &str = r#"{"config":{"allow_direct":true},"state":{}}"#;

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
}

async fn listen() -> (TcpListener, Options) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    (listener, Options::new(vec![url], "test"))
}

/// Accepts a connection as a server does.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.write_all(INFO.as_bytes()).await;
    while next_line(&mut stream).await.is_some_and(|line| line != "PING") {}
    let _ = stream.write_all(b"PONG\r\n").await;
    stream
}

/// Reads a line; `None` at the end.
async fn next_line(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\r\n") {
        text.push(stream.read_u8().await.ok()?.into());
    }
    Some(text.trim_end().to_owned())
}

async fn line(stream: &mut TcpStream) -> String {
    next_line(stream).await.expect("the client goes on")
}

/// Returns subject and reply subject of the next request.
async fn request(stream: &mut TcpStream) -> (String, String) {
    loop {
        let line = line(stream).await;
        let words: Vec<_> = line.split(' ').collect();
        if let ["PUB" | "HPUB", subject, reply, ..] = words[..] {
            return (subject.to_owned(), reply.to_owned());
        }
    }
}

/// Answers a request.
async fn answer(stream: &mut TcpStream, reply: &str, payload: &str) {
    let answer = match payload {
        "" => format!("HMSG {reply} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
        _ => format!("MSG {reply} 1 {}\r\n{payload}\r\n", payload.len()),
    };
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[test]
fn a_request_is_repeated_until_the_cluster_has_a_leader_and_over_another_connection() {
    run(async {
        let (listener, options) = listen().await;
        let server = async {
            let mut stream = accept(&listener).await;
            let unready = r#"{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}"#;
            for said in [unready, "", unready] {
                let (_, reply) = request(&mut stream).await;
                answer(&mut stream, &reply, said).await;
            }
            let first = request(&mut stream).await;
            drop(stream);
            let mut stream = accept(&listener).await;
            let (subject, reply) = request(&mut stream).await;
            assert_eq!(subject, first.0);
            assert_ne!(reply, first.1, "no answer to the first request is taken for one to the second");
            answer(&mut stream, &first.1, "{}").await;
            answer(&mut stream, &reply, STREAM).await;
            stream
        };
        let client = async {
            let mut client = Client::connect(options).await.unwrap();
            Bucket::open(&mut client, "fleet").await.unwrap();
        };
        tokio::join!(client, server);
    });
}

#[test]
fn a_write_is_repeated_with_the_same_id() {
    run(async {
        let (listener, options) = listen().await;
        let server = async {
            let mut ids = Vec::new();
            for _ in 0..2 {
                let mut stream = accept(&listener).await;
                let (_, reply) = request(&mut stream).await;
                assert_eq!(line(&mut stream).await, "NATS/1.0");
                ids.push(line(&mut stream).await);
                if ids.len() == 2 {
                    answer(&mut stream, &reply, r#"{"stream":"s","seq":7,"duplicate":true}"#).await;
                }
            }
            assert!(ids[0].starts_with("Nats-Msg-Id: ") && ids[0] == ids[1], "{ids:?}");
        };
        let client = async {
            let mut client = Client::connect(options).await.unwrap();
            assert_eq!(client.store("set a", "a", &[], b"1").await.unwrap(), Stored { seq: 7 });
        };
        tokio::join!(client, server);
    });
}

#[test]
fn what_lasts_is_not_repeated() {
    for (said, words) in [
        (r#"{"error":{"code":503,"err_code":10076,"description":"off"}}"#, "JetStream is off: start the server"),
        (r#"{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}"#, "maximum bytes exceeded"),
        (r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#, "nats kv add fleet"),
        ("{}", "the answer is invalid (missing field `config`"),
        ("?", "the answer is invalid (expected value"),
        (r#"{"config":{"allow_direct":false},"state":{}}"#, "nats stream edit KV_fleet --allow-direct"),
    ] {
        run(async {
            let (listener, options) = listen().await;
            let server = async {
                let mut stream = accept(&listener).await;
                let (_, reply) = request(&mut stream).await;
                answer(&mut stream, &reply, said).await;
                stream
            };
            let client = async {
                let mut client = Client::connect(options).await.unwrap();
                let error = Bucket::open(&mut client, "fleet").await.unwrap_err().to_string();
                assert!(error.starts_with("nats://127.0.0.1:") && error.contains(words), "{error}");
            };
            tokio::join!(client, server);
        });
    }
}

#[test]
fn a_server_that_is_gone_is_an_error_once_the_patience_is_over() {
    run(async {
        let (listener, options) = listen().await;
        let options = Options { patience: Duration::from_millis(200), ..options };
        let (client, stream) = tokio::join!(Client::connect(options), accept(&listener));
        let mut client = client.unwrap();
        drop((stream, listener));
        let error = Bucket::open(&mut client, "fleet").await.unwrap_err();
        assert!(matches!(error, NatsError::Lost { .. }), "{error}");
        assert!(error.to_string().contains("check that nats-server runs there"), "{error}");
    });
}

/// The pieces of a hostile server's answer.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(
        &[
            "MSG @R 1 2\r\n{}\r\n",
            "MSG x 2 $JS.ACK.s.c.1.1.1.1.9 1\r\nx\r\n",
            "MSG $KV.b.a 3 $JS.ACK.s.c.1.1.1.1.0 1\r\nx\r\n",
            "MSG $O.b.M.a 4 $JS.ACK.s.c.1.18446744073709551615.1.1.18446744073709551615 2\r\n{}\r\n",
            "HMSG @R 1 35 36\r\nNATS/1.0\r\nNats-Sequence: 5\r\n\r\n\0\0x\r\n",
            "HMSG @R 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            "HMSG @R 1 16 16\r\nNATS/1.0 404\r\n\r\n\r\n",
            "HMSG @R 3 16 16\r\nNATS/1.0 408\r\n\r\n\r\n",
            "HMSG @R 3 16 16\r\nNATS/1.0 100\r\n\r\n\r\n",
            "MSG @R 1 17\r\n{\"num_pending\":3}\r\n",
            "MSG @R 1 47\r\n{\"error\":{\"code\":503,\"err_code\":10008,\"x\":[12]}}\r\n",
            "MSG @R 1 9\r\n{\"seq\":1}\r\n",
            "-ERR 'Permissions Violation for Publish to \"a\"'\r\n",
            "-ERR 'x'\r\n",
            "INFO {\"max_payload\":0}\r\n",
            "PING\r\n",
        ][..],
    );
    prop_oneof![
        8 => fixed.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn nothing_that_a_server_answers_panics_or_keeps_the_client_for_ever(script in prop::collection::vec(pieces(), 1..12)) {
        run(async {
            let (listener, options) = listen().await;
            let options = Options { patience: Duration::from_millis(20), ..options };
            let server = async {
                let mut script = script.iter().cycle();
                loop {
                    let mut stream = accept(&listener).await;
                    while let Some(line) = next_line(&mut stream).await {
                        let words: Vec<_> = line.split(' ').collect();
                        let ["PUB" | "HPUB", _, reply, ..] = words[..] else { continue };
                        let said = script.next().unwrap();
                        let said = String::from_utf8_lossy(said).replace("@R", reply);
                        if stream.write_all(said.as_bytes()).await.is_err() {
                            break;
                        }
                    }
                }
            };
            let client = async {
                let mut client = Client::connect(options).await.unwrap();
                let _ = Bucket::open(&mut client, "b").await;
                let bucket = Bucket::unchecked("b");
                let _ = bucket.get(&mut client, "a").await;
                let _ = bucket.create(&mut client, "a", b"1").await;
                let _ = bucket.entries(&mut client, ">", |_, _, _| ControlFlow::Continue(())).await;
                let store = Store::unchecked("b");
                let _ = store.put(&mut client, "a", &mut &b"1"[..], |_| {}).await;
                let _ = store.list(&mut client, |_, _| ControlFlow::Continue(())).await;
                let info = r#"{"name":"a","nuid":"n","size":300000,"chunks":3,"options":{"max_chunk_size":131072}}"#;
                let info: ObjectInfo = serde_json::from_str(info).unwrap();
                for start in [0, 200_000] {
                    let mut take = |_: &[u8]| ControlFlow::Continue(());
                    let _ = store.read_range(&mut client, &info, start..300_000, &mut Position::default(), &mut take).await;
                }
            };
            tokio::select! {
                () = client => {}
                () = server => {}
            }
        });
    }
}
