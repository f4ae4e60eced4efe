//! Inputs and outputs as a model declares them.

use std::borrow::Cow;
use std::fmt;

use visiond_kernels::tensor::DType;

/// The declaration of an input or output in a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The name by which the graph refers to it.
    pub name: String,
    /// Its element type.
    pub dtype: DType,
    /// Its shape; `None` if the file does not even give the number of dimensions.
    pub shape: Option<Vec<Dim>>,
}

/// One dimension of a declared shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A fixed size.
    Fixed(usize),
    /// A size that is chosen at run time, with the name that the file gives it, or an empty name.
    Dynamic(String),
}

impl Dim {
    /// Returns the size if it is fixed.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Self::Fixed(size) => Some(*size),
            Self::Dynamic(_) => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Dynamic(name) if name.is_empty() => f.write_str("?"),
            Self::Dynamic(name) => f.write_str(&one_line(name)),
        }
    }
}

/// Returns a text in which line feeds and tabs are escaped: a model's names occur in errors, each of which is one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r', '\t']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"))
}

/// Formats a declared shape as people write it: `[batch, 3, 416, 416]`.
pub fn dims_text(shape: &Option<Vec<Dim>>) -> String {
    match shape {
        None => "of unknown shape".to_owned(),
        Some(dims) => format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Writes `images f32 [1, 3, 416, 416]`.
impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", one_line(&self.name), self.dtype, dims_text(&self.shape))
    }
}

/// Returns the width and height of the first input that looks like an image, if the model fixes them.
pub(crate) fn picture_size(inputs: &[TensorInfo]) -> Option<(u32, u32)> {
    inputs.iter().find_map(|input| {
        let shape = input.shape.as_deref()?;
        let fixed: Vec<Option<usize>> = shape.iter().map(Dim::fixed).collect();
        let (h, w) = match fixed[..] {
            [_, Some(1 | 3), h, w] => (h?, w?),
            [_, h, w, Some(1 | 3)] => (h?, w?),
            _ => return None,
        };
        Some((u32::try_from(w).ok()?, u32::try_from(h).ok()?))
    })
}
