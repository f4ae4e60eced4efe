//! Turns raw outputs into candidates: one file per family of models.
//!
//! [`build()`] makes a head from the card ([`HeadSpec`]) and the outputs that the model declares. It refuses a card that does not
//! fit, with the shapes found and the shapes that the head reads. [`Head::decode`] checks the real shapes again, reads one
//! frame's outputs and returns [`Decoded`]: boxes in pixels of the model's input, before NMS. Decoding never panics, whatever
//! the numbers are: it skips what is not finite.
//!
//! A new family is one file here with a `Decoder`, a variant of [`HeadSpec`], an arm in `build.rs`, and its options in
//! `card/head.rs`.

mod blazeface;
mod build;
mod classes;
mod classifier;
mod decoded;
mod decoder;
mod detr;
mod end_to_end;
mod gpu_filter;
mod guess;
mod head;
mod heatmap;
mod nanodet;
mod roles;
mod rows;
mod shapes;
pub mod spec;
mod ssd;
mod yolo_nms;
mod yolov5;
mod yolov8;
mod yolox;

#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod tests;

pub use build::build;
pub use decoded::{Decoded, InputKeypoint};
pub use guess::{HeadGuess, guess_heads};
pub use head::{Head, HeadError, HeadInput, NamedOutput};
pub(crate) use shapes::two_dimensions;
pub use spec::{Family, HeadSpec};
