//! The two floating-point types of 16 bits.

use visiond_engine::builder_api::onnx::element;

/// A floating-point type of 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// IEEE 754: 11 bits of precision, up to 65,504.
    F16,
    /// 8 bits of precision, the range of FP32.
    Bf16,
}

impl Half {
    /// Returns the greatest finite number.
    pub(super) const fn most(self) -> f32 {
        match self {
            Self::F16 => 65_504.0,
            Self::Bf16 => 3.389_531_4e38,
        }
    }

    /// Returns the number of ONNX's element type.
    pub(super) const fn element(self) -> i64 {
        match self {
            Self::F16 => element::FLOAT16,
            Self::Bf16 => element::BFLOAT16,
        }
    }

    /// Returns the name used in options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }
}
