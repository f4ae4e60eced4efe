//! Shapes as heads see them. Declared shapes (with unknown dimensions) and real ones share this code, so that the same check
//! runs when a card is loaded and before every frame's tensors are indexed.
//!
//! The errors are text: [`Checked`](super::decoder::Checked) puts it into `HeadError::Shape`.

use std::fmt::Write;

use visiond_kernels::tensor::{DType, ShapeText};

use super::head::NamedOutput;
use crate::backend::{TensorInfo, dims_text};

/// More dimensions than any head reads.
const MAX_RANK: usize = 6;

/// A shape with dimensions that may be unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The number of dimensions; `None` if even that is unknown.
    rank: Option<usize>,
    dims: [Option<usize>; MAX_RANK],
    /// Whether this is the shape of a real tensor, for one frame.
    real: bool,
}

impl Shape {
    fn new(dims: impl ExactSizeIterator<Item = Option<usize>>, real: bool) -> Self {
        let rank = Some(dims.len());
        let mut shape = Self { rank, dims: [None; MAX_RANK], real };
        for (slot, dim) in shape.dims.iter_mut().zip(dims) {
            *slot = dim;
        }
        shape
    }

    /// Returns the last `N` dimensions if those before them are a batch of one frame, otherwise `None`.
    pub(super) fn last<const N: usize>(&self) -> Option<[Option<usize>; N]> {
        let Some(rank) = self.rank else { return Some([None; N]) };
        if rank > MAX_RANK {
            return None;
        }
        let extra = rank.checked_sub(N)?;
        for (index, dim) in self.dims[..extra].iter().enumerate() {
            // A file may be made for a batch of several frames; one frame is decoded at a time.
            let batch = index == 0 && !self.real;
            if !batch && *dim != Some(1) {
                return None;
            }
        }
        let mut last = [None; N];
        last.copy_from_slice(&self.dims[extra..rank]);
        Some(last)
    }

    /// Returns the length of a vector: the one dimension after the batch that is not 1.
    pub(super) fn vector(&self) -> Option<Option<usize>> {
        let Some(rank) = self.rank else { return Some(None) };
        if rank == 0 || rank > MAX_RANK {
            return None;
        }
        let dims = &self.dims[usize::from(rank > 1)..rank];
        if self.real && rank > 1 && self.dims[0] != Some(1) {
            return None;
        }
        let mut long = dims.iter().filter(|d| **d != Some(1));
        match (long.next(), long.next()) {
            (None, _) => Some(Some(1)),
            (Some(dim), None) => Some(*dim),
            _ => None,
        }
    }
}

/// Whether a dimension is `wanted`, or may be at run time.
pub(super) fn may_be(dim: Option<usize>, wanted: usize) -> bool {
    dim.is_none_or(|d| d == wanted)
}

/// Whether two dimensions are equal, or may be at run time.
pub(super) fn may_agree(a: Option<usize>, b: Option<usize>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// A model's outputs: declared or real.
pub(super) trait Outputs {
    fn count(&self) -> usize;
    fn name(&self, index: usize) -> &str;
    fn dtype(&self, index: usize) -> DType;
    fn shape(&self, index: usize) -> Shape;
    /// Returns name, type and shape of every output.
    fn describe(&self) -> String;

    /// Returns the first output with rows and columns that `read` accepts; otherwise the problem of the first of them.
    fn table<T>(&self, mut read: impl FnMut(usize, [Option<usize>; 2]) -> Result<T, String>) -> Result<T, String>
    where
        Self: Sized,
    {
        let mut first_problem = None;
        for index in 0..self.count() {
            let Some(dims) = self.shape(index).last::<2>() else { continue };
            match read(index, dims) {
                Ok(found) => return Ok(found),
                Err(problem) => {
                    first_problem.get_or_insert_with(|| format!("`{}` {problem}", self.name(index)));
                }
            }
        }
        Err(first_problem.unwrap_or_else(|| "no output has rows and columns".to_owned()))
    }
}

fn list(names_and_shapes: impl Iterator<Item = (String, DType, String)>) -> String {
    let mut text = String::new();
    for (name, dtype, shape) in names_and_shapes {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing into a String cannot fail.
        let _ = write!(text, "{comma}`{name}` {dtype} {shape}");
    }
    if text.is_empty() { "no output".to_owned() } else { text }
}

impl Outputs for &[TensorInfo] {
    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, index: usize) -> &str {
        &self[index].name
    }

    fn dtype(&self, index: usize) -> DType {
        self[index].dtype
    }

    fn shape(&self, index: usize) -> Shape {
        match &self[index].shape {
            None => Shape { rank: None, dims: [None; MAX_RANK], real: false },
            Some(dims) => Shape::new(dims.iter().map(|dim| dim.fixed()), false),
        }
    }

    fn describe(&self) -> String {
        list(self.iter().map(|o| (o.name.clone(), o.dtype, dims_text(&o.shape))))
    }
}

impl Outputs for &[NamedOutput<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn name(&self, index: usize) -> &str {
        self[index].name
    }

    fn dtype(&self, index: usize) -> DType {
        self[index].tensor.dtype()
    }

    fn shape(&self, index: usize) -> Shape {
        Shape::new(self[index].tensor.shape().iter().map(|&d| Some(d)), true)
    }

    fn describe(&self) -> String {
        list(self.iter().map(|o| (o.name.to_owned(), o.tensor.dtype(), ShapeText(o.tensor.shape()).to_string())))
    }
}

/// Returns the rows and columns of an output that looks like a table; `None` inside for an unknown number.
pub(crate) fn two_dimensions(output: &TensorInfo) -> Option<(Option<usize>, Option<usize>)> {
    let outputs = std::slice::from_ref(output);
    Outputs::shape(&outputs, 0).last::<2>().map(|[a, b]| (a, b))
}
