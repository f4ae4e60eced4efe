//! How to feed and read a network: the model card.
//!
//! A card is TOML beside the model (`net.onnx`, `net.toml`); docs/models.md has every key. What it leaves out, the head's
//! family fills in, so that `[head] family = "yolov8"` and the names of the classes make a card. Ultralytics' exports carry
//! their own ([`crate::ultralytics`]).

mod error;
mod head;
mod load;
mod model_card;
mod presets;
mod sections;
#[cfg(test)]
mod tests;

pub use error::{CardError, CardProblem};
pub use model_card::{Card, ExtraInput, InputCard};
