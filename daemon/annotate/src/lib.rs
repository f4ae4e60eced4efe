//! Pictures with boxes drawn: for people, beside the messages for machines.

pub mod album;
pub mod annotator;
mod canvas;
pub mod draw;
mod palette;
pub mod picture;
mod text;
