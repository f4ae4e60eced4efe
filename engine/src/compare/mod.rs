//! How far two networks agree: number by number in their raw outputs, and thing by thing in what they see.
//!
//! For a network and a build of it (ONNX and engine, FP32 and FP16 or INT8), run on the same pictures.

mod detections;
mod error;
mod same_feed;
mod tensors;
#[cfg(test)]
mod tests;

pub use detections::{Agreement, ClassAgreement, Limits, Worst};
pub use error::CompareError;
pub use same_feed::same_feed;
pub use tensors::{OutputPairs, TensorDifference, pair_outputs};
