//! Finds what masks are made of.
//!
//! - Prototypes: a mask is their sum, weighted by a candidate's coefficients. They are one output `[1, channels, height, width]`,
//!   f32 or f16, with as many channels as a candidate has coefficients (32 in YOLACT and in Ultralytics' models; the planes have a
//!   quarter of the input's width and height).
//! - A plane for each row: `[1, Q, height, width]` (logits: RF-DETR, DETR), `[N, 1, height, width]` (probabilities: torchvision's
//!   Mask R-CNN) or `[N, height, width]`. It shows the whole input.
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

/// Returns where the masks of candidates are that have a plane each, one for each of `rows`; `None` if no output has them, or its
/// shape is unknown. Numbers above `threshold` belong to the object.
pub(super) fn of_own_planes(outputs: ModelOutputs<'_>, rows: usize, threshold: f32) -> Option<MaskSpec> {
    let planes = |output: usize| {
        let [count, height, width] = outputs.shape(output).planes()?.map(|dim| dim.unwrap_or(0));
        (count == rows && height > 1 && width > 1).then_some((output, height, width))
    };
    let (output, height, width) = (0..outputs.count()).find_map(planes).filter(|_| rows > 0)?;
    let planes = Values::planes(output, rows, height * width);
    Some(MaskSpec { planes, height, width, parts: MaskParts::OwnPlane { count: rows, threshold } })
}
