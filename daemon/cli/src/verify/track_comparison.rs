//! Tracks the objects of videos by two models, and counts how often both have a detection in the same track.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use visiond_engine::compare::overlap;
use visiond_engine::detector::{Detection, Detector, MaskForm};
use visiond_frames::frame::Frame;
use visiond_message::Timings;
use visiond_pipeline::collector::{CameraTracks, FrameTracks, TrackBuffers, TrackSettings, message_of};
use visiond_pipeline::lane_result::{LaneResult, MaskFacts, ModelFacts};
use visiond_system::exit::ExitError;
use visiond_tracker::{TrackIds, TrackState};

use crate::mot_file::MotFile;

/// The least IoU of two boxes of an object, as IDF1 has it.
const SAME_OBJECT_IOU: f64 = 0.5;

/// A model after it ran on a frame, and its detections there, best first.
type Found<'a> = (&'a Detector, &'a [Detection]);

/// The tracks of two models in videos.
pub struct TrackComparison {
    sides: [Side; 2],
    pairs: TrackPairs,
    /// Takes the second model's tracks.
    pub mot: Option<MotFile>,
}

/// The tracks of one model.
struct Side {
    model: ModelFacts,
    ids: Arc<TrackIds>,
    tracks: CameraTracks,
    buffers: TrackBuffers,
}

impl Side {
    /// Tracks detections with a score of `threshold` or more.
    fn new(detector: &Detector, threshold: f32) -> Self {
        let model = ModelFacts {
            labels: detector.labels().to_vec(),
            keypoint_names: detector.keypoint_names().to_vec(),
            score_threshold: threshold,
            // Tracks need none.
            masks: MaskFacts { form: MaskForm::None, ..MaskFacts::default() },
            ..ModelFacts::default()
        };
        let ids = Arc::<TrackIds>::default();
        Self { model, tracks: CameraTracks::new(Arc::clone(&ids)), ids, buffers: TrackBuffers::default() }
    }

    /// Returns the model's result for a frame of a video, without detections below the threshold, and their tracks.
    fn step<'a>(&'a mut self, frame: &Frame, found: Found<'a>) -> (LaneResult<'a>, FrameTracks<'a>) {
        let Self { model, tracks, buffers, .. } = self;
        let (values, detections) = (found.0.values(), found.1);
        let counted = detections.iter().take_while(|detection| detection.score >= model.score_threshold).count();
        let detections = &detections[..counted];
        let result =
            LaneResult { frame: frame.facts(), model, detections, values, crops: &[], timings: Timings::default() };
        let tracks = tracks.step(&TrackSettings::default(), &result, buffers);
        (result, tracks)
    }
}

impl TrackComparison {
    /// Compares the tracks of detections with a score of `threshold` or more.
    pub fn new(models: [&Detector; 2], threshold: f32, mot: Option<MotFile>) -> Self {
        let sides = models.map(|detector| Side::new(detector, threshold));
        Self { sides, pairs: TrackPairs::default(), mot }
    }

    /// Starts a file.
    pub fn begin(&mut self) {
        for side in &mut self.sides {
            side.tracks = CameraTracks::new(Arc::clone(&side.ids));
        }
    }

    /// Adds what both models found in a frame of a video.
    pub fn add(&mut self, frame: &Frame, [a, b]: [Found<'_>; 2]) -> Result<(), ExitError> {
        let [first, second] = &mut self.sides;
        let (a, tracks_of_a) = first.step(frame, a);
        let (b, tracks_of_b) = second.step(frame, b);
        self.pairs.add(&confirmed(&a, tracks_of_a), &confirmed(&b, tracks_of_b));
        self.mot.as_mut().map_or(Ok(()), |mot| mot.frame(&message_of(&"verify".into(), &b, tracks_of_b)))
    }

    /// Returns how far the tracks are the same; `None` if there are none.
    pub fn agreement(&self) -> Option<TrackAgreement> {
        self.pairs.agreement()
    }
}

/// Returns the detections of a result that have confirmed tracks, with the ids of these.
fn confirmed<'a>(result: &LaneResult<'a>, tracks: FrameTracks<'_>) -> Vec<(u64, &'a Detection)> {
    let tracked = result.detections.iter().zip(tracks.reports);
    let confirmed = tracked.filter_map(|(detection, track)| {
        track.filter(|track| track.state == TrackState::Confirmed).map(|track| (track.id, detection))
    });
    confirmed.collect()
}

/// The tracks of two models, and the frames in which two of them show the same object.
#[derive(Debug, Default)]
struct TrackPairs {
    common: BTreeMap<[u64; 2], u64>,
    tracks: [BTreeSet<u64>; 2],
    detections: u64,
}

/// How far the tracks of two models are the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TrackAgreement {
    /// How many tracks each model has.
    pub first: usize,
    pub second: usize,
    /// The share of their detections in pairs of the same track, as IDF1 counts them.
    pub same: f64,
}

impl TrackPairs {
    /// Adds the detections of a frame by both models, each with the id of its track.
    fn add(&mut self, first: &[(u64, &Detection)], second: &[(u64, &Detection)]) {
        self.detections += (first.len() + second.len()) as u64;
        for (tracks, found) in self.tracks.iter_mut().zip([first, second]) {
            tracks.extend(found.iter().map(|(id, _)| *id));
        }
        for (a, detection) in first {
            let fits = |(_, other): &&(u64, &Detection)| overlap(detection, other).unwrap_or(0.0) >= SAME_OBJECT_IOU;
            for (b, _) in second.iter().filter(fits) {
                *self.common.entry([*a, *b]).or_default() += 1;
            }
        }
    }

    fn agreement(&self) -> Option<TrackAgreement> {
        // The longest pairs first: the best choice of all would have to look at every combination, and seldom differs.
        let mut pairs: Vec<_> = self.common.iter().collect();
        pairs.sort_by_key(|(_, frames)| Reverse(**frames));
        let mut taken = [BTreeSet::new(), BTreeSet::new()];
        let mut same = 0;
        for ([a, b], frames) in pairs {
            if !taken[0].contains(a) && !taken[1].contains(b) {
                taken[0].insert(*a);
                taken[1].insert(*b);
                same += frames;
            }
        }
        let [first, second] = self.tracks.each_ref().map(BTreeSet::len);
        let share = |same: u64| 2.0 * same as f64 / self.detections as f64;
        (self.detections > 0).then(|| TrackAgreement { first, second, same: share(same) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(left: f32) -> Detection {
        Detection { box_in_source: Some([left, 0.0, left + 10.0, 10.0]), ..Detection::default() }
    }

    #[test]
    fn two_tracks_are_the_same_in_the_frames_where_their_boxes_are() {
        let (mut pairs, mut swapped) = (TrackPairs::default(), TrackPairs::default());
        assert_eq!(pairs.agreement(), None);
        let (here, near, far) = (at(0.0), at(3.0), at(100.0));
        // Track 1 of the first model is 4 of the second in three frames, then 5 in two; a second object is the first model's only.
        for (id, frames) in [(4, 3), (5, 2)] {
            for _ in 0..frames {
                pairs.add(&[(1, &here), (2, &far)], &[(id, &near)]);
                swapped.add(&[(id, &near)], &[(1, &here)]);
            }
        }
        // Of 15 detections 2 x 3 are in the same pair of tracks.
        assert_eq!(pairs.agreement(), Some(TrackAgreement { first: 2, second: 2, same: 0.4 }));
        assert_eq!(swapped.agreement(), Some(TrackAgreement { first: 2, second: 1, same: 0.6 }));
        // Not half of the union is common.
        let mut apart = TrackPairs::default();
        apart.add(&[(1, &here)], &[(1, &at(4.0))]);
        assert_eq!(apart.agreement(), Some(TrackAgreement { first: 1, second: 1, same: 0.0 }));
    }

    #[test]
    fn a_track_belongs_to_one_pair_the_longest() {
        let (a, b) = (at(0.0), at(100.0));
        let mut pairs = TrackPairs::default();
        // The first model exchanges two ids after one frame of four.
        pairs.add(&[(1, &a), (2, &b)], &[(1, &a), (2, &b)]);
        for _ in 0..3 {
            pairs.add(&[(2, &a), (1, &b)], &[(1, &a), (2, &b)]);
        }
        assert_eq!(pairs.agreement(), Some(TrackAgreement { first: 2, second: 2, same: 0.75 }));
    }
}
