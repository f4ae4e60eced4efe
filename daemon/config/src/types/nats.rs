//! `[[sink]]` with `type = "nats"`: a NATS JetStream stream.

use std::path::PathBuf;
use std::time::Duration;

use super::{DAY, HOUR, MIB, SECOND};
use crate::kinds::{broker, credential, duration, duration_or_zero, flag, list, name, path, size_or_zero, subject};
use crate::table_macros::section;

/// The largest age limit of a message: users may want to keep messages for months.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

section! {
    /// A NATS JetStream stream, which many devices can share. Subjects, streams and permissions: docs/nats.md.
    pub struct NatsSinkConfig {
        /// The servers of one cluster: `nats://HOST:PORT` (port 4222), or with TLS `tls://`. Set the user with `login`.
        url: Vec<String> as list(broker(&["nats", "tls"])) => required(r#"["nats://localhost:4222"]"#),
        /// User and password, as one line `user:password`: the name of a systemd credential, or a file path with a slash.
        login: Option<PathBuf> as credential() => optional(r#""nats""#),
        /// A NATS credentials file (.creds), in place of `login`: a systemd credential, or a file path with a slash.
        credentials: Option<PathBuf> as credential() => optional(r#""/etc/visiond/device.creds""#),
        /// CA certificates (PEM) that verify the server's certificate. Without it, the system's CAs.
        ca: Option<PathBuf> as path() => optional(r#""/etc/visiond/ca.pem""#),
        /// This device's client certificate (PEM), for servers that ask for one; requires `key`.
        certificate: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.pem""#),
        /// The private key (PEM) of `certificate`.
        key: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.key""#),
        /// The stream that must store the messages. Without it, any stream that has their subject.
        stream: Option<String> as name() => optional(r#""visiond""#),
        /// Whether to create `stream` if it is missing. It then takes the subjects of every device and camera.
        create_stream: bool as flag() => default(false),
        /// How long a stream that visiond creates keeps a message; 0: no limit.
        stream_max_age: Duration as duration_or_zero(SECOND..=YEAR) => default(7 * DAY),
        /// Maximum bytes in a stream that visiond creates, before its oldest messages are deleted; 0: no limit. The server
        /// refuses a stream that is larger than its account may store; many hosted servers refuse one without a limit.
        stream_max_bytes: u64 as size_or_zero(MIB..=1 << 50) => default(1024 * MIB),
        /// Subject of a message: words separated by dots; {device} and {camera} are replaced by those names.
        subject: String as subject() => default("visiond.{device}.{camera}.detections".to_owned()),
        /// How long to wait for the acknowledgement of a message before visiond disconnects and sends it again. Raise it for a slow
        /// uplink, or a stream whose replicas are far apart.
        ack_timeout: Duration as duration(SECOND..=HOUR) => default(5 * SECOND),
    }
}
