//! Faults of backends that visiond works around, each with a tiny model that shows it.
//!
//! A fault that changes numbers without an error is worse than one that rejects a model, because nothing reports it. So
//! `visiond selftest` runs every model here with the board's library, and a test runs them with the build's.
//! `tests/golden/known_faults.py` generates the models and computes their outputs.

use crate::backend::Backend;

/// A fault of a backend.
#[derive(Debug)]
pub struct KnownFault {
    /// The operators that it concerns.
    pub name: &'static str,
    /// The backend that has it.
    pub backend: Backend,
    /// The first minor version without the fault: 32 for 1.32. `None`: every version so far has it.
    fixed_in: Option<u32>,
    /// The wrong behaviour of the backend.
    pub behaviour: &'static str,
    /// The workaround in visiond.
    pub workaround: &'static str,
    /// The optimizer of ONNX Runtime that visiond turns off, by its name there.
    optimizer: Option<&'static str>,
    /// An ONNX model with one input of ones and one output.
    pub(super) model: &'static [u8],
    /// The numbers of its output.
    pub(super) expected: &'static [f32],
}

/// Every known fault.
pub const KNOWN_FAULTS: [KnownFault; 4] = [
    // microsoft/onnxruntime PR 18136. YOLOv3-tiny and YOLOv4-tiny have this pair.
    KnownFault {
        name: "Pad before MaxPool",
        backend: Backend::OnnxRuntime,
        fixed_in: Some(32),
        behaviour: "below 1.32 folds a Pad of zeros into a MaxPool, which pads with minus infinity",
        workaround: "turns off the optimizer Pad_Fusion",
        optimizer: Some("Pad_Fusion"),
        model: include_bytes!("known_faults/pad_maxpool.onnx"),
        expected: &[-1.0, -1.0, 0.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0],
    },
    KnownFault {
        name: "Conv without kernel_shape",
        backend: Backend::Rten,
        fixed_in: None,
        behaviour: "does not run a convolution without kernel_shape, strides and dilations",
        workaround: "writes kernel_shape into the graph",
        optimizer: None,
        model: include_bytes!("known_faults/conv_without_kernel_shape.onnx"),
        expected: &[10.0, 10.0, 4.0, 10.0, 10.0, 4.0, 3.0, 3.0, 1.0],
    },
    KnownFault {
        name: "auto_pad SAME_LOWER",
        backend: Backend::Rten,
        fixed_in: None,
        behaviour: "pads as for SAME_UPPER",
        workaround: "writes pads where strides are 1, and refuses other models",
        optimizer: None,
        model: include_bytes!("known_faults/same_lower.onnx"),
        expected: &[4.0, 7.0, 7.0, 6.0, 10.0, 10.0, 6.0, 10.0, 10.0],
    },
    KnownFault {
        name: "pooling without strides",
        backend: Backend::Rten,
        fixed_in: None,
        behaviour: "does not run a pooling without strides",
        workaround: "writes strides of 1",
        optimizer: None,
        model: include_bytes!("known_faults/pool_without_strides.onnx"),
        expected: &[1.0, 1.0, 1.0, 1.0],
    },
];

impl KnownFault {
    /// Whether ONNX Runtime 1.`minor` has the fault.
    fn concerns(&self, minor: u32) -> bool {
        self.fixed_in.is_none_or(|fixed| minor < fixed)
    }
}

/// Returns the optimizers to disable in ONNX Runtime 1.`minor`, as `optimization.disable_specified_optimizers` takes them:
/// their names in its `graph_transformer_utils.cc`, separated by semicolons. Empty for none.
pub(super) fn disabled_optimizers(minor: u32) -> String {
    let faults = KNOWN_FAULTS.iter().filter(|fault| fault.backend == Backend::OnnxRuntime && fault.concerns(minor));
    faults.filter_map(|fault| fault.optimizer).collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_with_the_fault_lose_an_optimizer() {
        assert_eq!(disabled_optimizers(18), "Pad_Fusion");
        assert_eq!(disabled_optimizers(31), "Pad_Fusion");
        assert_eq!(disabled_optimizers(32), "");
    }
}
