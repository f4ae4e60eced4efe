//! One track, from its first detection to its end.

use visiond_kernels::oriented::OrientedBox;

use crate::class_votes::ClassVotes;
use crate::motion::{Motion, Shape, Span};
use crate::overlap::{Placed, cosine};
use crate::parameters::Parameters;

/// The part of an embedding that a new one replaces, as in DeepSORT's successors (StrongSORT, <https://arxiv.org/abs/2202.13514>).
const EMBEDDING_NEW: f32 = 0.1;

/// Seconds for which a constant velocity says where an object is.
const LONGEST_PREDICTED: f64 = 2.5;

/// How sure it is that a track is an object, and whether it is in sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackState {
    /// Seen once, with a score that is not high: perhaps an error of the detector.
    Tentative,
    /// An object.
    Confirmed,
    /// An object that the last frame does not show.
    Lost,
    /// Over: its id does not come back.
    Ended,
}

/// What is known of a track after a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrackReport {
    /// Its id, which no other track of this process has.
    pub id: u64,
    /// Its state.
    pub state: TrackState,
    /// Time from its first detection to its last, in milliseconds.
    pub age_ms: u64,
    /// Velocity of the centre in pixels per second.
    pub velocity: [f32; 2],
    /// The class with the most votes of its detections.
    pub class_id: u32,
    /// The box x1, y1, x2, y2 without the detector's jitter; may reach out of the frame. Where an object is expected that is lost.
    pub smooth: [f32; 4],
    /// The turned box without jitter, if detections have one.
    pub smooth_oriented: Option<OrientedBox>,
}

/// A track and its filter.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) id: u64,
    pub(crate) state: TrackState,
    pub(crate) classes: ClassVotes,
    motion: Motion,
    /// Times by the tracker's own clock, in seconds.
    born: f64,
    pub(crate) seen: f64,
    /// Seconds that frames were looked at without it.
    pub(crate) unseen: f64,
    /// Whether the frame of this step shows it.
    pub(crate) matched: bool,
    pub(crate) embedding: Vec<f32>,
}

impl Track {
    pub(crate) fn new(id: u64, shape: Shape, class_id: u32, score: f64, now: f64, parameters: &Parameters) -> Self {
        Self {
            id,
            state: TrackState::Tentative,
            classes: ClassVotes::new(class_id, score),
            motion: Motion::new(&shape, parameters),
            born: now,
            seen: now,
            unseen: 0.0,
            matched: true,
            embedding: Vec::new(),
        }
    }

    /// Moves ahead by `span`, of which `counted` seconds count as unseen. Stays where it is, if the span is too long to say where it
    /// went; a lost one moves for [`LONGEST_PREDICTED`].
    pub(crate) fn predict(&mut self, span: &Span, counted: f64, parameters: &Parameters) {
        let unseen_before = self.unseen;
        self.unseen += counted;
        self.matched = false;
        if span.seconds > LONGEST_PREDICTED || unseen_before <= LONGEST_PREDICTED && self.unseen > LONGEST_PREDICTED {
            self.motion.hold(parameters);
        } else if span.seconds > 0.0 && self.unseen <= LONGEST_PREDICTED {
            self.motion.predict(span, parameters);
        }
    }

    pub(crate) fn shift(&mut self, by: [f64; 2]) {
        self.motion.shift(by);
    }

    pub(crate) fn update(
        &mut self,
        shape: &Shape,
        class_id: u32,
        score: f64,
        embedding: Option<&[f32]>,
        now: f64,
        parameters: &Parameters,
    ) {
        self.motion.update(shape, parameters);
        self.classes.vote(class_id, score);
        self.remember(embedding);
        self.seen = now;
        self.unseen = 0.0;
        self.matched = true;
    }

    /// Mixes an embedding into that of the track; one of another length takes its place.
    pub(crate) fn remember(&mut self, embedding: Option<&[f32]>) {
        let Some(new) = embedding else { return };
        let length = new.iter().map(|value| value * value).sum::<f32>().sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return;
        }
        if self.embedding.len() == new.len() {
            for (old, new) in self.embedding.iter_mut().zip(new) {
                *old += EMBEDDING_NEW * (new / length - *old);
            }
        } else {
            self.embedding.clear();
            self.embedding.extend(new.iter().map(|value| value / length));
        }
    }

    /// The cosine of its embedding and another one.
    pub(crate) fn resemblance(&self, embedding: Option<&[f32]>) -> Option<f64> {
        cosine(&self.embedding, embedding?)
    }

    /// See [`Motion::surprise`].
    pub(crate) fn surprise(&self, seen: &Shape, parameters: &Parameters) -> f64 {
        self.motion.surprise(seen, parameters)
    }

    /// Where it is expected, or was just seen.
    pub(crate) fn placed(&self) -> Placed {
        Placed::new(self.motion.shape())
    }

    /// How long it has been known, in seconds.
    pub(crate) fn age(&self) -> f64 {
        self.seen - self.born
    }

    pub(crate) fn report(&self) -> TrackReport {
        let shape = self.motion.shape();
        TrackReport {
            id: self.id,
            state: self.state,
            age_ms: (self.age() * 1000.0).round() as u64,
            velocity: self.motion.velocity().map(|pixels| pixels as f32),
            class_id: self.classes.class_id(),
            smooth: shape.bounds().map(|at| at as f32),
            smooth_oriented: shape.oriented(),
        }
    }
}
