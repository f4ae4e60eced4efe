//! Raw outputs into candidates: one file a family of networks.
//!
//! A head is made by [`build`] from what the card says ([`HeadSpec`]) and what the network declares; a card that does not
//! fit is refused there, with the shapes found and the shapes that the head reads. [`Head::decode`] checks the real shapes
//! again, reads one frame's outputs and gives [`Decoded`]: boxes in pixels of the network's input, not yet suppressed.
//! Whatever the numbers are, decoding does not panic: what is not finite is left out.
//!
//! A new family is one file here with a `Decoder`, a variant of [`HeadSpec`], and its options in `card/head.rs`.

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
