//! A camera's controls (exposure, gain, focus, ...): lists them, and sets them as configured.
//!
//! A control has the name that v4l2-ctl gives it, `exposure_time_absolute` for "Exposure Time, Absolute". The names that older
//! kernels had for some USB camera controls work as well. visiond logs a control that is configured wrongly, and streams without
//! it: a camera with a wrong exposure is better than no camera.

mod control;
mod ioctl;
mod resolve;
mod setter;

use std::collections::BTreeMap;

use visiond_config::types::ControlValue;

use super::device::Node;
use resolve::resolve;

pub(super) use control::FrameRateControl;
pub use control::{Control, ControlKind, MenuItem, Value};
pub use ioctl::list;
pub(super) use setter::ControlSetter;

/// Returns what is wrong with `wanted`: the control's configured name, and a sentence. Changes nothing.
pub fn wrong(node: &Node, wanted: &BTreeMap<String, ControlValue>) -> Vec<(String, String)> {
    let Ok(controls) = list(node) else { return Vec::new() };
    resolve(&controls, wanted).1
}

#[cfg(test)]
mod tests;
