//! The candidates that a head found in one frame.

use visiond_kernels::mask::{ClassMap, ClassRegion, MaskSpec};
use visiond_kernels::nms::{Candidate, Member, Nms, NmsOptions, weighted_mean};
use visiond_kernels::oriented::OrientedBox;

use super::frame_values::FrameValues;

/// The candidates that a head found in one frame.
#[derive(Debug, Clone, Default)]
pub struct Decoded {
    /// The candidates with boxes in pixels of the model's input, in no particular order. Oriented boxes are here without their
    /// rotation: see [`Decoded::oriented`].
    pub candidates: Vec<Candidate>,
    /// Whether the candidates are classes of the whole frame, whose boxes mean nothing.
    pub boxless: bool,
    /// The points of the rows in `keypoint_rows` (ascending), `keypoints_per_row` each.
    keypoints: Vec<InputKeypoint>,
    keypoint_rows: Vec<u32>,
    keypoints_per_row: usize,
    /// Where the candidates' masks are in the outputs; `None` if there are none, and from
    /// [`Head::decode_filtered`](super::Head::decode_filtered).
    pub masks: Option<MaskSpec>,
    /// The angles of the rows in `angle_rows` (ascending); empty if boxes are not oriented.
    angles: Vec<f32>,
    angle_rows: Vec<u32>,
    /// The values of the whole frame; empty unless the head outputs some.
    pub values: FrameValues,
    /// Whether the model outputs a class for each pixel: [`Self::class_areas`] instead of candidates.
    pub has_class_map: bool,
    /// The class of each pixel of the frame, if [`Self::has_class_map`].
    pub class_map: ClassMap,
    /// The classes of the map whose score passes, the largest first.
    pub class_areas: Vec<ClassArea>,
    /// Candidates that did not fit into the GPU's filter; 0 from [`Head::decode`](super::Head::decode).
    pub lost: usize,
    /// Row, class and index of the filter's records, sorted; the memory is reused.
    pub(super) order: Vec<(u32, u32, u32)>,
    /// The candidates that were blended into survivors; the memory is reused.
    pub(super) members: Vec<Member>,
}

impl Decoded {
    /// Returns the points of a candidate by its `row`; empty if the model has none.
    pub fn keypoints_of(&self, row: u32) -> &[InputKeypoint] {
        let Ok(index) = self.keypoint_rows.binary_search(&row) else { return &[] };
        let start = index * self.keypoints_per_row;
        self.keypoints.get(start..start + self.keypoints_per_row).unwrap_or(&[])
    }

    /// Returns the oriented box of a candidate in pixels of the model's input; `None` if the model has no oriented boxes.
    pub fn oriented(&self, candidate: &Candidate) -> Option<OrientedBox> {
        let index = self.angle_rows.binary_search(&candidate.row).ok()?;
        Some(OrientedBox::from_upright(candidate.box_in_input, *self.angles.get(index)?))
    }

    /// Keeps the best of overlapping oriented boxes; see [`Nms::run_oriented`].
    pub(super) fn suppress_oriented(&mut self, nms: &mut Nms, options: &NmsOptions) {
        let mut candidates = std::mem::take(&mut self.candidates);
        nms.run_oriented(&mut candidates, |candidate| self.oriented(candidate), options);
        self.candidates = candidates;
    }

    /// Clears everything but keeps the memory.
    pub fn clear(&mut self) {
        self.candidates.clear();
        self.boxless = false;
        self.keypoints.clear();
        self.keypoint_rows.clear();
        self.keypoints_per_row = 0;
        self.angles.clear();
        self.angle_rows.clear();
        self.has_class_map = false;
        self.class_areas.clear();
        self.lost = 0;
        self.masks = None;
        self.values.clear();
    }

    /// Clips the boxes to the model's input.
    pub(super) fn clip(&mut self, (width, height): (u32, u32)) {
        let (width, height) = (width as f32, height as f32);
        for Candidate { box_in_input: [x1, y1, x2, y2], .. } in &mut self.candidates {
            (*x1, *x2) = (x1.clamp(0.0, width), x2.clamp(0.0, width));
            (*y1, *y2) = (y1.clamp(0.0, height), y2.clamp(0.0, height));
        }
    }

    /// Gives each survivor the mean of the keypoints of its `members`, weighted by their scores.
    pub(super) fn blend_keypoints(&mut self) {
        let Self { members, keypoint_rows, keypoints, keypoints_per_row: count, .. } = self;
        let start_of = |row: u32| keypoint_rows.binary_search(&row).ok().map(|index| index * *count);
        for group in members.chunk_by(|a, b| a.survivor == b.survivor) {
            // The survivor is the first and only survivor of its group, so no later group reads its points.
            let Some(start) = start_of(group[0].candidate.row) else { return };
            for k in 0..*count {
                let mean = |axis: fn(&InputKeypoint) -> f32| {
                    weighted_mean(group, |member| start_of(member.row).map_or(0.0, |start| axis(&keypoints[start + k])))
                };
                let (x, y) = (mean(|point| point.x), mean(|point| point.y));
                if x.is_finite() && y.is_finite() {
                    (keypoints[start + k].x, keypoints[start + k].y) = (x, y);
                }
            }
        }
    }

    /// Adds a candidate if all of its numbers are finite; returns whether it did.
    pub(super) fn push(&mut self, row: usize, class_id: u32, score: f32, box_in_input: [f32; 4]) -> bool {
        let finite = score.is_finite() && box_in_input.iter().all(|v| v.is_finite());
        if finite {
            self.candidates.push(Candidate { box_in_input, score, class_id, row: row as u32 });
        }
        finite
    }

    /// Adds the points of the candidate that was just added at `row`, or removes that candidate if a point is not finite. Rows
    /// come in ascending order.
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

    /// Rotates the box of the candidate that was just added at `row`, or removes that candidate if the angle is not finite. Rows
    /// come in ascending order.
    pub(super) fn push_angle(&mut self, row: usize, angle: f32) {
        let added = self.candidates.last();
        if added.is_some_and(|added| OrientedBox::from_upright(added.box_in_input, angle).is_finite()) {
            self.angles.push(angle);
            self.angle_rows.push(row as u32);
        } else {
            self.candidates.pop();
        }
    }
}

/// The pixels of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassArea {
    /// The class, counted from 0 without the background.
    pub class_id: u32,
    /// Its pixels.
    pub region: ClassRegion,
}

/// A keypoint of a candidate, in pixels of the model's input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InputKeypoint {
    /// In pixels of the model's input.
    pub x: f32,
    /// In pixels of the model's input.
    pub y: f32,
    /// The confidence, 0 to 1; `None` if the model does not return one.
    pub score: Option<f32>,
}
