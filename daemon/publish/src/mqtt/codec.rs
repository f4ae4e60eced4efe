//! Encodes and decodes MQTT packets, with the same types for MQTT 3.1.1 and 5.
//!
//! rumqttc encodes and decodes the bytes. visiond does not use its event loop, which acknowledges by its own numbers, keeps
//! unacknowledged messages across a lost connection, and cannot be dropped in the middle of a step. The sink handles all of
//! that, see [`MqttSession`](super::session).

use bytes::{Bytes, BytesMut};
use rumqttc::mqttbytes::v4;
use rumqttc::v5::mqttbytes::v5;
use visiond_config::types::MqttProtocol;
use visiond_system::credentials::Login;

use crate::broker::shorten;

/// The media type of detections and states.
pub const JSON: &str = "application/json";

/// QoS of availability, states, snapshots and discovery.
pub const STATE_QOS: u32 = 1;

/// The largest packet accepted from the broker, in bytes. visiond subscribes only to discovery, states and commands, which are small.
pub const MAX_INCOMING: usize = 1 << 20;

pub const PINGREQ: [u8; 2] = [0xC0, 0];
/// DISCONNECT, which discards the will.
pub const DISCONNECT: [u8; 2] = [0xE0, 0];

/// PUBREL for a message that the broker received: the same in both versions, because MQTT 5 leaves out the reason of success.
pub fn pubrel(number: u16) -> [u8; 4] {
    let [high, low] = number.to_be_bytes();
    [0x62, 2, high, low]
}

/// CONNECT: starts a session.
#[derive(Debug, Clone, Default)]
pub struct Connect {
    pub client_id: String,
    pub keep_alive_seconds: u16,
    /// User and password.
    pub login: Option<Login>,
    /// The will: topic and payload that the broker publishes when the connection breaks.
    pub will: Option<(String, Bytes)>,
    pub will_delivery: WillDelivery,
}

/// What the broker has to support for the will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WillDelivery {
    pub retain: bool,
    /// 0 or 1.
    pub qos: u8,
}

impl Default for WillDelivery {
    fn default() -> Self {
        Self { retain: true, qos: 1 }
    }
}

#[derive(Debug, Clone)]
pub struct Publish {
    pub topic: String,
    pub payload: Bytes,
    /// Quality of service: 0 at most once, 1 at least once, 2 exactly once as long as the connection lasts.
    pub qos: u8,
    pub retain: bool,
    pub content_type: Option<&'static str>,
    /// The message's `id`, sent as a user property.
    pub id: Option<Box<str>>,
    pub expiry_seconds: Option<u32>,
}

impl Publish {
    /// Creates a message for the broker to retain. The configuration allows a `qos` of 0 to 2.
    pub fn retained(topic: String, payload: Bytes, qos: u32, content_type: Option<&'static str>) -> Self {
        Self { topic, payload, qos: qos as u8, retain: true, content_type, id: None, expiry_seconds: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLimits {
    /// How many messages may wait for their acknowledgement.
    pub in_flight: u16,
    pub packet_bytes: usize,
    pub qos: u8,
    pub retain: bool,
    pub keep_alive_seconds: Option<u16>,
    /// Whether the broker allows subscriptions with wildcards.
    pub wildcards: bool,
}

impl Default for BrokerLimits {
    /// The defaults of MQTT 5.
    fn default() -> Self {
        Self {
            in_flight: u16::MAX,
            // The largest remaining length that MQTT allows.
            packet_bytes: 268_435_455,
            qos: 2,
            retain: true,
            keep_alive_seconds: None,
            wildcards: true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// CONNACK: the broker accepts the session.
    ConnAck(BrokerLimits),
    /// CONNACK: the broker refuses the session.
    Refused(SessionRefusal),
    /// PUBACK (QoS 1): the broker has the message of this packet id, or why it refuses it.
    PubAck(u16, Result<(), Refusal>),
    /// PUBREC (QoS 2): the broker has the message and waits for PUBREL, or why it refuses it.
    PubRec(u16, Result<(), Refusal>),
    /// PUBCOMP (QoS 2): the exchange is complete.
    PubComp(u16),
    /// SUBACK: the answer to the subscription of this packet id, and whether the broker accepts all of it.
    SubAck(u16, bool),
    /// UNSUBACK: a subscription has ended.
    UnsubAck,
    /// PINGRESP.
    PingResp,
    /// DISCONNECT: the broker ends the session, and why.
    Disconnect(String),
    /// DISCONNECT: another client has connected with the same client id.
    TakenOver,
    /// PUBLISH: a message on a topic that this client subscribed to.
    Publish(Incoming),
    /// A packet that a publisher does not need.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    pub topic: String,
    pub payload: Bytes,
    /// The broker had retained the message before this session.
    pub retained: bool,
}

/// A PUBLISH that is larger than [`MAX_INCOMING`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversized {
    /// The size of the packet with its header.
    pub bytes: usize,
    /// `None` until it has arrived.
    pub topic: Option<String>,
}

/// Why the broker refuses a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The broker's reason, and what to change there.
    pub reason: String,
    /// It accepts no message as large as this one, so sending it again would only hold up others.
    pub is_too_large: bool,
}

/// Why the broker refuses a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRefusal {
    Login,
    ClientId,
    Version,
    /// It retains nothing, so it does not accept a retained will.
    Retain,
    /// It does not support QoS 1, so it does not accept such a will.
    Qos,
    /// Any other reason, in the broker's own words.
    Other(String),
}

/// Encodes and decodes the packets of one version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codec(pub MqttProtocol);

impl Codec {
    /// Writes CONNECT into an empty buffer.
    pub fn connect(self, connect: &Connect, out: &mut BytesMut) -> Result<(), String> {
        debug_assert!(out.is_empty(), "rumqttc sets flags at a fixed place of the buffer");
        let Connect { client_id, keep_alive_seconds: keep_alive, login, will, will_delivery } = connect.clone();
        match self.0 {
            MqttProtocol::V3 => {
                let mut connect = v4::Connect::new(client_id);
                connect.keep_alive = keep_alive;
                connect.login =
                    login.map(Login::into_parts).map(|(username, password)| v4::Login { username, password });
                let qos = rumqttc::mqttbytes::qos(will_delivery.qos).map_err(|error| error.to_string())?;
                connect.last_will = will.map(|(topic, text)| v4::LastWill::new(topic, text, qos, will_delivery.retain));
                v4::Packet::Connect(connect).write(out, usize::MAX).map(drop).map_err(|error| error.to_string())
            }
            MqttProtocol::V5 => {
                let mut properties = v5::ConnectProperties::new();
                properties.max_packet_size = u32::try_from(MAX_INCOMING).ok();
                let connect = v5::Connect { keep_alive, client_id, clean_start: true, properties: Some(properties) };
                let login = login.map(Login::into_parts).map(|(username, password)| v5::Login { username, password });
                let qos =
                    rumqttc::v5::mqttbytes::qos(will_delivery.qos).ok_or("there is no such quality of service")?;
                let will = will.map(|(topic, text)| v5::LastWill::new(topic, text, qos, will_delivery.retain, None));
                v5::Packet::Connect(connect, will, login).write(out, None).map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Appends PUBLISH. `number` is the packet id, 0 with QoS 0. Fails, and appends nothing, if a text does not fit into a
    /// packet.
    pub fn publish(self, message: &Publish, number: u16, out: &mut BytesMut) -> Result<(), String> {
        if message.topic.len() > usize::from(u16::MAX) {
            return Err("its topic is longer than MQTT allows".to_owned());
        }
        match self.0 {
            MqttProtocol::V3 => {
                let qos = rumqttc::mqttbytes::qos(message.qos).map_err(|error| error.to_string())?;
                let mut publish = v4::Publish::from_bytes(message.topic.as_str(), qos, message.payload.clone());
                (publish.pkid, publish.retain) = (number, message.retain);
                publish.write(out).map(drop).map_err(|error| error.to_string())
            }
            MqttProtocol::V5 => {
                let qos = rumqttc::v5::mqttbytes::qos(message.qos).ok_or("there is no such quality of service")?;
                let properties = v5::PublishProperties {
                    message_expiry_interval: message.expiry_seconds,
                    content_type: message.content_type.map(str::to_owned),
                    user_properties: message.id.iter().map(|id| ("id".to_owned(), id.to_string())).collect(),
                    ..v5::PublishProperties::default()
                };
                let mut publish =
                    v5::Publish::new(message.topic.as_str(), qos, message.payload.clone(), Some(properties));
                (publish.pkid, publish.retain) = (number, message.retain);
                publish.write(out).map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns an upper bound of a PUBLISH packet's size in bytes.
    pub fn publish_bytes(self, message: &Publish) -> usize {
        let properties = message.id.as_ref().map_or(0, |id| id.len() + 7) + 64;
        message.topic.len() + message.payload.len() + properties
    }

    /// Appends SUBSCRIBE for these topic filters, or UNSUBSCRIBE.
    pub fn subscribe(self, topics: &[String], listen: bool, number: u16, out: &mut BytesMut) -> Result<(), String> {
        match (self.0, listen) {
            (MqttProtocol::V3, true) => {
                let qos = rumqttc::mqttbytes::QoS::AtMostOnce;
                let filters = topics.iter().map(|topic| v4::SubscribeFilter::new(topic.clone(), qos));
                let packet = v4::Subscribe { pkid: number, ..v4::Subscribe::new_many(filters) };
                packet.write(out).map(drop).map_err(|error| error.to_string())
            }
            (MqttProtocol::V3, false) => {
                let packet = v4::Unsubscribe { pkid: number, topics: topics.to_vec() };
                packet.write(out).map(drop).map_err(|error| error.to_string())
            }
            (MqttProtocol::V5, true) => {
                let qos = rumqttc::v5::mqttbytes::QoS::AtMostOnce;
                let filter = |topic: &String| v5::Filter { nolocal: true, ..v5::Filter::new(topic.clone(), qos) };
                let packet = v5::Subscribe { pkid: number, ..v5::Subscribe::new_many(topics.iter().map(filter), None) };
                packet.write(out).map(drop).map_err(|error| error.to_string())
            }
            (MqttProtocol::V5, false) => {
                let packet = v5::Unsubscribe { pkid: number, filters: topics.to_vec(), properties: None };
                packet.write(out).map(drop).map_err(|error| error.to_string())
            }
        }
    }

    /// Returns the PUBLISH that `input` begins with if it is larger than visiond accepts. MQTT 5 tells the broker the limit; a broker of
    /// MQTT 3.1.1 passes on what any client has sent.
    pub fn oversized(self, input: &[u8]) -> Option<Oversized> {
        const PUBLISH: u8 = 3;
        let (kind, rest) = input.split_first()?;
        if self.0 != MqttProtocol::V3 || kind >> 4 != PUBLISH {
            return None;
        }
        // Seven bits of the length in each byte, the lowest first; the last one is less than 0x80.
        let digits = rest.iter().take(4).position(|byte| *byte < 0x80)? + 1;
        let (length, body) = rest.split_at(digits);
        let length = length.iter().rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7f));
        let topic = |body: &[u8]| {
            let (size, rest) = body.split_first_chunk()?;
            rest.get(..usize::from(u16::from_be_bytes(*size))).map(|topic| String::from_utf8_lossy(topic).into_owned())
        };
        (length > MAX_INCOMING).then(|| Oversized { bytes: 1 + digits + length, topic: topic(body) })
    }

    /// Takes the next packet out of `input`; `None` if it is incomplete.
    pub fn decode(self, input: &mut BytesMut) -> Result<Option<Packet>, String> {
        match self.0 {
            MqttProtocol::V3 => match v4::Packet::read(input, MAX_INCOMING) {
                Ok(packet) => Ok(Some(packet_v3(&packet))),
                Err(rumqttc::mqttbytes::Error::InsufficientBytes(_)) => Ok(None),
                // From 0x80 on they are those of MQTT 5.
                Err(rumqttc::mqttbytes::Error::InvalidConnectReturnCode(code @ 6..0x80)) => {
                    let words = format!(
                        "return code {code}, which MQTT 3.1.1 does not have: the broker's log has the cause; if it limits \
                         the keep-alive, set a shorter `keep_alive`"
                    );
                    Ok(Some(Packet::Refused(SessionRefusal::Other(words))))
                }
                Err(error) => Err(error.to_string()),
            },
            MqttProtocol::V5 => {
                let mut start = [0; 7];
                start.iter_mut().zip(input.iter()).for_each(|(to, from)| *to = *from);
                match v5::Packet::read(input, u32::try_from(MAX_INCOMING).ok()) {
                    Ok(packet) => Ok(Some(packet_v5(packet))),
                    Err(rumqttc::v5::mqttbytes::Error::InsufficientBytes(_)) => Ok(None),
                    Err(error @ rumqttc::v5::mqttbytes::Error::InvalidConnectReturnCode(code)) => {
                        foreign_acknowledgement(start, code).map(Some).ok_or_else(|| error.to_string())
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
        }
    }
}

fn packet_v3(packet: &v4::Packet) -> Packet {
    use v4::ConnectReturnCode as Code;
    match packet {
        v4::Packet::ConnAck(ack) => match ack.code {
            // MQTT 3.1.1 announces no limit, but Mosquitto ends sessions with more QoS 2 messages in flight than its own limit,
            // by default 20.
            Code::Success => Packet::ConnAck(BrokerLimits { in_flight: 20, ..BrokerLimits::default() }),
            Code::BadUserNamePassword | Code::NotAuthorized => Packet::Refused(SessionRefusal::Login),
            Code::BadClientId => Packet::Refused(SessionRefusal::ClientId),
            Code::RefusedProtocolVersion => Packet::Refused(SessionRefusal::Version),
            Code::ServiceUnavailable => Packet::Refused(SessionRefusal::Other("service unavailable".to_owned())),
        },
        v4::Packet::PubAck(ack) => Packet::PubAck(ack.pkid, Ok(())),
        v4::Packet::PubRec(ack) => Packet::PubRec(ack.pkid, Ok(())),
        v4::Packet::PubComp(ack) => Packet::PubComp(ack.pkid),
        v4::Packet::SubAck(ack) => {
            let accepts = |code: &v4::SubscribeReasonCode| matches!(code, v4::SubscribeReasonCode::Success(_));
            Packet::SubAck(ack.pkid, ack.return_codes.iter().all(accepts))
        }
        v4::Packet::UnsubAck(_) => Packet::UnsubAck,
        v4::Packet::PingResp => Packet::PingResp,
        v4::Packet::Publish(message) => Packet::Publish(Incoming {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            retained: message.retain,
        }),
        _ => Packet::Other,
    }
}

fn packet_v5(packet: v5::Packet) -> Packet {
    use v5::ConnectReturnCode as Code;
    match packet {
        v5::Packet::ConnAck(ack) => match ack.code {
            Code::Success => Packet::ConnAck(limits(ack.properties.as_ref())),
            Code::BadUserNamePassword | Code::NotAuthorized => Packet::Refused(SessionRefusal::Login),
            Code::BadClientId | Code::ClientIdentifierNotValid => Packet::Refused(SessionRefusal::ClientId),
            Code::RefusedProtocolVersion | Code::UnsupportedProtocolVersion => Packet::Refused(SessionRefusal::Version),
            Code::RetainNotSupported => Packet::Refused(SessionRefusal::Retain),
            Code::QoSNotSupported => Packet::Refused(SessionRefusal::Qos),
            code => {
                let words = ack.properties.and_then(|properties| properties.reason_string);
                Packet::Refused(SessionRefusal::Other(describe(code, words)))
            }
        },
        v5::Packet::PubAck(ack) => {
            use v5::PubAckReason::{NoMatchingSubscribers, Success};
            let words = ack.properties.and_then(|properties| properties.reason_string);
            let accepted = matches!(ack.reason, Success | NoMatchingSubscribers);
            Packet::PubAck(ack.pkid, accepted.then_some(()).ok_or_else(|| refusal(ack.reason, words)))
        }
        v5::Packet::PubRec(ack) => {
            use v5::PubRecReason::{NoMatchingSubscribers, Success};
            let words = ack.properties.and_then(|properties| properties.reason_string);
            let accepted = matches!(ack.reason, Success | NoMatchingSubscribers);
            Packet::PubRec(ack.pkid, accepted.then_some(()).ok_or_else(|| refusal(ack.reason, words)))
        }
        v5::Packet::PubComp(ack) => Packet::PubComp(ack.pkid),
        v5::Packet::SubAck(ack) => {
            let accepts = |code: &v5::SubscribeReasonCode| matches!(code, v5::SubscribeReasonCode::Success(_));
            Packet::SubAck(ack.pkid, ack.return_codes.iter().all(accepts))
        }
        v5::Packet::UnsubAck(_) => Packet::UnsubAck,
        v5::Packet::PingResp(_) => Packet::PingResp,
        v5::Packet::Publish(message) => Packet::Publish(Incoming {
            topic: String::from_utf8_lossy(&message.topic).into_owned(),
            payload: message.payload,
            retained: message.retain,
        }),
        v5::Packet::Disconnect(v5::Disconnect { reason_code: v5::DisconnectReasonCode::SessionTakenOver, .. }) => {
            Packet::TakenOver
        }
        v5::Packet::Disconnect(end) => {
            let words = end.properties.and_then(|properties| properties.reason_string);
            Packet::Disconnect(describe(end.reason_code, words))
        }
        _ => Packet::Other,
    }
}

fn limits(properties: Option<&v5::ConnAckProperties>) -> BrokerLimits {
    let default = BrokerLimits::default();
    let Some(said) = properties else { return default };
    BrokerLimits {
        in_flight: said.receive_max.map_or(default.in_flight, |max| max.max(1)),
        packet_bytes: said.max_packet_size.map_or(default.packet_bytes, |max| max as usize),
        qos: said.max_qos.map_or(default.qos, |max| max.min(2)),
        retain: said.retain_available != Some(0),
        keep_alive_seconds: said.server_keep_alive,
        wildcards: said.wildcard_subscription_available != Some(0),
    }
}

/// Returns the PUBACK or PUBREC that begins with `start`, with a reason that MQTT 5 defines only for DISCONNECT: Mosquitto
/// refuses a message above its `message_size_limit` with 0x95.
fn foreign_acknowledgement(start: [u8; 7], code: u8) -> Option<Packet> {
    let reason = v5::DisconnectReasonCode::try_from(code).ok()?;
    let [kind, length @ ..] = start;
    let id = length.iter().position(|byte| *byte < 0x80)? + 1;
    let id = u16::from_be_bytes([*length.get(id)?, *length.get(id + 1)?]);
    match kind >> 4 {
        4 => Some(Packet::PubAck(id, Err(refusal(reason, None)))),
        5 => Some(Packet::PubRec(id, Err(refusal(reason, None)))),
        _ => None,
    }
}

/// Describes why the broker refuses a message, and says what to change.
fn refusal(reason: impl std::fmt::Debug, words: Option<String>) -> Refusal {
    // PUBACK, PUBREC and DISCONNECT have common reasons, as three types.
    let name = format!("{reason:?}");
    let remedy = match name.as_str() {
        "NotAuthorized" => "allow this user to publish there",
        "TopicNameInvalid" => "allow the topic there, or change `topic_prefix`",
        "QuotaExceeded" => "raise the quota there, or send less (`max_rate`, `only_detections`)",
        "MessageRateTooHigh" => "send less (`max_rate`)",
        "PacketTooLarge" => "raise its limit (Mosquitto: `message_size_limit`)",
        "PayloadFormatInvalid" => "correct the schema there, or exempt this topic",
        _ => "see the broker's log",
    };
    Refusal { reason: format!("{}; {remedy}", describe(reason, words)), is_too_large: name == "PacketTooLarge" }
}

/// Turns a reason code into words (`NotAuthorized`: "not authorized"), and adds the broker's reason string.
fn describe(reason: impl std::fmt::Debug, words: Option<String>) -> String {
    let mut out = String::new();
    for c in format!("{reason:?}").chars() {
        if c.is_ascii_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.push(c.to_ascii_lowercase());
    }
    match words {
        Some(words) => format!("{out} ({})", shorten(&words)),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn publish(qos: u8) -> Publish {
        Publish {
            topic: "visiond/gate/cameras/door/detections".to_owned(),
            payload: Bytes::from_static(b"{}"),
            qos,
            retain: true,
            content_type: Some("application/json"),
            id: Some("0123-4".into()),
            expiry_seconds: Some(60),
        }
    }

    #[test]
    fn a_message_is_read_by_the_other_side_as_it_was_meant() {
        let mut out = BytesMut::new();
        Codec(MqttProtocol::V5).publish(&publish(1), 7, &mut out).unwrap();
        let size = out.len();
        assert!(Codec(MqttProtocol::V5).publish_bytes(&publish(1)) >= size);
        let v5::Packet::Publish(read) = v5::Packet::read(&mut out, None).unwrap() else { panic!() };
        assert_eq!((read.pkid, read.retain, &read.payload[..]), (7, true, &b"{}"[..]));
        let properties = read.properties.unwrap();
        assert_eq!(properties.user_properties, [("id".to_owned(), "0123-4".to_owned())]);
        assert_eq!(properties.content_type.as_deref(), Some("application/json"));
        assert_eq!(properties.message_expiry_interval, Some(60));

        let mut out = BytesMut::new();
        Codec(MqttProtocol::V3).publish(&publish(0), 0, &mut out).unwrap();
        let v4::Packet::Publish(read) = v4::Packet::read(&mut out, 1 << 20).unwrap() else { panic!() };
        assert_eq!((read.topic.as_str(), read.pkid), ("visiond/gate/cameras/door/detections", 0));
    }

    #[test]
    fn answers_are_the_same_of_both_versions_and_come_when_they_are_whole() {
        let read = |protocol, bytes: &[u8]| Codec(protocol).decode(&mut BytesMut::from(bytes));
        for protocol in [MqttProtocol::V3, MqttProtocol::V5] {
            assert_eq!(read(protocol, &[0x40, 2, 0]), Ok(None), "cut off");
            assert_eq!(read(protocol, &[0x40, 2, 1, 2]), Ok(Some(Packet::PubAck(0x102, Ok(())))));
            assert_eq!(read(protocol, &[0x50, 2, 0, 9]), Ok(Some(Packet::PubRec(9, Ok(())))));
            assert_eq!(read(protocol, &[0x70, 2, 0, 9]), Ok(Some(Packet::PubComp(9))));
            assert_eq!(read(protocol, &[0xD0, 0]), Ok(Some(Packet::PingResp)));
            assert!(read(protocol, &[0x40, 0xff, 0xff, 0xff, 0x7f]).is_err(), "256 MiB are not waited for");
        }
        assert_eq!(read(MqttProtocol::V3, &[0x20, 2, 0, 5]), Ok(Some(Packet::Refused(SessionRefusal::Login))));
        let read_own_code = |code| read(MqttProtocol::V3, &[0x20, 2, 0, code]);
        assert!(
            matches!(read_own_code(6), Ok(Some(Packet::Refused(SessionRefusal::Other(words)))) if words.contains("`keep_alive`"))
        );
        assert!(read_own_code(0x84).is_err(), "of a broker that speaks only MQTT 5");
        let refusal = |reason: &str, is_too_large| Err(Refusal { reason: reason.to_owned(), is_too_large });
        let refused = Packet::PubAck(1, refusal("not authorized; allow this user to publish there", false));
        assert_eq!(read(MqttProtocol::V5, &[0x40, 4, 0, 1, 0x87, 0]), Ok(Some(refused)));
        let too_large = "packet too large; raise its limit (Mosquitto: `message_size_limit`)";
        // Also with a length field that is longer than necessary.
        for (bytes, packet) in [
            (&[0x40, 3, 1, 2, 0x95][..], Packet::PubAck(0x102, refusal(too_large, true))),
            (&[0x40, 0x84, 0x80, 0x80, 0, 1, 2, 0x95, 0], Packet::PubAck(0x102, refusal(too_large, true))),
            (
                &[0x50, 4, 0, 9, 0x96, 0],
                Packet::PubRec(9, refusal("message rate too high; send less (`max_rate`)", false)),
            ),
        ] {
            assert_eq!(read(MqttProtocol::V5, bytes), Ok(Some(packet)));
        }
        assert!(read(MqttProtocol::V5, &[0x40, 3, 0, 1, 0x77]).is_err(), "no reason of MQTT");
        let busy = Packet::Disconnect("server shutting down".to_owned());
        assert_eq!(read(MqttProtocol::V5, &[0xE0, 2, 0x8B, 0]), Ok(Some(busy)));
        assert_eq!(read(MqttProtocol::V5, &[0xE0, 2, 0x8E, 0]), Ok(Some(Packet::TakenOver)));
        let limits = BrokerLimits { in_flight: 20, ..BrokerLimits::default() };
        assert_eq!(read(MqttProtocol::V5, &[0x20, 6, 0, 0, 3, 0x21, 0, 20]), Ok(Some(Packet::ConnAck(limits))));
    }

    #[test]
    fn each_limit_that_a_broker_announces_is_known() {
        let read = |protocol, bytes: &[u8]| Codec(protocol).decode(&mut BytesMut::from(bytes));
        let default = BrokerLimits::default();
        for (property, limits) in [
            (&[0x21, 0, 20][..], BrokerLimits { in_flight: 20, ..default }),
            (&[0x24, 1], BrokerLimits { qos: 1, ..default }),
            (&[0x25, 0], BrokerLimits { retain: false, ..default }),
            (&[0x25, 1], default),
            (&[0x27, 0, 0, 1, 0], BrokerLimits { packet_bytes: 256, ..default }),
            (&[0x13, 0, 9], BrokerLimits { keep_alive_seconds: Some(9), ..default }),
            (&[0x28, 0], BrokerLimits { wildcards: false, ..default }),
            (&[0x28, 1], default),
            (&[], default),
        ] {
            let bytes = property.len() as u8;
            let connack = [&[0x20, 3 + bytes, 0, 0, bytes], property].concat();
            assert_eq!(read(MqttProtocol::V5, &connack), Ok(Some(Packet::ConnAck(limits))));
        }
        // MQTT 3.1.1 announces none: Mosquitto's default.
        let limits = BrokerLimits { in_flight: 20, ..default };
        assert_eq!(read(MqttProtocol::V3, &[0x20, 2, 0, 0]), Ok(Some(Packet::ConnAck(limits))));
    }

    #[test]
    fn a_broker_knows_the_largest_packet_that_is_accepted() {
        let mut out = BytesMut::new();
        Codec(MqttProtocol::V5).connect(&Connect::default(), &mut out).unwrap();
        let v5::Packet::Connect(connect, ..) = v5::Packet::read(&mut out, None).unwrap() else { panic!() };
        assert_eq!(connect.properties.unwrap().max_packet_size, Some(1 << 20));
    }

    #[test]
    fn a_message_that_is_too_large_is_known_by_its_first_bytes() {
        let start = [&[0x31, 0x81, 0x80, 0x40, 0, 3][..], b"a/b", &[0; 100]].concat();
        let found = |end: usize| Codec(MqttProtocol::V3).oversized(&start[..end]);
        let oversized = |topic: Option<&str>| Some(Oversized { bytes: (1 << 20) + 5, topic: topic.map(str::to_owned) });
        assert_eq!((found(0), found(3)), (None, None), "its length is not there");
        assert_eq!((found(4), found(8)), (oversized(None), oversized(None)));
        assert_eq!((found(9), found(start.len())), (oversized(Some("a/b")), oversized(Some("a/b"))));
        assert_eq!(Codec(MqttProtocol::V5).oversized(&start), None, "the broker knows the limit");
        for other in
            [[0x31, 0x80, 0x80, 0x40, 0, 0], [0x41, 0x81, 0x80, 0x40, 0, 0], [0x31, 0xff, 0xff, 0xff, 0xff, 0x7f]]
        {
            assert_eq!(Codec(MqttProtocol::V3).oversized(&other), None);
        }
    }

    #[test]
    fn a_brokers_words_are_cut() {
        let said = describe(v5::PubAckReason::NotAuthorized, Some("x".repeat(60_000)));
        assert!(said.starts_with("not authorized (xxx") && said.len() < 300, "{said}");
    }

    #[test]
    fn what_is_written_by_hand_is_what_the_library_writes() {
        let out = [&pubrel(0x102)[..], &PINGREQ].concat();
        let mut theirs = BytesMut::new();
        v4::PubRel::new(0x102).write(&mut theirs).unwrap();
        v4::PingReq.write(&mut theirs).unwrap();
        assert_eq!(out, theirs);
        let mut theirs = BytesMut::new();
        v5::PubRel::new(0x102, None).write(&mut theirs).unwrap();
        assert_eq!(out[..4], theirs[..]);
    }
}
