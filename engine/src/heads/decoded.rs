//! What a head found in one frame.

use visiond_kernels::nms::Candidate;

/// What a head found in one frame.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// Boxes in pixels of the network's input, in no particular order.
    pub candidates: Vec<Candidate>,
    /// Whether the candidates are classes of the whole frame: their boxes mean nothing.
    pub boxless: bool,
    /// Points of the rows in `keypoint_rows` (ascending), `keypoints_per_row` each.
    keypoints: Vec<InputKeypoint>,
    keypoint_rows: Vec<u32>,
    keypoints_per_row: usize,
    /// Candidates that the GPU's filter found and had no room for; 0 from [`Head::decode`].
    pub lost: usize,
    /// Row, class and index of the filter's records, in order; reused.
    pub(super) order: Vec<(u32, u32, u32)>,
}

impl Decoded {
    /// The points of a candidate, found by its `row`; empty where the network has none.
    pub fn keypoints_of(&self, row: u32) -> &[InputKeypoint] {
        let Ok(index) = self.keypoint_rows.binary_search(&row) else { return &[] };
        let start = index * self.keypoints_per_row;
        self.keypoints.get(start..start + self.keypoints_per_row).unwrap_or(&[])
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.boxless = false;
        self.keypoints.clear();
        self.keypoint_rows.clear();
        self.keypoints_per_row = 0;
        self.lost = 0;
    }

    /// Adds a candidate, unless any of its numbers is not finite; says whether it did.
    pub(super) fn push(&mut self, row: usize, class_id: u32, score: f32, box_in_input: [f32; 4]) -> bool {
        let finite = score.is_finite() && box_in_input.iter().all(|v| v.is_finite());
        if finite {
            self.candidates.push(Candidate { box_in_input, score, class_id, row: row as u32 });
        }
        finite
    }

    /// Adds the points of the candidate that was just added at `row`; takes that back if a point is not finite.
    /// Rows come in ascending order.
    pub(super) fn push_keypoints(&mut self, row: usize, points: impl Iterator<Item = InputKeypoint>) {
        let start = self.keypoints.len();
        self.keypoints.extend(points);
        let added = &self.keypoints[start..];
        if added.iter().all(|p| p.x.is_finite() && p.y.is_finite() && p.score.is_none_or(f32::is_finite)) {
            self.keypoints_per_row = added.len();
            self.keypoint_rows.push(row as u32);
        } else {
            self.keypoints.truncate(start);
            self.candidates.pop();
        }
    }
}

/// A point that belongs to a candidate, in pixels of the network's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputKeypoint {
    /// In pixels of the network's input.
    pub x: f32,
    /// In pixels of the network's input.
    pub y: f32,
    /// 0 to 1; `None` where the network does not tell.
    pub score: Option<f32>,
}
