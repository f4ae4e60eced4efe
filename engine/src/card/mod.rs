//! The model card: how to feed and read a model.
//!
//! A card is a TOML file beside the model (`net.onnx`, `net.toml`); docs/models.md has every key. The head's family supplies
//! the defaults, so `[head] family = "yolov8"` and the names of the classes make a complete card. Ultralytics' exports contain
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
