//! Edge Impulse's FOMO: a class for each cell of a grid; neighbouring cells form one object.
//!
//! Reads one output `[1, h, w, classes + 1]` after the softmax, whose first class is the background. Every cell and class
//! whose score passes joins the first object of its class that it touches, at a side or a corner; then touching objects are
//! merged. An object is the box around its cells, in pixels, with the best of their scores; the centre of the box is the
//! centroid that Edge Impulse shows. The box shows where an object is, not how large it is.
//!
//! As in the project's code, a cell to the left of an object or above it moves the object there without widening it.
//!
//! The merging needs all cells in order, so the outputs are copied and decoded on the CPU: they are small.
//!
//! Source: edge-impulse-sdk `classifier/ei_fill_result_struct.h`, `ei_handle_cube`, `ei_cube_check_overlap`,
//! `fill_result_struct_from_cubes`.

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::{FAMILY, Misfit};
use super::outputs::{ModelOutputs, classes_with_background};
use super::raw_numbers::{Numbers, not_probabilities};
use super::spec::Background;

/// The most cells; a larger map would be a pixel map.
const MAX_CELLS: usize = 1 << 14;

/// The most scores and objects of a frame: merging compares each passing score with each object. Further cells are left out
/// unless they touch an object.
const MAX_SCORES: usize = 1 << 18;
const MAX_OBJECTS: usize = 1 << 10;

pub(super) struct Fomo {
    /// The number of named classes, or 0.
    pub(super) class_count: usize,
    /// The objects of a frame; the memory is reused.
    pub(super) objects: Vec<Object>,
}

pub(super) struct FomoLayout {
    output: usize,
    lines: usize,
    columns: usize,
    /// Scores per cell, including the background's.
    width: usize,
}

/// Touching cells with their best score: a cube in the project's code.
#[derive(Clone, Copy)]
pub(super) struct Object {
    class: u32,
    column: usize,
    line: usize,
    width: usize,
    height: usize,
    score: f32,
}

impl Object {
    /// Absorbs `other` if it is of the same class and touches it. Returns whether it did.
    fn absorb(&mut self, other: &Self) -> bool {
        let apart = self.class != other.class
            || self.column + self.width < other.column
            || self.line + self.height < other.line
            || self.column > other.column + other.width
            || self.line > other.line + other.height;
        if apart {
            return false;
        }
        self.column = self.column.min(other.column);
        self.line = self.line.min(other.line);
        self.width = self.width.max(other.column + other.width - self.column);
        self.height = self.height.max(other.line + other.height - self.line);
        self.score = self.score.max(other.score);
        true
    }
}

/// Adds an object to the first that absorbs it, or to the end if there is room.
fn add(objects: &mut Vec<Object>, object: Object) {
    if !objects.iter_mut().any(|other| other.absorb(&object)) && objects.len() < MAX_OBJECTS {
        objects.push(object);
    }
}

impl Decoder for Fomo {
    type Layout = FomoLayout;

    fn reads(&self) -> &'static str {
        "one output [1, h, w, classes + 1] of at most 16384 cells, whose first class is the background"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<FomoLayout, Misfit> {
        outputs.first("no output is [1, h, w, classes + 1]", |output| {
            let [lines, columns, width] = outputs.shape(output).last::<3>()?;
            let (lines, columns) = (lines.unwrap_or(0), columns.unwrap_or(0));
            if lines.saturating_mul(columns) > MAX_CELLS {
                return Some(Err(format!("has {lines}x{columns} cells, more than {MAX_CELLS}")));
            }
            let scores = width.map_or(0, |width| width.saturating_mul(lines * columns));
            if scores > MAX_SCORES {
                return Some(Err(format!("has {scores} scores, more than {MAX_SCORES}")));
            }
            let classes = classes_with_background(width, Background::First, self.class_count);
            Some(classes.map(|_| FomoLayout { output, lines, columns, width: width.unwrap_or(0) }))
        })
    }

    fn decode(&mut self, layout: &FomoLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let mut found: Vec<Object> = std::mem::take(&mut self.objects);
        found.clear();
        let cells = values.chunks_exact(layout.width.max(1)).take(layout.lines * layout.columns);
        for (cell, scores) in cells.enumerate() {
            for (class, &score) in scores.iter().skip(1).enumerate() {
                if score >= input.score_threshold && score.is_finite() {
                    let (column, line) = (cell % layout.columns, cell / layout.columns);
                    add(&mut found, Object { class: class as u32, column, line, width: 1, height: 1, score });
                }
            }
        }
        let mut objects: Vec<Object> = Vec::new();
        found.iter().for_each(|object| add(&mut objects, *object));
        self.objects = found;
        let pixels = [
            input.input_size.0 as f32 / layout.columns.max(1) as f32,
            input.input_size.1 as f32 / layout.lines.max(1) as f32,
        ];
        for (row, object) in objects.iter().enumerate() {
            let [x1, x2] = [object.column, object.column + object.width].map(|side| side as f32 * pixels[0]);
            let [y1, y2] = [object.line, object.line + object.height].map(|side| side as f32 * pixels[1]);
            out.push(row, object.class, object.score, [x1, y1, x2, y2]);
        }
    }

    fn doubt(&self, layout: &FomoLayout, input: &HeadInput<'_>) -> Option<Misfit> {
        let scores = Numbers::of(&*input.outputs[layout.output].tensor.to_f32());
        not_probabilities(scores, FAMILY, "export the model with its last softmax, or correct `family`")
    }

    fn filter(&self, _: &FomoLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &FomoLayout) -> Suppression {
        Suppression::None
    }
}
