//! The anchors from which boxes are offsets, for models whose exports leave the decoding to the program.
//!
//! EfficientDet: each grid of strides 8 to 128 has nine anchors per cell, of three sizes and three aspect ratios, around the
//! cell's centre. The four numbers of a box are the offsets of its centre, y and x, as fractions of the anchor's sides, and
//! the logarithms of its height and width relative to the anchor's.
//!
//! Source: `efficientdet/utils.py` of zylo117/Yet-Another-EfficientDet-Pytorch (`Anchors`, `BBoxTransform`), after google/automl
//! `efficientdet/tf2/anchors.py`.

use super::spec::AnchorKind;

/// The strides of EfficientDet's grids; D8 has one more.
const STRIDES: [u32; 5] = [8, 16, 32, 64, 128];

/// A side of the smallest anchor in cells.
const SCALE: f32 = 4.0;

/// Width and height of an anchor, in parts of a side.
const RATIOS: [[f32; 2]; 3] = [[1.0, 1.0], [1.4, 0.7], [0.7, 1.4]];

/// An anchor: centre x, centre y, width, height, in pixels of the input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Anchor([f32; 4]);

impl Anchor {
    /// Returns left, top, right, bottom of the box with these offsets.
    pub(super) fn corners(&self, [dy, dx, dh, dw]: [f32; 4]) -> [f32; 4] {
        let Self([x, y, width, height]) = *self;
        let (cx, cy) = (dx * width + x, dy * height + y);
        let (w, h) = (dw.exp() * width, dh.exp() * height);
        [cx - w / 2.0, cy - h / 2.0, cx + w / 2.0, cy + h / 2.0]
    }
}

/// Returns the number of anchors.
pub(super) fn count(AnchorKind::EfficientDet: AnchorKind, (width, height): (u32, u32)) -> usize {
    let cells = |stride: u32| width.div_ceil(stride) as usize * height.div_ceil(stride) as usize;
    STRIDES.iter().map(|&stride| 3 * RATIOS.len() * cells(stride)).sum()
}

/// Writes the anchors to `out`, in the order of the rows.
pub(super) fn write(AnchorKind::EfficientDet: AnchorKind, (width, height): (u32, u32), out: &mut Vec<Anchor>) {
    out.clear();
    for stride in STRIDES {
        let (columns, lines) = (width.div_ceil(stride), height.div_ceil(stride));
        for (line, column) in (0..lines).flat_map(|line| (0..columns).map(move |column| (line, column))) {
            let [x, y] = [column, line].map(|cell| (cell as f32 + 0.5) * stride as f32);
            for octave in 0..3 {
                let side = SCALE * stride as f32 * (octave as f32 / 3.0).exp2();
                out.extend(RATIOS.map(|[w, h]| Anchor([x, y, side * w, side * h])));
            }
        }
    }
}
