use std::fmt;

use serde::Serialize;

/// A control of a camera, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    #[serde(skip)]
    pub(super) id: u32,
    /// The name as v4l2-ctl and the configuration spell it.
    pub name: String,
    /// The name as the driver spells it.
    pub title: String,
    /// The type of its values.
    #[serde(rename = "type")]
    pub kind: ControlKind,
    /// The smallest value; for text, the shortest length.
    pub minimum: i64,
    /// The largest value; for text, the longest length; for a bitmask, all bits that may be set.
    pub maximum: i64,
    /// The driver rounds values to multiples of this.
    pub step: u64,
    /// The driver's default.
    pub default: i64,
    /// A menu's items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<MenuItem>,
    /// The current value; `None` if it cannot be read.
    pub value: Option<Value>,
    /// The control cannot be set.
    pub read_only: bool,
    /// The control cannot be read.
    pub write_only: bool,
    /// The control has no effect now, because an automatic mode or another mode overrides it.
    pub inactive: bool,
    /// Setting it changes other controls, so it is set first.
    #[serde(skip)]
    pub(super) changes_others: bool,
    /// The hardware changes its value at any time.
    #[serde(skip)]
    pub(super) volatile: bool,
}

/// One item of a menu.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MenuItem {
    /// The value that selects it.
    pub index: i64,
    /// Its name, or its value in a menu of numbers.
    pub text: String,
}

/// The type of a control's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// A 32-bit number.
    Integer,
    /// On or off.
    Boolean,
    /// One item of a menu.
    Menu,
    /// One item of a menu of numbers.
    IntegerMenu,
    /// An action.
    Button,
    /// A 64-bit number.
    Integer64,
    /// Text.
    String,
    /// A bitmask.
    Bitmask,
    /// An array or structure, which visiond cannot set.
    Compound,
}

impl fmt::Display for MenuItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.index, self.text)
    }
}

impl Control {
    /// Returns which values the control accepts, for `probe` and errors.
    pub fn takes(&self) -> String {
        let Self { minimum, maximum, step, .. } = self;
        match self.kind {
            ControlKind::Integer | ControlKind::Integer64 if *step > 1 => {
                format!("{minimum} to {maximum} in steps of {step}")
            }
            ControlKind::Integer | ControlKind::Integer64 => format!("{minimum} to {maximum}"),
            ControlKind::Boolean => "true or false".to_owned(),
            ControlKind::Menu | ControlKind::IntegerMenu => {
                self.items.iter().map(MenuItem::to_string).collect::<Vec<_>>().join(", ")
            }
            ControlKind::Button => "true, which presses it".to_owned(),
            ControlKind::String if minimum == maximum => format!("text of {maximum} bytes"),
            ControlKind::String => format!("text of {minimum} to {maximum} bytes"),
            ControlKind::Bitmask => format!("bits of {maximum:#x}"),
            ControlKind::Compound => "an array or structure, which cannot be set here".to_owned(),
        }
    }

    /// Returns a value for people; for a menu, with the item's name.
    pub fn show(&self, value: &Value) -> String {
        match (self.kind, value) {
            (ControlKind::Menu | ControlKind::IntegerMenu, Value::Number(number)) => self
                .items
                .iter()
                .find(|item| item.index == *number)
                .map_or_else(|| number.to_string(), MenuItem::to_string),
            (ControlKind::Boolean, Value::Number(number)) => (*number != 0).to_string(),
            (ControlKind::Bitmask, Value::Number(number)) => format!("{number:#x}"),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Text(text)) => format!("{text:?}"),
        }
    }

    /// Whether NVIDIA's capture unit or the sensor's mode uses the control, and not the streaming sensor.
    pub(super) fn is_captures(&self) -> bool {
        // `TEGRA_CAMERA_CID_*` of tegra-v4l2-camera.h: HDR_EN and SENSOR_MODE_ID, and VI_BYPASS_MODE to SENSOR_MODES.
        let number = self.id.wrapping_sub(TEGRA_BASE);
        number == 4 || number == 8 || (100..=130).contains(&number)
    }

    /// Whether each mode of a sensor on NVIDIA's capture unit has its own default for the control.
    pub(super) fn is_modes(&self) -> bool {
        // GAIN, EXPOSURE, FRAME_RATE and EXPOSURE_SHORT: tegracam_init_ctrl_ranges_by_mode in tegracam_ctrls.c.
        (9..=12).contains(&self.id.wrapping_sub(TEGRA_BASE))
    }

    /// Returns the driver's default for people; `None` for controls without one.
    pub fn show_default(&self) -> Option<String> {
        let has = !matches!(self.kind, ControlKind::Button | ControlKind::String | ControlKind::Compound);
        has.then(|| self.show(&Value::Number(self.default)))
    }
}

/// `TEGRA_CAMERA_CID_BASE` of tegra-v4l2-camera.h.
const TEGRA_BASE: u32 = 0x009a_2000;

/// A control's value in the driver's terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number; for a switch 0 or 1, for a menu the item's index.
    Number(i64),
    /// Text.
    Text(String),
}

/// Spells a driver's title as v4l2-ctl does: letters and digits in lower case, one `_` for everything between.
pub fn spelled(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

/// The control that sets the frame rate, of drivers that have no other way to set it.
pub(super) const FRAME_RATE: &str = "frame_rate";

/// NVIDIA's control that applies the stored values when the sensor starts.
pub(super) const OVERRIDE: &str = "override_enable";

/// The control `frame_rate` of NVIDIA's sensor drivers: frames per second times a factor.
#[derive(Debug, Clone, Copy)]
pub struct FrameRateControl<'a> {
    pub control: &'a Control,
    factor: f64,
    /// Whether the sensor starts with the stored values of its controls, and not with those of its mode.
    is_override: bool,
}

impl<'a> FrameRateControl<'a> {
    /// Finds the control among a camera's controls.
    ///
    /// The factor is `framerate_factor` of the sensor's device tree: 1000000 in all of NVIDIA's, 1 if it is left out
    /// (sensor_common.c, `sensor_common_parse_control_props`). The driver does not return it, but it follows from the highest rate: no
    /// sensor has more than 1000 frames per second, and none has a factor below one.
    pub fn among(controls: &'a [Control]) -> Option<Self> {
        let control = controls.iter().find(|control| control.name == FRAME_RATE)?;
        let factor = match control.maximum {
            1_000_000.. => 1e6,
            1_001..1_000_000 => 1e3,
            _ => 1.0,
        };
        let is_override = controls
            .iter()
            .find(|control| control.name == OVERRIDE)
            .is_none_or(|control| control.value != Some(Value::Number(0)));
        Some(Self { control, factor, is_override })
    }

    /// Returns the value for `fps`, or the nearest that the camera accepts.
    pub fn value(&self, fps: f64) -> i64 {
        // Far below the maximum of a 64-bit number: `fps` is at most 1000.
        ((fps * self.factor).round() as i64).clamp(self.control.minimum, self.control.maximum)
    }

    /// Converts a value to frames per second.
    pub fn fps(&self, value: i64) -> f64 {
        value as f64 / self.factor
    }

    /// Returns the frames per second that the sensor would start with: the rate that is set, or its mode's highest.
    pub fn now(&self) -> Option<f64> {
        match self.control.value {
            _ if !self.is_override => Some(self.fps(self.control.maximum)),
            Some(Value::Number(value)) if value > 0 => Some(self.fps(value)),
            _ => None,
        }
    }
}
