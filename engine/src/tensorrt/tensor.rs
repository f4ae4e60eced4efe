//! Inputs and outputs of an engine as TensorRT declares them.

use visiond_kernels::tensor::DType;

/// An input or output of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrtTensor {
    /// The name that it had in the ONNX model.
    pub name: String,
    /// Whether it is an input or an output.
    pub direction: Direction,
    /// Its element type.
    pub dtype: DType,
    /// Its shape; `None` is a size chosen at run time.
    pub shape: Vec<Option<usize>>,
    /// Whether its elements are in host memory: numbers that shapes are computed from.
    pub on_host: bool,
    /// The format of its elements, in TensorRT's words.
    pub format: String,
    /// For inputs: the shapes that each profile allows.
    pub limits: Vec<ShapeLimits>,
}

/// Whether a tensor is an input or an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The caller writes it.
    Input,
    /// The run writes it.
    Output,
}

/// The shapes of an input that a profile allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeLimits {
    /// The smallest sizes.
    pub min: Vec<usize>,
    /// The sizes that the engine was tuned for.
    pub opt: Vec<usize>,
    /// The largest sizes.
    pub max: Vec<usize>,
}

impl ShapeLimits {
    /// Whether a shape is within the limits.
    pub fn allow(&self, shape: &[usize]) -> bool {
        let mut sizes = shape.iter().zip(self.min.iter().zip(&self.max));
        sizes.all(|(size, (min, max))| (min..=max).contains(&size))
    }
}
