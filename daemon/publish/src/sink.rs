//! The interface of every sink.

use std::sync::Arc;

use visiond_live::Live;

use crate::queue::Queue;

/// A sink writes the messages of its queue to one place, on its own thread.
pub trait Sink: Send {
    /// Writes messages until the queue is closed and empty, its deadline has passed, or the reader has gone for good.
    fn run(self: Box<Self>, queue: &Queue) -> SinkEnd;
}

/// How a sink's thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkEnd {
    /// The queue was closed, and the sink wrote what it could.
    Closed,
    /// The reader has gone for good.
    ReaderGone,
}

/// The facts about the process that a sink needs.
#[derive(Debug, Clone)]
pub struct SinkContext {
    /// The cameras with their newest messages, pictures and states.
    pub live: Arc<Live>,
    /// This machine's name in topics and subjects.
    pub device: Arc<str>,
}
