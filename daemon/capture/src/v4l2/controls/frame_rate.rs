//! The control that sets the frame rate, of drivers that have no other way to set it.

use super::control::{Control, Value};

/// The control's name.
pub(super) const FRAME_RATE: &str = "frame_rate";

/// The control `frame_rate` of NVIDIA's sensor drivers: frames per second times a factor.
#[derive(Debug, Clone, Copy)]
pub struct FrameRateControl<'a> {
    /// The control itself.
    pub control: &'a Control,
    factor: f64,
}

impl<'a> FrameRateControl<'a> {
    /// Finds the control among a camera's controls.
    ///
    /// The factor is `framerate_factor` of the sensor's device tree: 1000000 in all of NVIDIA's, 1 if it is left out
    /// (sensor_common.c, `sensor_common_parse_control_props`). The driver does not return it, but the highest rate tells: no
    /// sensor has more than 1000 frames per second, and none has a factor below one.
    pub fn among(controls: &'a [Control]) -> Option<Self> {
        let control = controls.iter().find(|control| control.name == FRAME_RATE)?;
        let factor = match control.maximum {
            1_000_000.. => 1e6,
            1_001..1_000_000 => 1e3,
            _ => 1.0,
        };
        Some(Self { control, factor })
    }

    /// Returns the value for `fps`, or the nearest that the camera accepts.
    pub fn value(&self, fps: f64) -> i64 {
        // Far below what a 64-bit number holds: `fps` is at most 1000.
        ((fps * self.factor).round() as i64).clamp(self.control.minimum, self.control.maximum)
    }

    /// Converts a value to frames per second.
    pub fn fps(&self, value: i64) -> f64 {
        value as f64 / self.factor
    }

    /// Returns the frames per second that are set now.
    pub fn now(&self) -> Option<f64> {
        match self.control.value {
            Some(Value::Number(value)) if value > 0 => Some(self.fps(value)),
            _ => None,
        }
    }
}
