//! Finds which output has which role if a model has several: by the card, else by name, else by shape.
//!
//! The errors are text: [`Checked`](super::decoder::Checked) puts it into `HeadError::Shape`.

use super::shapes::{Outputs, Shape, may_agree};

/// Finds the outputs of a head that has several.
pub(super) struct Roles<'a, O> {
    outputs: &'a O,
    taken: Vec<usize>,
}

impl<'a, O: Outputs> Roles<'a, O> {
    pub(super) fn new(outputs: &'a O) -> Self {
        Self { outputs, taken: Vec::new() }
    }

    /// Returns the output that the card names. The error says that it is missing or has another shape.
    fn given(&mut self, part: &str, name: &str, fits: &impl Fn(Shape) -> bool) -> Result<usize, String> {
        let index = (0..self.outputs.count())
            .find(|&index| self.outputs.name(index) == name)
            .ok_or_else(|| format!("no output is called `{name}`, which the card names as {part}"))?;
        if !fits(self.outputs.shape(index)) {
            return Err(format!("`{name}`, which the card names as {part}, has another shape"));
        }
        self.taken.push(index);
        Ok(index)
    }

    /// Returns the output that the card names, else the first with a name that contains one of `hints` and a shape that fits.
    pub(super) fn by_name(
        &mut self,
        part: &str,
        card: Option<&str>,
        hints: &[&str],
        fits: impl Fn(Shape) -> bool,
    ) -> Result<Option<usize>, String> {
        if let Some(name) = card {
            return self.given(part, name, &fits).map(Some);
        }
        for hint in hints {
            for index in 0..self.outputs.count() {
                let free = !self.taken.contains(&index) && fits(self.outputs.shape(index));
                if free && self.outputs.name(index).to_ascii_lowercase().contains(hint) {
                    self.taken.push(index);
                    return Ok(Some(index));
                }
            }
        }
        Ok(None)
    }

    /// Does the same as [`Self::by_name`], else returns the first output that is free and fits.
    pub(super) fn find(
        &mut self,
        part: &str,
        card: Option<&str>,
        hints: &[&str],
        fits: impl Fn(Shape) -> bool,
    ) -> Result<Option<usize>, String> {
        if let Some(index) = self.by_name(part, card, hints, &fits)? {
            return Ok(Some(index));
        }
        let found = (0..self.outputs.count()).find(|i| !self.taken.contains(i) && fits(self.outputs.shape(*i)));
        self.taken.extend(found);
        Ok(found)
    }
}

/// The outputs of an end-to-end model: final boxes, classes and scores, and how many of them are valid.
pub(super) struct EndToEndOutputs {
    pub(super) boxes: usize,
    pub(super) labels: usize,
    pub(super) scores: usize,
    pub(super) count: Option<usize>,
}

/// The names that a card gives to such outputs.
#[derive(Default)]
pub(super) struct EndToEndNames<'a> {
    pub(super) boxes: Option<&'a str>,
    pub(super) labels: Option<&'a str>,
    pub(super) scores: Option<&'a str>,
    pub(super) count: Option<&'a str>,
}

/// Whether a shape is `[1, N, 4]`, or may be at run time.
pub(super) fn four_columns(shape: Shape) -> bool {
    shape.last::<2>().is_some_and(|[_, width]| super::shapes::may_be(width, 4))
}

/// Whether a shape is `[1, N]` or `[N]`.
pub(super) fn one_number_a_row(shape: Shape) -> bool {
    shape.last::<1>().is_some()
}

/// Finds the outputs of an end-to-end model; `None` if they do not look like one.
pub(super) fn find_end_to_end<O: Outputs>(
    outputs: &O,
    names: &EndToEndNames<'_>,
) -> Result<Option<EndToEndOutputs>, String> {
    if outputs.count() < 3 && names.labels.is_none() {
        return Ok(None);
    }
    let mut roles = Roles::new(outputs);
    let Some(boxes) = roles.find("boxes", names.boxes, &["box", "dets"], four_columns)? else { return Ok(None) };
    let integers =
        (0..outputs.count()).find(|&i| i != boxes && outputs.dtype(i) == visiond_kernels::tensor::DType::I64);
    let labels = match roles.by_name("labels", names.labels, &["label", "class", "cls"], one_number_a_row)? {
        Some(labels) => labels,
        None => match integers.filter(|&i| one_number_a_row(outputs.shape(i))) {
            Some(labels) => {
                roles.taken.push(labels);
                labels
            }
            None => return Ok(None),
        },
    };
    // Find the count before the scores: both have one number per row, and the count of one row looks like them.
    let count = roles
        .by_name("count", names.count, &["num"], |shape| shape.vector().is_some_and(|n| super::shapes::may_be(n, 1)))?;
    let rows = outputs.shape(boxes).last::<2>().and_then(|[rows, _]| rows);
    let fits = |shape: Shape| shape.last::<1>().is_some_and(|[n]| may_agree(n, rows));
    let Some(scores) = roles.find("scores", names.scores, &["score", "conf", "prob"], fits)? else { return Ok(None) };
    let label_rows = outputs.shape(labels).last::<1>().and_then(|[rows]| rows);
    if !may_agree(label_rows, rows) {
        return Err(format!("`{}` and `{}` have different numbers of rows", outputs.name(boxes), outputs.name(labels)));
    }
    Ok(Some(EndToEndOutputs { boxes, labels, scores, count }))
}
