//! What happened, as the journal's MESSAGE_ID: `journalctl MESSAGE_ID=…` finds every such line, whatever its words.
//!
//! Given with the call: `log::warn!(message_id = events::CAMERA_LOST; "…")`. The numbers are in docs/operations.md and do not
//! change.

/// A camera gave no frames any more, or could not be opened.
pub const CAMERA_LOST: &str = "c081cd992ee44c2fa53f1afd157b5a6a";
/// A camera gives frames: for the first time, or again.
pub const CAMERA_STREAMING: &str = "81cc4fe4614943dba0b8531c4fc81c22";
/// The GPU is lost to the process, which ends.
pub const GPU_LOST: &str = "aee0d74f846e42dab1e2bb3023233b2a";
/// A network or a camera hangs; systemd gets no sign of life.
pub const HANG: &str = "bffd555b2c8e482eaf825c74d2c6ae40";
