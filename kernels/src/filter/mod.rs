//! The candidate filter: of a network's raw outputs, what passes the threshold.
//!
//! On the GPU the outputs are megabytes and the candidates a few kilobytes. The filter reads the outputs once where they
//! are, and writes each candidate as a [`Record`] (and its points) into memory that the CPU sees.
//!
//! - [`FilterSpec`]: what the numbers mean. `engine`'s heads make it.
//! - [`CudaFilter`]: the kernel `cuda/filter.cu` with its memory.
//! - [`Filtered`]: what it found in one frame.
//!
//! Scores and boxes are computed in the order of operations that the heads use on the CPU, without fused multiplication, so
//! that the results are equal but for `exp`, where CUDA's and the C library's may differ in the last bit.

mod cuda;
mod launch;
mod spec;

#[cfg(test)]
mod tests;

pub use cuda::{CudaFilter, FilterError};
pub use launch::{Launch, THREADS};
pub use spec::{
    BoxCode, CAPACITY, Choice, Corners, FilterSpec, FilterSpecError, Grid, LabelCode, MAX_TABLES, PointCode, Points,
    ScoreCode, Table, Values,
};

/// A candidate as the kernel writes it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C, align(16))]
pub struct Record {
    /// x1, y1, x2, y2 in pixels of the network's input.
    pub box_in_input: [f32; 4],
    /// 0 to 1.
    pub score: f32,
    /// Counted from 0.
    pub class_id: u32,
    /// Where it came from.
    pub row: u32,
    /// Nothing.
    pub unused: u32,
}

/// What was found in one frame, in no particular order.
#[derive(Debug, Clone, Copy)]
pub struct Filtered<'a> {
    /// The candidates; where more were found than there is room for, any of them.
    pub records: &'a [Record],
    /// Numbers of the records' points, `values_per_record` each: x, y and, if `points_scored`, a score a point.
    pub points: &'a [f32],
    /// Numbers of one record's points; 0 where there are none.
    pub values_per_record: usize,
    /// Whether a point has a score.
    pub points_scored: bool,
    /// Candidates that there was no room for.
    pub lost: usize,
    /// As [`FilterSpec::keep_best`].
    pub keep_best: Option<usize>,
}
