//! `[[sink]]` with `type = "mqtt"`: an MQTT broker.

use std::path::PathBuf;
use std::time::Duration;

use super::{HOUR, MS, SECOND};
use crate::kinds::{Words, broker, credential, duration, duration_or_zero, flag, list, path, text, topic, whole, word};
use crate::table_macros::section;

section! {
    /// An MQTT broker. Topics, payloads and Home Assistant: docs/mqtt.md.
    pub struct MqttSinkConfig {
        /// The broker: `mqtt://HOST:PORT` (port 1883), or with TLS `mqtts://HOST:PORT` (8883). Set the user with `login`.
        url: String as broker(&["mqtt", "mqtts"]) => required(r#""mqtts://broker.example.org""#),
        /// MQTT version of the broker.
        protocol: MqttProtocol as word() => default(MqttProtocol::V5),
        /// User and password, as one line `user:password`: the name of a systemd credential, or a file path with a slash.
        login: Option<PathBuf> as credential() => optional(r#""mqtt""#),
        /// CA certificates (PEM) that verify the broker's certificate. Without it, the system's CAs.
        ca: Option<PathBuf> as path() => optional(r#""/etc/visiond/ca.pem""#),
        /// This device's client certificate (PEM), for brokers that ask for one; requires `key`.
        certificate: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.pem""#),
        /// The private key (PEM) of `certificate`.
        key: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.key""#),
        /// Client identifier; two connections with the same one disconnect each other. Without it, visiond-DEVICE-SINK.
        client_id: Option<String> as text() => optional(r#""visiond-gate-7""#),
        /// Keep-alive interval. Without traffic, visiond pings the broker after half of it and disconnects after all of it.
        keep_alive: Duration as duration(SECOND..=HOUR) => default(15 * SECOND),
        /// Prefix of every topic: PREFIX/DEVICE/...
        topic_prefix: String as topic() => default("visiond".to_owned()),
        /// QoS of detections: 0 at most once, 1 at least once, 2 exactly once while the connection lasts. With 0, `durable`
        /// sinks lose messages in flight when the connection breaks. Availability, state and snapshots always use QoS 1.
        qos_detections: u32 as whole(0..=2) => default(1),
        /// Whether the broker retains the last detections of each camera, as it retains availability, state and snapshots.
        retain: bool as flag() => default(false),
        /// With MQTT 5: how long the broker keeps detections for a subscriber that is offline; 0: no limit.
        message_expiry: Duration as duration_or_zero(SECOND..=24 * HOUR) => default(Duration::ZERO),
        /// Minimum interval between a camera's state messages; they are published only when the state has changed.
        state_interval: Duration as duration(250 * MS..=HOUR) => default(SECOND),
        /// How long a camera counts as occupied after the last detection.
        occupancy_hold: Duration as duration_or_zero(MS..=HOUR) => default(5 * SECOND),
        /// Interval at which a JPEG snapshot of each camera is published; 0: never.
        snapshot_interval: Duration as duration_or_zero(SECOND..=24 * HOUR) => default(Duration::ZERO),
        /// Whether boxes are drawn on snapshots.
        snapshot_overlay: bool as flag() => default(true),
        /// Obey commands by MQTT to switch cameras, lines and zones on and off, to set their least scores, and to reset totals. The
        /// broker decides who may send them. See docs/mqtt.md.
        commands: bool as flag() => default(false),
        /// Whether to announce the cameras to Home Assistant, which then shows each as a device.
        home_assistant: bool as flag() => default(false),
        /// The discovery prefix configured in Home Assistant.
        discovery_prefix: String as topic() => default("homeassistant".to_owned()),
        /// Labels for which Home Assistant gets a sensor with the number of detections.
        count_labels: Vec<String> as list(text()) => default(Vec::new()),
    }
}

/// Version of the MQTT protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MqttProtocol {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.
    V5,
}

words!(MqttProtocol: "5" = Self::V5, "3.1.1" = Self::V3);
