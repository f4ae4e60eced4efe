//! Horizontally resampled rows of the frame, and which of them are still available.

use super::axis::{PAD, Pairs};
use super::bayer::Mosaic;
use super::convert::Taps;
use super::fetch::{fetch, fetch_pairs};
use super::number::Number;
use super::plan::PreprocessPlan;
use super::store::{RowPair, planes_of};
use super::turned::{Mixing, Source, TurnedRows};
use crate::frame::PixelFormat;

/// The slot of a row of padding.
const PAD_SLOT: usize = 2;

/// Two resampled rows of a frame, and the buffers to make them. When upscaling, most rows of the tensor find both again; when
/// downscaling slightly, one of them.
#[derive(Default)]
pub(super) struct Rows<N> {
    /// The planes of each slot, and a row of padding.
    slots: [[Vec<N>; 3]; 3],
    /// The row of the frame that each slot holds.
    held: [Option<u32>; 2],
    /// The words that were fetched last.
    words: [Vec<u32>; 2],
    mosaic: Mosaic<N>,
    turned: TurnedRows<N>,
}

impl<N: Number> Rows<N> {
    /// Forgets the last frame and makes room for the next. Allocates only for a frame larger than any before.
    pub(super) fn start(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>) {
        if let Some(turned) = &plan.turned {
            self.turned.start(turned, source.frame.width());
        }
        self.held = [None; 2];
        let width = plan.padded_width();
        for plane in self.slots.as_flattened_mut() {
            plane.resize(plane.len().max(width), N::NONE);
        }
        if let Some(padding) = &plan.padding {
            self.slots[PAD_SLOT].iter_mut().for_each(|plane| plane[..width].fill(padding.whole));
        }
        if let PixelFormat::Bayer(..) = source.frame.format() {
            self.mosaic.reserve(plan.key.size.0);
        } else {
            self.words.iter_mut().for_each(|words| words.resize(words.len().max(width), 0));
        }
    }

    /// Returns the rows that row `i` of the placed picture is made of.
    pub(super) fn pair(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>, i: usize) -> RowPair<'_, N> {
        let is_exact = plan.padding.is_some();
        let (low, high) = (plan.rows.low[i], plan.rows.high[i]);
        let weights = plan.rows.weights.each_ref().map(|weights| weights[i]);
        if let Some(turned) = &plan.turned {
            let mixing = Mixing { plan: turned, columns: &plan.columns, padding: plan.padding.as_ref() };
            if let Some(row) = [low, high].into_iter().find(|&row| row != PAD) {
                self.turned.make(source, &mixing, row);
            }
            let row = |row| match row {
                PAD => planes_of(&self.slots[PAD_SLOT], source.planes),
                row => self.turned.row(turned, row, source.planes),
            };
            return RowPair { low: row(low), high: (weights[1] != N::NONE).then(|| row(high)), weights, is_exact };
        }
        let low_slot = self.slot_of(plan, source, low, high);
        let high_slot = self.slot_of(plan, source, high, low);
        RowPair {
            low: planes_of(&self.slots[low_slot], source.planes),
            high: (weights[1] != N::NONE).then(|| planes_of(&self.slots[high_slot], source.planes)),
            weights,
            is_exact,
        }
    }

    /// Returns the slot that holds `row`, and fills one if necessary, but not the slot of `kept`.
    fn slot_of(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>, row: u32, kept: u32) -> usize {
        if row == PAD {
            return PAD_SLOT;
        }
        if let Some(slot) = self.held.iter().position(|&held| held == Some(row)) {
            return slot;
        }
        let slot = usize::from(self.held[0] == Some(kept));
        self.held[slot] = Some(row);
        self.resample(plan, source, row, slot);
        if let Some(padding) = &plan.padding {
            for plane in &mut self.slots[slot][..source.planes] {
                plane.iter_mut().zip(&padding.columns).for_each(|(value, &part)| *value = *value + part);
            }
        }
        slot
    }

    /// Fills a slot with a row of the frame.
    fn resample(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>, row: u32, slot: usize) {
        let planes = &mut self.slots[slot][..source.planes];
        let (y, columns, frame) = (plan.key.frame_row(row) as usize, &plan.columns, source.frame);
        if let PixelFormat::Bayer(order, depth) = frame.format() {
            self.mosaic.resample(source.isa, frame, (order, depth), y, columns, planes);
            return;
        }
        let width = plan.padded_width();
        let [first, second] = self.words.each_mut().map(|words| &mut words[..width]);
        if columns.single {
            fetch(frame, y, &columns.low, first);
        } else {
            let falling = columns.pairs == Pairs::Falling;
            fetch_pairs(frame, y, columns.left(), falling, [&mut *first, &mut *second]);
        }
        source.converter.resample(source.isa, &Taps { columns, words: [first, second] }, planes);
    }
}
