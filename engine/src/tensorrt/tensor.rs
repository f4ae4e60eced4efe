//! Inputs and outputs of an engine as TensorRT declares them.

use visiond_kernels::tensor::DType;

/// A tensor that goes into an engine or comes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrtTensor {
    /// Name.
    pub name: String,
    /// Which way it goes.
    pub direction: Direction,
    /// Element type.
    pub dtype: DType,
    /// Shape; `None` is a size chosen at run time.
    pub shape: Vec<Option<usize>>,
    /// Whether its elements are in host memory: numbers that shapes are computed from.
    pub on_host: bool,
    /// How its elements lie, in TensorRT's words.
    pub format: String,
    /// For inputs: the shapes that each profile allows.
    pub limits: Vec<ShapeLimits>,
}

/// Which way a tensor goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Fed by the caller.
    Input,
    /// Written by the run.
    Output,
}

/// The shapes of an input that a profile allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeLimits {
    /// The least of each size.
    pub min: Vec<usize>,
    /// The sizes that the engine was tuned for.
    pub opt: Vec<usize>,
    /// The most of each size.
    pub max: Vec<usize>,
}

impl ShapeLimits {
    /// Whether a shape is within them.
    pub fn allow(&self, shape: &[usize]) -> bool {
        let mut sizes = shape.iter().zip(self.min.iter().zip(&self.max));
        sizes.all(|(size, (min, max))| (min..=max).contains(&size))
    }
}
