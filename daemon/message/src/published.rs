//! A message with its line, which is serialized once for all readers.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::event::EventMessage;
use crate::message::Message;

/// A message to publish, of a frame or of an event, with the line that all sinks share.
#[derive(Debug)]
pub struct Published {
    content: Content,
    about_bytes: usize,
    line: OnceLock<Bytes>,
    /// Dropped with the message and all copies of its line.
    receipt: Option<Receipt>,
}

/// Dropped when no reader needs a message any longer.
pub type Receipt = Arc<dyn Any + Send + Sync>;

/// A line with its receipt.
struct ReceiptedLine {
    line: Vec<u8>,
    _receipt: Receipt,
}

impl AsRef<[u8]> for ReceiptedLine {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

#[derive(Debug)]
enum Content {
    Frame(Arc<Message>),
    Event(Arc<EventMessage>),
}

impl Published {
    /// Wraps a message; its line is not serialized yet.
    pub fn new(message: Arc<Message>) -> Self {
        let about_bytes = message.about_bytes();
        Self { content: Content::Frame(message), about_bytes, line: OnceLock::new(), receipt: None }
    }

    /// Wraps an event. `receipt` is dropped once every reader has dropped the message and its line.
    pub fn of_event(event: Arc<EventMessage>, receipt: Option<Receipt>) -> Self {
        let about_bytes = event.about_bytes();
        Self { content: Content::Event(event), about_bytes, line: OnceLock::new(), receipt }
    }

    /// Returns the same message without its receipt.
    #[must_use]
    pub fn without_receipt(&self) -> Self {
        let content = match &self.content {
            Content::Frame(message) => Content::Frame(Arc::clone(message)),
            Content::Event(event) => Content::Event(Arc::clone(event)),
        };
        Self { content, about_bytes: self.about_bytes, line: OnceLock::new(), receipt: None }
    }

    /// Returns the approximate length of the line in bytes; the same before and after it is serialized.
    pub fn about_bytes(&self) -> usize {
        self.about_bytes
    }

    /// Returns the JSON line with its line end. The first caller serializes it.
    pub fn line(&self) -> &Bytes {
        self.line.get_or_init(|| match &self.content {
            Content::Frame(message) => message.to_line().into(),
            Content::Event(event) => match &self.receipt {
                Some(receipt) => {
                    Bytes::from_owner(ReceiptedLine { line: event.to_line(), _receipt: Arc::clone(receipt) })
                }
                None => event.to_line().into(),
            },
        })
    }

    /// Returns the message of a frame; `None` for an event.
    pub fn frame(&self) -> Option<&Arc<Message>> {
        match &self.content {
            Content::Frame(message) => Some(message),
            Content::Event(_) => None,
        }
    }

    /// Returns the event; `None` for the message of a frame.
    pub fn event(&self) -> Option<&EventMessage> {
        match &self.content {
            Content::Frame(_) => None,
            Content::Event(event) => Some(event),
        }
    }

    /// Whether it is the message of a frame without detections and values.
    pub fn is_empty(&self) -> bool {
        self.frame().is_some_and(|message| message.is_empty())
    }

    /// Returns the id of the message.
    pub fn id(&self) -> &str {
        match &self.content {
            Content::Frame(message) => &message.id,
            Content::Event(event) => &event.id,
        }
    }

    /// Returns the camera.
    pub fn camera(&self) -> &Arc<str> {
        match &self.content {
            Content::Frame(message) => &message.camera,
            Content::Event(event) => &event.camera,
        }
    }

    /// Returns the part of a topic that names the source: see [`Message::topic`] and [`event_topic`](crate::event_topic).
    pub fn topic(&self) -> &Arc<str> {
        match &self.content {
            Content::Frame(message) => &message.topic,
            Content::Event(event) => &event.topic,
        }
    }

    /// Returns the number of the frame.
    pub fn sequence(&self) -> u64 {
        match &self.content {
            Content::Frame(message) => message.sequence,
            Content::Event(event) => event.sequence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::KeypointMessage;
    use crate::testing::{door_message, sized_message};
    use crate::values::{DepthMessage, EmbeddingMessage};

    #[test]
    fn the_size_of_a_line_is_known_before_it_is_written() {
        let segments = Some(vec![vec![123.5; 4000], vec![77.25; 2000]]);
        let mut outlines = Arc::unwrap_or_clone(door_message(1, 1));
        outlines.detections[0].segments = segments;
        let mut skeletons = Arc::unwrap_or_clone(door_message(1, 5));
        let keypoint = KeypointMessage { name: Some("left_ear".into()), x: 123.456, y: 78.25, score: Some(0.875) };
        skeletons.detections.iter_mut().for_each(|detection| detection.keypoints = vec![keypoint.clone(); 17]);
        let embedding = Some(EmbeddingMessage { length: 512, f16: "A".repeat(1368) });
        let embedded = Message { embedding, ..Arc::unwrap_or_clone(door_message(1, 0)) };
        let cells = vec![Some(12.25); 400];
        let depth = Some(DepthMessage { columns: 20, rows: 20, nearest: cells.clone(), median: cells });
        let deep = Message { depth, ..Arc::unwrap_or_clone(door_message(1, 0)) };
        let both = Message { embedding: embedded.embedding.clone(), ..deep.clone() };
        let masks = [4, 100_000].map(|bytes| sized_message("door", 1, bytes));
        let small = [door_message(1, 0), door_message(1, 100)].into_iter().chain(masks);
        let mut joined: Vec<_> = [outlines, skeletons, embedded, deep, both].map(Arc::new).into();
        joined.extend(Message::joined(joined.clone()).map(Arc::new));
        for message in small.chain(joined) {
            let published = Published::new(message);
            let (about, bytes) = (published.about_bytes(), published.line().len());
            assert!(about < bytes * 2 && bytes < about * 2, "{about} for {bytes}");
            assert_eq!(published.about_bytes(), about, "also once it is written");
        }
    }
}
