//! The settings of a tracker.

use std::time::Duration;

/// The settings of a [`Tracker`](crate::Tracker).
///
/// Users set `unseen` and `score`. The rest are constants of the method, chosen where a change by a third either way changes little:
/// `docs/tracks.md` has the figures. Lengths are in sides of the object (the square root of its area), so that the size of the frame does
/// not matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// How long an object may be unseen before its track ends; 2.5 s. It moves on for 2.5 s at most, then stays. Of a span without any frame, one second at most counts: without
    /// frames there is no sign that the object left.
    pub unseen: Duration,
    /// The score from which a detection keeps a track by itself, 0 to 1; 0.6.
    pub score: f64,
    /// The score from which a detection may keep a track that no better one fits; 0.1.
    pub low_score: f64,
    /// How much more than `score` a detection needs to begin a track; 0.1.
    pub margin_to_begin: f64,
    /// How much more than `score` a detection needs for a track that is confirmed at once; 0.2.
    pub margin_to_confirm: f64,
    /// Similarity above which a detection with a high score fits a track, 0 to 1; 0.1.
    pub least_similarity: f64,
    /// Similarity above which one with a low score fits, and one of a class that the track never had; 0.5.
    pub least_similarity_doubtful: f64,
    /// The power of the vertical IoU by which the IoU is multiplied; 2.
    pub height_power: i32,
    /// How much an embedding counts: a similarity is multiplied by 1 at equal embeddings, by 1 less this at a right angle; 0.5.
    pub embedding_weight: f64,
    /// The IoU from which a detection begins no track beside one of its class that the frame shows; 0.85.
    pub duplicate_iou: f64,
    /// Standard deviation of a detected box's centre and size, in sides; 0.1.
    pub measurement_deviation: f64,
    /// Variance of the position that the velocity does not explain, in sides squared per second; 0.3.
    pub position_noise: f64,
    /// Variance of the velocity, in (sides per second) squared per second; 3.
    pub velocity_noise: f64,
    /// Standard deviation of the velocity of a new object, in sides per second; 3.
    pub first_velocity: f64,
}

impl Parameters {
    /// The score from which a detection begins a track.
    pub(crate) fn begins(&self) -> f64 {
        (self.score + self.margin_to_begin).min(1.0)
    }

    /// The score from which a track is confirmed at its first detection.
    pub(crate) fn confirms(&self) -> f64 {
        (self.score + self.margin_to_confirm).min(1.0)
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            unseen: Duration::from_millis(2500),
            score: 0.6,
            low_score: 0.1,
            margin_to_begin: 0.1,
            margin_to_confirm: 0.2,
            least_similarity: 0.1,
            least_similarity_doubtful: 0.5,
            height_power: 2,
            embedding_weight: 0.5,
            duplicate_iou: 0.85,
            measurement_deviation: 0.1,
            position_noise: 0.3,
            velocity_noise: 3.0,
            first_velocity: 3.0,
        }
    }
}
