//! Measures how far two models agree: number by number in their raw outputs, object by object in their detections, and value by
//! value in their whole-frame results.
//!
//! Meant for a model and a build of it (ONNX and engine, FP32 and FP16 or INT8) that run on the same images.

mod detections;
mod oks;
mod tensors;
#[cfg(test)]
mod tests;
mod values;

pub use detections::{Agreement, ClassAgreement, MatchLimits, Worst, overlap};
pub use tensors::{CompareError, OutputPairs, TensorDifference, pair_outputs, same_feed};
pub use values::{ValueAgreement, ValueDifference, ValueLimits};
