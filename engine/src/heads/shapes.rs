//! Shapes as heads look at them: declared (some dimensions unknown) and real ones alike, so that one piece of code checks
//! a card when it is loaded and every frame's tensors before they are indexed.

use std::fmt::Write;

use visiond_kernels::tensor::{DType, ShapeText};

use super::head::NamedOutput;
use crate::backend::{TensorInfo, dims_text};

/// More dimensions than any head reads.
const MAX_RANK: usize = 6;

/// A shape of which parts may be unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Number of dimensions; `None` when not even that is known.
    rank: Option<usize>,
    dims: [Option<usize>; MAX_RANK],
    /// Whether this is a tensor in hand, of one frame.
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

    /// The last `N` dimensions, where those before them are a batch of one frame; `None` where there are fewer or more.
    pub(super) fn last<const N: usize>(&self) -> Option<[Option<usize>; N]> {
        let Some(rank) = self.rank else { return Some([None; N]) };
        if rank > MAX_RANK {
            return None;
        }
        let extra = rank.checked_sub(N)?;
        for (index, dim) in self.dims[..extra].iter().enumerate() {
            // A file may be made for a batch of several frames; what is decoded is one of them.
            let batch = index == 0 && !self.real;
            if !batch && *dim != Some(1) {
                return None;
            }
        }
        let mut last = [None; N];
        last.copy_from_slice(&self.dims[extra..rank]);
        Some(last)
    }

    /// The one dimension that is not 1, wherever it stands after the batch: a vector.
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

/// Whether a dimension is `wanted` or may turn out to be.
pub(super) fn may_be(dim: Option<usize>, wanted: usize) -> bool {
    dim.is_none_or(|d| d == wanted)
}

/// Whether two dimensions are the same or may turn out to be.
pub(super) fn may_agree(a: Option<usize>, b: Option<usize>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// A network's outputs: declared or in hand.
pub(super) trait Outputs {
    fn count(&self) -> usize;
    fn name(&self, index: usize) -> &str;
    fn dtype(&self, index: usize) -> DType;
    fn shape(&self, index: usize) -> Shape;
    /// Name, type and shape of every output.
    fn describe(&self) -> String;

    /// The first output of rows and columns that `read` takes; else what was wrong with the first of them.
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

/// The rows and columns of an output that looks like a table; `None` within for what is not known.
pub(crate) fn two_dimensions(output: &TensorInfo) -> Option<(Option<usize>, Option<usize>)> {
    let outputs = std::slice::from_ref(output);
    Outputs::shape(&outputs, 0).last::<2>().map(|[a, b]| (a, b))
}
