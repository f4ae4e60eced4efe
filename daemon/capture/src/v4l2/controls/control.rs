//! A camera's control, as the driver describes it.

use std::fmt;

use serde::Serialize;

/// A control that a camera has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    #[serde(skip)]
    pub(super) id: u32,
    /// As v4l2-ctl spells it and the configuration has it.
    pub name: String,
    /// As the driver spells it.
    pub title: String,
    /// What its values are.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The least value; of text, the least length.
    pub minimum: i64,
    /// The greatest value; of text, the greatest length; of bits, all that may be set.
    pub maximum: i64,
    /// Values between are rounded by the driver.
    pub step: u64,
    /// The driver's.
    pub default: i64,
    /// A menu's items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<MenuItem>,
    /// As it is now; `None` where it cannot be read.
    pub value: Option<Value>,
    /// It can only be read.
    pub read_only: bool,
    /// It can only be written.
    pub write_only: bool,
    /// It has no effect now: an automatic mode has it, or a mode that does not use it.
    pub inactive: bool,
    /// A change of it changes others: it comes before them.
    #[serde(skip)]
    pub(super) changes_others: bool,
    /// Its value is the hardware's own at every moment.
    #[serde(skip)]
    pub(super) volatile: bool,
}

/// An item of a menu.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MenuItem {
    /// Its number.
    pub index: i64,
    /// What it is called; of a menu of numbers, the number.
    pub text: String,
}

/// What a control's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number.
    Integer,
    /// On or off.
    Boolean,
    /// One of some items.
    Menu,
    /// One of some numbers.
    IntegerMenu,
    /// Something that happens once.
    Button,
    /// A number of 64 bits.
    Integer64,
    /// Text.
    String,
    /// Bits.
    Bitmask,
    /// An array or a structure, which cannot be set here.
    Compound,
}

impl fmt::Display for MenuItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.index, self.text)
    }
}

impl Control {
    /// What it takes, as `probe` and errors have it.
    pub fn takes(&self) -> String {
        let Self { minimum, maximum, step, .. } = self;
        match self.kind {
            Kind::Integer | Kind::Integer64 if *step > 1 => format!("{minimum} to {maximum} in assignments of {step}"),
            Kind::Integer | Kind::Integer64 => format!("{minimum} to {maximum}"),
            Kind::Boolean => "true or false".to_owned(),
            Kind::Menu | Kind::IntegerMenu => self.items.iter().map(MenuItem::to_string).collect::<Vec<_>>().join(", "),
            Kind::Button => "true, which presses it".to_owned(),
            Kind::String if minimum == maximum => format!("text of {maximum} bytes"),
            Kind::String => format!("text of {minimum} to {maximum} bytes"),
            Kind::Bitmask => format!("bits of {maximum:#x}"),
            Kind::Compound => "an array or structure, which cannot be set here".to_owned(),
        }
    }

    /// A value as it is read by people: a menu's with the item's text.
    pub fn show(&self, value: &Value) -> String {
        match (self.kind, value) {
            (Kind::Menu | Kind::IntegerMenu, Value::Number(number)) => self
                .items
                .iter()
                .find(|item| item.index == *number)
                .map_or_else(|| number.to_string(), MenuItem::to_string),
            (Kind::Boolean, Value::Number(number)) => (*number != 0).to_string(),
            (Kind::Bitmask, Value::Number(number)) => format!("{number:#x}"),
            (_, Value::Number(number)) => number.to_string(),
            (_, Value::Text(text)) => format!("{text:?}"),
        }
    }

    /// Whether NVIDIA's capture unit or the sensor's mode takes it, and not the sensor that streams.
    pub(super) fn is_captures(&self) -> bool {
        // `TEGRA_CAMERA_CID_*` of tegra-v4l2-camera.h: HDR_EN and SENSOR_MODE_ID, and VI_BYPASS_MODE to SENSOR_MODES.
        const BASE: u32 = 0x009a_2000;
        let number = self.id.wrapping_sub(BASE);
        number == 4 || number == 8 || (100..=130).contains(&number)
    }

    /// The driver's default as it is read by people; `None` of what has none.
    pub fn show_default(&self) -> Option<String> {
        let has = !matches!(self.kind, Kind::Button | Kind::String | Kind::Compound);
        has.then(|| self.show(&Value::Number(self.default)))
    }
}

/// A control's value as the driver has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number: also 0 and 1 of a switch, the item's of a menu.
    Number(i64),
    /// Text.
    Text(String),
}

/// A name as v4l2-ctl makes it of a driver's: letters and digits, lower case, one `_` for what is between.
pub fn spelled(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}
