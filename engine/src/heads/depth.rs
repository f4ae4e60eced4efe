//! The depth of each pixel, reduced to a grid over the frame.
//!
//! Reads one output `[1, h, w]`, `[1, 1, h, w]` or `[1, h, w, 1]`, f32 or f16: metric depth, or inverse depth (MiDaS, Depth
//! Anything), as set by the card's `nearer`.

use visiond_kernels::filter::FilterSpec;

use super::decoded::Decoded;
use super::depth_map::DepthReducer;
use super::embedding::no_classes;
use super::head::{Decoder, HeadInput, Suppression};
use super::misfit::Misfit;
use super::outputs::{ModelOutputs, OutputShape};
use super::spec::DepthSpec;

pub(super) struct Depth {
    /// The number of names under `[classes]`, which must be 0.
    pub(super) class_count: usize,
    pub(super) spec: DepthSpec,
    pub(super) reducer: DepthReducer,
}

pub(super) struct DepthLayout {
    output: usize,
    /// Height and width; 0 where the declared shape leaves them open.
    size: [usize; 2],
}

/// Returns height and width of a map with one channel.
fn map_size(shape: OutputShape) -> Option<[Option<usize>; 2]> {
    match shape.last::<3>() {
        Some([height, width, Some(1)]) if height != Some(1) => Some([height, width]),
        Some([_, height, width]) => shape.last::<2>().map(|_| [height, width]),
        None => shape.last::<2>(),
    }
}

impl Decoder for Depth {
    type Layout = DepthLayout;

    fn reads(&self) -> &'static str {
        "one output [1, h, w], [1, 1, h, w] or [1, h, w, 1], the depth of each pixel"
    }

    fn layout(&self, outputs: ModelOutputs<'_>, _input_size: (u32, u32)) -> Result<DepthLayout, Misfit> {
        no_classes(self.class_count, "a depth map")?;
        outputs.named(self.spec.output.as_deref(), "no output is a map of one channel", |output| {
            let size = map_size(outputs.shape(output))?;
            if size.iter().any(|side| matches!(side, Some(0..=1))) {
                return Some(Err("is not a map: a side has fewer than 2 numbers".to_owned()));
            }
            Some(Ok(DepthLayout { output, size: size.map(Option::unwrap_or_default) }))
        })
    }

    fn decode(&mut self, layout: &DepthLayout, input: &HeadInput<'_>, out: &mut Decoded) {
        let values = input.outputs[layout.output].tensor.to_f32();
        let [height, width] = layout.size;
        self.reducer.reduce(&values, [width, height], &self.spec, &input.mapping(), &mut out.values.depth);
    }

    /// The numbers do not show what they measure.
    fn doubt(&self, _: &DepthLayout, _: &HeadInput<'_>) -> Option<Misfit> {
        None
    }

    /// The filter finds candidates; the map is copied whole.
    fn filter(&self, _: &DepthLayout, _: ModelOutputs<'_>, _: (u32, u32)) -> Option<FilterSpec> {
        None
    }

    fn suppression(&self, _layout: &DepthLayout) -> Suppression {
        Suppression::None
    }
}
