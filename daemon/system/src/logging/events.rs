//! MESSAGE_IDs of the journal: `journalctl MESSAGE_ID=…` finds every such line, regardless of its text.
//!
//! Pass one in the call: `log::warn!(message_id = events::CAMERA_LOST; "…")`. docs/operations.md lists them; they never change.

/// A camera stopped delivering frames, or could not be opened.
pub const CAMERA_LOST: &str = "c081cd992ee44c2fa53f1afd157b5a6a";
/// A camera delivers frames, for the first time or again.
pub const CAMERA_STREAMING: &str = "81cc4fe4614943dba0b8531c4fc81c22";
/// The process lost the GPU and ends.
pub const GPU_LOST: &str = "aee0d74f846e42dab1e2bb3023233b2a";
/// A model or a camera hangs, so visiond no longer resets the watchdog of systemd.
pub const HANG: &str = "bffd555b2c8e482eaf825c74d2c6ae40";
