//! Turns raw outputs into candidates: one file per family of models, or per families with the same layout.
//!
//! [`build()`] creates a head from the card ([`HeadSpec`]) and the outputs that the model declares. It rejects a card that
//! does not fit, with the shapes found and the shapes that the head reads. [`Head::decode`] checks the real shapes again,
//! reads one frame's outputs and returns [`Decoded`]: boxes in pixels of the model's input, before NMS. Decoding never panics
//! on any numbers: it skips those that are not finite. A head reports why outputs do not fit (`Misfit`); [`HeadError`] adds
//! the shapes and the correction for the card.
//!
//! A new family is one file here with a `Decoder`, a variant of [`HeadSpec`], an arm in `build.rs`, and its options in
//! `card/head.rs`.

mod anchors;
mod attributes;
mod blazeface;
mod boxes_and_scores;
mod build;
mod classifier;
mod darknet;
mod db_text;
mod decoded;
mod depth;
mod depth_map;
mod embedding;
mod end_to_end;
mod exports;
mod faces;
mod finished_rows;
mod fomo;
mod frame_values;
mod gpu_filter;
mod guess;
mod guess_card;
mod guess_values;
mod head;
mod heatmap;
mod masks;
mod misfit;
mod model_facts;
mod movenet;
mod nanodet;
mod order_guesses;
mod outputs;
mod pose;
mod posed_rows;
mod raw_numbers;
mod remedy;
mod row_parts;
mod rows;
mod semantic;
pub mod spec;
mod unread;
mod yolo_nms;
mod yolov5;
mod yolov8;

#[cfg(test)]
mod tests;

pub use build::build;
pub use decoded::{ClassArea, Decoded, InputKeypoint};
pub use exports::{Export, recognise};
pub use frame_values::{AttributeValue, DepthGrid, FrameValues, Reading, ScoredLabel};
pub use guess::{HeadGuess, guess_heads};
pub use head::{Head, HeadError, HeadInput, Suppression};
pub use model_facts::ModelFacts;
pub use order_guesses::guess_orders;
pub use outputs::NamedOutput;
pub(crate) use outputs::two_dimensions;
pub(crate) use remedy::with_remedy;
pub use spec::{Family, HeadSpec};
