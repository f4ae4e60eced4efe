//! Raw outputs into candidates: one file a family of networks.
//!
//! A head is made by [`build`] from what the card says ([`HeadSpec`]) and what the network declares; a card that does not
//! fit is refused there, with the shapes found and the shapes that the head reads. [`Head::decode`] checks the real shapes
//! again, reads one frame's outputs and gives [`Decoded`]: boxes in pixels of the network's input, not yet suppressed.
//! Whatever the numbers are, decoding does not panic: what is not finite is left out.
//!
//! A new family is one file here with a `Decoder`, a variant of [`HeadSpec`], and its options in `card/head.rs`.

mod blazeface;
mod chosen;
mod classifier;
mod detr;
mod filtered;
mod fitting;
mod heatmap;
mod nanodet;
mod roles;
mod rows;
mod shapes;
pub mod spec;
mod ssd;
mod yolo_nms;
mod yolov5;
mod yolov8;
mod yolox;

#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod tests;

pub(crate) use fitting::picture_size;
pub use fitting::{HeadGuess, fitting};
pub use spec::{Family, HeadSpec};
use visiond_kernels::filter::{FilterSpec, Filtered};
use visiond_kernels::nms::Candidate;
use visiond_kernels::tensor::TensorRef;

use crate::engine::TensorInfo;
use shapes::Outputs;

/// One output of the network, of one frame.
#[derive(Debug, Clone, Copy)]
pub struct NamedOutput<'a> {
    /// Its name in the network.
    pub name: &'a str,
    /// Its elements; of a batch, the frame's slot with the leading dimension 1 kept.
    pub tensor: TensorRef<'a>,
}

/// What a head decodes.
#[derive(Debug, Clone, Copy)]
pub struct HeadInput<'a> {
    /// Every output of the network.
    pub outputs: &'a [NamedOutput<'a>],
    /// Width and height of the network's input in pixels.
    pub input_size: (u32, u32),
    /// What scores less is left out.
    pub score_threshold: f32,
}

/// A point that belongs to a candidate, in pixels of the network's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputKeypoint {
    /// In pixels of the network's input.
    pub x: f32,
    /// In pixels of the network's input.
    pub y: f32,
    /// 0 to 1; `None` where the network does not tell.
    pub score: Option<f32>,
}

/// What a head found in one frame.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// Boxes in pixels of the network's input, in no particular order.
    pub candidates: Vec<Candidate>,
    /// Whether the candidates are classes of the whole frame: their boxes mean nothing.
    pub boxless: bool,
    /// Points of the rows in `keypoint_rows` (ascending), `keypoints_per_row` each.
    keypoints: Vec<InputKeypoint>,
    keypoint_rows: Vec<u32>,
    keypoints_per_row: usize,
    /// Candidates that the GPU's filter found and had no room for; 0 from [`Head::decode`].
    pub lost: usize,
    /// Row, class and index of the filter's records, in order; reused.
    order: Vec<(u32, u32, u32)>,
}

impl Decoded {
    /// The points of a candidate, found by its `row`; empty where the network has none.
    pub fn keypoints_of(&self, row: u32) -> &[InputKeypoint] {
        let Ok(index) = self.keypoint_rows.binary_search(&row) else { return &[] };
        let start = index * self.keypoints_per_row;
        self.keypoints.get(start..start + self.keypoints_per_row).unwrap_or(&[])
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.boxless = false;
        self.keypoints.clear();
        self.keypoint_rows.clear();
        self.keypoints_per_row = 0;
        self.lost = 0;
    }

    /// Adds a candidate, unless any of its numbers is not finite; says whether it did.
    fn push(&mut self, row: usize, class_id: u32, score: f32, box_in_input: [f32; 4]) -> bool {
        let finite = score.is_finite() && box_in_input.iter().all(|v| v.is_finite());
        if finite {
            self.candidates.push(Candidate { box_in_input, score, class_id, row: row as u32 });
        }
        finite
    }

    /// Adds the points of the candidate that was just added at `row`; takes that back if a point is not finite.
    /// Rows come in ascending order.
    fn push_keypoints(&mut self, row: usize, points: impl Iterator<Item = InputKeypoint>) {
        let start = self.keypoints.len();
        self.keypoints.extend(points);
        let added = &self.keypoints[start..];
        if added.iter().all(|p| p.x.is_finite() && p.y.is_finite() && p.score.is_none_or(f32::is_finite)) {
            self.keypoints_per_row = added.len();
            self.keypoint_rows.push(row as u32);
        } else {
            self.keypoints.truncate(start);
            self.candidates.pop();
        }
    }
}

/// How the outputs of one family of networks are read.
pub trait Head: Send {
    /// Reads one frame's outputs into `out`, which is cleared first.
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError>;

    /// What the GPU's filter is told to find the candidates that [`Head::decode`] finds in such outputs.
    ///
    /// `None` where the filter cannot: a shape is not known, the family's outputs are so few that they are copied instead
    /// (classifiers), or there are more grids than one launch takes.
    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec>;

    /// As [`Head::decode`], of what the filter found in one frame: the same candidates, in the same order.
    fn decode_filtered(&mut self, found: &Filtered<'_>, out: &mut Decoded) {
        out.take(found);
    }

    /// Whether the candidates overlap and want non-maximum suppression. Where not, they still want sorting by score and
    /// the limit of the card.
    fn needs_nms(&self) -> bool;

    /// The shapes that it reads, for people.
    fn reads(&self) -> &'static str;
}

/// A network's outputs are not what the card's head reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// No output, or not all of them, has a shape that the head reads.
    #[error(
        "head `{family}` reads {reads}, but {problem}; the network gives {found}: \
         correct [head] in its model card (`visiond inspect` tells which heads fit)"
    )]
    Shape {
        /// The head's family.
        family: &'static str,
        /// Shapes that it reads.
        reads: &'static str,
        /// What is wrong with what was found.
        problem: String,
        /// Name, type and shape of every output.
        found: String,
    },
}

/// What a file of this folder implements; [`Checked`] makes a [`Head`] of it.
trait Decoder: Send {
    /// Which output plays which part, and the sizes that decoding counts on.
    type Plan;

    const FAMILY: Family;
    const READS: &'static str;

    /// Finds the outputs, declared or real, or says what is wrong with them.
    ///
    /// Of real ones every dimension that `decode` counts on is checked here.
    fn plan(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<Self::Plan, String>;

    /// Reads the outputs that the plan, made of them, names.
    fn decode(&mut self, plan: &Self::Plan, input: &HeadInput<'_>, out: &mut Decoded);

    /// What `decode` does, as the GPU's filter is told; `None` where it is not worth it or a shape is not known.
    fn filter(
        &self,
        plan: &Self::Plan,
        outputs: &impl Outputs,
        input_size: (u32, u32),
        score_threshold: f32,
    ) -> Option<FilterSpec>;

    /// Whether the candidates of such outputs overlap.
    fn needs_nms(_plan: &Self::Plan) -> bool {
        true
    }
}

struct Checked<D> {
    decoder: D,
    needs_nms: bool,
}

impl<D: Decoder> Checked<D> {
    fn plan(&self, outputs: &impl Outputs, input_size: (u32, u32)) -> Result<D::Plan, HeadError> {
        self.decoder.plan(outputs, input_size).map_err(|problem| HeadError::Shape {
            family: D::FAMILY.name(),
            reads: D::READS,
            problem,
            found: outputs.describe(),
        })
    }
}

impl<D: Decoder> Head for Checked<D> {
    fn decode(&mut self, input: &HeadInput<'_>, out: &mut Decoded) -> Result<(), HeadError> {
        out.clear();
        let plan = self.plan(&input.outputs, input.input_size)?;
        self.decoder.decode(&plan, input, out);
        Ok(())
    }

    fn filter(&self, outputs: &[TensorInfo], input_size: (u32, u32), score_threshold: f32) -> Option<FilterSpec> {
        let plan = self.plan(&outputs, input_size).ok()?;
        let spec = self.decoder.filter(&plan, &outputs, input_size, score_threshold)?;
        spec.check().is_ok().then_some(spec)
    }

    fn needs_nms(&self) -> bool {
        self.needs_nms
    }

    fn reads(&self) -> &'static str {
        D::READS
    }
}

/// The head that the card asks for, checked against what the network declares.
///
/// Dynamic dimensions fit anything. Where an input's declared shape was replaced, the declared dimensions of the outputs
/// mean nothing any more: give them as dynamic. `class_count` is the number of named classes; 0 takes what the shape says.
pub fn build(
    spec: &HeadSpec,
    outputs: &[TensorInfo],
    input_size: (u32, u32),
    class_count: usize,
) -> Result<Box<dyn Head>, HeadError> {
    fn checked<D: Decoder + 'static>(
        decoder: D,
        outputs: &[TensorInfo],
        input_size: (u32, u32),
    ) -> Result<Box<dyn Head>, HeadError> {
        let mut head = Checked { decoder, needs_nms: true };
        head.needs_nms = D::needs_nms(&head.plan(&outputs, input_size)?);
        Ok(Box::new(head))
    }
    let some_points = |keypoints: Option<spec::Keypoints>| keypoints.filter(|k| k.count > 0);
    match spec {
        &HeadSpec::Yolov5 { masks } => checked(yolov5::Yolov5 { class_count, masks }, outputs, input_size),
        &HeadSpec::Yolov8 { keypoints, masks } => {
            checked(yolov8::Yolov8 { class_count, keypoints: some_points(keypoints), masks }, outputs, input_size)
        }
        &HeadSpec::YoloNms { keypoints, unit } => {
            checked(yolo_nms::YoloNms { keypoints: some_points(keypoints), unit }, outputs, input_size)
        }
        HeadSpec::Yolox(spec) => checked(yolox::Yolox { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Nanodet(spec) => checked(nanodet::Nanodet { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Ssd(spec) => checked(ssd::Ssd::new(class_count, spec.clone()), outputs, input_size),
        HeadSpec::Detr(spec) => checked(detr::Detr::new(class_count, spec.clone()), outputs, input_size),
        HeadSpec::Heatmap(spec) => checked(heatmap::Heatmap { class_count, spec: spec.clone() }, outputs, input_size),
        HeadSpec::Blazeface(spec) => {
            checked(blazeface::Blazeface { class_count, spec: spec.clone() }, outputs, input_size)
        }
        &HeadSpec::Classifier { activation, background } => {
            checked(classifier::Classifier::new(class_count, activation, background), outputs, input_size)
        }
    }
}

/// The rows and columns of an output that looks like a table; `None` within for what is not known.
pub(crate) fn two_dimensions(output: &TensorInfo) -> Option<(Option<usize>, Option<usize>)> {
    let outputs = std::slice::from_ref(output);
    Outputs::shape(&outputs, 0).last::<2>().map(|[a, b]| (a, b))
}

/// The plural of "class" in messages.
fn classes_text(count: usize) -> String {
    if count == 1 { "1 class".to_owned() } else { format!("{count} classes") }
}

/// The class count of an output whose rows (or columns: `what`) have `width` numbers, `besides` of them something else.
///
/// `named` is what the card names, 0 if nothing; `None` while the width is unknown and nothing is named.
fn classes_in(width: Option<usize>, besides: usize, named: usize, what: &str) -> Result<Option<usize>, String> {
    match width {
        None => Ok((named > 0).then_some(named)),
        Some(width) if named == 0 => match width.checked_sub(besides) {
            Some(classes) if classes > 0 => Ok(Some(classes)),
            _ => Err(format!("has {what} of {width} numbers, which leaves no class after {besides} others")),
        },
        Some(width) if width == besides + named => Ok(Some(named)),
        Some(width) => Err(format!(
            "has {what} of {width} numbers where the card's {} and {besides} others make {}",
            classes_text(named),
            besides + named
        )),
    }
}

/// Which of `width` scores are classes.
fn class_columns(background: spec::Background, width: usize) -> std::ops::Range<usize> {
    match background {
        spec::Background::None => 0..width,
        spec::Background::First => width.min(1)..width,
        spec::Background::Last => 0..width.saturating_sub(1),
    }
}

/// As [`classes_in`] where all numbers are classes, one of which may be none of them.
fn classes_with_background(
    width: Option<usize>,
    background: spec::Background,
    named: usize,
) -> Result<Option<usize>, String> {
    let besides = usize::from(background != spec::Background::None);
    classes_in(width, besides, named, "rows").map_err(|problem| match width {
        Some(width) if besides == 0 && named > 0 && width == named + 1 => {
            format!("{problem} (if one of them is no class, say background = \"first\" or \"last\")")
        }
        _ => problem,
    })
}

/// Whether an output has a row for each cell of the grids.
fn check_cells(rows: Option<usize>, wanted: usize, strides: &[u32], (width, height): (u32, u32)) -> Result<(), String> {
    match rows {
        Some(rows) if rows != wanted => Err(format!(
            "has {rows} rows where grids of strides {strides:?} over {width}x{height} pixels have {wanted}"
        )),
        _ => Ok(()),
    }
}
