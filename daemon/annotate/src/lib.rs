//! Pictures with boxes drawn: for people, beside the messages for machines.

pub mod annotator;
mod canvas;
pub mod draw;
mod palette;
pub mod picture_folder;
pub mod rgb_converter;
mod text;
