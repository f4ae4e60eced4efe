//! Which standard operators support half precision.

use super::half_type::Half;

/// Operators whose FP32 numbers may all become half precision, including their results.
const ABLE: &str = "Abs Acos Add ArgMax ArgMin Asin Atan AveragePool BatchNormalization Cast Ceil Celu Clip Concat Conv \
    ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand \
    Flatten Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool \
    Greater GreaterOrEqual GridSample GroupNormalization HardSigmoid HardSwish Hardmax Identity \
    InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax \
    LpNormalization LpPool MatMul Max MaxPool Mean MeanVarianceNormalization Min Mish Mul Neg PRelu Pad \
    Pow QuantizeLinear Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean \
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round ScatterElements ScatterND \
    Selu Sigmoid Sign Sin Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan \
    Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where";

/// Operators that stay in FP32 unless a rule says otherwise: they overflow, or their results are useless in half precision.
const BETTER_FULL: &str = "CumSum GridSample GroupNormalization InstanceNormalization LRN LayerNormalization LogSoftmax \
    LpNormalization LpPool GlobalLpPool MeanVarianceNormalization Pow ReduceL1 ReduceL2 ReduceLogSum \
    ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Sqrt TopK";

/// Whether `names`, which are separated by spaces, contain `operator`.
fn lists(names: &str, operator: &str) -> bool {
    names.split(' ').any(|name| name == operator)
}

/// Whether the standard operator exists in half precision.
pub(super) fn is_able(operator: &str) -> bool {
    lists(ABLE, operator)
}

/// Whether it should stay in FP32.
pub(super) fn is_better_full(operator: &str, half: Half) -> bool {
    // TensorRT for RTX 1.6 does not support transposed convolutions in BF16 and fails with a compiler error.
    lists(BETTER_FULL, operator) || (operator == "ConvTranspose" && half == Half::Bf16)
}

/// Whether it does most of a model's work and benefits from half precision.
pub(super) fn is_heavy(operator: &str) -> bool {
    matches!(operator, "Conv" | "ConvTranspose" | "Gemm" | "MatMul" | "Einsum")
}

/// Whether an input becomes half precision with the operator. The others are sizes and rates with a type of their own.
pub(super) fn input_follows(operator: &str, index: usize) -> bool {
    match operator {
        "Resize" | "Upsample" | "Dropout" => index == 0,
        _ => true,
    }
}
