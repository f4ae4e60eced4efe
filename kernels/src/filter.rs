//! The candidate filter: finds the candidates that pass the threshold in a model's raw outputs.
//!
//! On the GPU the outputs are megabytes and the candidates a few kilobytes. The filter reads the outputs once in place, and
//! writes each candidate as a [`Record`] (and its points) into memory that the CPU can access.
//!
//! - [`FilterSpec`]: the meaning of the numbers. `engine`'s heads create it.
//! - [`CudaFilter`]: the kernel `cuda/filter.cu` with its memory.
//! - [`Filtered`]: the candidates of one frame.
//!
//! Scores and boxes are computed in the same order of operations as in the heads on the CPU, without fused multiply-add, so
//! that the results are equal except for `exp`, whose last bit may differ between CUDA and the C library.

mod cuda;
mod launch;
mod spec;
mod values_argument;

#[cfg(test)]
mod tests;

pub use cuda::{CudaFilter, FilterError};
pub use launch::{Launch, THREADS};
pub use spec::{
    BoxCode, CAPACITY, Choice, Corners, FilterSpec, FilterSpecError, Grid, LabelCode, MAX_TABLES, PointCode, Points,
    ScoreCode, Table, Values,
};
pub(crate) use values_argument::{ValuesArgument, narrow};

/// A candidate as the kernel writes it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C, align(16))]
pub struct Record {
    /// The box x1, y1, x2, y2 in pixels of the model's input.
    pub box_in_input: [f32; 4],
    /// The confidence, 0 to 1.
    pub score: f32,
    /// The class, counted from 0.
    pub class_id: u32,
    /// The row that it comes from.
    pub row: u32,
    /// The class as the model wrote it, if it has one for each row; otherwise 0.
    pub label: f32,
}

/// The class of the record of a model-selected row with an impossible score, class or box. The filter keeps it, whatever its
/// score, so that the head reports it.
pub const ODD: u32 = u32::MAX - 1;

/// The candidates of one frame, in no particular order.
#[derive(Debug, Clone, Copy)]
pub struct Filtered<'a> {
    /// The candidates; if more were found than fit, an arbitrary subset.
    pub records: &'a [Record],
    /// The numbers of the records' points, `values_per_record` each: x, y and, if `points_scored`, a score per point; or one
    /// angle per record.
    pub points: &'a [f32],
    /// The numbers of one record's points; 0 without points.
    pub values_per_record: usize,
    /// Whether each point has a score.
    pub points_scored: bool,
    /// Whether the numbers are angles.
    pub are_angles: bool,
    /// Candidates that did not fit.
    pub lost: usize,
    /// The value of [`FilterSpec::keep_best`].
    pub keep_best: Option<usize>,
    /// The value of [`FilterSpec::score_threshold`].
    pub score_threshold: f32,
}
