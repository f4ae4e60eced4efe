//! Tracks: which detections of successive frames are the same object.
//!
//! A [`Tracker`] follows the objects of one camera. Each [`Tracker::step`] takes the time of a frame and its detections, and returns for
//! each detection the track that it belongs to. There is no thread, no input or output and no clock in here, and a step allocates
//! nothing once its buffers have grown.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use visiond_tracker::{Observation, Parameters, Step, Tracker};
//!
//! let (mut tracker, mut step) = (Tracker::new(Parameters::default(), Arc::default()), Step::default());
//! for frame in 0..10_u16 {
//!     let left = 5.0 * f32::from(frame);
//!     let person = Observation { bounds: [left, 20.0, left + 40.0, 120.0], oriented: None, score: 0.9, class_id: 0, embedding: None };
//!     tracker.step(Duration::from_millis(40) * u32::from(frame), &[person], &mut step);
//!     assert_eq!(step.tracks[0].map(|track| track.id), Some(1));
//! }
//! ```
//!
//! # Method
//! 1. **Motion in real time.** A Kalman filter of constant velocity per box side and centre ([`motion`]) takes the seconds since the
//!    last frame, so that dropped frames and changing rates are no fault.
//! 2. **Motion of the camera** ([`camera_motion`]). Where most predictions are off by the same distance, the camera moved: all tracks
//!    are moved with it, those out of sight too.
//! 3. **Association in two stages**, as in ByteTrack (Zhang et al. 2022, <https://arxiv.org/abs/2110.06864>): first detections with a high
//!    score, then the tracks that are left with those of a low score, which are often objects that another one covers. The similarity
//!    ([`overlap`]) is IoU with a weight on the height, as in Hybrid-SORT (Yang et al. 2024, <https://arxiv.org/abs/2308.00783>), and takes
//!    classes by their votes and, where the model gives some, embeddings into account. Each stage is solved exactly ([`assignment`]).
//! 4. **Life.** A track is tentative, confirmed at its second detection or by one of a high score, lost while it is not seen, and ended
//!    after [`Parameters::unseen`].
//!
//! # Bounds
//! A step looks at [`MOST_OBSERVATIONS`] detections, those with the highest scores, and a tracker holds [`MOST_TRACKS`] tracks. Boxes that
//! are empty or not finite get no track.

mod assignment;
mod camera_motion;
mod class_votes;
mod ids;
mod motion;
mod overlap;
mod parameters;
mod track;
mod tracker;

pub use ids::TrackIds;
pub use parameters::Parameters;
pub use track::{TrackReport, TrackState};
pub use tracker::{MOST_OBSERVATIONS, MOST_TRACKS, Observation, Step, Tracker};
