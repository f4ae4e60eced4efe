//! The masks of a frame as polygons and run lengths, within a budget.
//!
//! A model whose masks are noise has a hundred times the contours that objects have. Tracing them all would take seconds per
//! frame, in which the lane neither stops nor runs the model.

use visiond_kernels::mask::{Mask, Polygons, rle_encode};
use visiond_message::{MaskMessage, RleMessage, mask_bytes};

use crate::lane_result::MaskFacts;

/// The most pixel edges that the contours of a frame's masks may have, which bounds the time.
///
/// 300 objects that cover a 4K frame twice have about 280,000, or twice that if their outlines are ragged; 10,000 cells of 30
/// pixels have 1,200,000. A single mask of noise has 170,000 to 2,000,000 at 1080p. Tracing takes some 55 ns an edge.
const MAX_EDGES: u64 = 1 << 21;

/// From this many pixels on, counting a mask takes noticeable time.
const LARGE_AREA: u64 = 1 << 16;

/// The approximate maximum bytes of masks in a message: 350,000 vertices. Outlines of objects have one vertex per 15 edges or
/// so, and one per two edges without a tolerance.
const MAX_BYTES: usize = 4 << 20;

/// A mask in the requested forms, or without any because the budget is used.
#[derive(Debug, Default)]
pub struct WrittenMask {
    pub segments: Option<Vec<Vec<f32>>>,
    pub mask: Option<MaskMessage>,
    pub truncated: bool,
}

/// Writes the masks of one frame, best first.
pub struct MaskWriter {
    masks: MaskFacts,
    /// Width and height.
    frame: [u32; 2],
    polygons: Polygons,
    /// The rest of the budget.
    edges: u64,
    bytes: usize,
}

impl MaskWriter {
    pub fn new(masks: MaskFacts, frame: [u32; 2]) -> Self {
        Self { masks, frame, polygons: Polygons::new(), edges: MAX_EDGES, bytes: MAX_BYTES }
    }

    /// Returns a mask in the requested forms. If it does not fit the budget, a later, smaller mask still may.
    pub fn write(&mut self, mask: &Mask) -> WrittenMask {
        let truncated = WrittenMask { truncated: true, ..WrittenMask::default() };
        let MaskFacts { form, tolerance_pixels } = self.masks;
        if !form.has_polygons() && !form.has_rle() {
            return WrittenMask::default();
        }
        let Some(edges) = mask.edges_within(self.edges) else {
            // Halve the budget after a large mask, so that in a frame of noise not every mask is counted almost to its end.
            // Small ones take no time.
            if mask.area() >= LARGE_AREA {
                self.edges /= 2;
            }
            return truncated;
        };
        // The edges are spent even if the bytes do not fit, because the time is spent.
        self.edges -= edges;
        let segments = form.has_polygons().then(|| {
            self.polygons.trace_counted(mask, tolerance_pixels as f32, edges);
            self.polygons.rings().map(|ring| ring.as_flattened().to_vec()).collect::<Vec<_>>()
        });
        let rle = form.has_rle().then(|| {
            let [width, height] = self.frame;
            MaskMessage { rle: RleMessage { size: [height, width], counts: rle_encode(mask, width, height) } }
        });
        let Some(left) = self.bytes.checked_sub(mask_bytes(segments.as_deref(), rle.as_ref())) else {
            return truncated;
        };
        self.bytes = left;
        WrittenMask { segments, mask: rle, truncated: false }
    }
}
