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
pub(super) use control::spelled;
pub use control::{Control, ControlKind, MenuItem, Value};
pub use ioctl::list;
pub(super) use ioctl::numbers;
pub(super) use setter::ControlSetter;

/// Returns what is wrong with `wanted`: the control's configured name, and a sentence. Changes nothing.
pub fn wrong(node: &Node, wanted: &BTreeMap<String, ControlValue>) -> Vec<(String, String)> {
    let Ok(controls) = list(node) else { return Vec::new() };
    resolve(&controls, wanted).1
}

/// Saves the settings of the capture unit, of the sensor's mode and of other controls, which such drivers keep from program to
/// program, and restores them when dropped.
pub struct KeptControls<'a> {
    node: &'a Node,
    kept: Vec<Control>,
}

impl<'a> KeptControls<'a> {
    /// Reads the settings of `node`, and of its controls named in `others`. A driver without such controls has none to save.
    pub fn new(node: &'a Node, others: &[&str]) -> Self {
        let mut kept = list(node).unwrap_or_default();
        kept.retain(|control| control.is_captures() || others.contains(&control.name.as_str()));
        kept.retain(|control| !control.read_only && !control.write_only);
        Self { node, kept }
    }

    /// Sets the control `name`, if it is one of the saved ones.
    pub(super) fn set(&self, name: &str, value: i64) {
        if let Some(control) = self.kept.iter().find(|control| control.name == name) {
            // The formats that the driver then lists show whether it worked.
            let _ = ioctl::set(self.node, control, &Value::Number(value));
        }
    }
}

impl Drop for KeptControls<'_> {
    fn drop(&mut self) {
        for control in &self.kept {
            if let Some(value) = &control.value
                && ioctl::get(self.node, control).is_ok_and(|now| now != *value)
                && let Err(error) = ioctl::set(self.node, control, value)
            {
                log::warn!("{}: cannot restore {}: {error}", self.node.path().display(), control.name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
