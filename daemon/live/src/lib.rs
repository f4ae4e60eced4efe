//! Everything that clients watch live: messages as they are published, and images of the cameras.
//!
//! This crate does not depend on its clients: web pages, brokers and the trial of a new model use it in the same way. A lane
//! never waits here, and it keeps no frame unless a client wants an image of that camera.

pub mod broadcast;
mod camera_view;
mod encoder;
mod encoder_queue;
mod live;
mod preview_feed;
mod recent_events;

pub use self::broadcast::{Broadcast, Delivered, Filter, Subscription, Wanted};
pub use self::camera_view::{
    CameraView, ModelFrame, OwnedFrame, Picture, PictureStream, PreviewPhase, PreviewStatus, ViewError, Watch,
};
pub use self::live::{Live, LiveBundle};
pub use self::preview_feed::PreviewFeed;
pub use self::recent_events::{RECENT_EVENTS, RecentEvents, RuleKey};
