//! A camera's controls (exposure, gain, focus, ...): what there are, and setting them as configured.
//!
//! A control is named as v4l2-ctl spells it, `exposure_time_absolute` for "Exposure Time, Absolute"; the names that older
//! kernels had for some of a USB camera's are known as well. What is configured wrongly is told, and the camera streams
//! without it: a camera that sees beats one that does not.

mod plan;
mod raw;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use log::Level;
use serde::Serialize;
use v4l::v4l_sys as sys;

use super::device::Node;
use crate::config::types::ControlValue;
use plan::{Step, Value};

/// A control that a camera has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    #[serde(skip)]
    id: u32,
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
    changes_others: bool,
    /// Its value is the hardware's own at every moment.
    #[serde(skip)]
    volatile: bool,
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
            Kind::Integer | Kind::Integer64 if *step > 1 => format!("{minimum} to {maximum} in steps of {step}"),
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

    /// The driver's default as it is read by people; `None` of what has none.
    pub fn show_default(&self) -> Option<String> {
        let has = !matches!(self.kind, Kind::Button | Kind::String | Kind::Compound);
        has.then(|| self.show(&Value::Number(self.default)))
    }
}

/// Every control of a node, in the driver's order.
pub fn list(node: &Node) -> io::Result<Vec<Control>> {
    raw::list(node)
}

/// What is wrong with `wanted`, each as a sentence with the control's name as configured. Changes nothing.
pub fn wrong(node: &Node, wanted: &BTreeMap<String, ControlValue>) -> Vec<(String, String)> {
    match list(node) {
        Ok(controls) => {
            plan::plan(&controls, wanted).1.into_iter().map(|refusal| (refusal.name, refusal.why)).collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Sets what is configured: automatic modes first, since they lock others. `label` is for the log, which is told at the first
/// opening, and later of what differs from the last one.
pub fn apply(node: &Node, wanted: &BTreeMap<String, ControlValue>, label: &str) {
    if wanted.is_empty() {
        return;
    }
    let mut told = Vec::new();
    match list(node) {
        Ok(controls) => set_all(node, &controls, wanted, &mut told),
        Err(error) => {
            let why = format!("the driver does not list its controls ({error}): the camera streams without any set");
            told.push((Level::Error, why));
        }
    }
    tell(label, told);
}

fn set_all(
    node: &Node,
    controls: &[Control],
    wanted: &BTreeMap<String, ControlValue>,
    told: &mut Vec<(Level, String)>,
) {
    let (steps, refusals) = plan::plan(controls, wanted);
    let without = |why: &str| (Level::Error, format!("{why}: the camera streams without it"));
    told.extend(refusals.iter().map(|refusal| without(&refusal.why)));
    let mut set = Vec::new();
    for step in &steps {
        match raw::set(node, step.control, &step.value) {
            Ok(()) => set.push(step),
            Err(error) => told.push(without(&refused(node, step, &error))),
        }
    }
    if !set.is_empty() {
        let all: Vec<_> = set.iter().map(|step| step.to_string()).collect();
        told.push((Level::Info, format!("set {}", all.join(", "))));
    }
    told.extend(set.into_iter().filter_map(|step| Some((Level::Warn, read_back(node, step)?))));
}

/// Logs what was said of a camera's controls; for the eyes of who debugs where it is what was said the last time.
fn tell(label: &str, told: Vec<(Level, String)>) {
    static LAST: Mutex<BTreeMap<String, Vec<(Level, String)>>> = Mutex::new(BTreeMap::new());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let is_news = last.get(label) != Some(&told);
    for (level, line) in &told {
        log::log!(if is_news { *level } else { Level::Debug }, "{label}: {line}");
    }
    if is_news {
        last.insert(label.to_owned(), told);
    }
}

/// Why the driver may have refused.
fn refused(node: &Node, step: &Step<'_>, error: &io::Error) -> String {
    let inactive = raw::flags(node, step.control).is_some_and(|flags| flags & sys::V4L2_CTRL_FLAG_INACTIVE != 0);
    match error.raw_os_error() {
        _ if inactive => {
            format!(
                "the driver refuses {step} ({error}): an automatic mode has this control, configure that mode as well"
            )
        }
        Some(libc::EBUSY) => format!("{step} cannot be set now ({error}): another program uses the camera, end that"),
        _ => format!("the driver refuses {step} ({error}): it takes {}", step.control.takes()),
    }
}

/// What a control is, where it is not what was set, or has no effect.
fn read_back(node: &Node, step: &Step<'_>) -> Option<String> {
    let Step { control, value, .. } = step;
    if control.write_only || control.kind == Kind::Button {
        return None;
    }
    let inactive = raw::flags(node, control).is_some_and(|flags| flags & sys::V4L2_CTRL_FLAG_INACTIVE != 0);
    if inactive {
        return Some(format!("{step} has no effect: an automatic mode has this control, configure that mode as well"));
    }
    let now = raw::get(node, control).ok().filter(|now| now != value && !control.volatile)?;
    Some(format!("{step} was set, and the driver made {} of it", control.show(&now)))
}
