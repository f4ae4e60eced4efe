//! Pictures with boxes drawn: for people, beside the messages for machines.

pub mod annotator;
