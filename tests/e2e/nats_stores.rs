//! The client of JetStream's key-value buckets and object stores, against nats-server and NATS's client for Python.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nkeys::KeyPair;
use tokio::time::timeout;
use visiond_nats::auth::LoginSource;
use visiond_nats::error::NatsError;
use visiond_nats::kv::{Bucket, NewBucket};
use visiond_nats::object::{CHUNK_BYTES, NewStore, Position, Store};
use visiond_nats::{Client, Options};
use visiond_system::credentials::{Login, Secret};
use visiond_tests::nats::{NatsCluster, NatsServer};
use visiond_tests::{HANG, python_packages};

const BUCKET: NewBucket<'_> = NewBucket { description: "states", replicas: 1, history: 1, max_bytes: 0 };
const STORE: NewStore<'_> = NewStore { description: "bundles", replicas: 1, max_bytes: 0 };

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(HANG, test).await.expect("no test hangs") });
}

fn options(server: &NatsServer) -> Options {
    Options::new(vec![format!("nats://127.0.0.1:{}", server.port)], "visiond test")
}

async fn connect(server: &NatsServer) -> Client {
    Client::connect(options(server)).await.unwrap()
}

/// Bytes that differ from one chunk to the next.
fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at * 7 + at / 1000 + at / 131_072) as u8).collect()
}

async fn read(client: &mut Client, store: &Store, name: &str, range: std::ops::Range<u64>) -> Vec<u8> {
    let info = store.info(client, name).await.unwrap().unwrap();
    read_from(client, store, &info, range, &mut Position::default()).await
}

async fn read_from(
    client: &mut Client,
    store: &Store,
    info: &visiond_nats::object::ObjectInfo,
    range: std::ops::Range<u64>,
    position: &mut Position,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut take = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        ControlFlow::Continue(())
    };
    store.read_range(client, info, range, position, &mut take).await.unwrap();
    bytes
}

async fn entries(client: &mut Client, bucket: &Bucket, pattern: &str) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let take = |key: &str, entry: visiond_nats::kv::Entry, _| {
        all.insert(key.to_owned(), String::from_utf8(entry.value.to_vec()).unwrap());
        ControlFlow::Continue(())
    };
    bucket.entries(client, pattern, take).await.unwrap();
    all
}

#[test]
fn keys_that_change_all_the_time_are_all_read_and_the_reading_ends() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let bucket = Bucket::create_if_missing(&mut client, "fleet", &BUCKET).await.unwrap();
        let keys: Vec<_> = (0..5).map(|number| format!("gate-{number}")).collect();
        for key in &keys {
            bucket.put(&mut client, key, b"0").await.unwrap();
        }
        // Together they replace all keys between two requests of the reader.
        let write = async |mut writer: Client| {
            for number in 0_u64.. {
                bucket.put(&mut writer, &keys[number as usize % 5], number.to_string().as_bytes()).await.unwrap();
            }
        };
        let (one, two) = (connect(&server).await, connect(&server).await);
        let (three, four) = (connect(&server).await, connect(&server).await);
        let read = async {
            for _ in 0..50 {
                let all = entries(&mut client, &bucket, ">").await;
                assert!(all.keys().eq(&keys), "{all:?}");
            }
        };
        tokio::select! {
            () = write(one) => {}
            () = write(two) => {}
            () = write(three) => {}
            () = write(four) => {}
            () = read => {}
        }
    });
}

#[test]
fn a_bucket_keeps_values_and_only_one_of_two_writers_wins() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let missing = Bucket::open(&mut client, "fleet").await.unwrap_err();
        assert!(missing.to_string().contains("create it with `nats kv add fleet`"), "{missing}");
        let bucket = Bucket::create_if_missing(&mut client, "fleet", &BUCKET).await.unwrap();
        let again = Bucket::create_if_missing(&mut client, "fleet", &NewBucket { history: 5, ..BUCKET }).await.unwrap();
        assert_eq!((again, Bucket::open(&mut client, "fleet").await.unwrap()), (bucket.clone(), bucket.clone()));

        assert_eq!(bucket.get(&mut client, "gate.model").await.unwrap(), None);
        let first = bucket.put(&mut client, "gate.model", b"1").await.unwrap();
        let lost = bucket.create(&mut client, "gate.model", b"2").await.unwrap_err();
        assert!(matches!(lost, NatsError::LostRace { .. }), "{lost}");
        let second = bucket.update(&mut client, "gate.model", b"{\"error\":{\"code\":503}}", first).await.unwrap();
        assert!(second > first);
        let lost = bucket.update(&mut client, "gate.model", b"3", first).await.unwrap_err();
        assert!(lost.to_string().contains("gate.model in fleet has changed since it was read"), "{lost}");
        let entry = bucket.get(&mut client, "gate.model").await.unwrap().unwrap();
        assert_eq!((&entry.value[..], entry.revision), (&b"{\"error\":{\"code\":503}}"[..], second));

        bucket.delete(&mut client, "gate.model").await.unwrap();
        assert_eq!(bucket.get(&mut client, "gate.model").await.unwrap(), None);
        assert!(entries(&mut client, &bucket, ">").await.is_empty());
        bucket.create(&mut client, "gate.model", b"4").await.unwrap();
        let too_large = bucket.put(&mut client, "gate.model", &vec![0; 2 << 20]).await.unwrap_err();
        assert!(matches!(&too_large, NatsError::TooLarge { most: 1_048_576, .. }), "{too_large}");
        client.close().await;
    });
}

#[test]
fn all_keys_of_a_fleet_are_read_or_those_of_a_pattern() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let bucket = Bucket::create_if_missing(&mut client, "fleet", &BUCKET).await.unwrap();
        assert!(entries(&mut client, &bucket, ">").await.is_empty());
        for number in 0..1500 {
            let key = format!("gate-{number}.{}", if number % 2 == 0 { "model" } else { "state" });
            bucket.put(&mut client, &key, number.to_string().as_bytes()).await.unwrap();
        }
        bucket.put(&mut client, "gate-8.model", b"new").await.unwrap();
        let all = entries(&mut client, &bucket, ">").await;
        assert_eq!((all.len(), all["gate-8.model"].as_str(), all["gate-1499.state"].as_str()), (1500, "new", "1499"));
        assert_eq!(entries(&mut client, &bucket, "*.model").await.len(), 750);
        assert_eq!(entries(&mut client, &bucket, "gate-7.>").await.into_keys().collect::<Vec<_>>(), ["gate-7.state"]);
        assert!(entries(&mut client, &bucket, "yard.>").await.is_empty());
        let mut count = 0;
        let stop = |_: &str, _, _| {
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        bucket.entries(&mut client, ">", stop).await.unwrap();
        assert_eq!(count, 3);
    });
    python(
        server.port,
        "
    assert (await js.stream_info('KV_fleet')).state.consumer_count == 0",
    );
}

#[test]
fn large_values_are_read_a_few_at_a_time() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let bucket = Bucket::create_if_missing(&mut client, "fleet", &BUCKET).await.unwrap();
        let value = vec![b'x'; 1_000_000];
        for number in 0..40 {
            bucket.put(&mut client, &format!("gate-{number}"), &value).await.unwrap();
        }
        let all = entries(&mut client, &bucket, ">").await;
        assert!(all.len() == 40 && all.values().all(|found| found.as_bytes() == value));
    });
}

#[test]
fn a_watch_sees_each_change_although_the_server_is_killed_and_each_wait_is_given_up() {
    let mut server = NatsServer::start();
    run(async {
        let (mut watcher, mut writer) = (connect(&server).await, connect(&server).await);
        let bucket = Bucket::create_if_missing(&mut writer, "fleet", &BUCKET).await.unwrap();
        bucket.put(&mut writer, "gate.model", b"0").await.unwrap();
        bucket.put(&mut writer, "yard.model", b"0").await.unwrap();
        let mut watch = bucket.watch("gate.>").unwrap();
        let first = watch.next(&mut watcher).await.unwrap();
        assert_eq!((first.key.as_str(), first.value.as_deref()), ("gate.model", Some(&b"0"[..])));
        assert_eq!(watch.next_present(&mut watcher).await.unwrap(), None);
        for number in 1..40_u32 {
            if number % 10 == 0 {
                server.kill();
                server.resume();
            }
            if number % 15 == 0 {
                // Another request of the same client.
                assert!(bucket.get(&mut watcher, "yard.model").await.unwrap().is_some());
            }
            bucket.put(&mut writer, "gate.model", number.to_string().as_bytes()).await.unwrap();
            let change = loop {
                if let Ok(change) = timeout(Duration::from_millis(200), watch.next(&mut watcher)).await {
                    break change.unwrap();
                }
            };
            assert_eq!(change.value.unwrap(), number.to_string().as_bytes());
        }
        bucket.delete(&mut writer, "gate.model").await.unwrap();
        let deleted = watch.next(&mut watcher).await.unwrap();
        assert_eq!((deleted.key.as_str(), deleted.value), ("gate.model", None));
    });
}

#[test]
fn an_object_is_read_from_any_byte_although_another_lies_between_its_chunks() {
    let server = NatsServer::start();
    run(async {
        let (mut client, mut other) = (connect(&server).await, connect(&server).await);
        let missing = Store::open(&mut client, "bundles").await.unwrap_err();
        assert!(missing.to_string().contains("create it with `nats object add bundles`"), "{missing}");
        let store = Store::create_if_missing(&mut client, "bundles", &STORE).await.unwrap();
        assert_eq!(store.info(&mut client, "a").await.unwrap(), None);
        let (a, b) = (contents(40 * CHUNK_BYTES + 1), contents(30 * CHUNK_BYTES));
        let mut progress = Vec::new();
        let (mut a_reader, mut b_reader) = (&a[..], &b[..]);
        let (put, other_put) = tokio::join!(
            store.put(&mut client, "a", &mut a_reader, |stored| progress.push(stored)),
            store.put(&mut other, "b", &mut b_reader, |_| {})
        );
        let (info, other_info) = (put.unwrap(), other_put.unwrap());
        assert_eq!((info.size, info.chunks, progress.len()), (a.len() as u64, 41, 41));
        assert_eq!((progress[0], progress[40]), (CHUNK_BYTES as u64, a.len() as u64));
        assert_eq!((other_info.size, other_info.chunks), (b.len() as u64, 30));
        assert_eq!(store.info(&mut client, "a").await.unwrap().as_ref(), Some(&info));

        let size = a.len();
        for range in [
            0..size,
            0..1,
            1..2,
            0..0,
            size..size,
            size - 1..size,
            1_000_000..3_000_000,
            131_072..262_144,
            131_071..131_073,
        ] {
            let bytes = read(&mut client, &store, "a", range.start as u64..range.end as u64).await;
            assert!(bytes == a[range.clone()], "{range:?}");
        }
        assert!(read(&mut client, &store, "b", 0..u64::MAX).await == b);
        // Piece by piece, and back again.
        let mut position = Position::default();
        for start in (0..size).step_by(100_000).chain([5_000_000, 10]) {
            let range = start..size.min(start + 100_000);
            let bytes =
                read_from(&mut client, &store, &info, range.start as u64..range.end as u64, &mut position).await;
            assert!(bytes == a[range.clone()], "{range:?}");
        }
        let mut taken = 0;
        let mut stop = |piece: &[u8]| {
            taken += piece.len();
            ControlFlow::Break(())
        };
        store.read_range(&mut client, &info, 0..u64::MAX, &mut Position::default(), &mut stop).await.unwrap();
        assert_eq!(taken, CHUNK_BYTES);
    });
}

#[test]
fn an_object_after_others_costs_no_more_than_its_bytes() {
    let server = NatsServer::start();
    let received = Arc::new(AtomicU64::new(0));
    let port = counting(server.port, Arc::clone(&received));
    run(async {
        let mut client = connect(&server).await;
        let store = Store::create_if_missing(&mut client, "bundles", &STORE).await.unwrap();
        let bytes = contents(9 * CHUNK_BYTES);
        for name in ["a", "b", "c"] {
            store.put(&mut client, name, &mut &bytes[..], |_| {}).await.unwrap();
        }
        let through = Options::new(vec![format!("nats://127.0.0.1:{port}")], "visiond test");
        let mut client = Client::connect(through).await.unwrap();
        for name in ["a", "b", "c"] {
            received.store(0, Ordering::Relaxed);
            assert!(read(&mut client, &store, name, 0..u64::MAX).await == bytes);
            let sent = received.load(Ordering::Relaxed);
            assert!(sent < bytes.len() as u64 + 20_000, "{name}: {sent} bytes for {}", bytes.len());
        }
    });
}

/// Starts a server that passes connections on, and counts the bytes to clients. Returns its port.
fn counting(server: u16, received: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It ends with the test's process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from_client, &mut to_server));
            let (received, mut from_server, mut to_client) = (Arc::clone(&received), server, client);
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(read @ 1..) = from_server.read(&mut buffer) {
                    received.fetch_add(read as u64, Ordering::Relaxed);
                    if to_client.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn an_object_whose_chunks_have_any_size_is_read_from_any_byte() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let store = Store::create_if_missing(&mut client, "bundles", &STORE).await.unwrap();
        let bytes = contents(20_000);
        // Other clients store what one read of a file or a socket gives them.
        let ends = [0, 1, 9_000, 9_001, 10_000, 19_999, 20_000];
        for chunk in ends.windows(2) {
            client.store("put", "$O.bundles.C.n", &[], &bytes[chunk[0]..chunk[1]]).await.unwrap();
        }
        let description = r#"{"name":"a","bucket":"bundles","nuid":"n","size":20000,"chunks":6,
            "options":{"max_chunk_size":10000}}"#;
        client.store("put", "$O.bundles.M.YQ==", &[("Nats-Rollup", "sub")], description.as_bytes()).await.unwrap();
        for start in [0, 1, 2, 8_999, 9_000, 9_001, 9_500, 10_000, 15_000, 19_998, 19_999] {
            let read = read(&mut client, &store, "a", start as u64..20_000).await;
            assert!(read == bytes[start..], "{start}");
        }
    });
}

#[test]
fn a_replaced_or_deleted_object_leaves_no_chunks() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let small = NewStore { max_bytes: 3 << 20, ..STORE };
        let store = Store::create_if_missing(&mut client, "bundles", &small).await.unwrap();
        let former = contents(2 << 20);
        let former_info = store.put(&mut client, "a", &mut &former[..], |_| {}).await.unwrap();
        // Too large: the former object stays, and nothing of the new one.
        let full = store.put(&mut client, "a", &mut &contents(4 << 20)[..], |_| {}).await.unwrap_err();
        assert!(full.to_string().contains("maximum bytes"), "{full}");
        assert!(read(&mut client, &store, "a", 0..u64::MAX).await == former);
        for number in 0..10 {
            let new = contents(700_000 + number);
            store.put(&mut client, "a", &mut &new[..], |_| {}).await.unwrap();
            assert!(read(&mut client, &store, "a", 0..u64::MAX).await == new);
        }
        let mut take = |_: &[u8]| ControlFlow::Continue(());
        let gone = store.read_range(&mut client, &former_info, 0..9, &mut Position::default(), &mut take).await;
        assert!(gone.unwrap_err().to_string().contains("was replaced, deleted or damaged"));
        store.put(&mut client, "empty", &mut &b""[..], |_| {}).await.unwrap();
        let mut names = Vec::new();
        let take = |info: visiond_nats::object::ObjectInfo, _| {
            names.push((info.name, info.size));
            ControlFlow::Continue(())
        };
        store.list(&mut client, take).await.unwrap();
        assert_eq!(names, [("a".to_owned(), 700_009), ("empty".to_owned(), 0)]);
        assert!(read(&mut client, &store, "empty", 0..u64::MAX).await.is_empty());
        assert!(store.delete(&mut client, "a").await.unwrap());
        assert!(!store.delete(&mut client, "a").await.unwrap());
        assert_eq!(store.info(&mut client, "a").await.unwrap(), None);
        store.put(&mut client, "b", &mut &contents(2 << 20)[..], |_| {}).await.unwrap();
    });
}

#[test]
fn chunks_of_an_object_that_was_never_completed_are_removed_once_they_are_old() {
    let server = NatsServer::start();
    run(async {
        let mut client = connect(&server).await;
        let store = Store::create_if_missing(&mut client, "bundles", &STORE).await.unwrap();
        let bytes = contents(300_000);
        store.put(&mut client, "a", &mut &bytes[..], |_| {}).await.unwrap();
        for _ in 0..3 {
            client.store("put", "$O.bundles.C.left", &[], b"x").await.unwrap();
        }
        let other = client.store("put", "$O.bundles.C.other", &[], b"x").await.unwrap();
        assert_eq!(store.remove_leftovers(&mut client, 2 * HANG).await.unwrap(), 0, "it may be under way");
        assert_eq!(store.remove_leftovers(&mut client, Duration::ZERO).await.unwrap(), 2);
        assert_eq!(store.remove_leftovers(&mut client, Duration::ZERO).await.unwrap(), 0);
        assert!(read(&mut client, &store, "a", 0..u64::MAX).await == bytes);
        assert!(other.seq > 3);
    });
}

#[test]
fn a_transfer_and_a_counter_go_on_while_nodes_of_the_cluster_are_killed() {
    let mut cluster = NatsCluster::start();
    run(async {
        let options = Options { patience: Duration::from_secs(100), ..Options::new(cluster.urls(), "visiond test") };
        let mut client = Client::connect(options.clone()).await.unwrap();
        let store = NewStore { replicas: 3, ..STORE };
        let store = Store::create_if_missing(&mut client, "bundles", &store).await.unwrap();
        let bucket = NewBucket { replicas: 3, ..BUCKET };
        let bucket = Bucket::create_if_missing(&mut client, "fleet", &bucket).await.unwrap();
        let bytes = contents(100 * CHUNK_BYTES + 5);
        let mut chunk = 0;
        let servers = &mut cluster.servers;
        let kill_some = |_| {
            chunk += 1;
            match chunk {
                10 => servers[0].kill(),
                60 => servers[0].resume(),
                _ => {}
            }
        };
        let info = store.put(&mut client, "a", &mut &bytes[..], kill_some).await.unwrap();
        assert_eq!((info.chunks, info.size), (101, bytes.len() as u64));
        cluster.servers[1].kill();
        let (mut taken, mut pieces) = (Vec::new(), 0);
        let servers = &mut cluster.servers;
        let mut take = |piece: &[u8]| {
            taken.extend_from_slice(piece);
            pieces += 1;
            match pieces {
                20 => servers[1].resume(),
                60 => servers[2].kill(),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let all = 0..u64::MAX;
        store.read_range(&mut client, &info, all, &mut Position::default(), &mut take).await.unwrap();
        assert!(taken == bytes);
        cluster.servers[2].resume();

        let mut revision = bucket.create(&mut client, "count", b"0").await.unwrap();
        for count in 1..=60_usize {
            if count == 20 {
                cluster.servers[2].kill();
            }
            revision = bucket.update(&mut client, "count", count.to_string().as_bytes(), revision).await.unwrap();
        }
        let mut watch = bucket.watch("count").unwrap();
        let last = watch.next(&mut client).await.unwrap();
        assert_eq!((last.value.as_deref(), last.revision), (Some(&b"60"[..]), revision));
        // Each change was stored once.
        assert_eq!(revision, 61);
    });
}

#[test]
fn each_refusal_says_what_to_do() {
    let server = NatsServer::start_with(|_| {
        "authorization { users: [
            { user: gate, password: x, permissions: { publish: [\"$JS.API.>\", \"$KV.fleet.gate.>\"], subscribe: \"_INBOX.>\" } }
            { user: deaf, password: x, permissions: { publish: \">\", subscribe: \"none\" } }
            { user: root, password: x } ] }"
            .to_owned()
    });
    let bare = NatsServer::start_bare(|_| String::new());
    run(async {
        let login = |user: &str, password: &str| {
            let login = LoginSource::Login(Login::new(user.to_owned(), password.to_owned()));
            Options { login, patience: Duration::from_secs(5), ..options(&server) }
        };
        let error = Client::connect(options(&server)).await.unwrap_err();
        assert!(matches!(error, NatsError::Login(_)) && error.to_string().contains("set `login` or"), "{error}");
        let error = Client::connect(login("gate", "y")).await.unwrap_err();
        assert!(error.to_string().contains("rejects this user and password: check `login`"), "{error}");
        let mut root = Client::connect(login("root", "x")).await.unwrap();
        Bucket::create_if_missing(&mut root, "fleet", &BUCKET).await.unwrap();
        let mut client = Client::connect(login("gate", "x")).await.unwrap();
        let bucket = Bucket::open(&mut client, "fleet").await.unwrap();
        bucket.put(&mut client, "gate.model", b"1").await.unwrap();
        let error = bucket.put(&mut client, "yard.model", b"1").await.unwrap_err();
        assert!(error.to_string().contains("may not publish to $KV.fleet.yard.model: allow it"), "{error}");
        bucket.put(&mut client, "gate.model", b"2").await.unwrap();
        let mut client = Client::connect(login("deaf", "x")).await.unwrap();
        let error = Bucket::open(&mut client, "fleet").await.unwrap_err();
        assert!(error.to_string().contains("may not subscribe to _INBOX.>: allow it"), "{error}");

        let mut client = connect(&bare).await;
        let error = Bucket::open(&mut client, "fleet").await.unwrap_err();
        assert!(error.to_string().contains("JetStream is off: start the server with -js"), "{error}");
        let unused = Options::new(vec!["nats://127.0.0.1:1".to_owned()], "visiond test");
        let error = Client::connect(unused).await.unwrap_err();
        assert!(
            matches!(error, NatsError::Unreachable(_)) && error.to_string().contains("check that nats-server runs")
        );
    });
}

#[test]
fn a_token_and_an_nkey_let_a_device_in() {
    let pair = KeyPair::new_user();
    let by_key = NatsServer::start_with(|folder| {
        std::fs::write(folder.join("gate.nk"), pair.seed().unwrap()).unwrap();
        format!("authorization {{ users: [ {{ nkey: {} }} ] }}", pair.public_key())
    });
    let by_token = NatsServer::start_with(|_| "authorization { token: s3cr3t }".to_owned());
    run(async {
        for (server, login, wrong) in [
            (
                &by_key,
                LoginSource::NkeyFile(by_key.path("gate.nk")),
                LoginSource::Token(Secret::new("s3cr3t".to_owned())),
            ),
            (
                &by_token,
                LoginSource::Token(Secret::new("s3cr3t".to_owned())),
                LoginSource::Token(Secret::new("other".to_owned())),
            ),
        ] {
            let mut client = Client::connect(Options { login, ..options(server) }).await.unwrap();
            Bucket::create_if_missing(&mut client, "fleet", &BUCKET).await.unwrap();
            let error = Client::connect(Options { login: wrong, ..options(server) }).await.unwrap_err();
            assert!(error.to_string().contains("the server rejects this token: check NATS_TOKEN"), "{error}");
        }
    });
}

/// Runs a Python program with nats-py; `port` is that of the server.
pub fn python(port: u16, program: &str) {
    let program = format!(
        "import asyncio, hashlib, nats, nats.js.api
async def main():
    connection = await nats.connect('nats://127.0.0.1:{port}')
    js = connection.jetstream()
    contents = bytes((at * 7 + at // 1000 + at // 131072) & 255 for at in range(1000003))
{program}
    await connection.close()
asyncio.run(main())
"
    );
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", python_packages()).args(["-c", &program]).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn values_and_objects_are_exchanged_with_the_official_client() {
    let server = NatsServer::start();
    python(
        server.port,
        "
    kv = await js.create_key_value(bucket='theirs', history=5, direct=True)
    await kv.put('gate.model', b'1')
    await kv.put('gate.model', b'2')
    await kv.put('gone', b'1')
    await kv.delete('gone')
    store = await js.create_object_store('theirs')
    await store.put('dir/model 1.bundle', contents)
    await store.put('replaced', b'a' * 300000)
    await store.put('replaced', b'b')",
    );
    run(async {
        let mut client = connect(&server).await;
        let bucket = Bucket::open(&mut client, "theirs").await.unwrap();
        let entry = bucket.get(&mut client, "gate.model").await.unwrap().unwrap();
        assert_eq!((&entry.value[..], entry.revision), (&b"2"[..], 2));
        assert_eq!(bucket.get(&mut client, "gone").await.unwrap(), None);
        assert_eq!(entries(&mut client, &bucket, ">").await.into_keys().collect::<Vec<_>>(), ["gate.model"]);
        bucket.update(&mut client, "gate.model", b"3", 2).await.unwrap();
        let store = Store::open(&mut client, "theirs").await.unwrap();
        let bytes = contents(1_000_003);
        let info = store.info(&mut client, "dir/model 1.bundle").await.unwrap().unwrap();
        assert_eq!(info.size, 1_000_003);
        assert!(read(&mut client, &store, "dir/model 1.bundle", 0..u64::MAX).await == bytes);
        assert!(read(&mut client, &store, "dir/model 1.bundle", 500_000..u64::MAX).await == bytes[500_000..]);
        assert_eq!(read(&mut client, &store, "replaced", 0..u64::MAX).await, b"b");
        assert!(store.delete(&mut client, "replaced").await.unwrap());

        let bucket = Bucket::create_if_missing(&mut client, "ours", &BUCKET).await.unwrap();
        bucket.put(&mut client, "gate.model", b"7").await.unwrap();
        bucket.put(&mut client, "gone", b"7").await.unwrap();
        bucket.delete(&mut client, "gone").await.unwrap();
        let store = Store::create_if_missing(&mut client, "ours", &STORE).await.unwrap();
        let put = store.put(&mut client, "dir/model 1.bundle", &mut &bytes[..], |_| {}).await.unwrap();
        assert!(put.sha256().is_some());
    });
    // Its `get` compares the digest.
    python(
        server.port,
        "
    kv = await js.key_value('theirs')
    assert (await kv.get('gate.model')).value == b'3'
    kv = await js.key_value('ours')
    entry = await kv.get('gate.model')
    assert (entry.value, entry.revision) == (b'7', 1), entry
    assert await kv.keys() == ['gate.model'], await kv.keys()
    await kv.update('gate.model', b'8', last=1)
    store = await js.object_store('ours')
    got = await store.get('dir/model 1.bundle')
    assert got.data == contents and got.info.size == len(contents)
    digest = hashlib.sha256(contents).digest()
    import base64
    assert got.info.digest == 'SHA-256=' + base64.urlsafe_b64encode(digest).decode(), got.info
    assert [info.name for info in await store.list()] == ['dir/model 1.bundle']
    store = await js.object_store('theirs')
    assert [info.name for info in await store.list(ignore_deletes=True)] == ['dir/model 1.bundle']",
    );
}
