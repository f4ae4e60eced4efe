//! Hostile brokers and damaged spools, for `tests/fuzz`.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::time::timeout;
use visiond_config::types::{Config, SinkConfig, SinkKind};
use visiond_live::Live;

use crate::broker::{BrokerClient, BrokerEvent, QueuedMessage};
use crate::mqtt::MqttClient;
use crate::nats::NatsClient;
use crate::sink::SinkContext;
use crate::spool::Spool;

/// Separates two parts of a peer's script: a byte that cannot occur in UTF-8.
const PAUSE: u8 = 0xFF;
/// A placeholder for the subject on which a NATS client waits for its next answer.
const REPLY: &[u8] = b"@R";
/// The messages that are sent to a broker.
const MESSAGES: u64 = 4;
/// More events than a script can cause. Time is simulated, so this passes at once.
const EVENTS: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(600);

/// Connects to a broker that sends `script` regardless of its input; the first byte chooses the options.
pub fn mqtt(script: &[u8]) {
    let Some((choice, script)) = script.split_first() else { return };
    let protocol = if choice & 1 == 0 { "5" } else { "3.1.1" };
    let options = format!(
        "protocol = \"{protocol}\"\nqos_detections = {}\nhome_assistant = {}",
        (choice >> 1 & 3).min(2),
        choice & 0x20 == 0
    );
    face("mqtt", "mqtt://ADDRESS", &options, script, |sink, context| match &sink.kind {
        SinkKind::Mqtt(config) => MqttClient::open(sink, config, context).ok(),
        _ => None,
    });
}

/// Connects to a server that sends `script` regardless of its input; the first byte chooses the options.
pub fn nats(script: &[u8]) {
    let Some((choice, script)) = script.split_first() else { return };
    let options = match choice & 3 {
        0 => "",
        1 => "stream = \"visiond\"",
        _ => "stream = \"visiond\"\ncreate_stream = true",
    };
    face("nats", "nats://ADDRESS", options, script, |sink, context| match &sink.kind {
        SinkKind::Nats(config) => NatsClient::open(&sink.name, config, &context).ok(),
        _ => None,
    });
}

/// Makes a client of the configured sink and lets it talk to a peer.
fn face<C: BrokerClient>(
    kind: &str,
    url: &str,
    options: &str,
    script: &[u8],
    client: impl FnOnce(&SinkConfig, SinkContext) -> Option<C>,
) {
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = url.replace("ADDRESS", &listener.local_addr().unwrap().to_string());
        let url = if kind == "nats" { format!("[\"{url}\"]") } else { format!("\"{url}\"") };
        let text = format!("[[sink]]\ntype = \"{kind}\"\nurl = {url}\n{options}\n");
        let config = Config::parse(&text, Path::new("/visiond.toml")).unwrap();
        let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
        let client = client(&config.sinks[0], context).unwrap();
        tokio::select! {
            () = peer(listener, script) => {}
            () = session(client) => {}
        }
    });
    runtime.shutdown_background();
}

/// Sends the next part of `script` whenever it has read something, or after a silence; then closes this and all other
/// connections.
async fn peer(listener: TcpListener, script: &[u8]) {
    let Ok((mut stream, _)) = listener.accept().await else { return };
    let mut replies = VecDeque::new();
    for (number, part) in script.split(|byte| *byte == PAUSE).enumerate() {
        let mut chunk = [0; 4096];
        if number > 0
            && let Ok(Ok(read)) = timeout(Duration::from_millis(10), stream.read(&mut chunk)).await
        {
            replies.extend(reply_subjects(&chunk[..read]));
        }
        if stream.write_all(&with_replies(part, &mut replies)).await.is_err() {
            break;
        }
    }
    drop(stream);
    while let Ok((stream, _)) = listener.accept().await {
        drop::<TcpStream>(stream);
    }
}

/// Returns the subjects for the answers to a NATS client's requests.
fn reply_subjects(said: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let requests =
        said.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"PUB ") || line.starts_with(b"HPUB "));
    requests.filter_map(|line| line.split(|byte| *byte == b' ').nth(2).map(<[u8]>::to_vec))
}

/// Replaces each placeholder with a subject, and starts over when they run out.
fn with_replies(part: &[u8], replies: &mut VecDeque<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.windows(REPLY.len()).position(|two| two == REPLY) {
        out.extend_from_slice(&rest[..at]);
        out.extend(replies.front().into_iter().flatten());
        replies.rotate_left(1.min(replies.len()));
        rest = &rest[at + REPLY.len()..];
    }
    out.extend_from_slice(rest);
    out
}

/// Sends messages like a sink, until the connection is lost. Only sent messages are acknowledged or dropped, each once.
async fn session(mut client: impl BrokerClient) {
    let sent = |number| QueuedMessage {
        number,
        id: format!("id-{number}").into(),
        camera: "door".into(),
        line: Bytes::from_static(b"{}"),
    };
    let talk = async {
        if client.connect().await.is_err() {
            return;
        }
        let mut open: BTreeSet<u64> = (1..=MESSAGES).collect();
        for number in 1..=MESSAGES {
            if client.send(&sent(number)).await.is_err() {
                return;
            }
        }
        for _ in 0..EVENTS {
            client.tick();
            match client.event().await {
                BrokerEvent::Acknowledged(number)
                | BrokerEvent::Refused(number, _)
                | BrokerEvent::Impossible(Some(number), _) => {
                    assert!(open.remove(&number), "{number} is not sent, or done already");
                }
                BrokerEvent::Lost(loss) => return assert!(!loss.reason.is_empty()),
                BrokerEvent::Impossible(None, _) | BrokerEvent::Nothing => {}
            }
        }
        panic!("{EVENTS} events, and no end");
    };
    // The sink around the client gives up on a silent peer.
    let _ = timeout(PATIENCE, talk).await;
    client.close(Duration::from_secs(1)).await;
}

/// Opens a spool whose files hold arbitrary bytes, reads it, and continues to use it.
///
/// `data` is files: the length as two bytes, then the content. The first is the cursor, the others are segments.
pub fn spool(directory: &Path, data: &[u8]) {
    empty(directory);
    let mut rest = data;
    for file in 0..4_u64 {
        let Some((length, behind)) = rest.split_first_chunk() else { break };
        let (content, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)).min(behind.len()));
        let name = if file == 0 { "cursor".to_owned() } else { format!("{:016x}.spool", file * 4 - 3) };
        fs::write(directory.join(name), content).unwrap();
        rest = behind;
    }
    let mut spool = open(directory);
    read_all(&mut spool);
    let next = spool.next_number();
    check_goes_on(directory, spool, next);
}

/// Damages a spool like a faulty disk, and reads it: each message is unchanged and in order.
///
/// `data` is up to three faults, each with a file, an offset, and the new byte.
pub fn spool_damage(directory: &Path, data: &[u8]) {
    empty(directory);
    let message = |number: u64| QueuedMessage {
        number,
        id: format!("id-{number}").into(),
        camera: "door".into(),
        line: Bytes::from(format!("{number} \u{f5}vsr").into_bytes()),
    };
    for first in [1, 5, 9] {
        let mut spool = open(directory);
        let messages: Vec<_> = (first..first + 4).map(message).collect();
        spool.append(messages.iter()).unwrap();
        spool.acknowledge(first / 2);
        spool.write_cursor().unwrap();
    }
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("lock"));
    files.sort();
    for fault in data.chunks_exact(6).take(3) {
        let &[file, low, high, kind, length, value] = fault else { continue };
        let path = &files[usize::from(file) % files.len()];
        let mut content = fs::read(path).unwrap();
        let at = usize::from(u16::from_le_bytes([low, high])) % content.len().max(1);
        let end = (at + usize::from(length)).min(content.len());
        match kind % 4 {
            0 => content.truncate(at),
            1 => content[at..end].fill(0),
            2 => content[at..end].fill(0xFF),
            // Flip one bit: three flips never look like a whole record.
            _ => content.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (value & 7)),
        }
        fs::write(path, content).unwrap();
    }
    let mut spool = open(directory);
    let found = read_all(&mut spool);
    for (number, read) in &found {
        assert_eq!(*read, message(*number), "{number} is not as it was written");
    }
    let next = spool.next_number();
    assert!(found.keys().next_back().is_none_or(|last| *last < next));
    check_goes_on(directory, spool, next);
}

/// Appends a message, reads it, and reads it again after a restart.
fn check_goes_on(directory: &Path, mut spool: Spool, next: u64) {
    let message =
        QueuedMessage { number: next, id: "new".into(), camera: "door".into(), line: Bytes::from_static(b"{}") };
    spool.append([message.clone()].iter()).unwrap();
    let wanted = BTreeMap::from([(next, message)]);
    assert_eq!(read_all(&mut spool), wanted);
    drop(spool);
    let mut spool = open(directory);
    assert_eq!(spool.next_number(), next + 1);
    assert_eq!(read_all(&mut spool).remove(&next), wanted.get(&next).cloned(), "after a restart");
    spool.acknowledge(next);
    spool.write_cursor().unwrap();
    drop(spool);
    let mut spool = open(directory);
    assert!(read_all(&mut spool).is_empty(), "acknowledged, and read again");
}

fn open(directory: &Path) -> Spool {
    Spool::open(directory, 1 << 20).unwrap()
}

/// Reads everything: numbers rise, and reading ends.
fn read_all(spool: &mut Spool) -> BTreeMap<u64, QueuedMessage> {
    let mut found = BTreeMap::new();
    while !spool.is_read() {
        if let Some(message) = spool.read().unwrap() {
            let newest = found.last_key_value().map(|(number, _)| *number);
            assert!(newest.is_none_or(|newest| newest < message.number), "{newest:?} before {message:?}");
            found.insert(message.number, message);
        }
    }
    found
}

fn empty(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}
