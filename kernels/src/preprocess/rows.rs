//! Horizontally resampled rows of the frame, and which of them are still there.

use super::bayer::Mosaic;
use super::convert::{Converter, Taps};
use super::fetch::{fetch, fetch_pairs};
use super::plan::PreprocessPlan;
use super::simd::Isa;
use super::store::RowPair;
use super::yuv::ToRgb;
use crate::frame::{BayerDepth, BayerOrder, FrameView, PixelFormat};

/// How one frame's rows are read.
pub(super) struct Source<'a, N: ToRgb> {
    frame: &'a FrameView<'a>,
    reader: Reader<N>,
    planes: usize,
    isa: Isa,
}

enum Reader<N: ToRgb> {
    Words(Converter<N>),
    Mosaic(BayerOrder, BayerDepth),
}

impl<'a, N: ToRgb> Source<'a, N> {
    /// The rows of `frame` as luma or as red, green and blue. A grey frame has one plane either way.
    pub(super) fn new(isa: Isa, frame: &'a FrameView<'a>, luma: bool) -> Self {
        let format = frame.format();
        let reader = match format {
            PixelFormat::Bayer(order, depth) => Reader::Mosaic(order, depth),
            _ => Reader::Words(Converter::new(format, frame.color())),
        };
        let planes = if luma || format == PixelFormat::Grey { 1 } else { 3 };
        Self { frame, reader, planes, isa }
    }
}

/// Two resampled rows of a frame, and the buffers that make them. An upscale finds both again for most rows of the tensor,
/// a mild downscale one of them.
#[derive(Default)]
pub(super) struct Rows<N> {
    /// The planes of each slot.
    slots: [[Vec<N>; 3]; 2],
    /// Which row of the frame a slot holds.
    held: [Option<u32>; 2],
    /// What was fetched last.
    words: [Vec<u32>; 2],
    mosaic: Mosaic<N>,
}

impl<N: ToRgb> Rows<N> {
    /// Forgets the last frame and makes room for the next. Allocates only for a frame larger than any before.
    pub(super) fn start(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>) {
        self.held = [None; 2];
        let width = plan.padded_width();
        for plane in self.slots.as_flattened_mut() {
            plane.resize(plane.len().max(width), N::NONE);
        }
        match source.reader {
            Reader::Words(_) => {
                for words in &mut self.words {
                    words.resize(words.len().max(width), 0);
                }
            }
            Reader::Mosaic(..) => self.mosaic.reserve(source.frame.width()),
        }
    }

    /// What row `i` of the placed picture is made of.
    pub(super) fn pair(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>, i: usize) -> RowPair<'_, N> {
        let (low, high) = (plan.rows.low[i], plan.rows.high[i]);
        let weights = plan.rows.weights.each_ref().map(|weights| weights[i]);
        let low_slot = self.slot_of(plan, source, low, high);
        let high_slot = self.slot_of(plan, source, high, low);
        RowPair {
            low: &self.slots[low_slot][..source.planes],
            high: (weights[1] != N::NONE).then(|| &self.slots[high_slot][..source.planes]),
            weights,
        }
    }

    /// The slot that holds `row`, filled when none does; the slot of `kept` is left alone.
    fn slot_of(&mut self, plan: &PreprocessPlan<N>, source: &Source<'_, N>, row: u32, kept: u32) -> usize {
        if let Some(slot) = self.held.iter().position(|&held| held == Some(row)) {
            return slot;
        }
        let slot = usize::from(self.held[0] == Some(kept));
        self.held[slot] = Some(row);
        let planes = &mut self.slots[slot][..source.planes];
        let (y, columns) = (row as usize, &plan.columns);
        match &source.reader {
            Reader::Words(converter) => {
                let width = plan.padded_width();
                let [first, second] = self.words.each_mut().map(|words| &mut words[..width]);
                if columns.single {
                    fetch(source.frame, y, &columns.low, first);
                } else {
                    fetch_pairs(source.frame, y, &columns.low, [&mut *first, &mut *second]);
                }
                converter.resample(source.isa, &Taps { columns, words: [first, second] }, planes);
            }
            Reader::Mosaic(order, depth) => {
                self.mosaic.resample(source.isa, source.frame, (*order, *depth), y, columns, planes);
            }
        }
        slot
    }
}
