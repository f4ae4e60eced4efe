//! What the standard operators can do in half precision.

use super::half_type::Half;

/// Operators whose numbers of FP32 may all become half precision, and whose results are then too.
const ABLE: [&str; 101] = [
    "Abs",
    "Acos",
    "Add",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Atan",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cos",
    "CumSum",
    "DepthToSpace",
    "DequantizeLinear",
    "Div",
    "Dropout",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GridSample",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "MeanVarianceNormalization",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "PRelu",
    "Pad",
    "Pow",
    "QuantizeLinear",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Tan",
    "Tanh",
    "Tile",
];

/// More of them.
const ABLE_TOO: [&str; 9] =
    ["ThresholdedRelu", "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where", "GlobalLpPool", "LpPool"];

/// Those that stay in FP32 unless a rule says otherwise: they overflow, or their results are of no use in half precision.
const BETTER_FULL: [&str; 22] = [
    "CumSum",
    "GridSample",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LogSoftmax",
    "LpNormalization",
    "LpPool",
    "GlobalLpPool",
    "MeanVarianceNormalization",
    "Pow",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMean",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Sqrt",
    "TopK",
];

/// Whether the standard operator exists in half precision.
pub(super) fn is_able(operator: &str) -> bool {
    ABLE.contains(&operator) || ABLE_TOO.contains(&operator)
}

/// Whether it is better left in FP32.
pub(super) fn is_better_full(operator: &str, half: Half) -> bool {
    // TensorRT for RTX 1.6 knows no transposed convolution of BF16, and ends with an error of its compiler.
    BETTER_FULL.contains(&operator) || (operator == "ConvTranspose" && half == Half::Bf16)
}

/// Whether it does most of a network's work, and gains by half precision.
pub(super) fn is_heavy(operator: &str) -> bool {
    matches!(operator, "Conv" | "ConvTranspose" | "Gemm" | "MatMul" | "Einsum")
}

/// Whether an input follows when the operator becomes half precision. The others are sizes and rates of a type of their own.
pub(super) fn input_follows(operator: &str, index: usize) -> bool {
    match operator {
        "Resize" | "Upsample" | "Dropout" => index == 0,
        _ => true,
    }
}
