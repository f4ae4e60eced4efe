//! Events: tracks that cross lines, enter zones, stay there, move there, and leave or take things.
//!
//! A [`Scene`] applies [`Rule`]s to the tracks of one camera. Each [`Scene::step`] takes the time of a frame and the objects in it, and
//! returns [`Event`]s. There is no thread, no input or output and no clock in here, and a step allocates nothing once its buffers have
//! grown.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use visiond_events::{Kind, Object, Phase, Rule, Scene};
//!
//! let door = Kind::Line { points: vec![[100.0, 300.0], [500.0, 300.0]], sides: ["street".into(), "shop".into()] };
//! let mut scene = Scene::new([1280, 720], vec![Rule::new("door", door)], Arc::default())?;
//! let mut events = Vec::new();
//! let mut seen = Vec::new();
//! for frame in 0..20_u16 {
//!     let bottom = 200.0 + 10.0 * f32::from(frame);
//!     let person = Object { track: 1, bounds: [280.0, bottom - 80.0, 320.0, bottom], class_id: 0, score: 0.9 };
//!     scene.step(Duration::from_millis(40) * u32::from(frame), &[person], &[], &mut events);
//!     seen.extend(events.iter().map(|event| (event.phase, event.to.as_deref().map(str::to_owned))));
//! }
//! assert_eq!(seen, [(Phase::Moment, Some("shop".to_owned()))]);
//! # Ok::<(), visiond_events::RuleError>(())
//! ```
//!
//! # Method
//! 1. **Whole numbers.** Positions are rounded to 1/256 px and times are whole nanoseconds, so that every comparison is exact
//!    ([`geometry`]). Only [`Kind::Speed`] computes with fractions.
//! 2. **Evidence.** A state changes when an object is seen in its new state for `settle`: from the first sighting to the last, both of the
//!    same state. What happens between two sightings is not guessed, except that a path between them is straight.
//! 3. **Gaps.** A rule takes an object that it has not seen for at most `hold` to be as it was. After a longer gap it begins again.
//!
//! # Bounds
//! A scene holds [`MOST_TRACKS`] tracks; beyond these, those that were unseen longest end. All rules together take 96 bytes for each track, and
//! each rule that is near it at most 256, 320 more if it measures speed, and 288 more for the path of an event. [`Scene::step`] says what a step costs.

mod clock;
mod crossing;
mod event;
mod geometry;
mod glance;
mod object;
mod path;
mod plane;
mod rule;
mod runner;
mod scene;
mod settled;
mod stillness;
mod tracks;
mod visit;
mod watch;
mod wrong_way;

pub use event::{Counters, EndReason, Event, EventIds, Phase};
pub use object::{Anchor, Filter, Object};
pub use path::{MOST_PATH_POINTS, Path};
pub use plane::is_plane;
pub use rule::{Belonging, Kind, MOST_POINTS, MOST_RULES, Rule, RuleError};
pub use scene::Scene;
pub use tracks::{MOST_TRACKS, PARKED_AFTER, PARKED_UNSEEN};
