//! The tables that the kernel reads: which source pixels contribute to each pixel of the tensor.
//!
//! They are the CPU reference's own ([`super::super::plan`]), so that both sample alike to the last bit, and no GPU has to
//! compute positions in double precision, which is slow on small ones. A few KB for each frame size.

use super::job::{AxisTable, PIXELS};
use crate::letterbox::Mapping;
use crate::preprocess::number::Number;
use crate::preprocess::plan::{Axis, PreprocessPlan};
use crate::preprocess::spec::{PreprocessSpec, Sampling};

/// How the kernel reads the tables of one frame size.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameTables {
    pub(super) mapping: Mapping,
    /// The taps of a column: 1 if the upper ones have no weight anywhere.
    column_taps: u32,
}

impl FrameTables {
    /// Returns the columns and rows of tables that begin at `address`.
    pub(super) fn axes(&self, spec: &PreprocessSpec, address: u64) -> [AxisTable; 2] {
        let [columns, rows] = strides(spec);
        let rows_at = address + (columns * entry_bytes(spec)) as u64;
        [
            AxisTable { entries: address, stride: columns as u32, taps: self.column_taps },
            AxisTable { entries: rows_at, stride: rows as u32, taps: 2 },
        ]
    }
}

/// Returns the entries of the columns and of the rows, rounded up to whole groups.
fn strides(spec: &PreprocessSpec) -> [usize; 2] {
    [spec.width, spec.height].map(|side| side.next_multiple_of(PIXELS) as usize)
}

/// Returns the bytes of a column's or row's two positions with their weights.
fn entry_bytes(spec: &PreprocessSpec) -> usize {
    match spec.sampling {
        Sampling::Opencv => 2 * 4,
        // The weight is a word of its own.
        Sampling::Exact => 2 * 8,
    }
}

/// Returns the bytes of one frame size's tables.
pub(super) fn size_bytes(spec: &PreprocessSpec) -> usize {
    strides(spec).into_iter().sum::<usize>() * entry_bytes(spec)
}

/// Makes the tables of one frame size: for columns, then for rows, all lower positions, all upper ones, then their weights if
/// these are separate. One entry per column or row of the tensor; entries outside the picture repeat the nearest.
pub(super) fn make(spec: &PreprocessSpec, source: (u32, u32)) -> (FrameTables, Vec<u8>) {
    match spec.sampling {
        // Positions are below 2^14, weights at most 2^11.
        Sampling::Opencv => make_of(spec, source, [|position, weight: u16| position | u32::from(weight) << 16]),
        Sampling::Exact => make_of(spec, source, [|position, _| position, |_, weight: f32| weight.to_bits()]),
    }
}

/// `words` are the parts of an entry, from its position and weight.
fn make_of<N: Number, const WORDS: usize>(
    spec: &PreprocessSpec,
    source: (u32, u32),
    words: [fn(u32, N) -> u32; WORDS],
) -> (FrameTables, Vec<u8>) {
    let plan = PreprocessPlan::<N>::new(spec, source);
    let [x, y, width, height] = plan.mapping.placed().map(|pixels| pixels as usize);
    let [columns, rows] = strides(spec);
    let mut bytes = Vec::with_capacity(size_bytes(spec));
    let mut append = |axis: &Axis<N>, stride: usize, first: usize, count: usize| {
        for word in words {
            for (positions, weights) in [&axis.low, &axis.high].into_iter().zip(&axis.weights) {
                for i in 0..stride {
                    let i = i.saturating_sub(first).min(count - 1);
                    bytes.extend(word(positions[i], weights[i]).to_le_bytes());
                }
            }
        }
    };
    append(&plan.columns, columns, x, width);
    append(&plan.rows, rows, y, height);
    (FrameTables { mapping: plan.mapping, column_taps: if plan.columns.single { 1 } else { 2 } }, bytes)
}
