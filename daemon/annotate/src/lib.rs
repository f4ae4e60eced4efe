//! Draws detections on images, for people; messages are for programs.

pub mod annotator;
mod canvas;
pub mod draw;
mod palette;
pub mod picture_folder;
pub mod rgb_converter;
mod sharpness;
mod text;
pub mod trails;
pub mod upright;
