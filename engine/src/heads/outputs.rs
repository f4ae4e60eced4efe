//! A model's outputs as heads see them: their shapes, which output has which role, and how many classes they fit.
//!
//! Declared shapes (with unknown dimensions) and real ones share this code, so that the same check runs when a card is loaded and
//! before every frame's tensors are indexed. The errors are text, which becomes a part of [`HeadError`](super::HeadError).

use visiond_ground::nearest::nearest;
use visiond_kernels::tensor::{DType, ShapeText, TensorRef};

use super::misfit::{FAMILY, Misfit};
use super::spec::Background;
use crate::backend::{TensorInfo, dims_text};

/// One output of the model for one frame.
#[derive(Debug, Clone, Copy)]
pub struct NamedOutput<'a> {
    /// Its name in the model.
    pub name: &'a str,
    /// Its elements; for a batch, the frame's slot with a leading dimension of 1.
    pub tensor: TensorRef<'a>,
}

/// More dimensions than any head reads.
const MAX_RANK: usize = 6;

/// A shape with dimensions that may be unknown.
#[derive(Debug, Clone, Copy)]
pub(super) struct OutputShape {
    /// The number of dimensions; `None` if even that is unknown.
    rank: Option<usize>,
    dims: [Option<usize>; MAX_RANK],
    /// Whether this is the shape of a real tensor, for one frame.
    real: bool,
}

impl OutputShape {
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
        let (before, last) = self.dims.get(..rank)?.split_last_chunk()?;
        // A file may be made for a batch of several frames; one frame is decoded at a time.
        let is_one = |(index, dim): (usize, &Option<usize>)| (index == 0 && !self.real) || *dim == Some(1);
        before.iter().enumerate().all(is_one).then_some(*last)
    }

    /// Returns count, height and width of an output with a plane for each row: `[1, Q, h, w]`, `[N, 1, h, w]` or `[N, h, w]`.
    pub(super) fn planes(&self) -> Option<[Option<usize>; 3]> {
        match *self.dims.get(..self.rank?)? {
            [Some(1), count, height, width] | [count, Some(1), height, width] | [count, height, width] => {
                Some([count, height, width])
            }
            _ => None,
        }
    }

    /// Whether the shape is known and has `rank` dimensions.
    pub(super) fn has_rank(&self, rank: usize) -> bool {
        self.rank == Some(rank)
    }

    /// Returns the length of a vector: the one dimension after the batch that is not 1.
    pub(super) fn vector(&self) -> Option<Option<usize>> {
        let Some(rank) = self.rank else { return Some(None) };
        let dims = match self.dims.get(..rank)? {
            [] => return None,
            [first, _, ..] if self.real && *first != Some(1) => return None,
            [_, rest @ ..] if rank > 1 => rest,
            dims => dims,
        };
        let mut long = dims.iter().filter(|d| **d != Some(1));
        match (long.next(), long.next()) {
            (None, _) => Some(Some(1)),
            (Some(dim), None) => Some(*dim),
            _ => None,
        }
    }
}

/// Whether a dimension is `wanted`, or may be so at run time.
pub(super) fn may_be(dim: Option<usize>, wanted: usize) -> bool {
    dim.is_none_or(|d| d == wanted)
}

/// Whether two dimensions are equal, or may be at run time.
pub(super) fn may_agree(a: Option<usize>, b: Option<usize>) -> bool {
    a.is_none_or(|a| may_be(b, a))
}

/// A model's outputs.
#[derive(Clone, Copy)]
pub(super) enum ModelOutputs<'a> {
    /// As the model declares them.
    Declared(&'a [TensorInfo]),
    /// As a run returned them.
    Real(&'a [NamedOutput<'a>]),
}

impl<'a> ModelOutputs<'a> {
    pub(super) fn count(self) -> usize {
        match self {
            Self::Declared(outputs) => outputs.len(),
            Self::Real(outputs) => outputs.len(),
        }
    }

    pub(super) fn name(self, index: usize) -> &'a str {
        match self {
            Self::Declared(outputs) => &outputs[index].name,
            Self::Real(outputs) => outputs[index].name,
        }
    }

    pub(super) fn dtype(self, index: usize) -> DType {
        match self {
            Self::Declared(outputs) => outputs[index].dtype,
            Self::Real(outputs) => outputs[index].tensor.dtype(),
        }
    }

    pub(super) fn shape(self, index: usize) -> OutputShape {
        match self {
            Self::Declared(outputs) => match &outputs[index].shape {
                None => OutputShape { rank: None, dims: [None; MAX_RANK], real: false },
                Some(dims) => OutputShape::new(dims.iter().map(|dim| dim.fixed()), false),
            },
            Self::Real(outputs) => OutputShape::new(outputs[index].tensor.shape().iter().map(|&d| Some(d)), true),
        }
    }

    /// Whether an output is declared with two dimensions, the first of which may be its batch.
    pub(super) fn is_vector(self, index: usize) -> bool {
        let Self::Declared(outputs) = self else { return false };
        outputs[index].shape.as_ref().is_some_and(|dims| dims.len() == 2)
    }

    /// Returns rows and columns of an output; `None` for those that are unknown, or if it has another shape.
    pub(super) fn rows_and_columns(self, index: usize) -> [Option<usize>; 2] {
        self.shape(index).last().unwrap_or_default()
    }

    /// Returns name, type and shape of every output as text.
    pub(super) fn describe(self) -> String {
        let shape = |index: usize| match self {
            Self::Declared(outputs) => dims_text(&outputs[index].shape),
            Self::Real(outputs) => ShapeText(outputs[index].tensor.shape()).to_string(),
        };
        let described = (0..self.count()).map(|i| format!("`{}` {} {}", self.name(i), self.dtype(i), shape(i)));
        if self.count() == 0 { "no output".to_owned() } else { described.collect::<Vec<_>>().join(", ") }
    }

    /// Returns the first output that `read` accepts; otherwise the problem of the first that it does not skip, or `none`.
    pub(super) fn first<T>(
        self,
        none: &str,
        mut read: impl FnMut(usize) -> Option<Result<T, String>>,
    ) -> Result<T, Misfit> {
        let mut first_problem = None;
        for index in 0..self.count() {
            match read(index) {
                Some(Ok(found)) => return Ok(found),
                Some(Err(problem)) => {
                    first_problem.get_or_insert_with(|| format!("`{}` {problem}", self.name(index)));
                }
                None => {}
            }
        }
        Err(first_problem.unwrap_or_else(|| none.to_owned()).into())
    }

    /// Does the same as [`Self::first`], but only with the output that the card's `output` names, if it names one.
    pub(super) fn named<T>(
        self,
        output: Option<&str>,
        none: &str,
        mut read: impl FnMut(usize) -> Option<Result<T, String>>,
    ) -> Result<T, Misfit> {
        let Some(name) = output else { return self.first(none, read) };
        let Some(index) = Roles::new(self).by_name("output", Some(name), &[], |_| true)? else {
            return Err(none.into());
        };
        let problem = match read(index) {
            Some(Ok(found)) => return Ok(found),
            Some(Err(problem)) => format!("`{name}` {problem}"),
            None => format!("`{name}`, which the card names as output, has another shape"),
        };
        Err(Misfit::at("head.output", problem, "write the name of the right output, or remove the key"))
    }

    /// Returns the first output with rows and columns that `read` accepts; otherwise the problem of the first of them.
    pub(super) fn table<T>(
        self,
        mut read: impl FnMut(usize, [Option<usize>; 2]) -> Result<T, String>,
    ) -> Result<T, Misfit> {
        self.first("no output has rows and columns", |index| Some(read(index, self.shape(index).last()?)))
    }
}

/// Returns the rows and columns of an output that looks like a table; `None` inside for an unknown number.
pub(crate) fn two_dimensions(output: &TensorInfo) -> Option<[Option<usize>; 2]> {
    ModelOutputs::Declared(std::slice::from_ref(output)).shape(0).last()
}

/// Returns the card's key for an output with the role `part`.
fn key_of(part: &str) -> &'static str {
    match part {
        "boxes" => "head.boxes",
        "scores" => "head.scores",
        "labels" => "head.labels",
        "count" => "head.count",
        "heat map" => "head.heat",
        "sizes" => "head.size",
        "offsets" => "head.offset",
        "landmarks" => "head.landmarks",
        "output" => "head.output",
        _ => FAMILY,
    }
}

/// Finds which output has which role if a model has several: by the card, otherwise by name, otherwise by shape.
pub(super) struct Roles<'a> {
    outputs: ModelOutputs<'a>,
    taken: Vec<usize>,
}

impl<'a> Roles<'a> {
    pub(super) fn new(outputs: ModelOutputs<'a>) -> Self {
        Self { outputs, taken: Vec::new() }
    }

    /// Returns the first output that is free and `fits`.
    pub(super) fn any(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let found = (0..self.outputs.count()).find(|index| !self.taken.contains(index) && fits(*index));
        self.taken.extend(found);
        found
    }

    /// Returns the output that the card names, otherwise the first whose name contains one of `hints` and whose shape fits.
    /// The error says that the output in the card is missing or has another shape.
    pub(super) fn by_name(
        &mut self,
        part: &str,
        card: Option<&str>,
        hints: &[&str],
        fits: impl Fn(OutputShape) -> bool,
    ) -> Result<Option<usize>, Misfit> {
        let outputs = self.outputs;
        let Some(name) = card else {
            let fits = |index: usize| fits(outputs.shape(index));
            let named = |index: usize, hint: &str| outputs.name(index).to_ascii_lowercase().contains(hint);
            return Ok(hints.iter().find_map(|hint| self.any(|index| fits(index) && named(index, hint))));
        };
        let key = key_of(part);
        let Some(index) = (0..outputs.count()).find(|&index| outputs.name(index) == name) else {
            let problem = format!("no output is called `{name}`, which the card names as {part}");
            let remedy = match nearest(name, (0..outputs.count()).map(|index| outputs.name(index))) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write the name of one of them, or remove the key".to_owned(),
            };
            return Err(Misfit::at(key, problem, remedy));
        };
        if !fits(outputs.shape(index)) {
            let problem = format!("`{name}`, which the card names as {part}, has another shape");
            return Err(Misfit::at(key, problem, "write the name of the right output, or remove the key"));
        }
        self.taken.push(index);
        Ok(Some(index))
    }

    /// Does the same as [`Self::by_name`]; otherwise returns the first output that is free and fits.
    pub(super) fn find(
        &mut self,
        part: &str,
        card: Option<&str>,
        hints: &[&str],
        fits: impl Fn(OutputShape) -> bool,
    ) -> Result<Option<usize>, Misfit> {
        let outputs = self.outputs;
        Ok(self.by_name(part, card, hints, &fits)?.or_else(|| self.any(|index| fits(outputs.shape(index)))))
    }
}

/// Whether a shape is `[1, N, 4]`, or may be at run time.
pub(super) fn four_columns(shape: OutputShape) -> bool {
    shape.last::<2>().is_some_and(|[_, width]| may_be(width, 4))
}

/// Returns "1 class" or "N classes".
pub(super) fn classes_text(count: usize) -> String {
    if count == 1 { "1 class".to_owned() } else { format!("{count} classes") }
}

/// Returns the class count of an output whose rows (or columns: `what`) have `width` numbers, of which `others` are not
/// classes.
///
/// `named` is the number of classes in the card, 0 if it names none. `None` if the width is unknown and the card names none.
pub(super) fn classes_in(
    width: Option<usize>,
    others: usize,
    named: usize,
    what: &str,
) -> Result<Option<usize>, String> {
    match width {
        None => Ok((named > 0).then_some(named)),
        Some(width) if named == 0 => match width.checked_sub(others) {
            Some(classes) if classes > 0 => Ok(Some(classes)),
            _ => Err(format!("has {what} of {width} numbers, which leaves no room for a class after {others} others")),
        },
        Some(width) if width == others + named => Ok(Some(named)),
        Some(width) => Err(format!(
            "has {what} of {width} numbers instead of {}: the card's {} and {others} others",
            others + named,
            classes_text(named)
        )),
    }
}

/// Returns which of `width` scores are classes.
pub(super) fn class_columns(background: Background, width: usize) -> std::ops::Range<usize> {
    match background {
        Background::None => 0..width,
        Background::First => width.min(1)..width,
        Background::Last => 0..width.saturating_sub(1),
    }
}

/// Does the same as [`classes_in`] if all numbers are classes, one of which may be the background.
pub(super) fn classes_with_background(
    width: Option<usize>,
    background: Background,
    named: usize,
) -> Result<Option<usize>, String> {
    let others = usize::from(background != Background::None);
    classes_in(width, others, named, "rows").map_err(|problem| match width {
        Some(width) if others == 0 && named > 0 && width == named + 1 => {
            format!("{problem} (if one of them is the background, set background = \"first\" or \"last\")")
        }
        _ => problem,
    })
}

/// Checks that an output has a row for each cell of the grids.
pub(super) fn check_cells(
    rows: Option<usize>,
    cells: impl Fn(u32) -> (usize, usize),
    strides: &[u32],
    (width, height): (u32, u32),
) -> Result<(), String> {
    let wanted: usize = strides.iter().map(|&stride| cells(stride)).map(|(columns, lines)| columns * lines).sum();
    match rows {
        Some(rows) if rows != wanted => Err(format!(
            "has {rows} rows instead of {wanted}: grids of strides {strides:?} over {width}x{height} pixels"
        )),
        _ => Ok(()),
    }
}
