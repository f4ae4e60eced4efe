//! `[[sink]]` with `type = "mqtt"`: a broker of MQTT.

use std::path::PathBuf;
use std::time::Duration;

use super::{HOUR, MS, SECOND};
use crate::kinds::{Words, broker, credential, duration, flag, list, path, text, topic, whole, word};
use crate::table_macros::section;

section! {
    /// A broker of MQTT. Topics, payloads and Home Assistant: docs/mqtt.md.
    pub struct MqttSinkConfig {
        /// The broker: `mqtt://HOST:PORT`, or with TLS `mqtts://HOST:PORT`. Without a port 1883 or 8883. User and password have
        /// no place here, see `login`.
        url: String as broker(&["mqtt", "mqtts"]) => required(r#""mqtts://broker.example.org""#),
        /// The version of MQTT that the broker speaks.
        protocol: MqttProtocol as word() => default(MqttProtocol::V5),
        /// User and password, as one line `user:password`: the name of a systemd credential, or, with a slash in it, a
        /// file.
        login: Option<PathBuf> as credential() => optional(r#""mqtt""#),
        /// The certificates (PEM) that the broker's is checked by. Without it those that this system trusts.
        ca: Option<PathBuf> as path() => optional(r#""/etc/visiond/ca.pem""#),
        /// This device's own certificate (PEM), for brokers that ask for one; goes with `key`.
        certificate: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.pem""#),
        /// The key (PEM) of `certificate`.
        key: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.key""#),
        /// What the broker calls this connection; two with the same end each other. Without it visiond-DEVICE-SINK.
        client_id: Option<String> as text() => optional(r#""visiond-gate-7""#),
        /// After half of it in silence the broker is asked whether it is there; without an answer for all of it the
        /// connection is given up.
        keep_alive: Duration as duration(SECOND..=HOUR) => default(15 * SECOND),
        /// What every topic begins with: PREFIX/DEVICE/...
        topic_prefix: String as topic() => default("visiond".to_owned()),
        /// How sure detections are to arrive: 0 at most once, 1 at least once, 2 exactly once while the connection lasts. With
        /// 0 also `durable` sinks lose what was on its way when the connection broke.
        qos_detections: u32 as whole(0..=2) => default(1),
        /// The same for availability, state and snapshots.
        qos_state: u32 as whole(0..=2) => default(1),
        /// Whether the broker keeps each camera's last detections for those who subscribe later, as it does with
        /// availability, state and snapshots.
        retain: bool as flag() => default(false),
        /// With MQTT 5: how long the broker holds detections for a reader that is away; 0: without end.
        message_expiry: Duration as duration(SECOND..=24 * HOUR).or_zero() => default(Duration::ZERO),
        /// How often a camera's state is published at most; it is when something in it has changed.
        state_interval: Duration as duration(250 * MS..=HOUR) => default(SECOND),
        /// How long a camera counts as occupied after the last detection.
        occupancy_hold: Duration as duration(MS..=HOUR).or_zero() => default(5 * SECOND),
        /// How often a camera's picture is published as JPEG; 0: never.
        snapshot_interval: Duration as duration(SECOND..=24 * HOUR).or_zero() => default(Duration::ZERO),
        /// Whether boxes are drawn on it.
        snapshot_overlay: bool as flag() => default(true),
        /// Whether the cameras are announced to Home Assistant, which then shows each as a device.
        home_assistant: bool as flag() => default(false),
        /// The discovery prefix that Home Assistant is set to.
        discovery_prefix: String as topic() => default("homeassistant".to_owned()),
        /// Labels that Home Assistant gets a sensor for with how many of them are seen.
        count_labels: Vec<String> as list(text()) => default(Vec::new()),
    }
}

/// A version of MQTT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MqttProtocol {
    /// 3.1.1
    V3,
    /// 5
    V5,
}

words!(MqttProtocol: "5" = Self::V5, "3.1.1" = Self::V3);
