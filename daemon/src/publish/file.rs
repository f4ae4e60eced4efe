//! JSON lines in a file that rotates.
use std::path::Path;

use super::queue::Queue;
use super::{Ended, Sink};

/// The sink of `type = "file"`.
pub struct FileSink;
impl FileSink {
    /// Opens it.
    pub fn open(_name: &str, _path: &Path, _rotate_bytes: u64, _rotate_keep: u32) -> Result<Self, String> {
        Ok(Self)
    }
}
impl Sink for FileSink {
    fn run(self: Box<Self>, _queue: &Queue) -> Ended {
        Ended::Closed
    }
}
