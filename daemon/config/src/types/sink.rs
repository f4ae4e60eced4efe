//! `[[sink]]`: the outputs for messages.

use std::path::PathBuf;
use std::time::Duration;

use visiond_system::state;

use super::{HOUR, MIB, MS, MqttSinkConfig, NatsSinkConfig, SECOND};
use crate::kinds::{Words, duration_or_zero, flag, list, mode, name, path, real, size, size_or_zero, whole, word};
use crate::table_macros::{section, union};
use crate::tables::Union;

section! {
    /// A table `[[sink]]`.
    pub struct SinkConfig {
        /// Name of the sink in log and metrics. Without it, its `type`.
        name: String as name() => derived((r#""events""#, String::new())),
        /// The type of the sink.
        kind: SinkKind as text() => flatten,
        /// Send only messages from these cameras; empty: all.
        cameras: Vec<String> as list(name()) => default(Vec::new()),
        /// What to send: "frames", a message for each, and "events" of lines and zones. `only_detections` and `max_rate` are for frames.
        messages: Vec<MessageKind> as list(word()) => default(vec![MessageKind::Frames, MessageKind::Events]),
        /// Send only frames with a detection or with values of the frame, such as attributes.
        only_detections: bool as flag() => default(false),
        /// Maximum number of waiting messages.
        queue: usize as whole(1..=1_000_000) => default(256),
        /// Maximum bytes of waiting messages. When the queue is full, the camera with the most of them loses its oldest message; a
        /// message larger than the limit is dropped. Masks make messages of several MiB.
        queue_bytes: u64 as size(MIB..=1 << 40) => default(32 * MIB),
        /// Behaviour when the queue is full. "block" stops the lane. It requires cameras whose source can wait: pace
        /// "fastest", or images without `fps`.
        when_full: WhenFull as word() => default(WhenFull::DropOldest),
        /// Maximum messages per second for each camera; if there are more, only the newest one is sent. Without it, no limit.
        max_rate: Option<f64> as real(0.001..=1000.0) => optional("2.0"),
        /// For brokers: keep messages on disk until the broker acknowledges them, and send them in order.
        durable: bool as flag() => default(false),
        /// Folder for the messages on disk; each sink needs its own. Without it, `spool/NAME` in $STATE_DIRECTORY.
        spool_directory: Option<PathBuf> as path() => optional(r#""/var/lib/visiond/spool/mqtt""#),
        /// Maximum bytes on disk; when they are full, the oldest messages are deleted.
        spool_bytes: u64 as size(MIB..=1 << 40) => default(256 * MIB),
        /// Time after which a written message must survive a power cut; 0: each message is synced before it is sent.
        spool_sync: Duration as duration_or_zero(10 * MS..=HOUR) => default(SECOND),
    }
}

impl SinkConfig {
    /// Returns the folder for messages on disk; `None` if neither the configuration nor systemd names one.
    pub fn spool(&self) -> Option<PathBuf> {
        self.spool_directory.clone().or_else(|| Some(state::folder()?.join("spool").join(&self.name)))
    }
}

/// What a sink sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A message for each frame.
    Frames,
    /// What lines and zones find.
    Events,
}

/// The behaviour of a sink when its queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Drops the oldest waiting message.
    DropOldest,
    /// Drops the new message.
    DropNewest,
    /// Makes the lane wait.
    Block,
}

union! {
    /// The type of a sink.
    pub enum SinkKind {
        /// JSON lines to standard output.
        Stdout = "stdout",
        /// JSON lines to a file that rotates.
        File(FileSinkConfig) = "file",
        /// JSON lines to the clients of a Unix socket.
        Unix(UnixSinkConfig) = "unix",
        /// Messages to an MQTT broker, with the state of the cameras, also for Home Assistant.
        Mqtt(MqttSinkConfig) = "mqtt",
        /// Messages to a NATS JetStream stream, which many devices can share.
        Nats(NatsSinkConfig) = "nats",
    }
}

impl SinkKind {
    /// Returns the word for the type.
    pub fn name(&self) -> &'static str {
        Union::name(self)
    }
}

// The macro declares the enum, so `#[default]` cannot be set.
#[allow(clippy::derivable_impls)]
impl Default for SinkKind {
    fn default() -> Self {
        Self::Stdout
    }
}

/// The destination of a sink's messages; two sinks must not share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SinkTarget {
    /// Standard output.
    Stdout,
    /// A file or a Unix socket.
    Path(PathBuf),
    /// The topics below a prefix on an MQTT broker.
    Mqtt {
        /// The broker.
        url: String,
        /// The first level of every topic.
        topic_prefix: String,
    },
    /// The subjects on a NATS cluster.
    Nats {
        /// The servers of the cluster.
        urls: Vec<String>,
        /// The first tokens of every subject.
        subject: String,
    },
}

impl SinkTarget {
    /// Returns the target of a sink in a parsed file.
    pub fn of(kind: &SinkKind) -> Self {
        match kind {
            SinkKind::Stdout => Self::Stdout,
            SinkKind::File(file) => Self::Path(file.path.clone()),
            SinkKind::Unix(unix) => Self::Path(unix.path.clone()),
            SinkKind::Mqtt(mqtt) => Self::Mqtt { url: mqtt.url.clone(), topic_prefix: mqtt.topic_prefix.clone() },
            SinkKind::Nats(nats) => Self::Nats { urls: nats.url.clone(), subject: nats.subject.clone() },
        }
    }
}

section! {
    /// A file of JSON lines.
    pub struct FileSinkConfig {
        /// The file; its folder must exist.
        path: PathBuf as path() => required(r#""/var/lib/visiond/detections.jsonl""#),
        /// Size at which the file is renamed to PATH.1 and a new one is started; 0: never.
        rotate_bytes: u64 as size_or_zero(4096..=1 << 40) => default(64 * MIB),
        /// Number of renamed files to keep.
        rotate_keep: u32 as whole(0..=10_000) => default(5),
    }
}

section! {
    /// A Unix socket that sends JSON lines.
    pub struct UnixSinkConfig {
        /// The socket; visiond replaces a stale one.
        path: PathBuf as path() => required(r#""/run/visiond/detections.sock""#),
        /// Permissions of the socket, in octal: who may connect.
        mode: u32 as mode() => default(0o660),
        /// Maximum number of readers.
        max_readers: usize as whole(1..=4096) => default(64),
        /// Maximum bytes that wait for one reader; a slower reader loses messages, which are counted. A message with masks can have
        /// several MiB: raise the limit so that more than one can wait. The sink uses up to `max_readers` times this much memory.
        reader_buffer_bytes: usize as size(4096..=1 << 30) => default(1 << 20),
    }
}

words!(MessageKind: "frames" = Self::Frames, "events" = Self::Events);
words!(WhenFull: "drop_oldest" = Self::DropOldest, "drop_newest" = Self::DropNewest, "block" = Self::Block);
