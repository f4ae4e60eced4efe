//! A model in half precision: an `.onnx` file whose layers compute in FP16 or BF16.
//!
//! TensorRT 11 and TensorRT for RTX take every layer's type from the model and have no flag for it. So the model states it:
//! weights become half precision, Casts are inserted where the type changes, and inputs and outputs stay FP32 unless
//! requested otherwise. Older versions get the same model, so that one path is tested for all.
//!
//! These parts stay in FP32:
//! - operators that do not exist in half precision, and whole graphs inside `If`, `Loop` and `Scan`;
//! - sizes and indices: values computed only from integers and constants, and `Resize`'s scales;
//! - operators that overflow or become useless in half precision: powers, sums and means, norms, `TopK`, `GridSample`;
//! - the last convolutions or matrix products and the tail after them, which decodes boxes: FP16 has steps of half a pixel
//!   above 512.
//!
//! Rules by layer or operator override all but the first two.

mod choose;
mod error;
mod graph;
mod insert_casts;
mod rewrite;
mod rule;
mod tensor;
mod types;

pub use error::PrecisionError;
pub(crate) use rewrite::quantises_convolutions;
pub use rewrite::{PrecisionOptions, Rewritten, rewrite};
pub use rule::{LayerPrecision, Rule};
pub use tensor::Half;
