//! The tracker of one camera.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::oriented::OrientedBox;

use crate::assignment::{Assignment, PAIRS_PER_ROW};
use crate::camera_motion::{CameraMotion, LEAST_OBJECTS};
use crate::ids::TrackIds;
use crate::motion::{Shape, Span};
use crate::overlap::Placed;
use crate::parameters::Parameters;
use crate::track::{Track, TrackReport, TrackState};

/// Detections that a step looks at, those with the highest scores.
pub const MOST_OBSERVATIONS: usize = 1024;
/// Tracks that a tracker holds; while there are as many, none begins.
pub const MOST_TRACKS: usize = 2048;
/// Numbers of an embedding that is used.
const MOST_EMBEDDING: usize = 2048;
/// Seconds without a frame of which each counts as unseen.
const LONGEST_COUNTED: f64 = 1.0;
/// Seconds between frames from which an object may pass its own length, so that its new place need not overlap the expected one.
const FAR_APART: f64 = 0.25;
/// How far from the expected place an object may be then, in standard deviations, squared.
const MOST_SURPRISE: f64 = 3.0;
/// The least product of the ratios of its sides then.
const LEAST_SIZE_RATIO: f64 = 0.5;
/// Seconds that a track is looked for among detections with a low score after it was lost.
const LOW_AFTER_LOSS: f64 = 0.2;
/// How much later than the next frame a frame may come.
const LATEST: Duration = Duration::from_secs(1);
/// Seconds between frames before two are known.
const FIRST_INTERVAL: f64 = 1.0 / 30.0;

/// A detection, as a tracker needs it. Its mask and key points stay where they are: the tracker answers by its index.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// The box x1, y1, x2, y2 in pixels; may reach out of the frame.
    pub bounds: [f32; 4],
    /// The turned box, if the model turns its boxes: then this counts.
    pub oriented: Option<OrientedBox>,
    /// The confidence, 0 to 1.
    pub score: f32,
    /// The class.
    pub class_id: u32,
    /// What the object looks like, if the model says so: vectors of one length, whose angle is small for the same object.
    pub embedding: Option<&'a [f32]>,
}

/// The result of a step. Trackers may share one, whose memory is then in the cache more often.
#[derive(Debug, Default)]
pub struct Step {
    /// For each detection its track; `None` where it has none: its score is too low, it is a second box of an object, or it is no box.
    pub tracks: Vec<Option<TrackReport>>,
    /// Tracks that ended in this step.
    pub ended: Vec<TrackReport>,
}

/// A detection that can be tracked.
#[derive(Debug, Clone, Copy)]
struct Seen {
    index: usize,
    placed: Placed,
    score: f64,
    class_id: u32,
}

/// Which pairs a round of the association makes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Round {
    /// As [`Alike`](Self::Alike), with objects that were seen in the last frame: to see how the camera moved.
    Camera,
    /// Boxes that overlap, of a class that the track had.
    Alike,
    /// The same with little doubt: for low scores.
    Doubtful,
    /// Boxes that overlap much, of a class that the track never had.
    OtherClass,
    /// Boxes that need not overlap, between frames that are far apart.
    FarApart,
}

impl Round {
    /// Whether a track without a detection takes part, `elapsed` seconds after the last frame.
    fn takes(self, track: &Track, elapsed: f64) -> bool {
        let lost = track.state == TrackState::Lost;
        match self {
            Self::Camera => track.state == TrackState::Confirmed,
            Self::Alike => true,
            Self::Doubtful => track.state == TrackState::Confirmed || lost && track.unseen < LOW_AFTER_LOSS,
            // What was lost has not become something else meanwhile.
            Self::OtherClass => !lost,
            Self::FarApart => track.unseen <= elapsed.min(LONGEST_COUNTED),
        }
    }
}

/// Follows the objects of one camera.
///
/// [`step`](Self::step) takes 5 us for 20 objects and 0.5 ms for 500, and allocates only while its buffers grow.
#[derive(Debug)]
pub struct Tracker {
    parameters: Parameters,
    ids: Arc<TrackIds>,
    tracks: Vec<Track>,
    /// Seconds since the first frame, without the times that a clock was set back.
    now: f64,
    last: Option<Duration>,
    /// The usual seconds between frames.
    interval: f64,
}

/// What a step needs while it runs.
///
/// A daemon takes steps for many cameras on one thread, and between two of them does other work, so that a step costs mostly the waits
/// for memory. These buffers are one set for each thread, which is in the cache more often than a set for each tracker.
#[derive(Debug, Default)]
struct Scratch {
    /// Where each track is expected, or was just seen.
    placed: Vec<Placed>,
    seen: Vec<Seen>,
    /// Indices into `seen` of those without a track, in the round under way.
    high: Vec<usize>,
    low: Vec<usize>,
    /// The bounds and indices of tracks without a detection, in the round under way.
    candidates: Vec<([f64; 4], usize)>,
    /// The squared distances and columns of candidates near a detection.
    near: Vec<(f64, usize)>,
    order: Vec<usize>,
    /// The index of the track of each of `seen`.
    found: Vec<Option<usize>>,
    /// Embeddings of ended tracks, whose memory new ones take.
    spare: Vec<Vec<f32>>,
    assignment: Assignment,
    camera_motion: CameraMotion,
}

impl Scratch {
    /// Sorts the detections that can be tracked by their scores.
    fn take(&mut self, observations: &[Observation<'_>], parameters: &Parameters) {
        self.seen.clear();
        self.order.clear();
        let least = parameters.low_score.min(parameters.score);
        self.order.extend((0..observations.len()).filter(|&index| f64::from(observations[index].score) >= least));
        if self.order.len() > MOST_OBSERVATIONS {
            let by_score =
                |a: &usize, b: &usize| observations[*b].score.total_cmp(&observations[*a].score).then(a.cmp(b));
            self.order.select_nth_unstable_by(MOST_OBSERVATIONS, by_score);
            self.order.truncate(MOST_OBSERVATIONS);
            self.order.sort_unstable();
        }
        for &index in &self.order {
            let seen = &observations[index];
            if let Some(shape) = Shape::new(seen.bounds, seen.oriented) {
                let (placed, score) = (Placed::new(shape), f64::from(seen.score).min(1.0));
                self.seen.push(Seen { index, placed, score, class_id: seen.class_id });
            }
        }
        self.found.clear();
        self.found.resize(self.seen.len(), None);
        self.split(parameters.score);
    }

    /// Lists the detections by their scores.
    fn split(&mut self, score: f64) {
        self.high.clear();
        self.low.clear();
        for (index, seen) in self.seen.iter().enumerate() {
            if seen.score >= score { self.high.push(index) } else { self.low.push(index) }
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Tracker {
    /// Makes a tracker without tracks. Cameras share `ids`.
    pub fn new(parameters: Parameters, ids: Arc<TrackIds>) -> Self {
        Self { parameters, ids, tracks: Vec::new(), now: 0.0, last: None, interval: FIRST_INTERVAL }
    }

    /// Changes the parameters; the tracks go on.
    pub fn set_parameters(&mut self, parameters: Parameters) {
        self.parameters = parameters;
    }

    /// Returns the lost tracks, each where it is expected.
    pub fn lost(&self) -> impl Iterator<Item = TrackReport> + '_ {
        self.tracks.iter().filter(|track| track.state == TrackState::Lost).map(Track::report)
    }

    /// Takes in the detections of a frame of the time `at`, by any clock that usually goes ahead.
    ///
    /// A time up to a second before the last one is that of a late frame, and counts as the same time. One that is further back, from a
    /// clock that was set back, and one that is the same, from a clock that stands, count as the usual interval. After a span without a
    /// frame that is longer than 2.5 s, objects are looked for where they were last, so that what stands still keeps its id, and a clock
    /// that was set ahead does no harm.
    pub fn step(&mut self, at: Duration, observations: &[Observation<'_>], step: &mut Step) {
        SCRATCH.with_borrow_mut(|scratch| self.step_with(scratch, at, observations, step));
    }

    fn step_with(&mut self, scratch: &mut Scratch, at: Duration, observations: &[Observation<'_>], step: &mut Step) {
        let elapsed = self.advance(at);
        let span = Span::new(elapsed);
        scratch.placed.clear();
        for track in &mut self.tracks {
            track.predict(&span, elapsed.min(LONGEST_COUNTED), &self.parameters);
            scratch.placed.push(track.placed());
        }
        scratch.take(observations, &self.parameters);
        self.follow_camera(scratch, elapsed, observations);
        self.pair(scratch, Round::Alike, elapsed, observations);
        self.pair(scratch, Round::Doubtful, elapsed, observations);
        self.pair(scratch, Round::OtherClass, elapsed, observations);
        if elapsed > FAR_APART {
            self.pair(scratch, Round::FarApart, elapsed, observations);
        }
        self.update(scratch, observations);
        self.lose();
        self.begin(scratch, observations);
        self.report(scratch, observations.len(), step);
    }

    /// Moves the tracker's own clock; returns the seconds since the last frame.
    fn advance(&mut self, at: Duration) -> f64 {
        let Some(last) = self.last else {
            self.last = Some(at);
            return 0.0;
        };
        if at < last && last - at < LATEST {
            return 0.0;
        }
        self.last = Some(at);
        let elapsed = match at.checked_sub(last).filter(|span| !span.is_zero()) {
            Some(elapsed) => {
                let elapsed = elapsed.as_secs_f64();
                self.interval += 0.1 * (elapsed.min(LONGEST_COUNTED) - self.interval);
                elapsed
            }
            None => self.interval,
        };
        self.now += elapsed;
        elapsed
    }

    /// Moves all tracks as the camera moved.
    fn follow_camera(&mut self, scratch: &mut Scratch, elapsed: f64, observations: &[Observation<'_>]) {
        let confirmed = self.tracks.iter().filter(|track| Round::Camera.takes(track, elapsed)).count();
        if confirmed.min(scratch.high.len()) < LEAST_OBJECTS {
            return;
        }
        self.pair(scratch, Round::Camera, elapsed, observations);
        scratch.camera_motion.begin();
        for (seen, found) in scratch.seen.iter().zip(&mut scratch.found) {
            if let Some(track) = found.take() {
                let (at, expected) = (seen.placed.shape.center, scratch.placed[track].shape.center);
                scratch.camera_motion.add([at[0] - expected[0], at[1] - expected[1]]);
                self.tracks[track].matched = false;
            }
        }
        if let Some(shift) = scratch.camera_motion.shift() {
            for (track, placed) in self.tracks.iter_mut().zip(&mut scratch.placed) {
                track.shift(shift);
                *placed = track.placed();
            }
        }
        scratch.split(self.parameters.score);
    }

    /// Makes pairs of detections without a track, with high or low scores, and tracks without a detection.
    ///
    /// Once in the program, not once for each round: reading its instructions into the cache takes longer than executing them.
    #[inline(never)]
    fn pair(&mut self, scratch: &mut Scratch, round: Round, elapsed: f64, observations: &[Observation<'_>]) {
        let Scratch { placed, seen: all, high, low, candidates, near, found, assignment, .. } = scratch;
        let waiting = if round == Round::Doubtful { low } else { high };
        if waiting.is_empty() {
            return;
        }
        candidates.clear();
        let free = self.tracks.iter().enumerate().filter(|(_, track)| !track.matched && round.takes(track, elapsed));
        candidates.extend(free.map(|(index, _)| (placed[index].bounds, index)));
        if candidates.is_empty() {
            return;
        }
        // By their left edges, so that a box finds those near it.
        candidates.sort_unstable_by(|(a, i), (b, j)| a[0].total_cmp(&b[0]).then(i.cmp(j)));
        let widest = candidates.iter().map(|(bounds, _)| bounds[2] - bounds[0]).fold(0.0, f64::max);
        near.reserve(candidates.len());
        assignment.begin(candidates.len());
        for &detection in waiting.iter() {
            let seen = &all[detection];
            let embedding = observations[seen.index].embedding.filter(|values| values.len() <= MOST_EMBEDDING);
            let [left, top, right, bottom] = seen.placed.bounds;
            near.clear();
            let (from, to, touching) = match round {
                Round::FarApart => (0, candidates.len(), false),
                _ => (
                    candidates.partition_point(|(bounds, _)| bounds[0] < left - widest),
                    candidates.partition_point(|(bounds, _)| bounds[0] < right),
                    true,
                ),
            };
            for (column, (at, _)) in candidates.iter().enumerate().take(to).skip(from) {
                if !touching || left < at[2] && top < at[3] && at[1] < bottom {
                    let away =
                        |axis: usize| at[axis] + at[axis + 2] - seen.placed.bounds[axis] - seen.placed.bounds[axis + 2];
                    near.push((away(0).powi(2) + away(1).powi(2), column));
                }
            }
            // Boxes in one heap: the nearest will do.
            if near.len() > PAIRS_PER_ROW {
                near.select_nth_unstable_by(PAIRS_PER_ROW, |(a, i), (b, j)| a.total_cmp(b).then(i.cmp(j)));
                near.truncate(PAIRS_PER_ROW);
            }
            for &(_, column) in near.iter() {
                let (_, track) = candidates[column];
                let gain = gain(round, &self.tracks[track], &placed[track], seen, embedding, &self.parameters);
                assignment.pair(column, gain);
            }
            assignment.end_row();
        }
        let mut columns = assignment.solve();
        waiting.retain(|&detection| {
            let Some(column) = columns.next().flatten() else { return true };
            let (_, track) = candidates[column];
            found[detection] = Some(track);
            self.tracks[track].matched = true;
            false
        });
    }

    /// Takes the detections into their tracks.
    fn update(&mut self, scratch: &mut Scratch, observations: &[Observation<'_>]) {
        for (seen, found) in scratch.seen.iter().zip(&scratch.found) {
            let Some(index) = *found else { continue };
            let track = &mut self.tracks[index];
            let embedding = observations[seen.index].embedding.filter(|values| values.len() <= MOST_EMBEDDING);
            // One behind another object looks like that.
            let embedding = embedding.filter(|_| seen.score >= self.parameters.score);
            track.update(&seen.placed.shape, seen.class_id, seen.score, embedding, self.now, &self.parameters);
            track.state = TrackState::Confirmed;
            scratch.placed[index] = track.placed();
        }
    }

    /// Changes the states of tracks without a detection.
    fn lose(&mut self) {
        let unseen = self.parameters.unseen.as_secs_f64();
        for track in self.tracks.iter_mut().filter(|track| !track.matched) {
            track.state = match track.state {
                TrackState::Confirmed | TrackState::Lost if track.unseen <= unseen => TrackState::Lost,
                _ => TrackState::Ended,
            };
        }
    }

    /// Ends the tracks that were lost longest where new ones need their place.
    fn make_room(&mut self, scratch: &mut Scratch) {
        let alive = self.tracks.iter().filter(|track| track.state != TrackState::Ended).count();
        let over = (alive + scratch.high.len()).saturating_sub(MOST_TRACKS);
        if over == 0 {
            return;
        }
        scratch.near.clear();
        let lost = self.tracks.iter().enumerate().filter(|(_, track)| track.state == TrackState::Lost);
        scratch.near.extend(lost.map(|(index, track)| (track.unseen, index)));
        scratch.near.sort_unstable_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
        for &(_, index) in scratch.near.iter().take(over) {
            self.tracks[index].state = TrackState::Ended;
        }
    }

    /// Begins tracks of what has none.
    fn begin(&mut self, scratch: &mut Scratch, observations: &[Observation<'_>]) {
        let begins = self.parameters.begins();
        scratch.high.retain(|&detection| scratch.seen[detection].score >= begins);
        if scratch.high.is_empty() {
            return;
        }
        self.make_room(scratch);
        let parameters = &self.parameters;
        let mut alive = self.tracks.iter().filter(|track| track.state != TrackState::Ended).count();
        for &detection in &scratch.high {
            let seen = &scratch.seen[detection];
            let twin = |(track, placed): (&Track, &Placed)| {
                track.matched
                    && placed.iou_at_most(&seen.placed) >= parameters.duplicate_iou
                    && track.classes.share(seen.class_id) > 0.0
                    && placed.iou(&seen.placed) >= parameters.duplicate_iou
            };
            if alive >= MOST_TRACKS || self.tracks.iter().zip(&scratch.placed).any(twin) {
                continue;
            }
            alive += 1;
            let mut track =
                Track::new(self.ids.take(), seen.placed.shape, seen.class_id, seen.score, self.now, parameters);
            if seen.score >= parameters.confirms() {
                track.state = TrackState::Confirmed;
            }
            let embedding = observations[seen.index].embedding.filter(|values| values.len() <= MOST_EMBEDDING);
            if embedding.is_some() {
                track.embedding = scratch.spare.pop().unwrap_or_default();
                track.remember(embedding);
            }
            scratch.found[detection] = Some(self.tracks.len());
            scratch.placed.push(track.placed());
            self.tracks.push(track);
        }
    }

    /// Writes what the step returns, and forgets ended tracks.
    fn report(&mut self, scratch: &mut Scratch, observations: usize, step: &mut Step) {
        step.tracks.clear();
        step.tracks.resize(observations, None);
        for (seen, found) in scratch.seen.iter().zip(&scratch.found) {
            if let (Some(report), Some(track)) = (step.tracks.get_mut(seen.index), found) {
                *report = Some(self.tracks[*track].report());
            }
        }
        step.ended.clear();
        let mut index = 0;
        while index < self.tracks.len() {
            if self.tracks[index].state == TrackState::Ended {
                let mut track = self.tracks.swap_remove(index);
                step.ended.push(track.report());
                if track.embedding.capacity() > 0 {
                    track.embedding.clear();
                    scratch.spare.push(track.embedding);
                }
            } else {
                index += 1;
            }
        }
    }
}

/// How much better a pair is than none, 0 to 1.
fn gain(
    round: Round,
    track: &Track,
    placed: &Placed,
    seen: &Seen,
    embedding: Option<&[f32]>,
    parameters: &Parameters,
) -> f64 {
    let share = || track.classes.share(seen.class_id);
    if round == Round::FarApart {
        let ratio = placed.size_ratio(&seen.placed);
        if ratio < LEAST_SIZE_RATIO || share() == 0.0 {
            return 0.0;
        }
        let surprise = track.surprise(&seen.placed.shape, parameters);
        return if surprise < MOST_SURPRISE { ratio * (1.0 - surprise / MOST_SURPRISE) } else { 0.0 };
    }
    let share = share();
    let (least, known) = match round {
        Round::Camera | Round::Alike => (parameters.least_similarity, share > 0.0),
        Round::Doubtful => (parameters.least_similarity_doubtful, share > 0.0),
        Round::OtherClass | Round::FarApart => (parameters.least_similarity_doubtful, share == 0.0),
    };
    if !known || placed.iou_at_most(&seen.placed) <= least {
        return 0.0;
    }
    let mut similarity = placed.similarity(&seen.placed, parameters.height_power);
    if round != Round::OtherClass {
        // Of two tracks at one place, the one that more often had this class.
        similarity *= 0.5 + 0.5 * share;
    }
    if let Some(cosine) = track.resemblance(embedding) {
        similarity *= 1.0 - parameters.embedding_weight * (1.0 - cosine).min(1.0);
    }
    ((similarity - least) / (1.0 - least)).clamp(0.0, 1.0)
}
