//! Measures how far two models agree: number by number in their raw outputs, and object by object in their detections.
//!
//! Meant for a model and a build of it (ONNX and engine, FP32 and FP16 or INT8) that run on the same pictures.

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
