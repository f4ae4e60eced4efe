//! How far two networks agree: number by number in their raw outputs, and thing by thing in what they see.
//!
//! For a network and a build of it (ONNX and engine, FP32 and FP16 or INT8), run on the same pictures.

mod detections;
mod tensors;
#[cfg(test)]
mod tests;

pub use detections::{Agreement, ClassAgreement, Limits, Worst};
pub use tensors::{OutputPairs, TensorDifference, pair_outputs};

use visiond_kernels::preprocess::PreprocessSpec;
use visiond_kernels::tensor::DType;

/// Two networks cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// They look at different pictures.
    #[error(
        "the two are fed differently: {what} is {first} in the first and {second} in the second, so that they do not see \
         the same picture; give both the card that is right (--card), or builds of one network"
    )]
    Feed {
        /// What differs.
        what: &'static str,
        /// In the first.
        first: String,
        /// In the second.
        second: String,
    },
    /// Their outputs do not correspond.
    #[error(
        "these are two different networks: the first has the outputs {first}, the second {second}; compare builds of one network"
    )]
    Outputs {
        /// The first's, with types and shapes.
        first: String,
        /// The second's.
        second: String,
    },
    /// An output has different shapes after a run.
    #[error(
        "output `{name}` came out as {first} from the first and as {second} from the second: build both with the same input size \
         and batch"
    )]
    Shape {
        /// The output.
        name: String,
        /// Its shape in the first, of one frame.
        first: String,
        /// Its shape in the second.
        second: String,
    },
}

/// Whether both networks are shown the same picture.
///
/// Layout and element type may differ: they move numbers, or round them. How pixels are scaled may differ only where one of the two
/// takes bytes, which has its scale inside.
pub fn same_feed(first: &PreprocessSpec, second: &PreprocessSpec) -> Result<(), CompareError> {
    let check = |what, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
        // As a card has it: lower case, without quotes.
        let [first, second] = [a, b].map(|value| format!("{value:?}").to_lowercase().replace('"', ""));
        if first == second { Ok(()) } else { Err(CompareError::Feed { what, first, second }) }
    };
    let size = |spec: &PreprocessSpec| format!("{}x{}", spec.width, spec.height);
    check("the input's size", &size(first), &size(second))?;
    check("`fit`", &first.fit, &second.fit)?;
    check("`sampling`", &first.sampling, &second.sampling)?;
    check("`pad`", &first.pad, &second.pad)?;
    check("`order`", &first.order, &second.order)?;
    let is_float = |spec: &PreprocessSpec| matches!(spec.dtype, DType::F32 | DType::F16);
    if is_float(first) == is_float(second) {
        check("`scale`", &first.scale, &second.scale)?;
        check("`mean`", &first.mean, &second.mean)?;
        check("`std`", &first.std, &second.std)?;
    }
    Ok(())
}
