//! `[[sink]]` with `type = "nats"`: a stream of NATS JetStream.

use std::path::PathBuf;
use std::time::Duration;

use super::{DAY, HOUR, MIB, SECOND};
use crate::kinds::{broker, credential, duration, flag, list, name, path, size, subject};
use crate::table_macros::section;

/// Months are what somebody may want to keep.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

section! {
    /// A stream of NATS JetStream, which many devices may share. Subjects, streams and rights: docs/nats.md.
    pub struct NatsSinkConfig {
        /// The servers, which are one cluster: `nats://HOST:PORT`, or with TLS `tls://HOST:PORT`. Without a port 4222. User and
        /// password have no place here, see `login`.
        url: Vec<String> as list(broker(&["nats", "tls"])) => required(r#"["nats://localhost:4222"]"#),
        /// User and password, as one line `user:password`: the name of a systemd credential, or, with a slash in it, a
        /// file.
        login: Option<PathBuf> as credential() => optional(r#""nats""#),
        /// A credentials file of NATS (.creds), in place of `login`: the name of a systemd credential, or, with a slash in
        /// it, a file.
        credentials: Option<PathBuf> as credential() => optional(r#""/etc/visiond/device.creds""#),
        /// The certificates (PEM) that the server's is checked by. Without it those that this system trusts.
        ca: Option<PathBuf> as path() => optional(r#""/etc/visiond/ca.pem""#),
        /// This device's own certificate (PEM), for servers that ask for one; goes with `key`.
        certificate: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.pem""#),
        /// The key (PEM) of `certificate`.
        key: Option<PathBuf> as path() => optional(r#""/etc/visiond/device.key""#),
        /// The stream that must take the messages. Without it whichever takes their subject will do.
        stream: Option<String> as name() => optional(r#""visiond""#),
        /// Whether `stream` is made where it is missing. It then takes the subjects of every device and camera.
        create_stream: bool as flag() => default(false),
        /// How long a stream that is made here keeps a message; 0: without end.
        stream_max_age: Duration as duration(SECOND..=YEAR).or_zero() => default(7 * DAY),
        /// Bytes that a stream that is made here keeps at most, before its oldest messages go; 0: without end.
        stream_max_bytes: u64 as size(MIB..=1 << 50).or_zero() => default(1024 * MIB),
        /// The subject of a message: words with dots between them, in which {device} and {camera} stand for those names.
        subject: String as subject() => default("visiond.{device}.{camera}.detections".to_owned()),
        /// How long the server may take to acknowledge a message, before the connection is given up.
        ack_timeout: Duration as duration(SECOND..=HOUR) => default(5 * SECOND),
    }
}
