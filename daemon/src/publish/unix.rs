//! JSON lines to whoever connects to a Unix socket.
use crate::config::types::UnixSinkConfig;

use super::queue::Queue;
use super::{Ended, Sink};

/// Limits of a socket's readers.
pub struct Limits {
    /// Readers at most.
    pub max_readers: usize,
    /// Bytes that wait for one reader.
    pub reader_buffer_bytes: usize,
}
/// The sink of `type = "unix"`.
pub struct UnixSink;
impl UnixSink {
    /// Opens it.
    pub fn open(_name: &str, _config: &UnixSinkConfig) -> Result<Self, String> {
        Ok(Self)
    }
}
impl Sink for UnixSink {
    fn run(self: Box<Self>, _queue: &Queue) -> Ended {
        Ended::Closed
    }
}
