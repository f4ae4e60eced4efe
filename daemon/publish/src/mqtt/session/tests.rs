#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use visiond_config::types::MqttProtocol;
use visiond_system::testing::{EVER, HANG, at_once};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A session whose broker is the test.
fn session_with(limits: BrokerLimits, pipe_bytes: usize) -> (MqttSession, DuplexStream) {
    let (ours, theirs) = duplex(pipe_bytes);
    let codec = Codec(MqttProtocol::V5);
    (MqttSession::new(Box::new(ours), codec, limits, 20 * SECOND, BytesMut::new()), theirs)
}

fn publish(text: &str, qos: u8) -> Publish {
    let payload = Bytes::copy_from_slice(text.as_bytes());
    Publish { topic: "t".into(), payload, qos, retain: false, content_type: None, id: None, expiry_seconds: None }
}

/// Returns the bytes that the broker has received.
async fn bytes_got(broker: &mut DuplexStream) -> BytesMut {
    let mut bytes = BytesMut::new();
    poll_fn(|context| {
        let mut chunk = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut chunk);
            match Pin::new(&mut *broker).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => bytes.extend_from_slice(buffer.filled()),
                _ => return Poll::Ready(()),
            }
        }
    })
    .await;
    bytes
}

/// Returns the packets that the broker has received: each as `number text`, `release number`, or its kind.
async fn got(broker: &mut DuplexStream) -> Vec<String> {
    let mut bytes = bytes_got(broker).await;
    let mut packets = Vec::new();
    while let Ok(packet) = v5::Packet::read(&mut bytes, None) {
        packets.push(match packet {
            v5::Packet::Publish(p) => format!("{} {}", p.pkid, String::from_utf8_lossy(&p.payload)),
            v5::Packet::PubRel(p) => format!("release {}", p.pkid),
            v5::Packet::PingReq(_) => "ping".to_owned(),
            other => format!("{other:?}"),
        });
    }
    packets
}

async fn says(broker: &mut DuplexStream, bytes: &[u8]) {
    poll_fn(|context| Pin::new(&mut *broker).poll_write(context, bytes)).await.unwrap();
}

/// Returns the event that is ready; `None` if there is none.
async fn now(session: &mut MqttSession) -> Option<SessionEvent> {
    at_once(session.next_event()).await
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
}

#[test]
fn each_quality_is_acknowledged_as_it_should_be() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.send(7, publish("a", 0)).await;
        session.send(8, publish("b", 1)).await;
        session.send(9, publish("c", 2)).await;
        assert_eq!(got(&mut broker).await, ["0 a", "1 b", "2 c"]);
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(7)), "written");
        assert_eq!(now(&mut session).await, None);
        // In any order: PUBREC, PUBACK, PUBCOMP.
        says(&mut broker, &[0x50, 2, 0, 2, 0x40, 2, 0]).await;
        assert_eq!(now(&mut session).await, None, "received is not done, and half an answer is none");
        assert_eq!(got(&mut broker).await, ["release 2"]);
        says(&mut broker, &[1, 0x70, 2, 0, 2]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(8)));
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(9)));
    });
}

#[test]
fn the_brokers_window_is_kept_and_what_is_our_own_goes_first() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits { in_flight: 2, ..BrokerLimits::default() }, 1 << 16);
        for number in 0..4 {
            session.send(number, publish(&number.to_string(), 1)).await;
        }
        session.publish(publish("own", 1));
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["1 0", "2 1"]);
        says(&mut broker, &[0x40, 2, 0, 2]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(1)));
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["3 own"]);
        says(&mut broker, &[0x40, 2, 0, 3]).await;
        assert_eq!(now(&mut session).await, None, "nobody waits for what is our own");
        assert_eq!(got(&mut broker).await, ["4 2"]);
    });
}

const NOT_AUTHORIZED: &str = "not authorized; allow this user to publish there";

fn refusal(number: u64, reason: &str) -> Option<SessionEvent> {
    Some(SessionEvent::Refused(number, "t".to_owned(), reason.to_owned()))
}

#[test]
fn what_is_refused_is_reported_and_the_others_go_on() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        for number in 0..3 {
            session.send(number, publish(&number.to_string(), 1)).await;
        }
        assert_eq!(got(&mut broker).await, ["1 0", "2 1", "3 2"]);
        // Not authorized, quota exceeded; in another order.
        says(&mut broker, &[0x40, 4, 0, 2, 0x87, 0, 0x40, 4, 0, 1, 0x97, 0, 0x40, 2, 0, 3]).await;
        assert_eq!(now(&mut session).await, refusal(1, NOT_AUTHORIZED));
        let quota = "quota exceeded; raise the quota there, or send less (`max_rate`, `only_detections`)";
        assert_eq!(now(&mut session).await, refusal(0, quota));
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(2)));
        assert_eq!(now(&mut session).await, None);
        session.send(3, publish("3", 1)).await;
        assert_eq!(got(&mut broker).await, ["4 3"]);
    });
}

#[test]
fn every_reason_of_a_refusal_names_what_to_change_and_keeps_the_session() {
    let reasons = [
        (0x80, "unspecified error; see the broker's log"),
        (0x83, "implementation specific error; see the broker's log"),
        (0x87, NOT_AUTHORIZED),
        (0x90, "topic name invalid; allow the topic there, or change `topic_prefix`"),
        (0x91, "packet identifier in use; see the broker's log"),
        (0x96, "message rate too high; send less (`max_rate`)"),
        (0x97, "quota exceeded; raise the quota there, or send less (`max_rate`, `only_detections`)"),
        (0x99, "payload format invalid; correct the schema there, or exempt this topic"),
    ];
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        // PUBACK and PUBREC, without and with the length of their properties.
        for (qos, kind, end) in [(1, 0x40, &[][..]), (2, 0x50, &[0])] {
            for (code, words) in reasons {
                session.send(7, publish("7", qos)).await;
                let [high, low] = session.last_number.to_be_bytes();
                assert_eq!(got(&mut broker).await.len(), 1);
                let answer = [&[kind, 3 + end.len() as u8, high, low, code], end].concat();
                says(&mut broker, &answer).await;
                assert_eq!(now(&mut session).await, refusal(7, words), "{code:x}");
                assert_eq!(now(&mut session).await, None);
            }
        }
    });
}

#[test]
fn what_is_too_large_for_the_broker_is_left_out_and_the_others_go_on() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.publish(publish("own", 1));
        for (number, qos) in [(0, 1), (1, 2), (2, 1)] {
            session.send(number, publish(&number.to_string(), qos)).await;
        }
        assert_eq!(got(&mut broker).await.len(), 4);
        // PUBACK and PUBREC with "packet too large", which MQTT 5 has for DISCONNECT alone: Mosquitto sends them.
        says(&mut broker, &[0x40, 3, 0, 1, 0x95, 0x40, 4, 0, 2, 0x95, 0, 0x50, 3, 0, 3, 0x95, 0x40, 2, 0, 4]).await;
        for number in [None, Some(0), Some(1)] {
            let Some(SessionEvent::Impossible(left_out, reason)) = now(&mut session).await else { panic!() };
            assert!(left_out == number && reason.contains("packet too large; raise its limit"), "{reason}");
            assert_eq!(reason.contains("max_detections"), number.is_some(), "a state has no detections: {reason}");
        }
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(2)));
        session.tick(Instant::now() + REFUSED_WAIT);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, [""; 0], "nothing is sent again");
    });
}

#[test]
fn a_refused_state_that_became_too_large_is_not_sent_again_and_the_other_one_is() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        ["a", "b"].into_iter().for_each(|topic| session.publish(Publish { topic: topic.into(), ..publish(topic, 1) }));
        assert_eq!(now(&mut session).await, None);
        says(&mut broker, &[0x40, 3, 0, 1, 0x87, 0x40, 3, 0, 2, 0x87]).await;
        assert!(matches!(now(&mut session).await, Some(SessionEvent::OwnRefused(..))));
        assert_eq!(now(&mut session).await, None);
        let later = Instant::now() + REFUSED_WAIT;
        session.tick(later);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["1 a", "2 b", "3 a"]);
        says(&mut broker, &[0x40, 3, 0, 3, 0x95]).await;
        assert!(matches!(now(&mut session).await, Some(SessionEvent::Impossible(None, _))));
        session.tick(later);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["4 b"], "at once");
        says(&mut broker, &[0x40, 2, 0, 4]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::OwnAccepted));
    });
}

#[test]
fn refused_states_are_reported_once_and_when_all_of_them_are_accepted() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        let own = |topic: &str| Publish { topic: topic.into(), ..publish("own", 1) };
        ["a", "b", "c"].into_iter().for_each(|topic| session.publish(own(topic)));
        assert_eq!(now(&mut session).await, None);
        says(&mut broker, &[0x40, 4, 0, 1, 0x87, 0, 0x40, 4, 0, 2, 0x87, 0, 0x40, 2, 0, 3]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::OwnRefused("a".into(), NOT_AUTHORIZED.into())));
        assert_eq!(now(&mut session).await, None, "one line for all");
        assert_eq!(got(&mut broker).await, ["1 own", "2 own", "3 own"]);
        session.publish(Publish { payload: Bytes::from_static(b"newer"), ..own("b") });
        assert_eq!(now(&mut session).await, None);
        says(&mut broker, &[0x40, 4, 0, 4, 0x87, 0]).await;
        let later = Instant::now() + REFUSED_WAIT;
        session.tick(later);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["4 newer", "5 own"], "one is sent again");
        says(&mut broker, &[0x40, 2, 0, 5]).await;
        assert_eq!(now(&mut session).await, None, "another one is still refused");
        session.tick(later);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["6 newer"]);
        says(&mut broker, &[0x40, 2, 0, 6]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::OwnAccepted));
        session.tick(later + REFUSED_WAIT);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, [""; 0]);
    });
}

#[test]
fn of_refused_states_of_one_topic_the_newest_is_sent_again() {
    run(async {
        // Where packet ids begin again; in flight, or still waiting.
        for (last_number, in_flight, refusals) in [
            (0, 9, vec![1_u16, 2, 3]),
            (0, 9, vec![3, 2, 1]),
            (u16::MAX - 2, 9, vec![u16::MAX - 1, u16::MAX, 1]),
            (u16::MAX - 2, 9, vec![1, u16::MAX, u16::MAX - 1]),
            (0, 2, vec![1, 2, 3]),
        ] {
            let limits = BrokerLimits { in_flight, ..BrokerLimits::default() };
            let (mut session, mut broker) = session_with(limits, 1 << 16);
            session.last_number = last_number;
            ["old", "newer", "newest"].into_iter().for_each(|text| session.publish(publish(text, 1)));
            assert_eq!(now(&mut session).await, None);
            for id in refusals {
                let [high, low] = id.to_be_bytes();
                says(&mut broker, &[0x40, 4, high, low, 0x87, 0]).await;
                while now(&mut session).await.is_some() {}
            }
            got(&mut broker).await;
            session.tick(Instant::now() + REFUSED_WAIT);
            assert_eq!(now(&mut session).await, None);
            let again = got(&mut broker).await;
            assert!(again.len() == 1 && again[0].ends_with(" newest"), "{again:?}");
        }
    });
}

#[test]
fn a_message_that_waits_while_its_topic_is_cleared_is_not_retained() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits { in_flight: 1, ..BrokerLimits::default() }, 1 << 16);
        let detections = |topic: &str| Publish { topic: topic.into(), retain: true, ..publish("line", 1) };
        for (number, topic) in ["other", "door", "other"].into_iter().enumerate() {
            session.send(number as u64, detections(topic)).await;
        }
        session.publish(Publish::retained("door".into(), Bytes::new(), 1, None));
        let mut said = Vec::new();
        for id in 1..=4 {
            while now(&mut session).await.is_some() {}
            let mut bytes = bytes_got(&mut broker).await;
            let v5::Packet::Publish(packet) = v5::Packet::read(&mut bytes, None).unwrap() else { panic!() };
            said.push((String::from_utf8_lossy(&packet.topic).into_owned(), packet.payload.len(), packet.retain));
            says(&mut broker, &[0x40, 2, 0, id]).await;
        }
        let of = |topic: &str, bytes, retain| (topic.to_owned(), bytes, retain);
        let expected = [of("other", 4, true), of("door", 0, true), of("door", 4, false), of("other", 4, true)];
        assert_eq!(said, expected);
    });
}

#[test]
fn a_packet_id_is_used_again_only_once_it_is_free() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.send(0, publish("a", 1)).await;
        session.send(1, publish("b", 1)).await;
        says(&mut broker, &[0x40, 2, 0, 2]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(1)));
        // The ids restart after the highest; 1 is still in flight.
        session.last_number = u16::MAX - 1;
        for (number, text) in ["c", "d", "e"].into_iter().enumerate() {
            session.send(number as u64 + 2, publish(text, 1)).await;
        }
        assert_eq!(got(&mut broker).await, ["1 a", "2 b", "65535 c", "2 d", "3 e"]);
        says(&mut broker, &[0x40, 2, 0, 1]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(0)));
    });
}

#[test]
fn an_exactly_once_message_that_is_refused_is_not_released() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.send(7, publish("a", 2)).await;
        assert_eq!(got(&mut broker).await, ["1 a"]);
        // PUBREC: quota exceeded.
        says(&mut broker, &[0x50, 4, 0, 1, 0x97, 0]).await;
        assert_eq!(
            now(&mut session).await,
            refusal(7, "quota exceeded; raise the quota there, or send less (`max_rate`, `only_detections`)")
        );
        assert_eq!(got(&mut broker).await, [""; 0]);
        session.send(7, publish("a", 2)).await;
        assert_eq!(got(&mut broker).await, ["2 a"]);
        says(&mut broker, &[0x50, 2, 0, 2, 0x70, 2, 0, 2]).await;
        assert_eq!(now(&mut session).await, Some(SessionEvent::Acknowledged(7)));
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["release 2"]);
    });
}

#[test]
fn a_broker_that_cannot_retain_or_has_a_lower_quality_gets_what_it_accepts() {
    run(async {
        for (limits, qos, retain) in [
            (BrokerLimits::default(), 2, true),
            (BrokerLimits { retain: false, ..BrokerLimits::default() }, 2, false),
            (BrokerLimits { qos: 1, ..BrokerLimits::default() }, 1, true),
            (BrokerLimits { qos: 0, ..BrokerLimits::default() }, 0, true),
        ] {
            let (mut session, mut broker) = session_with(limits, 1 << 16);
            session.send(1, Publish { retain: true, ..publish("message", 2) }).await;
            session.publish(Publish { retain: true, ..publish("state", 2) });
            while now(&mut session).await.is_some() {}
            let mut bytes = bytes_got(&mut broker).await;
            for _ in 0..2 {
                let v5::Packet::Publish(packet) = v5::Packet::read(&mut bytes, None).unwrap() else { panic!() };
                assert_eq!((packet.qos as u8, packet.retain), (qos, retain), "{limits:?}");
            }
        }
    });
}

#[test]
fn a_broker_that_repeats_itself_and_reads_nothing_fills_no_memory() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.send(1, publish("a", 2)).await;
        session.send(2, publish("b", 1)).await;
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["1 a", "2 b"]);
        // PUBREC: of a message that waits for it; of one that waits for PUBACK; of none.
        let repeated = [0x50, 2, 0, 1, 0x50, 2, 0, 2, 0x50, 2, 0, 3].repeat(1000);
        says(&mut broker, &repeated).await;
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["release 1"]);
    });
}

#[test]
fn a_broker_that_never_stops_is_given_up() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 20);
        session.send(1, publish("a", 1)).await;
        // PINGRESP; then PUBACK of what is in flight, after which the broker may send as much again.
        let chunk = [0xd0, 0].repeat(1 << 19);
        for _ in 0..4 {
            says(&mut broker, &chunk).await;
            assert_eq!(now(&mut session).await, None);
        }
        says(&mut broker, &[0x40, 2, 0, 1]).await;
        let given_up = SessionEvent::Lost("the broker sent 4 MiB that visiond did not request".to_owned());
        assert_eq!(now(&mut session).await, Some(given_up));
    });
}

#[test]
fn messages_of_a_subscription_are_asked_for_until_it_has_ended() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 20);
        session.subscribe(&["a/#".to_owned()], true);
        let message = |bytes: usize| [&[0x30, 0xff, 0xff, 0x3f, 0, 1, b'a', 0][..], &vec![b'x'; bytes - 8]].concat();
        let message = message((1 << 20) + 3);
        let mut said = async |session: &mut MqttSession| {
            for part in message.chunks(1 << 19) {
                says(&mut broker, part).await;
                if let Some(event) = now(session).await {
                    return event;
                }
            }
            panic!("no event")
        };
        for _ in 0..5 {
            assert!(matches!(said(&mut session).await, SessionEvent::Incoming(_)));
        }
        session.subscribe(&["a/#".to_owned()], false);
        assert!(matches!(said(&mut session).await, SessionEvent::Incoming(_)), "it was on its way");
        // UNSUBACK.
        session.received(Packet::UnsubAck);
        for _ in 0..3 {
            assert!(matches!(said(&mut session).await, SessionEvent::Incoming(_)));
        }
        assert!(matches!(said(&mut session).await, SessionEvent::Lost(_)));
    });
}

#[test]
fn a_message_that_is_too_large_is_skipped_and_what_follows_is_read() {
    run(async {
        let (ours, mut broker) = duplex(1 << 20);
        let codec = Codec(MqttProtocol::V3);
        let limits = BrokerLimits::default();
        let mut session = MqttSession::new(Box::new(ours), codec, limits, 20 * SECOND, BytesMut::new());
        session.subscribe_to_commands(&["a/#".to_owned()]);
        // Retained, of 6 MiB each, with their ends in one packet of the network.
        let large = [&[0x31, 0x80, 0x80, 0x80, 0x03, 0, 1, b'a'][..], &vec![b'x'; (6 << 20) - 3]].concat();
        let bytes = [&large[..], &large, &[0x30, 5, 0, 1, b'b', b'O', b'N']].concat();
        let mut events = Vec::new();
        for part in bytes.chunks(1 << 19) {
            says(&mut broker, part).await;
            while let Some(event) = now(&mut session).await {
                events.push(event);
            }
        }
        let too_large = || SessionEvent::TooLarge("a".to_owned(), (6 << 20) + 5);
        let small = Incoming { topic: "b".to_owned(), payload: Bytes::from_static(b"ON"), retained: false };
        assert_eq!(events, [too_large(), too_large(), SessionEvent::Incoming(small)]);
    });
}

#[test]
fn states_that_no_one_acknowledges_count_as_waiting() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        for _ in 0..3 {
            session.publish(publish("state", 1));
        }
        session.send(1, publish("message", 1)).await;
        assert_eq!(session.own_waiting(), 3);
        assert_eq!(got(&mut broker).await, ["1 state", "2 state", "3 state", "4 message"]);
        says(&mut broker, &[0x40, 2, 0, 2]).await;
        assert_eq!(now(&mut session).await, None);
        assert_eq!(session.own_waiting(), 2);
    });
}

#[test]
fn what_is_too_large_is_told_and_the_rest_goes_on() {
    run(async {
        let (mut session, mut broker) =
            session_with(BrokerLimits { packet_bytes: 200, ..BrokerLimits::default() }, 1 << 16);
        session.send(1, publish(&"x".repeat(300), 1)).await;
        session.send(2, publish("small", 1)).await;
        assert!(
            matches!(now(&mut session).await, Some(SessionEvent::Impossible(Some(1), reason)) if reason.contains("200"))
        );
        assert_eq!(got(&mut broker).await, ["2 small"]);
    });
}

#[test]
fn a_slow_reader_gets_every_byte_although_each_wait_is_given_up() {
    run(async {
        // The pipe holds seven bytes: every packet is written in parts, and each wait ends within one.
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 7);
        let mut packets = BytesMut::new();
        for number in 0..20 {
            session.send(number, publish(&format!("message {number}"), 1)).await;
        }
        let mut chunk = [0; 64];
        for _ in 0..600 {
            let _ = at_once(session.next_event()).await;
            let mut buffer = ReadBuf::new(&mut chunk);
            poll_fn(|context| {
                let _ = Pin::new(&mut broker).poll_read(context, &mut buffer);
                Poll::Ready(())
            })
            .await;
            packets.extend_from_slice(buffer.filled());
        }
        for number in 0..20 {
            let v5::Packet::Publish(packet) = v5::Packet::read(&mut packets, None).unwrap() else { panic!() };
            assert_eq!(packet.payload, format!("message {number}"));
        }
        assert!(packets.is_empty());
    });
}

#[test]
fn thirty_days_of_pings_packet_ids_and_refusals_stay_within_their_bounds() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 20);
        let start = Instant::now();
        // Six messages a minute, at once, which gives quiet times for pings. One is acknowledged only after all ids went round.
        let (mut pings, mut sent, mut seen, mut last_id) = (0_u64, 0_u64, 0, 0_u16);
        let mut kept = None;
        // Ids go round after 65,535 messages, so six a minute make almost four rounds.
        for tick in 0..30 * 8640_u64 {
            session.tick(start + SECOND * 10 * tick as u32);
            let messages = if tick % 6 == 0 { 2 * 3 } else { 0 };
            for _ in 0..messages {
                session.send(sent, publish("x", 1)).await;
                sent += 1;
            }
            let mut answers = Vec::new();
            assert_eq!(now(&mut session).await, None, "{tick}");
            for packet in got(&mut broker).await {
                if packet == "ping" {
                    pings += 1;
                    answers.extend([0xD0, 0]);
                    continue;
                }
                let id: u16 = packet.split(' ').next().unwrap().parse().unwrap();
                assert!(id != 0 && Some(id) != kept, "{id}");
                let next = last_id.checked_add(1).unwrap_or(1);
                assert!(id == next || Some(next) == kept && id == next.checked_add(1).unwrap_or(1), "{last_id} {id}");
                last_id = id;
                if sent > 40_000 && kept.is_none() {
                    kept = Some(id);
                } else {
                    answers.extend([0x40, 2, (id >> 8) as u8, id as u8]);
                }
            }
            says(&mut broker, &answers).await;
            while let Some(event) = now(&mut session).await {
                assert!(matches!(event, SessionEvent::Acknowledged(_)), "{event:?}");
                seen += 1;
            }
            // Tokio stops reading after many turns without a rest.
            tokio::task::yield_now().await;
            let left = (session.in_flight.len(), session.messages.len(), session.events.len());
            assert!(left.0 <= 1 && (left.1, left.2) == (0, 0), "{tick}: {left:?}");
        }
        assert_eq!((sent, seen), (259_200, 259_199));
        // Each minute is quiet long enough for more than one ping at half of the 20 s.
        assert!(pings >= 43_200, "{pings}");
        // After a suspension, the session pings before it gives up.
        let later = start + SECOND * (40 * 86_400);
        session.tick(later);
        assert_eq!(now(&mut session).await, None, "the first tick after a pause");
    });
}

#[test]
fn a_silent_broker_is_asked_and_then_given_up() {
    run(async {
        let before = Instant::now();
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        let start = Instant::now();
        session.tick(before + 9 * SECOND);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, [""; 0]);
        session.tick(start + 11 * SECOND);
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["ping"]);
        says(&mut broker, &[0xD0, 0]).await;
        assert_eq!(now(&mut session).await, None, "it answers");
        session.tick(start + 22 * SECOND);
        session.tick(start + 43 * SECOND);
        let Some(SessionEvent::Lost(reason)) = now(&mut session).await else { panic!() };
        assert!(reason.starts_with("no packet from the broker for"), "{reason}");
    });
}

#[test]
fn the_end_of_a_session_is_told_with_its_reason() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        says(&mut broker, &[0xE0, 2, 0x8B, 0]).await;
        assert_eq!(
            now(&mut session).await,
            Some(SessionEvent::Lost("the broker ended the session: server shutting down".to_owned()))
        );
        let (mut session, broker) = session_with(BrokerLimits::default(), 1 << 16);
        drop(broker);
        assert_eq!(now(&mut session).await, Some(SessionEvent::Lost("the broker closed the connection".to_owned())));
    });
}

#[test]
fn a_session_that_ends_in_order_says_so_after_its_last_words() {
    run(async {
        let (mut session, mut broker) = session_with(BrokerLimits::default(), 1 << 16);
        session.send(1, publish("message", 1)).await;
        session.publish(publish("offline", 1));
        assert_eq!(now(&mut session).await, None);
        assert_eq!(got(&mut broker).await, ["1 message", "2 offline"]);
        says(&mut broker, &[0x40, 2, 0, 2]).await;
        tokio::time::timeout(HANG, session.close(EVER)).await.expect("it waits for its own words alone");
        let mut end = [0; 2];
        let mut buffer = ReadBuf::new(&mut end);
        poll_fn(|context| Pin::new(&mut broker).poll_read(context, &mut buffer)).await.unwrap();
        assert_eq!(end, [0xE0, 0], "DISCONNECT");
    });
}
