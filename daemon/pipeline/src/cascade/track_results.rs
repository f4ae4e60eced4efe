//! The results of tracks between two runs of a model on their crops.
//!
//! Each run of a track votes: for labels by their score, for numbers with their value; older votes count less. Embeddings, and lists
//! of labels, are those of the last run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use visiond_engine::detector::Detection;
use visiond_engine::heads::{AttributeValue, FrameValues, Reading, ScoredLabel};

use crate::lane_result::CropResults;

/// A box that has become larger than the one of the last run by this factor, by its area, has a new run.
const GROWTH: f32 = 1.5;
/// A detection whose score exceeds all that had a run by this much has a new run: it is seen better.
const BETTER: f32 = 0.05;
/// For this many times the usual time between two runs, results stay valid if there is no run: the model fails, or the box is too small.
const VALID: u32 = 3;
/// The part of each vote that the next one leaves: the last ten runs decide.
const KEPT: f32 = 0.9;
/// The labels of an attribute that a track remembers.
const LABELS: usize = 4;
/// The tracks that are remembered, of all cameras. Beyond these, half of them are forgotten, those that were seen longest ago.
const TRACKS: usize = 4096;

/// When a track needs a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It has no valid results.
    Now,
    /// Its results are valid, but at least half of their time has passed.
    Early {
        /// The age of the results.
        age: Duration,
    },
    /// Its results are new.
    Later,
}

/// The results of tracks, by their ids, which no two cameras share.
#[derive(Debug, Default)]
pub(super) struct TrackResults {
    tracks: HashMap<u64, TrackResult>,
    /// Counts uses, to forget those that were used longest ago.
    clock: u64,
}

/// The results of one track.
#[derive(Debug, Default)]
struct TrackResult {
    /// The time of the frame of the last run.
    at: Duration,
    /// The area of the box then.
    area: f32,
    /// The best score of all runs.
    best: f32,
    used: u64,
    votes: Vec<AttributeVotes>,
    /// The results of the votes.
    values: CropResults,
}

/// The votes for an attribute.
#[derive(Debug)]
struct AttributeVotes {
    name: Arc<str>,
    /// The weight of all votes.
    weight: f32,
    /// The labels and their sums.
    labels: Vec<(Arc<str>, f32)>,
    /// The sum of numbers.
    number: f32,
    last: Reading,
}

impl TrackResults {
    /// Returns when the detection of a track, in a frame of this time, needs a run.
    pub(super) fn due(&mut self, id: u64, detection: &Detection, now: Duration, refresh: Duration) -> Due {
        self.clock += 1;
        let Some(track) = self.tracks.get_mut(&id) else { return Due::Now };
        track.used = self.clock;
        // A recording that begins again has earlier frames.
        let age = now.checked_sub(track.at).unwrap_or(Duration::MAX);
        let is_better = detection.score > track.best + BETTER || area_of(detection) > track.area * GROWTH;
        if age >= refresh || is_better {
            Due::Now
        } else if age >= refresh / 2 {
            Due::Early { age }
        } else {
            Due::Later
        }
    }

    /// Adds the values of a run on the detection of a track, in a frame of this time.
    pub(super) fn add(&mut self, id: u64, detection: &Detection, now: Duration, values: Option<&FrameValues>) {
        if self.tracks.len() >= TRACKS && !self.tracks.contains_key(&id) {
            self.forget();
        }
        let track = self.tracks.entry(id).or_default();
        track.used = self.clock;
        track.at = now;
        track.area = area_of(detection);
        track.best = track.best.max(detection.score);
        let Some(values) = values else { return };
        for AttributeValue { name, reading } in &values.attributes {
            match track.votes.iter_mut().find(|votes| votes.name == *name) {
                Some(votes) => votes.add(reading),
                None => track.votes.push(AttributeVotes::new(name, reading)),
            }
        }
        let attributes = track.votes.iter().map(AttributeVotes::value).collect();
        let embedding = values.embedding.clone();
        track.values = CropResults::default();
        track.values.add_values(&FrameValues { attributes, embedding, ..FrameValues::NONE });
    }

    /// Returns the values of a track in a frame of this time; `None` if it had no run, or none for [`VALID`] times `refresh`.
    pub(super) fn values_of(&self, id: u64, now: Duration, refresh: Duration) -> Option<&CropResults> {
        let valid = |track: &&TrackResult| now.saturating_sub(track.at) <= refresh * VALID;
        self.tracks.get(&id).filter(valid).map(|track| &track.values)
    }

    /// Forgets the half that was used longest ago.
    fn forget(&mut self) {
        let mut used: Vec<_> = self.tracks.values().map(|track| track.used).collect();
        let middle = used.len() / 2;
        let (_, middle, _) = used.select_nth_unstable(middle);
        let middle = *middle;
        self.tracks.retain(|_, track| track.used >= middle);
    }
}

impl AttributeVotes {
    fn new(name: &Arc<str>, reading: &Reading) -> Self {
        let mut votes = Self {
            name: Arc::clone(name),
            weight: 0.0,
            labels: Vec::with_capacity(LABELS),
            number: 0.0,
            last: reading.clone(),
        };
        votes.add(reading);
        votes
    }

    /// Adds a vote. One for a label that is not among them takes the place of the weakest.
    fn add(&mut self, reading: &Reading) {
        self.weight = self.weight * KEPT + 1.0;
        self.labels.iter_mut().for_each(|(_, sum)| *sum *= KEPT);
        self.number *= KEPT;
        match reading {
            Reading::Label(ScoredLabel { label, score }) => {
                if let Some((_, sum)) = self.labels.iter_mut().find(|(known, _)| known == label) {
                    *sum += score;
                } else {
                    if self.labels.len() == LABELS {
                        let weakest = (0..LABELS).min_by(|&a, &b| self.labels[a].1.total_cmp(&self.labels[b].1));
                        weakest.map(|weakest| self.labels.swap_remove(weakest));
                    }
                    self.labels.push((Arc::clone(label), *score));
                }
            }
            Reading::Number(number) => self.number += number,
            Reading::Labels(_) => {}
        }
        self.last = reading.clone();
    }

    /// Returns the label with the most votes, with its mean score over all votes; the mean of numbers; the last list of labels.
    fn value(&self) -> AttributeValue {
        let best = self.labels.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let reading = match (&self.last, best) {
            (Reading::Label(_), Some((label, sum))) => {
                Reading::Label(ScoredLabel { label: Arc::clone(label), score: sum / self.weight })
            }
            (Reading::Number(_), _) => Reading::Number(self.number / self.weight),
            (last, _) => last.clone(),
        };
        AttributeValue { name: Arc::clone(&self.name), reading }
    }
}

/// Returns the area of a detection's box in pixels.
fn area_of(detection: &Detection) -> f32 {
    detection.box_in_source.map_or(0.0, |[x1, y1, x2, y2]| (x2 - x1) * (y2 - y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(tracks: &mut TrackResults, id: u64, reading: Reading) {
        let values = FrameValues {
            attributes: vec![AttributeValue { name: "age".into(), reading }],
            embedding: Vec::new(),
            ..FrameValues::NONE
        };
        tracks.due(id, &Detection::default(), Duration::ZERO, Duration::ZERO);
        tracks.add(id, &Detection::default(), Duration::ZERO, Some(&values));
    }

    #[test]
    fn numbers_have_their_mean_and_lists_of_labels_are_the_last() {
        let mut votes = AttributeVotes::new(&"age".into(), &Reading::Number(30.0));
        votes.add(&Reading::Number(40.0));
        let Reading::Number(mean) = votes.value().reading else { panic!("no number") };
        assert!((35.0..36.0).contains(&mean), "{mean}: the newer one counts more");
        let list = |labels: &[&str]| {
            Reading::Labels(labels.iter().map(|&label| ScoredLabel { label: label.into(), score: 0.5 }).collect())
        };
        let mut votes = AttributeVotes::new(&"wears".into(), &list(&["hat"]));
        votes.add(&list(&["coat", "bag"]));
        assert_eq!(votes.value().reading, list(&["coat", "bag"]));
    }

    #[test]
    fn a_track_remembers_four_labels() {
        let label = |label: &str| Reading::Label(ScoredLabel { label: label.into(), score: 0.5 });
        let mut votes = AttributeVotes::new(&"make".into(), &label("a"));
        ["b", "c", "d", "e", "f", "f"].iter().for_each(|one| votes.add(&label(one)));
        assert_eq!(votes.labels.len(), LABELS);
        let Reading::Label(best) = votes.value().reading else { panic!("no label") };
        assert_eq!(&*best.label, "f");
    }

    #[test]
    fn tracks_that_were_seen_longest_ago_are_forgotten() {
        let mut tracks = TrackResults::default();
        (0..TRACKS as u64).for_each(|id| add(&mut tracks, id, Reading::Number(1.0)));
        assert_eq!(tracks.due(0, &Detection::default(), Duration::ZERO, Duration::MAX), Due::Later);
        add(&mut tracks, 1 << 40, Reading::Number(1.0));
        assert!(tracks.tracks.len() <= TRACKS / 2 + 2, "{}", tracks.tracks.len());
        let values = |id| tracks.values_of(id, Duration::ZERO, Duration::from_secs(1)).is_some();
        assert!(values(0) && !values(1), "0 was seen again");
        assert!(tracks.values_of(0, Duration::from_secs(3), Duration::from_secs(1)).is_some());
        assert!(tracks.values_of(0, Duration::from_secs(4), Duration::from_secs(1)).is_none(), "no run for long");
    }
}
