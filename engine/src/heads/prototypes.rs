//! Finds the prototypes that masks are made of: a mask is their sum, weighted by a candidate's coefficients.
//!
//! They are one output `[1, channels, height, width]`, f32 or f16, with as many channels as a candidate has coefficients (32 in
//! YOLACT and in Ultralytics' models; the planes have a quarter of the input's width and height).
//!
//! Source: `process_mask_native` in ultralytics `utils/ops.py`, after Bolya et al., YOLACT, 2019.

use visiond_kernels::filter::Values;
use visiond_kernels::mask::MaskSpec;

use super::gpu_filter::known;
use super::outputs::ModelOutputs;

/// Returns where masks of `channels` coefficients are, with the coefficients' place in a row; `None` if no output has their
/// prototypes, or its shape is unknown.
pub(super) fn masks(outputs: ModelOutputs<'_>, channels: usize, coefficients: Values) -> Option<MaskSpec> {
    let planes = |output: usize| {
        let shape = outputs.shape(output);
        let [count, height, width] = known(shape).filter(|_| shape.has_rank(4))?;
        (count == channels && height > 0 && width > 0).then_some((output, height, width))
    };
    let (output, height, width) = (0..outputs.count()).find_map(planes).filter(|_| channels > 0)?;
    let prototypes = Values::planes(output, channels, height * width);
    Some(MaskSpec { prototypes, channels, height, width, coefficients })
}
