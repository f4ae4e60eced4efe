//! The data that visiond publishes: messages, camera states and the status. It holds only the structs and their JSON.

mod counted;
mod event;
mod ids;
mod message;
mod published;
mod state;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod values;

pub use self::event::{
    EVENT_SCHEMA, EventMessage, EventPhase, EventTotals, RuleTotals, camera_of_events, describe_topic, event_topic,
};
pub use self::ids::{event_id, next_message_id};
pub use self::message::{
    BoxMessage, DetectionMessage, KeypointMessage, MaskMessage, Message, MessageFrame, MessageModel, OrientedMessage,
    RleMessage, SCHEMA, Timings, TrackMessage, TrackMessageState, mask_bytes, topic,
};
pub use self::published::{Published, Receipt};
pub use self::state::{RuleSettingsMessage, SettingsMessage, StateMessage};
pub use self::values::{
    AttributeMessage, AttributesMessage, DepthMessage, EmbeddingMessage, LabelMessage, PlainAttribute,
};
