//! Detections on their way out: the message, the sinks and their queues.

pub mod message;
