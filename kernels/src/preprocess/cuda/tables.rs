//! The tables that the kernel reads: which source pixels contribute to each pixel of the tensor.
//!
//! They are the CPU reference's own ([`super::super::plan`]), so that both sample alike to the last bit, and no GPU has to
//! compute positions in double precision, which is slow on small ones. A few KB for each frame size.

use super::job::{Axis, PIXELS};
use crate::letterbox::Mapping;
use crate::preprocess::number::Number;
use crate::preprocess::plan::{self, PreprocessPlan};
use crate::preprocess::spec::PreprocessSpec;

/// A number as the tables store it.
pub(super) trait Entry: Number {
    /// Words per position: 1, or 2 if the weight has its own.
    const WORDS: usize;
    /// Returns position and weight, and the weight's own word if there is one.
    fn words(position: u32, weight: Self) -> [u32; 2];
}

impl Entry for u16 {
    const WORDS: usize = 1;

    /// Positions are below 2^14, weights at most 2^11.
    fn words(position: u32, weight: u16) -> [u32; 2] {
        [position | u32::from(weight) << 16, 0]
    }
}

impl Entry for f32 {
    const WORDS: usize = 2;

    fn words(position: u32, weight: f32) -> [u32; 2] {
        [position, weight.to_bits()]
    }
}

/// How the kernel reads the tables of one frame size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) mapping: Mapping,
    /// The taps of a column: 1 if the upper ones have no weight anywhere.
    column_taps: u32,
}

impl Shape {
    /// Returns the columns and rows of tables that begin at `address`.
    pub(super) fn axes<N: Entry>(&self, spec: &PreprocessSpec, address: u64) -> [Axis; 2] {
        let [columns, rows] = strides(spec);
        let rows_at = address + (columns * 2 * N::WORDS * 4) as u64;
        [
            Axis { entries: address, stride: columns as u32, taps: self.column_taps },
            Axis { entries: rows_at, stride: rows as u32, taps: 2 },
        ]
    }
}

/// Returns the entries of the columns and of the rows, rounded up to whole groups.
fn strides(spec: &PreprocessSpec) -> [usize; 2] {
    [spec.width, spec.height].map(|side| side.next_multiple_of(PIXELS) as usize)
}

/// Returns the bytes of one frame size's tables.
pub(super) fn size_bytes<N: Entry>(spec: &PreprocessSpec) -> usize {
    strides(spec).into_iter().sum::<usize>() * 2 * N::WORDS * 4
}

/// Makes the tables of one frame size: for columns, then for rows, all lower positions, all upper ones, then their weights if
/// these are separate. One entry per column or row of the tensor; entries outside the picture repeat the nearest.
pub(super) fn make<N: Entry>(spec: &PreprocessSpec, source: (u32, u32)) -> (Shape, Vec<u8>) {
    let plan = PreprocessPlan::<N>::new(spec, source);
    let [x, y, width, height] = plan.mapping.placed().map(|pixels| pixels as usize);
    let [columns, rows] = strides(spec);
    let mut bytes = Vec::with_capacity(size_bytes::<N>(spec));
    append(&mut bytes, &plan.columns, columns, (x, width));
    append(&mut bytes, &plan.rows, rows, (y, height));
    (Shape { mapping: plan.mapping, column_taps: if plan.columns.single { 1 } else { 2 } }, bytes)
}

fn append<N: Entry>(bytes: &mut Vec<u8>, axis: &plan::Axis<N>, stride: usize, (first, count): (usize, usize)) {
    for word in 0..N::WORDS {
        for (positions, weights) in [&axis.low, &axis.high].into_iter().zip(&axis.weights) {
            for i in 0..stride {
                let i = i.saturating_sub(first).min(count - 1);
                bytes.extend(N::words(positions[i], weights[i])[word].to_le_bytes());
            }
        }
    }
}
