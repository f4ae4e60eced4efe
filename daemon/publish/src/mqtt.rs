//! The MQTT sink: publishes detections, and the cameras' states, snapshots and Home Assistant discovery.
//!
//! `docs/mqtt.md` describes topics and payloads. The broker acknowledges a message (QoS 1 and 2), or the socket has taken it
//! (QoS 0). Sessions are clean: after a lost connection [`BrokerSink`] alone decides what goes out again.

mod camera_state;
mod cameras;
mod codec;
mod commands;
mod connect;
mod discovery;
mod session;
mod topics;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_config::types::{MqttProtocol, MqttSinkConfig, SinkConfig, SinkKind};
use visiond_message::camera_of_events;
use visiond_system::broker_tls;
use visiond_system::broker_url::split_broker;
use visiond_system::credentials::Login;

use self::cameras::RetainedCameras;
use self::codec::{Connect, JSON, Publish, STATE_QOS, SessionRefusal, WillDelivery};
use self::commands::MqttCommands;
use self::connect::NoSession;
use self::session::{MqttSession, SessionEvent, refused};
use self::topics::Topics;
use crate::broker::{BrokerClient, BrokerEvent, BrokerSink, Loss, QueuedMessage};
use crate::queue::{Removed, Succession};
use crate::sink::{Opening, Sink, SinkContext, SinkError, SinkType};

/// The client of an MQTT broker, and its session.
pub struct MqttClient {
    sink: String,
    config: MqttSinkConfig,
    context: SinkContext,
    topics: Topics,
    cameras: RetainedCameras,
    commands: MqttCommands,
    session: Option<MqttSession>,
    succession: Succession,
    /// The will to try next.
    will_delivery: WillDelivery,
    /// The will of the last session.
    accepted_will: WillDelivery,
    /// MQTT 3.1.1: whether the broker acknowledged nothing in a session with that weak will. Messages then use the same weak
    /// settings. The will alone may be weak because a proxy closed the connections while the broker was down.
    limits_messages: bool,
    /// How many connections in a row the broker closed without an answer.
    closed: u32,
}

/// Whether both sinks publish to the same topics of one broker.
pub fn shares_topics(a: &MqttSinkConfig, b: &MqttSinkConfig) -> bool {
    a.topic_prefix == b.topic_prefix && same_broker(&a.url, &b.url)
}

/// Whether `stays` announces cameras to Home Assistant in the same place as `gone`.
pub fn shares_discovery(gone: &MqttSinkConfig, stays: &MqttSinkConfig) -> bool {
    stays.home_assistant && gone.discovery_prefix == stays.discovery_prefix && same_broker(&gone.url, &stays.url)
}

/// Whether two URLs belong to one broker. It has different ports with and without TLS.
fn same_broker(a: &str, b: &str) -> bool {
    let (Some((scheme, host, port)), Some((other_scheme, other_host, other_port))) = (split_broker(a), split_broker(b))
    else {
        return false;
    };
    // For the same scheme, an absent port equals the default one.
    let number = |port: Option<u16>| port.unwrap_or(connect::default_port(scheme));
    host.eq_ignore_ascii_case(other_host) && (scheme != other_scheme || number(port) == number(other_port))
}

/// This many such connections in a row may mean that an MQTT 3.1.1 broker does not accept the will, so weaker ones are tried.
const CLOSED_FOR_WILL: u32 = 3;

/// The wills to try, strongest first.
const WILLS: [WillDelivery; 4] = [
    WillDelivery { retain: true, qos: 1 },
    WillDelivery { retain: false, qos: 1 },
    WillDelivery { retain: true, qos: 0 },
    WillDelivery { retain: false, qos: 0 },
];

impl SinkType for MqttSinkConfig {
    fn place(&self) -> String {
        self.url.clone()
    }

    fn check(&self) -> Result<(), SinkError> {
        if let Some(login) = &self.login {
            Login::read(login).map_err(|error| SinkError::of_secret("login", &error))?;
        }
        if self.url.starts_with("mqtts:") {
            broker_tls::client(&connect::tls_files(self))?;
        }
        Ok(())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        let Opening { sink, context, if_unusable, succession } = *opening;
        let client = MqttClient::open(sink, self, context.clone())?;
        let client = MqttClient { succession: Arc::clone(succession), ..client };
        Ok(Box::new(BrokerSink::open(sink, client, if_unusable)?))
    }
}

impl MqttClient {
    /// Creates an unconnected client. Fails if it cannot read a file that the configuration names.
    pub fn open(sink: &SinkConfig, config: &MqttSinkConfig, context: SinkContext) -> Result<Self, SinkError> {
        config.check()?;
        let topics = Topics::new(&config.topic_prefix, &context.device);
        let cameras = RetainedCameras::new(sink, config, &context, &topics);
        let commands = MqttCommands::new(sink, config, &context, &topics);
        Ok(Self {
            sink: sink.name.clone(),
            config: config.clone(),
            context,
            topics,
            cameras,
            commands,
            session: None,
            succession: Succession::default(),
            will_delivery: WILLS[0],
            accepted_will: WILLS[0],
            limits_messages: false,
            closed: 0,
        })
    }

    fn connect_packet(&self) -> Result<Connect, String> {
        let login = self.config.login.as_deref().map(Login::read).transpose().map_err(|error| error.to_string())?;
        Ok(Connect {
            client_id: self.client_id(),
            keep_alive_seconds: u16::try_from(self.config.keep_alive.as_secs()).unwrap_or(u16::MAX),
            login,
            will: Some((self.topics.availability(), Bytes::from_static(b"offline"))),
            will_delivery: self.will_delivery,
        })
    }

    /// Starts a session, with a weaker will if the broker does not accept this one.
    async fn open_session(&mut self) -> Result<MqttSession, NoSession> {
        if self.config.protocol == MqttProtocol::V5 {
            // The broker reports what it does not accept, which may have changed.
            self.will_delivery = WILLS[0];
        }
        for _ in WILLS {
            let connect = self.connect_packet()?;
            let before = self.will_delivery;
            match connect::open(&self.config, &connect).await {
                Err(NoSession::Will(SessionRefusal::Retain)) if before.retain => self.will_delivery.retain = false,
                Err(NoSession::Will(_)) if before.qos > 0 => self.will_delivery.qos = 0,
                Err(NoSession::Closed(_)) if self.is_v3() && before == WILLS[0] && self.accepted_will != before => {
                    self.will_delivery = self.accepted_will;
                }
                other => {
                    self.note_end(&other);
                    return other.map(|session| self.limited(session));
                }
            }
        }
        Err("the broker accepts no will".into())
    }

    fn is_v3(&self) -> bool {
        self.config.protocol == MqttProtocol::V3
    }

    fn limited(&self, mut session: MqttSession) -> MqttSession {
        if self.limits_messages {
            session.limit_to(self.accepted_will);
        }
        session
    }

    /// Notes that the broker ended the session.
    fn note_lost(&mut self) {
        let Some(session) = self.session.take() else { return };
        let is_weak = self.is_v3() && self.accepted_will != WILLS[0];
        if is_weak && !self.limits_messages && !session.has_acknowledged() {
            self.limits_messages = true;
            self.warn_of_limits();
        }
    }

    /// Notes how an attempt ended. A broker that keeps closing connections without an answer gets another will next time.
    fn note_end(&mut self, end: &Result<MqttSession, NoSession>) {
        match end {
            Err(NoSession::Closed(_)) if self.is_v3() => {
                self.closed += 1;
                let weaker = self.closed.checked_sub(CLOSED_FOR_WILL).map_or(0, |more| more as usize + 1);
                self.will_delivery = WILLS[weaker % WILLS.len()];
            }
            Ok(_) => {
                self.closed = 0;
                // The next session begins with the strongest.
                let accepted = std::mem::replace(&mut self.will_delivery, WILLS[0]);
                if std::mem::replace(&mut self.accepted_will, accepted) != accepted {
                    self.limits_messages = false;
                    // An MQTT 3.1.1 broker does not report what it lacks.
                    if !self.is_v3() {
                        self.warn_of_limits();
                    }
                }
            }
            Err(_) if self.closed > 0 => (self.will_delivery, self.closed) = (WILLS[0], 0),
            Err(_) => {}
        }
    }

    fn warn_of_limits(&self) {
        let WillDelivery { retain, qos } = self.accepted_will;
        let lacks = match (retain, qos) {
            (true, 1) => return,
            (false, 1) => "retains nothing: a reader that connects later gets no state, snapshot or availability",
            (true, _) => "has QoS 0 only: messages in flight are lost when the connection breaks",
            (false, _) => {
                "retains nothing and has QoS 0 only: a reader that connects later gets no state, snapshot or availability, and \
                 messages in flight are lost when the connection breaks"
            }
        };
        log::warn!(
            "sink {}: {}: the broker {lacks}; allow retained messages and QoS 1 there",
            self.sink,
            self.config.url
        );
    }

    fn warn_of_commands(&self, reason: &str) {
        let (sink, url, filters) = (&self.sink, &self.config.url, self.topics.commands().join(" and "));
        log::error!(
            "sink {sink}: {url}: no commands arrive, because the broker {reason}: allow subscriptions to {filters} there"
        );
    }

    fn client_id(&self) -> String {
        let own_id = || format!("visiond-{}-{}", self.context.device, self.sink);
        self.config.client_id.clone().unwrap_or_else(own_id)
    }

    /// What to do if another client has the same id.
    fn client_id_remedy(&self) -> &'static str {
        match self.config.client_id {
            Some(_) => "give each its own `client_id`",
            // Their topics are also the same.
            None => "give each machine its own `name` under [device]",
        }
    }

    fn availability(&self, text: &'static str) -> Publish {
        Publish::retained(self.topics.availability(), Bytes::from_static(text.as_bytes()), STATE_QOS, None)
    }

    fn message(&self, message: &QueuedMessage) -> Publish {
        let events = camera_of_events(&message.camera);
        let expiry = u32::try_from(self.config.message_expiry.as_secs()).unwrap_or(u32::MAX);
        Publish {
            topic: events.map_or_else(|| self.topics.detections(&message.camera), |camera| self.topics.events(camera)),
            payload: message.line.clone(),
            // 0 to 2. An event comes once, so it is acknowledged.
            qos: (self.config.qos_detections as u8).max(u8::from(events.is_some())),
            retain: events.is_none() && self.config.retain && self.cameras.may_retain(&message.camera),
            content_type: Some(JSON),
            id: Some(message.id.clone()),
            expiry_seconds: (expiry > 0).then_some(expiry),
        }
    }
}

impl BrokerClient for MqttClient {
    async fn connect(&mut self) -> Result<(), String> {
        self.session = None;
        let mut session = self.open_session().await.map_err(|error| error.describe(&self.config.url))?;
        session.publish(self.availability("online"));
        match self.commands.filters() {
            Some(filters) if session.has_wildcards() => session.subscribe_to_commands(&filters),
            Some(_) => self.warn_of_commands("has no subscriptions with wildcards"),
            None => {}
        }
        self.cameras.begin(&mut session, Instant::now());
        self.session = Some(session);
        Ok(())
    }

    async fn send(&mut self, message: &QueuedMessage) -> Result<(), String> {
        let publish = self.message(message);
        let Some(session) = &mut self.session else { return Err(NOT_CONNECTED.to_owned()) };
        session.send(message.number, publish).await;
        Ok(())
    }

    async fn event(&mut self) -> BrokerEvent {
        let Some(session) = &mut self.session else { return BrokerEvent::Lost(NOT_CONNECTED.to_owned().into()) };
        match session.next_event().await {
            SessionEvent::Acknowledged(number) => BrokerEvent::Acknowledged(number),
            SessionEvent::Impossible(number, reason) => BrokerEvent::Impossible(number, reason),
            SessionEvent::Refused(number, topic, reason) => BrokerEvent::Refused(number, refused(&topic, &reason)),
            SessionEvent::OwnRefused(topic, reason) => {
                log::error!("sink {}: {}", self.sink, refused(&topic, &reason));
                BrokerEvent::Nothing
            }
            SessionEvent::OwnAccepted => {
                log::info!("sink {}: the broker accepts states and snapshots again", self.sink);
                BrokerEvent::Nothing
            }
            SessionEvent::CommandsRefused => {
                self.warn_of_commands("refuses the subscription to them");
                BrokerEvent::Nothing
            }
            SessionEvent::Incoming(message) => {
                if !self.commands.obey(&message) {
                    self.cameras.incoming(&message);
                }
                BrokerEvent::Nothing
            }
            SessionEvent::TooLarge(topic, bytes) => {
                self.commands.warn_of_size(&topic, bytes);
                BrokerEvent::Nothing
            }
            SessionEvent::Lost(reason) => {
                self.note_lost();
                let (id, remedy) = (self.client_id(), self.client_id_remedy());
                // MQTT 5 has a packet that carries the reason.
                let cause = match self.config.protocol {
                    MqttProtocol::V3 => ": with MQTT 3.1.1 it can refuse a topic, a QoS or a size only by closing",
                    MqttProtocol::V5 => "",
                };
                let remedy =
                    format!("if another client uses the client id {id}, {remedy}; else see the broker's log{cause}");
                BrokerEvent::Lost(Loss { reason: format!("{}: {reason}", self.config.url), remedy: Some(remedy) })
            }
            SessionEvent::TakenOver => {
                self.session = None;
                let (url, id, remedy) = (&self.config.url, self.client_id(), self.client_id_remedy());
                BrokerEvent::Lost(format!("{url}: another client uses the client id {id}: {remedy}").into())
            }
        }
    }

    async fn close(&mut self, within: Duration) {
        let offline = self.availability("offline");
        if let Some(mut session) = self.session.take() {
            match self.succession.get() {
                // It may be online already.
                Some(Removed { shares_discovery: true }) => {}
                Some(_) => self.cameras.clear_discovery(&mut session),
                None => session.publish(offline),
            }
            session.close(within).await;
        }
    }

    async fn remove(&mut self, within: Duration, shares_discovery: bool) {
        let gone = self.availability("");
        let removed = async {
            let mut session = self.session.take();
            loop {
                let is_last = session.is_none();
                let mut open = match session.take() {
                    Some(session) => session,
                    // The sink that replaces this one may have taken the session over.
                    None => {
                        let mut connect = self.connect_packet().ok()?;
                        (connect.client_id, connect.will) = (format!("{}-removed", connect.client_id), None);
                        self.limited(connect::open(&self.config, &connect).await.ok()?)
                    }
                };
                self.cameras.removed(&mut open, !shares_discovery);
                open.publish(gone.clone());
                if open.close(within).await {
                    return Some(());
                } else if is_last {
                    return None;
                }
            }
        };
        let cleared = tokio::time::timeout(within, removed).await;
        if !matches!(cleared, Ok(Some(()))) {
            let (sink, url, topics) = (&self.sink, &self.config.url, self.topics.all());
            log::warn!("sink {sink}: {url}: cannot clear the broker's retained messages at {topics}; see docs/mqtt.md");
        }
    }

    fn configure(&mut self, config: &SinkConfig) -> bool {
        let SinkKind::Mqtt(new) = &config.kind else { return true };
        let before = std::mem::replace(&mut self.config, new.clone());
        let session = |config: &MqttSinkConfig| {
            let MqttSinkConfig { url, protocol, login, ca, certificate, key, client_id, keep_alive, commands, .. } =
                config.clone();
            (url, protocol, login, ca, certificate, key, client_id, keep_alive, commands)
        };
        if (&before.url, before.protocol) != (&new.url, new.protocol) {
            (self.will_delivery, self.accepted_will) = (WILLS[0], WILLS[0]);
            (self.limits_messages, self.closed) = (false, 0);
        }
        let same_name = self.sink == config.name || new.client_id.is_some();
        self.sink.clone_from(&config.name);
        self.cameras.configure(config, new, &self.context, &self.topics);
        self.commands.configure(config, new);
        same_name && session(&before) == session(new)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if let Some(session) = &mut self.session {
            session.tick(now);
            self.cameras.tick(session, now);
        }
    }
}

const NOT_CONNECTED: &str = "there is no connection";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use bytes::BytesMut;
    use rumqttc::mqttbytes::v4;
    use rumqttc::v5::mqttbytes::v5;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use visiond_config::types::Config;
    use visiond_live::Live;
    use visiond_system::testing::{HANG, at_once};
    use visiond_telemetry::metrics::{CameraMetrics, LaneMetrics, LaneView};

    use super::*;

    fn sink(keys: &str) -> SinkConfig {
        let text = format!("[[sink]]\ntype = \"mqtt\"\n{keys}\n");
        Config::parse(&text, Path::new("test.toml")).unwrap().sinks.remove(0)
    }

    #[test]
    fn only_what_a_session_begins_with_makes_a_new_one() {
        let proof = "url = \"mqtts://a\"\ncertificate = \"a\"\nkey = \"a\"";
        for (before, after, reconnects) in [
            (PLAIN, PLAIN, false),
            (PLAIN, "url = \"mqtt://b\"", true),
            (PLAIN, "url = \"mqtt://a\"\nprotocol = \"3.1.1\"", true),
            (PLAIN, "url = \"mqtt://a\"\nlogin = \"a\"", true),
            (PLAIN, "url = \"mqtt://a\"\nclient_id = \"a\"", true),
            (PLAIN, "url = \"mqtt://a\"\nkeep_alive = \"1s\"", true),
            (PLAIN, "url = \"mqtt://a\"\ncommands = true", true),
            // The client id contains it.
            (PLAIN, "url = \"mqtt://a\"\nname = \"other\"", true),
            ("url = \"mqtts://a\"", "url = \"mqtts://a\"\nca = \"a\"", true),
            (proof, &proof.replace("certificate = \"a\"", "certificate = \"b\""), true),
            (proof, &proof.replace("key = \"a\"", "key = \"b\""), true),
            (PLAIN, "url = \"mqtt://a\"\nqos_detections = 2\nretain = true\nmessage_expiry = \"1s\"", false),
            (PLAIN, "url = \"mqtt://a\"\nstate_interval = \"2s\"\noccupancy_hold = \"2s\"", false),
            (PLAIN, "url = \"mqtt://a\"\nsnapshot_interval = \"2s\"\nsnapshot_overlay = false", false),
            (PLAIN, "url = \"mqtt://a\"\nhome_assistant = true\ncount_labels = [\"a\"]", false),
        ] {
            let (plain, context) =
                (sink(PLAIN), SinkContext { live: Live::new(), device: "gate".into(), commander: None });
            let SinkKind::Mqtt(config) = &plain.kind else { panic!() };
            let mut client = MqttClient::open(&plain, config, context).unwrap();
            client.configure(&sink(before));
            assert_eq!(client.configure(&sink(after)), !reconnects, "{before}\n{after}");
        }
    }

    #[test]
    fn a_broker_is_known_by_its_host_and_of_one_scheme_by_its_port() {
        for (a, b, same) in [
            ("mqtt://a", "mqtt://a:1883/", true),
            ("mqtt://a", "mqtt://A", true),
            ("mqtt://a", "mqtts://a", true),
            ("mqtts://a:8884", "mqtt://a:1884", true),
            ("mqtts://a", "mqtts://a:8883", true),
            ("mqtt://[::1]", "mqtts://[::1]:8883", true),
            ("mqtt://a", "mqtt://a:8883", false),
            ("mqtts://a", "mqtts://a:1883", false),
            ("mqtt://a", "mqtt://b", false),
            ("mqtt://a", "mqtts://b", false),
        ] {
            assert_eq!((same_broker(a, b), same_broker(b, a)), (same, same), "{a} {b}");
        }
    }

    const PLAIN: &str = "url = \"mqtt://a\"";

    /// The client of a sink with these keys, and its broker.
    async fn client(keys: &str) -> (MqttClient, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sink = sink(&format!("url = \"mqtt://{}\"\n{keys}", listener.local_addr().unwrap()));
        let SinkKind::Mqtt(config) = &sink.kind else { panic!() };
        let context = SinkContext { live: Live::new(), device: "gate".into(), commander: None };
        (MqttClient::open(&sink, config, context).unwrap(), listener)
    }

    /// Returns the next packet that the broker receives.
    async fn packet(stream: &mut TcpStream) -> v5::Packet {
        let mut bytes = BytesMut::new();
        loop {
            match v5::Packet::read(&mut bytes, None) {
                Ok(packet) => return packet,
                Err(_) => bytes.extend_from_slice(&[stream.read_u8().await.unwrap()]),
            }
        }
    }

    /// Accepts a connection, reads CONNECT, and answers it.
    async fn accept(listener: &TcpListener, answer: &[u8]) -> (TcpStream, v5::Packet) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let connect = packet(&mut stream).await;
        stream.write_all(answer).await.unwrap();
        (stream, connect)
    }

    fn within(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(HANG, test).await.expect("no test hangs") });
    }

    const ACCEPTED: &[u8] = &[0x20, 3, 0, 0, 0];

    #[test]
    fn a_client_says_who_it_is_sends_messages_and_goes_in_order() {
        within(async {
            let (mut client, listener) = client("keep_alive = \"40s\"\nmessage_expiry = \"9s\"").await;
            let message =
                QueuedMessage { number: 7, id: "0-7".into(), camera: "door".into(), line: Bytes::from_static(b"{}") };
            assert!(client.send(&message).await.is_err());
            assert!(matches!(client.event().await, BrokerEvent::Lost(loss) if loss.reason == NOT_CONNECTED));
            let (connected, (mut broker, connect)) = tokio::join!(client.connect(), accept(&listener, ACCEPTED));
            connected.unwrap();
            let v5::Packet::Connect(connect, Some(will), None) = connect else { panic!("{connect:?}") };
            assert_eq!(
                (connect.client_id.as_str(), connect.keep_alive, connect.clean_start),
                ("visiond-gate-mqtt", 40, true)
            );
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(
                (text(&will.topic), text(&will.message), will.retain),
                ("visiond/gate/availability".to_owned(), "offline".to_owned(), true)
            );
            client.send(&message).await.unwrap();
            for (topic, payload, retain, expiry) in [
                ("visiond/gate/availability", "online", true, None),
                ("visiond/gate/cameras/door/detections", "{}", false, Some(9)),
            ] {
                let v5::Packet::Publish(got) = packet(&mut broker).await else { panic!() };
                assert_eq!(
                    (text(&got.topic), text(&got.payload), got.retain),
                    (topic.to_owned(), payload.to_owned(), retain)
                );
                assert_eq!(got.properties.and_then(|properties| properties.message_expiry_interval), expiry);
            }
            broker.write_all(&[0x40, 2, 0, 1, 0x40, 2, 0, 2]).await.unwrap();
            assert_eq!(client.event().await, BrokerEvent::Acknowledged(7));
            // The cameras handle retained messages.
            broker.write_all(&[0x31, 4, 0, 1, b'a', 0]).await.unwrap();
            assert_eq!(client.event().await, BrokerEvent::Nothing);
            let cameras = vec![Arc::new(CameraMetrics::new("door".into()))];
            client.context.live.set_lanes(vec![LaneView { lane: Arc::new(LaneMetrics::new("m".into())), cameras }]);
            client.tick();
            assert!(at_once(client.event()).await.is_none());
            assert!(matches!(packet(&mut broker).await, v5::Packet::Subscribe(_)), "what is retained");
            let v5::Packet::Publish(got) = packet(&mut broker).await else { panic!() };
            assert_eq!(text(&got.topic), "visiond/gate/cameras/door/state");
            broker.write_all(&[0x40, 2, 0, got.pkid as u8]).await.unwrap();
            let end = async {
                let v5::Packet::Publish(got) = packet(&mut broker).await else { panic!() };
                assert_eq!(
                    (text(&got.topic), text(&got.payload)),
                    ("visiond/gate/availability".to_owned(), "offline".to_owned())
                );
                broker.write_all(&[0x40, 2, 0, got.pkid as u8]).await.unwrap();
                assert_eq!(broker.read_u16().await.unwrap(), u16::from_be_bytes(codec::DISCONNECT));
            };
            tokio::join!(client.close(HANG), end);
            assert!(client.send(&message).await.is_err(), "it is closed");
        });
    }

    #[test]
    fn a_message_expires_only_if_that_is_configured() {
        within(async {
            let message = QueuedMessage { number: 7, id: "0-7".into(), camera: "door".into(), line: Bytes::new() };
            for (keys, expiry) in [("", None), ("message_expiry = \"1s\"", Some(1))] {
                let (client, _) = client(keys).await;
                let publish = client.message(&message);
                assert_eq!((publish.expiry_seconds, publish.qos, publish.retain), (expiry, 1, false));
            }
        });
    }

    #[test]
    fn a_lost_session_names_the_client_id_and_what_to_do() {
        within(async {
            let id = "client_id = \"a\"";
            for (keys, said, reason, remedy) in [
                (
                    "",
                    &[0xe0, 2, 0x8b, 0][..],
                    "server shutting down",
                    "client id visiond-gate-mqtt, give each machine its own `name`",
                ),
                (id, &[0xe0, 2, 0x8b, 0], "server shutting down", "client id a, give each its own `client_id`"),
                ("", &[0xe0, 2, 0x8e, 0], "client id visiond-gate-mqtt: give each machine its own `name`", ""),
                (id, &[0xe0, 2, 0x8e, 0], "another client uses the client id a: give each its own `client_id`", ""),
            ] {
                let (mut client, listener) = client(keys).await;
                let answer = [ACCEPTED, said].concat();
                let (connected, _broker) = tokio::join!(client.connect(), accept(&listener, &answer));
                connected.unwrap();
                let BrokerEvent::Lost(loss) = client.event().await else { panic!() };
                assert!(loss.reason.starts_with("mqtt://127.0.0.1:") && loss.reason.contains(reason), "{loss:?}");
                assert!(loss.remedy.as_deref().unwrap_or_default().contains(remedy), "{loss:?}");
                assert_eq!(loss.remedy.is_none(), remedy.is_empty());
                assert!(matches!(client.event().await, BrokerEvent::Lost(loss) if loss.reason == NOT_CONNECTED));
            }
            // 30 bytes are too few for any message.
            let (mut client, listener) = client("").await;
            let answer = [0x20, 8, 0, 0, 5, 0x27, 0, 0, 0, 30];
            let (connected, _broker) = tokio::join!(client.connect(), accept(&listener, &answer));
            connected.unwrap();
            let message = QueuedMessage { number: 7, id: "0-7".into(), camera: "door".into(), line: Bytes::new() };
            client.send(&message).await.unwrap();
            // The state of visiond is too long as well.
            assert!(matches!(client.event().await, BrokerEvent::Impossible(None, _)));
            assert!(matches!(client.event().await, BrokerEvent::Impossible(Some(7), _)));
        });
    }

    /// Accepts a connection of MQTT 3.1.1. Closes it if its will is stronger than `strongest`, or there is none.
    async fn accept_will(listener: &TcpListener, strongest: Option<WillDelivery>) -> (WillDelivery, Option<TcpStream>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = BytesMut::new();
        let will = loop {
            match v4::Packet::read(&mut bytes, usize::MAX) {
                Ok(v4::Packet::Connect(connect)) => break connect.last_will.unwrap(),
                Ok(other) => panic!("{other:?}"),
                Err(_) => bytes.extend_from_slice(&[stream.read_u8().await.unwrap()]),
            }
        };
        let will = WillDelivery { retain: will.retain, qos: will.qos as u8 };
        let accepts = strongest.is_some_and(|most| will.retain <= most.retain && will.qos <= most.qos);
        if accepts {
            stream.write_all(&[0x20, 2, 0, 0]).await.unwrap();
        }
        (will, accepts.then_some(stream))
    }

    /// Connects once. Returns the wills that the broker received, and the retain flag and QoS of the session's first message.
    /// Then the broker closes the connection.
    async fn meet(
        client: &mut MqttClient,
        listener: &TcpListener,
        strongest: Option<WillDelivery>,
        acknowledges: bool,
    ) -> (Vec<WillDelivery>, Option<(bool, u8)>) {
        let (mut wills, mut session) = (Vec::new(), None);
        {
            let mut connected = std::pin::pin!(client.connect());
            loop {
                tokio::select! {
                    _ = &mut connected => break,
                    (will, stream) = accept_will(listener, strongest) => {
                        wills.push(will);
                        session = stream;
                    }
                }
            }
        }
        let Some(mut broker) = session else { return (wills, None) };
        let closes = async {
            let head = broker.read_u8().await.unwrap();
            if acknowledges {
                broker.write_all(&[0x40, 2, 0, 1]).await.unwrap();
            }
            broker.shutdown().await.unwrap();
            (head & 1 == 1, head >> 1 & 3)
        };
        let (event, first) = tokio::join!(client.event(), closes);
        assert!(matches!(event, BrokerEvent::Lost(_)), "{event:?}");
        (wills, Some(first))
    }

    #[test]
    fn connections_that_a_proxy_closes_weaken_no_message_and_no_later_will() {
        within(async {
            for acknowledges in [true, false] {
                let (mut client, listener) = client("protocol = \"3.1.1\"").await;
                for _ in 0..CLOSED_FOR_WILL {
                    assert_eq!(meet(&mut client, &listener, None, true).await, (vec![WILLS[0]], None));
                }
                // The broker is back, and accepts any will.
                let met = meet(&mut client, &listener, Some(WILLS[0]), acknowledges).await;
                assert_eq!(met, (vec![WILLS[1]], Some((true, 1))));
                for _ in 0..2 {
                    let met = meet(&mut client, &listener, Some(WILLS[0]), acknowledges).await;
                    assert_eq!(met, (vec![WILLS[0]], Some((true, 1))));
                }
            }
        });
    }

    #[test]
    fn a_broker_of_3_1_1_that_takes_no_strong_will_nor_message_gets_weak_ones() {
        within(async {
            for (number, weak) in WILLS.into_iter().enumerate().skip(1) {
                let (mut client, listener) = client("protocol = \"3.1.1\"").await;
                let before = [WILLS[0], WILLS[0]].into_iter().chain(WILLS).take(2 + number);
                for will in before {
                    assert_eq!(meet(&mut client, &listener, Some(weak), false).await, (vec![will], None));
                }
                assert_eq!(meet(&mut client, &listener, Some(weak), false).await, (vec![weak], Some((true, 1))));
                for _ in 0..2 {
                    let met = meet(&mut client, &listener, Some(weak), false).await;
                    assert_eq!(met, (vec![WILLS[0], weak], Some((weak.retain, weak.qos))));
                }
                // Its settings have changed.
                let met = meet(&mut client, &listener, Some(WILLS[0]), false).await;
                assert_eq!(met, (vec![WILLS[0]], Some((true, 1))));
            }
        });
    }

    #[test]
    fn a_broker_that_refuses_is_told_with_what_to_do() {
        within(async {
            let (mut client, listener) = client("").await;
            for (answer, words) in [
                (&[0x20, 3, 0, 0x86, 0][..], "the broker requires a user and a password: set `login`"),
                (&[0x20, 3, 0, 0x85, 0], "the broker rejects the client id: set another `client_id`"),
                (&[0x20, 3, 0, 0x84, 0], "does not speak this version of MQTT: if it speaks only MQTT 3.1.1, set"),
                (&[0x20, 3, 0, 0x97, 0], "the broker refuses the session: quota exceeded"),
                (&[0xd0, 0], "the server is not an MQTT broker: check the port"),
                (&[0, 0], "the server is not an MQTT broker, or speaks another version"),
                (b"", "the broker closed the connection without an answer: if it speaks only"),
            ] {
                let refuse = async { drop(accept(&listener, answer).await) };
                let (connected, ()) = tokio::join!(client.connect(), refuse);
                let reason = connected.unwrap_err();
                assert!(reason.starts_with(&client.config.url) && reason.contains(words), "{reason}");
            }
            let folder = tempfile::tempdir().unwrap();
            let login = folder.path().join("login");
            client.config.login = Some(login.clone());
            assert!(client.config.check().is_err(), "there is no such file");
            std::fs::write(&login, "user:word").unwrap();
            std::fs::set_permissions(&login, std::fs::Permissions::from_mode(0o600)).unwrap();
            let (connected, (_, connect)) = tokio::join!(client.connect(), accept(&listener, &[0x20, 3, 0, 0x86, 0]));
            let v5::Packet::Connect(_, _, Some(shown)) = connect else { panic!("{connect:?}") };
            assert_eq!((shown.username.as_str(), shown.password.as_str()), ("user", "word"));
            let reason = connected.unwrap_err();
            assert!(reason.contains("rejects the user and password of the login"), "{reason}");
            let port = listener.local_addr().unwrap().port();
            drop(listener);
            client.config.login = None;
            let reason = client.connect().await.unwrap_err();
            assert!(reason.contains(&format!("connection refused at port {port} of 127.0.0.1: check")), "{reason}");
        });
    }
}
