//! Finds the outputs that masks are computed from.
//!
//! - Prototypes: a mask is their sum, weighted by a candidate's coefficients. They are one output `[1, channels, height, width]`,
//!   f32 or f16, with as many channels as a candidate has coefficients (32 in YOLACT and in Ultralytics' models; the planes have a
//!   quarter of the input's width and height).
//! - One plane for each row: `[1, Q, height, width]` (logits: RF-DETR, DETR), `[N, 1, height, width]` (probabilities:
//!   torchvision's Mask R-CNN) or `[N, height, width]`. Each plane covers the whole input.
//!
//! Source: `process_mask_native` in ultralytics `utils/ops.py`, after Bolya et al., YOLACT, 2019; `PostProcess` of
//! roboflow/rf-detr; `paste_masks_in_image` of torchvision's `models/detection/roi_heads.py`.

use visiond_kernels::filter::Values;
use visiond_kernels::mask::{MaskParts, MaskSpec};

use super::gpu_filter::known;
use super::outputs::ModelOutputs;

/// Returns where masks of `channels` coefficients are, with the coefficients' place in a row; `None` if no output has their
/// prototypes, or its shape is unknown.
pub(super) fn of_prototypes(outputs: ModelOutputs<'_>, channels: usize, coefficients: Values) -> Option<MaskSpec> {
    let planes = |output: usize| {
        let shape = outputs.shape(output);
        let [count, height, width] = known(shape).filter(|_| shape.has_rank(4))?;
        (count == channels && height > 0 && width > 0).then_some((output, height, width))
    };
    let (output, height, width) = (0..outputs.count()).find_map(planes).filter(|_| channels > 0)?;
    let planes = Values::planes(output, channels, height * width);
    Some(MaskSpec { planes, height, width, parts: MaskParts::Prototypes { channels, coefficients } })
}

/// How much coarser than the input a plane may be: DETR and RF-DETR have a quarter of its sides. Smaller ones do not cover
/// the input: the 28 x 28 cells of a Mask R-CNN belong to one box, and tables of keypoints are not planes at all.
const COARSEST: usize = 4;

/// Returns where the masks of candidates with one plane each are, one for each of `rows`; `None` if no output has them, or
/// its shape is unknown. Numbers above `threshold` belong to the object.
pub(super) fn of_own_planes(
    outputs: ModelOutputs<'_>,
    rows: usize,
    threshold: f32,
    input_size: (u32, u32),
) -> Option<MaskSpec> {
    let input = [input_size.1, input_size.0].map(|side| side as usize);
    let spec = |output: usize| {
        let [count, height, width] = outputs.shape(output).planes()?.map(|dim| dim.unwrap_or(0));
        // A side that is not a multiple of the step is rounded down or up.
        let shows_input = |[side, input]: [usize; 2]| side <= input && (side + 1).saturating_mul(COARSEST) > input;
        if count != rows || ![[height, input[0]], [width, input[1]]].into_iter().all(shows_input) {
            return None;
        }
        let planes = Values::planes(output, rows, height * width);
        let spec = MaskSpec { planes, height, width, parts: MaskParts::OwnPlane { count: rows, threshold } };
        spec.check().is_ok().then_some(spec)
    };
    (0..outputs.count()).find_map(spec)
}
