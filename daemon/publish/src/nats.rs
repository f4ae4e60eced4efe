//! The NATS sink: publishes each message to a JetStream stream.
//!
//! A message has its id in the header `Nats-Msg-Id`, so that a server does not store it twice. It counts as written once the
//! stream has acknowledged it; the sink does not wait for one acknowledgement before it sends the next message.
//!
//! One connection keeps a camera's messages in order. [`BrokerSink`] reconnects, and starts with the
//! oldest unacknowledged message.
//!
//! The connection is that of `daemon/nats`; this sink publishes on its own, because it does not wait for acknowledgements.

mod connection;
mod stream;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{NatsSinkConfig, SinkConfig, SinkKind};
use visiond_nats::auth::{ClientAuth, LoginSource};
use visiond_nats::options::Options;

use crate::broker::{BrokerClient, BrokerEvent, BrokerSink, Loss, QueuedMessage, WINDOW_BYTES};
use crate::sink::{Opening, Sink, SinkContext, SinkError, SinkType};
use connection::{Answer, NatsConnection};
use stream::Subjects;

/// A killed server may lose the messages that it acknowledged last, because it acknowledges before it passes the data to the
/// system. Messages that were acknowledged this shortly before the connection broke are sent again.
const RESEND_ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(1);

/// How many of them are sent again, limited to [`WINDOW_BYTES`] plus one message.
const MOST_RECENT: usize = 512;

pub struct NatsClient {
    name: String,
    config: NatsSinkConfig,
    device: Arc<str>,
    subjects: Subjects,
    connection: Option<NatsConnection>,
    /// Messages that were acknowledged within [`RESEND_ACKNOWLEDGED_WITHIN`], and when; oldest first.
    recent: VecDeque<(Instant, QueuedMessage)>,
}

impl SinkType for NatsSinkConfig {
    fn place(&self) -> String {
        self.url.join(", ")
    }

    fn check(&self) -> Result<(), SinkError> {
        NatsClient::check(self).map(drop)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        let client = NatsClient::open(&opening.sink.name, self, opening.context)?;
        Ok(Box::new(BrokerSink::open(opening.sink, client, opening.if_unusable)?))
    }
}

impl NatsClient {
    /// Creates an unconnected client. Fails if it cannot read a file that the configuration names.
    pub fn open(name: &str, config: &NatsSinkConfig, context: &SinkContext) -> Result<Self, SinkError> {
        Self::check(config)?;
        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            device: Arc::clone(&context.device),
            subjects: Subjects::new(&config.subject, &context.device),
            connection: None,
            recent: VecDeque::new(),
        })
    }

    /// Reads the files that the configuration names, like each connection; returns the device's credentials.
    pub fn check(config: &NatsSinkConfig) -> Result<ClientAuth, SinkError> {
        options(config, String::new()).check()
    }

    fn remember(&mut self, message: QueuedMessage) {
        let now = Instant::now();
        let is_old = |(acknowledged, _): &(Instant, QueuedMessage)| {
            now.duration_since(*acknowledged) > RESEND_ACKNOWLEDGED_WITHIN
        };
        let mut bytes: usize = self.recent.iter().map(|(_, message)| message.line.len()).sum();
        while self.recent.len() >= MOST_RECENT || bytes > WINDOW_BYTES || self.recent.front().is_some_and(is_old) {
            bytes -= self.recent.pop_front().map_or(bytes, |(_, message)| message.line.len());
        }
        self.recent.push_back((now, message));
    }
}

impl BrokerClient for NatsClient {
    async fn connect(&mut self) -> Result<(), String> {
        self.connection = None;
        let auth = Self::check(&self.config).map_err(|error| error.reason)?;
        let options = options(&self.config, format!("visiond {} {}", self.device, self.name));
        let mut connection = NatsConnection::open(&options, &auth, &self.name, &self.config).await?;
        stream::prepare(&mut connection, &self.config, &self.subjects).await?;
        let mut again: Vec<_> = self.recent.iter().map(|(_, message)| message).collect();
        // Acknowledgements may come in any order; the messages are sent in order.
        again.sort_by_key(|message| message.number);
        for message in again {
            connection.send(self.subjects.of(&message.camera), message, false).await;
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        match &mut self.connection {
            Some(connection) => {
                connection.send(self.subjects.of(&message.camera), message, true).await;
                Ok(())
            }
            None => Err("there is no connection".to_owned()),
        }
    }

    async fn event(&mut self) -> BrokerEvent {
        let Some(connection) = &mut self.connection else { return pending().await };
        if let Some((number, reason)) = connection.left_out.pop_front() {
            return BrokerEvent::Impossible(number, reason);
        }
        match connection.next().await {
            Ok(Answer::Acknowledged(message)) => {
                let number = message.number;
                self.remember(message);
                BrokerEvent::Acknowledged(number)
            }
            Ok(Answer::Refused(number, reason)) => BrokerEvent::Refused(number, reason),
            Ok(Answer::Impossible(number, reason)) => BrokerEvent::Impossible(Some(number), reason),
            Ok(Answer::Nothing) => BrokerEvent::Nothing,
            Err(reason) => BrokerEvent::Lost(Loss { reason, remedy: Some("see the server's log".to_owned()) }),
        }
    }

    async fn close(&mut self, within: Duration) {
        if let Some(connection) = self.connection.take() {
            connection.close(within).await;
        }
    }

    fn configure(&mut self, config: &SinkConfig) -> bool {
        let SinkKind::Nats(nats) = &config.kind else { return true };
        self.name.clone_from(&config.name);
        let same = *nats == self.config;
        self.config.clone_from(nats);
        self.subjects = Subjects::new(&nats.subject, &self.device);
        if !same {
            // Another stream never had these messages.
            self.recent.clear();
        }
        same
    }
}

/// Returns where the configured servers are, and how to log in; the server shows the connection as `name`.
fn options(config: &NatsSinkConfig, name: String) -> Options {
    let login = match (&config.credentials, &config.login) {
        (Some(file), _) => LoginSource::CredentialsFile(file.clone()),
        (None, Some(file)) => LoginSource::LoginFile(file.clone()),
        (None, None) => LoginSource::Nothing,
    };
    let (ca, certificate, key) = (config.ca.clone(), config.certificate.clone(), config.key.clone());
    Options { login, ca, certificate, key, ..Options::new(config.url.clone(), name) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::path::Path;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use visiond_config::types::Config;
    use visiond_live::Live;
    use visiond_system::testing::HANG;

    use super::*;

    fn sink(keys: &str) -> SinkConfig {
        let text = format!("[[sink]]\ntype = \"nats\"\nurl = [\"nats://a\"]\n{keys}\n");
        Config::parse(&text, Path::new("test.toml")).unwrap().sinks.remove(0)
    }

    #[test]
    fn another_subject_or_stream_gets_nothing_again_that_the_former_acknowledged() {
        let before = sink("");
        let SinkKind::Nats(config) = &before.kind else { panic!() };
        let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
        let message =
            QueuedMessage { number: 1, id: "0-1".into(), camera: "door".into(), line: Bytes::from_static(b"{}") };
        for (keys, subject, same) in [
            ("only_detections = true", "visiond.gate.door.detections", true),
            ("subject = \"a.{device}.{camera}\"", "a.gate.door", false),
            ("stream = \"a\"", "visiond.gate.door.detections", false),
            ("ack_timeout = \"9s\"", "visiond.gate.door.detections", false),
        ] {
            let mut client = NatsClient::open("nats", config, &context).unwrap();
            client.remember(message.clone());
            assert_eq!(client.configure(&sink(keys)), same, "{keys}");
            assert_eq!((client.subjects.of(&message.camera), client.recent.is_empty()), (subject, !same), "{keys}");
        }
    }

    /// Accepts a connection like a NATS server; `answer` replaces PONG. Returns the client's CONNECT.
    async fn accept(listener: &TcpListener, answer: &str) -> (TcpStream, String) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"INFO {\"max_payload\":1048576,\"headers\":true}\r\n").await.unwrap();
        let greeting = until(&mut stream, "PING\r\n").await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        (stream, greeting)
    }

    async fn until(stream: &mut TcpStream, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            text.push(stream.read_u8().await.unwrap().into());
        }
        text
    }

    #[test]
    fn what_was_just_acknowledged_is_sent_again_over_the_next_connection() {
        let test = async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let before = sink("");
            let SinkKind::Nats(config) = &before.kind else { panic!() };
            let config =
                NatsSinkConfig { url: vec![format!("nats://{}", listener.local_addr().unwrap())], ..config.clone() };
            let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
            let mut client = NatsClient::open("nats", &config, &context).unwrap();
            let message = |number: u64, line: &'static str| QueuedMessage {
                number,
                id: format!("0-{number}").into(),
                camera: "door".into(),
                line: Bytes::from_static(line.as_bytes()),
            };
            assert!(client.send(&message(1, "{}")).await.is_err(), "there is no connection");

            let (connected, (mut server, greeting)) = tokio::join!(client.connect(), accept(&listener, "PONG\r\n"));
            connected.unwrap();
            assert!(greeting.starts_with("CONNECT {") && greeting.contains("\"headers\":true"), "{greeting}");
            client.send(&message(1, "{\"n\":1}")).await.unwrap();
            let acknowledge = async |server: &mut TcpStream| {
                let sent = until(server, "{\"n\":1}\r\n").await;
                let (_, published) = sent.split_once("HPUB ").unwrap();
                let words: Vec<_> = published.split_whitespace().collect();
                assert_eq!(words[0], "visiond.gate.door.detections");
                let answer = "{\"stream\":\"v\",\"seq\":1}";
                let answer = format!("MSG {} 1 {}\r\n{answer}\r\n", words[1], answer.len());
                server.write_all(answer.as_bytes()).await.unwrap();
            };
            let (event, ()) = tokio::join!(client.event(), acknowledge(&mut server));
            assert!(matches!(event, BrokerEvent::Acknowledged(1)), "{event:?}");
            drop(server);
            let event = client.event().await;
            assert!(
                matches!(&event, BrokerEvent::Lost(loss) if loss.reason.contains(visiond_nats::connect::ENDED)),
                "{event:?}"
            );

            let (connected, (mut server, _)) = tokio::join!(client.connect(), accept(&listener, "PONG\r\n"));
            connected.unwrap();
            acknowledge(&mut server).await;
            assert!(matches!(client.event().await, BrokerEvent::Nothing), "it was acknowledged before");
            tokio::join!(client.close(Duration::from_secs(1)), async { _ = server.shutdown().await });
            assert!(client.send(&message(2, "{}")).await.is_err(), "it is closed");
        };
        within(test);
    }

    #[test]
    fn a_server_that_refuses_is_told_with_what_to_do() {
        within(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("nats://{}", listener.local_addr().unwrap());
            let before = sink("");
            let SinkKind::Nats(config) = &before.kind else { panic!() };
            let config = NatsSinkConfig { url: vec![url.clone()], ..config.clone() };
            let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
            let mut client = NatsClient::open("nats", &config, &context).unwrap();
            for (answer, words) in [
                ("-ERR 'Authorization Violation'\r\n", "the server "),
                ("-ERR 'Permissions Violation for Publish'\r\n", "allow this login to publish its subjects"),
                ("-ERR 'maximum connections exceeded'\r\n", "the server says: maximum connections exceeded"),
            ] {
                let (connected, _) = tokio::join!(client.connect(), accept(&listener, answer));
                let reason = connected.unwrap_err();
                assert!(reason.starts_with(&url) && reason.contains(words), "{reason}");
            }
            let other = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"PING\r\n").await.unwrap();
                stream
            };
            let (connected, _) = tokio::join!(client.connect(), other);
            assert!(connected.unwrap_err().contains("the server is not a NATS server: check the port"));
            let silent = async { drop(listener.accept().await.unwrap()) };
            let (connected, ()) = tokio::join!(client.connect(), silent);
            assert!(connected.unwrap_err().contains(visiond_nats::connect::ENDED));
            drop(listener);
            assert!(client.connect().await.unwrap_err().contains("check that nats-server runs there"));
        });
    }

    #[test]
    fn a_stream_is_asked_for_and_created_if_it_should_be() {
        const MISSING: &str = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        const OTHER: &str = r#"{"error":{"code":500,"err_code":1,"description":"no space"}}"#;
        const EXISTS: &str = r#"{"error":{"code":400,"err_code":10058,"description":"name in use"}}"#;
        let off = |code: u64| format!(r#"{{"error":{{"code":503,"err_code":{code},"description":"off"}}}}"#);
        // An empty answer means that there is no JetStream.
        for (create, answers, words) in [
            (false, &["{}"][..], None),
            (true, &["{}"], None),
            (false, &[""], Some("no answer from JetStream: start the server with -js")),
            (false, &["?"], Some("no answer from JetStream: start the server with -js")),
            (false, &[MISSING], Some("there is no stream v: create it")),
            (true, &[&off(10076)], Some("JetStream is off: start the server with -js")),
            (true, &[&off(10039)], Some("JetStream is off: start the server with -js")),
            (true, &[OTHER], Some("cannot query the stream v: no space (code 500, error code 1)")),
            (true, &[MISSING, "{}"], None),
            (true, &[MISSING, EXISTS], None),
            (true, &[MISSING, OTHER], Some("cannot create the stream v: no space")),
            (true, &[MISSING, ""], Some("cannot create the stream v: no answer within 10 s")),
        ] {
            within(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = vec![format!("nats://{}", listener.local_addr().unwrap())];
                let before = sink("stream = \"v\"\nack_timeout = \"10s\"\nstream_max_age = \"1h\"");
                let SinkKind::Nats(config) = &before.kind else { panic!() };
                let config = NatsSinkConfig { url, create_stream: create, stream_max_bytes: 0, ..config.clone() };
                let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
                let mut client = NatsClient::open("nats", &config, &context).unwrap();
                let server = async {
                    let (mut stream, _) = accept(&listener, "PONG\r\n").await;
                    let mut asked = Vec::new();
                    for answer in answers {
                        let mut request = until(&mut stream, "\r\n").await;
                        while !request.starts_with("PUB ") {
                            request = until(&mut stream, "\r\n").await;
                        }
                        let payload = until(&mut stream, "\r\n").await;
                        let words: Vec<_> = request.split_whitespace().collect();
                        let answer = match *answer {
                            "" => format!("HMSG {} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", words[2]),
                            text => format!("MSG {} 1 {}\r\n{text}\r\n", words[2], text.len()),
                        };
                        stream.write_all(answer.as_bytes()).await.unwrap();
                        asked.push((words[1].to_owned(), payload));
                    }
                    (stream, asked)
                };
                let (connected, (_stream, asked)) = tokio::join!(client.connect(), server);
                match words {
                    None => connected.unwrap(),
                    Some(words) => {
                        let reason = connected.unwrap_err();
                        assert!(reason.starts_with(&config.url[0]) && reason.contains(words), "{reason}");
                    }
                }
                assert_eq!(asked[0], ("$JS.API.STREAM.INFO.v".to_owned(), "\r\n".to_owned()));
                if let Some((subject, wanted)) = asked.get(1) {
                    let wanted: serde_json::Value = serde_json::from_str(wanted).unwrap();
                    assert_eq!(subject, "$JS.API.STREAM.CREATE.v");
                    assert_eq!((&wanted["max_bytes"], &wanted["max_consumers"]), (&(-1).into(), &(-1).into()));
                    assert_eq!(
                        (&wanted["max_msgs"], &wanted["max_age"]),
                        (&(-1).into(), &3_600_000_000_000_u64.into())
                    );
                    assert_eq!(wanted["subjects"], serde_json::json!(["visiond.*.*.detections", "visiond.*.*.events"]));
                }
            });
        }
    }

    #[test]
    fn only_messages_that_were_acknowledged_just_now_are_remembered() {
        let before = sink("");
        let SinkKind::Nats(config) = &before.kind else { panic!() };
        let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
        let mut client = NatsClient::open("nats", config, &context).unwrap();
        let message = |number| QueuedMessage { number, id: "0".into(), camera: "door".into(), line: Bytes::new() };
        (0..3).for_each(|number| client.remember(message(number)));
        assert_eq!(client.recent.len(), 3);
        client.recent.iter_mut().take(2).for_each(|(at, _)| *at -= 2 * RESEND_ACKNOWLEDGED_WITHIN);
        client.remember(message(3));
        let numbers = |client: &NatsClient| client.recent.iter().map(|(_, message)| message.number).collect::<Vec<_>>();
        assert_eq!(numbers(&client), [2, 3]);
        // Times in the future, so that only the count decides.
        (4..2000).for_each(|number| client.recent.push_back((Instant::now() + HANG, message(number))));
        client.remember(message(2000));
        assert_eq!((client.recent.len(), numbers(&client)[0], numbers(&client)[511]), (512, 1489, 2000));
    }

    fn within(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
    }
}
