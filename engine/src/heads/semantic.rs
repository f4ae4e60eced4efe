//! Decodes semantic segmentation: a class for each pixel of the frame.
//!
//! Reads one of
//! - scores of each class in each cell, `[1, classes, h, w]` or `[1, h, w, classes]` (TensorFlow): logits or probabilities;
//! - the class of each cell, `[1, h, w]`, `[1, 1, h, w]` or `[1, h, w, 1]`: integers or floats.
//!
//! `h` and `w` have the aspect ratio of the input. [`ClassMapper`] has the arithmetic. A class that covers at least one pixel
//! is one detection; its score is the mean probability over the cells where it is the best class. Without an `activation` in
//! the card, numbers between 0 and 1 that sum to 1 in a cell are probabilities, and all others are logits for a softmax.
//!
//! Source: `post_process_semantic_segmentation` of transformers; torchvision `models/segmentation`.

use std::cmp::Reverse;

use visiond_kernels::filter::FilterSpec;
use visiond_kernels::mask::{ClassMapper, ClassPlanes, ClassScores};

use super::classifier::are_probabilities;
use super::decoded::{ClassArea, Decoded};
use super::rows::class_of;

use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, OutputShape, class_columns, classes_text};
use super::raw_numbers::wrong_activation;
use super::spec::{Activation, Background};

/// How many cells to examine to identify the kind of numbers.
const SAMPLES: usize = 256;

/// The label that data sets use for a pixel without a class.
const IGNORED: f32 = 255.0;

pub(super) struct Semantic {
    /// The number of named classes, or 0.
    class_count: usize,
    activation: Option<Activation>,
    background: Background,
    mapper: ClassMapper,
    /// The classes of a cell; the memory is reused.
    row: Vec<f32>,
}

pub(super) struct SemanticLayout {
    output: usize,
    cells: Cells,
}

/// The content of a cell.
#[derive(Clone, Copy)]
enum Cells {
    /// A score for each class.
    Scores(ClassPlanes),
    /// The number of its class.
    Number { width: usize, height: usize },
}

/// Whether cells cover an input of this size: their aspect ratio is the input's, with at most a cell more or less.
pub(super) fn covers([height, width]: [Option<usize>; 2], input_size: (u32, u32)) -> bool {
    let (Some(height), Some(width)) = (height, width) else { return true };
    let (input_w, input_h) = (input_size.0 as usize, input_size.1 as usize);
    let sides = 1..=ClassPlanes::MAX_SIDE;
    let sensible = sides.contains(&height) && sides.contains(&width);
    sensible && (height * input_w).abs_diff(width * input_h) <= input_w + input_h
}

impl Semantic {
    pub(super) fn new(class_count: usize, activation: Option<Activation>, background: Background) -> Self {
        Self { class_count, activation, background, mapper: ClassMapper::new(), row: Vec::new() }
    }

    /// Returns how many classes the model has in addition to the named ones; `None` if the card names none.
    fn expected(&self) -> Option<usize> {
        (self.class_count > 0).then(|| self.class_count + usize::from(self.background != Background::None))
    }

    /// Whether a dimension may count the classes.
    fn may_be_classes(&self, dim: Option<usize>) -> bool {
        let least = if self.background == Background::None { 1 } else { 2 };
        dim.is_none_or(|classes| match self.expected() {
            Some(expected) => classes == expected,
            None => (least..=ClassPlanes::MAX_CLASSES).contains(&classes),
        })
    }

    /// Returns the content of an output's cells; `None` if it is not a map, `Err` with the reason if it does not fit.
    fn cells(&self, shape: OutputShape, input_size: (u32, u32)) -> Option<Result<Cells, String>> {
        let whole = shape.last::<3>();
        let side = |dim: Option<usize>| dim.unwrap_or(0);
        // An output with only rows and columns is a table.
        let numbers = match (shape.last::<2>(), whole) {
            (Some(sides), _) if !shape.has_rank(2) => Some(sides),
            (_, Some([height, width, Some(1)])) => Some([height, width]),
            _ => None,
        };
        let is_unknown = whole == Some([None; 3]);
        if let Some(sides) = numbers.filter(|_| !is_unknown) {
            let [height, width] = sides.map(side);
            let problem = || {
                let (input_w, input_h) = input_size;
                format!("has {width}x{height} cells, which do not match an input of {input_w}x{input_h}")
            };
            return Some(covers(sides, input_size).then_some(Cells::Number { width, height }).ok_or_else(problem));
        }
        let [a, b, c] = whole?;
        let planes = |[classes, height, width]: [Option<usize>; 3], interleaved| {
            let (classes, height, width) = (side(classes), side(height), side(width));
            Cells::Scores(ClassPlanes { classes, height, width, interleaved })
        };
        let (in_planes, in_cells) = (covers([b, c], input_size), covers([a, b], input_size));
        if in_planes && self.may_be_classes(a) {
            return Some(Ok(planes([a, b, c], false)));
        }
        if in_cells && self.may_be_classes(c) {
            return Some(Ok(planes([c, a, b], true)));
        }
        let found = if in_planes { a } else { c }.filter(|_| in_planes || in_cells);
        Some(Err(match found {
            Some(found) => format!("has {}", self.wrong_classes(found)),
            None => {
                let (input_w, input_h) = input_size;
                format!("has no height and width with the shape of an input of {input_w}x{input_h}")
            }
        }))
    }

    fn wrong_classes(&self, found: usize) -> String {
        let others = usize::from(self.background != Background::None);
        let background = if others > 0 { ", and a background" } else { "" };
        format!(
            "{found} scores a cell instead of {}, for the card's {}{background}",
            self.class_count + others,
            classes_text(self.class_count)
        )
    }

    /// Returns the class for a number from the model; `None` for the background and for numbers beyond the card's classes.
    fn class_id(&self, number: u32, classes: usize) -> Option<u32> {
        if !class_columns(self.background, classes).contains(&(number as usize)) {
            return None;
        }
        class_of(number, self.background, 0)
    }

    /// Reads the scores of some cells spread over the map into `row`, and returns their number.
    fn sample(values: &[f32], planes: &ClassPlanes, row: &mut Vec<f32>) -> usize {
        let (cells, classes) = (planes.width * planes.height, planes.classes);
        let count = cells.min(SAMPLES);
        row.clear();
        for sample in 0..count {
            let cell = sample * cells / count;
            let index = |class: usize| if planes.interleaved { cell * classes + class } else { class * cells + cell };
            row.extend((0..classes).filter_map(|class| values.get(index(class))));
        }
        count
    }
}

impl Decoder for Semantic {
    type Layout = SemanticLayout;

    fn reads(&self) -> &'static str {
        "scores [1, classes, h, w] or [1, h, w, classes], or class numbers [1, h, w], [1, 1, h, w] or [1, h, w, 1]"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, input_size: (u32, u32)) -> Result<SemanticLayout, Misfit> {
        let found = outputs.first("no output is a map of classes", |output| {
            let cells = self.cells(outputs.shape(output), input_size)?;
            Some(cells.map(|cells| SemanticLayout { output, cells }))
        });
        found.map_err(|misfit| {
            // Only the number of classes is wrong: the shapes show the right one.
            let others = usize::from(self.background != Background::None);
            let unnamed = Self::new(0, self.activation, self.background);
            let shapes = (0..outputs.count()).filter_map(|output| unnamed.cells(outputs.shape(output), input_size));
            let mut scores = shapes.filter_map(|cells| match cells {
                Ok(Cells::Scores(planes)) => Some(planes.classes.saturating_sub(others)),
                _ => None,
            });
            match scores.next().filter(|classes| self.class_count > 0 && *classes > 0) {
                Some(classes) => {
                    let mut remedy = format!("name {} under [classes], or remove the names", classes_text(classes));
                    if others == 0 && classes == self.class_count + 1 {
                        remedy += "; if one of them is the background, write `background = \"first\"` or `\"last\"` under [head]";
                    }
                    Misfit::at("classes", misfit.problem, remedy)
                }
                None => misfit,
            }
        })
    }

    fn decode(&mut self, layout: &SemanticLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let mapping = input.mapping();
        let classes = match layout.cells {
            Cells::Scores(planes) => {
                let activation = self.activation.unwrap_or_else(|| {
                    Self::sample(&values, &planes, &mut self.row);
                    let probable = self.row.chunks_exact(planes.classes.max(1)).all(are_probabilities);
                    if probable { Activation::None } else { Activation::Softmax }
                });
                let scores = match activation {
                    Activation::None => ClassScores::Probabilities,
                    Activation::Sigmoid => ClassScores::Sigmoid,
                    Activation::Softmax => ClassScores::Softmax,
                };
                self.mapper.from_scores(&values, &planes, scores, &mapping, &mut out.class_map);
                planes.classes
            }
            Cells::Number { width, height } => {
                self.mapper.from_numbers(&values, (width, height), &mapping, &mut out.class_map);
                self.expected().unwrap_or(ClassPlanes::MAX_CLASSES)
            }
        };
        out.has_class_map = true;
        for region in out.class_map.regions() {
            if region.score >= input.score_threshold
                && let Some(class_id) = self.class_id(region.class.into(), classes)
            {
                out.class_areas.push(ClassArea { class_id, region: *region });
            }
        }
        out.class_areas.sort_by_key(|found| Reverse(found.region.area));
    }

    fn doubt(&self, layout: &SemanticLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let values = input.outputs[layout.output].tensor.to_f32();
        match layout.cells {
            Cells::Scores(planes) => {
                let mut row = Vec::new();
                Self::sample(&values, &planes, &mut row);
                wrong_activation(&row, planes.classes, self.activation?)
            }
            Cells::Number { .. } => self.doubt_numbers(&values),
        }
    }

    /// Masks need every cell, so whole outputs are copied.
    fn filter(&self, _: &SemanticLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &SemanticLayout) -> Suppression {
        Suppression::None
    }
}

impl Semantic {
    /// Returns a doubt about class numbers that are not whole, or beyond the card's classes.
    fn doubt_numbers(&self, values: &[f32]) -> Option<Misfit> {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        if finite().any(|value| (value - value.round()).abs() > 1e-3) {
            let problem = "the numbers in its cells are not integers, so they are not class numbers";
            return Some(Misfit::at(
                FAMILY,
                problem,
                "correct `family` under [head] (`visiond inspect` shows which heads fit)",
            ));
        }
        let expected = self.expected()?;
        let most = finite().filter(|value| *value != IGNORED).fold(f32::NEG_INFINITY, f32::max);
        (most >= expected as f32 && most < 1e6).then(|| {
            let others = expected - self.class_count;
            let problem =
                format!("a cell has the number {most:.0}, beyond the card's {}", classes_text(self.class_count));
            let needed = classes_text((most as usize + 1).saturating_sub(others));
            Misfit::at("classes", problem, format!("name at least {needed} under [classes], from class 0 on"))
        })
    }
}

#[cfg(test)]
mod tests;
