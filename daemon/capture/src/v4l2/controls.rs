//! A camera's controls (exposure, gain, focus, ...): what there are, and setting them as configured.
//!
//! A control is named as v4l2-ctl spells it, `exposure_time_absolute` for "Exposure Time, Absolute"; the names that older
//! kernels had for some of a USB camera's are known as well. What is configured wrongly is told, and the camera streams
//! without it: a camera that sees beats one that does not.

mod plan;
mod rate;
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
use visiond_config::types::{ControlValue, V4l2Config};

use super::device::Node;
use super::quirks::Quirk;
use plan::Step;
pub use plan::Value;
pub use rate::RateControl;

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

    /// Whether NVIDIA's capture unit or the sensor's mode takes it, and not the sensor that streams.
    fn is_captures(&self) -> bool {
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

/// Sets a camera's controls as configured, automatic modes first, since they lock others. Most drivers take all of them once the
/// format is set; one with `Quirk::SensorOffUntilStreaming` has three moments for them.
///
/// When it is dropped it logs what was set and what was not: the first time a camera is opened, and later what differs from
/// the time before.
pub struct Setting<'a> {
    node: &'a Node,
    label: &'a str,
    wanted: BTreeMap<String, ControlValue>,
    /// Frames per second, where a control sets them.
    fps: Option<f64>,
    /// Whether the sensor gets its controls' values only while it streams.
    is_off: bool,
    /// What was set, as text.
    set: Vec<String>,
    told: Vec<(Level, String)>,
}

/// A control of NVIDIA's that turns the sensor's stored values into its first ones.
const OVERRIDE: &str = "override_enable";

impl<'a> Setting<'a> {
    /// Of `node`, whose `label` is for the log.
    pub fn new(node: &'a Node, config: &V4l2Config, label: &'a str) -> Self {
        let is_off = node.has(Quirk::SensorOffUntilStreaming);
        let fps = config.fps.filter(|_| node.has(Quirk::RateByControl));
        Self { node, label, wanted: config.controls.clone(), fps, is_off, set: Vec::new(), told: Vec::new() }
    }

    /// Sets what decides which formats there are. Nothing streams.
    pub fn before_format(&mut self) {
        if !self.is_off {
            return;
        }
        let Some(controls) = self.list() else { return };
        let is_sensors = |name: &String| plan::named(&controls, name).is_some_and(|control| !control.is_captures());
        let stores = self.fps.is_some() || self.wanted.keys().any(is_sensors);
        if stores && controls.iter().any(|control| control.name == OVERRIDE) {
            self.wanted.entry(OVERRIDE.to_owned()).or_insert(ControlValue::Number(1));
        }
        self.set(&controls, Control::is_captures);
    }

    /// Sets the others, whose ranges depend on the format. Nothing streams.
    pub fn after_format(&mut self) {
        let Some(controls) = self.list() else { return };
        if let Some((fps, rate)) = self.fps.zip(RateControl::among(&controls)) {
            let value = ControlValue::Number(rate.value(fps));
            self.wanted.entry(rate.control.name.clone()).or_insert(value);
        }
        let is_off = self.is_off;
        // What the camera has not is refused here, too.
        let (_, refusals) = plan::plan(&controls, &self.wanted);
        self.told.extend(refusals.iter().map(|refusal| without(&refusal.why)));
        self.set(&controls, |control| !is_off || !control.is_captures());
    }

    /// Sets a sensor's again that had no power until now. The camera streams.
    ///
    /// The kernel does not hand on a value that is the control's already, so a number goes there by its neighbour.
    pub fn while_streaming(&mut self) {
        if !self.is_off {
            return;
        }
        let Some(controls) = self.list() else { return };
        let (steps, _) = plan::plan(&controls, &self.wanted);
        for step in steps.iter().filter(|step| !step.control.is_captures()) {
            if let Some(neighbour) = step.neighbour() {
                let result = raw::set(self.node, step.control, &neighbour);
                let result = result.and_then(|()| raw::set(self.node, step.control, &step.value));
                self.told.extend(result.err().map(|error| without(&refused(self.node, step, &error))));
            }
            self.told.extend(read_back(self.node, step).map(|text| (Level::Warn, text)));
        }
    }

    /// The camera's controls as they are now; `None` where nothing is to be set.
    fn list(&mut self) -> Option<Vec<Control>> {
        if self.wanted.is_empty() && self.fps.is_none() {
            return None;
        }
        match list(self.node) {
            Ok(controls) => Some(controls),
            Err(error) => {
                let why =
                    format!("the driver does not list its controls ({error}): the camera streams without any set");
                self.told.push((Level::Error, why));
                // Said once is enough.
                self.wanted.clear();
                self.fps = None;
                None
            }
        }
    }

    /// Sets those of the wanted that `which` picks, and reads them back where that means something.
    fn set(&mut self, controls: &[Control], which: impl Fn(&Control) -> bool) {
        let (steps, _) = plan::plan(controls, &self.wanted);
        let mut set = Vec::new();
        for step in steps.iter().filter(|step| which(step.control)) {
            match raw::set(self.node, step.control, &step.value) {
                Ok(()) => set.push(step),
                Err(error) => self.told.push(without(&refused(self.node, step, &error))),
            }
        }
        self.set.extend(set.iter().map(|step| step.to_string()));
        // A sensor's stored value says nothing of the sensor yet.
        let tells = |step: &&&Step<'_>| !self.is_off || step.control.is_captures();
        let differing = set.iter().filter(tells).filter_map(|step| Some((Level::Warn, read_back(self.node, step)?)));
        self.told.extend(differing.collect::<Vec<_>>());
    }
}

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        if !self.set.is_empty() {
            self.told.push((Level::Info, format!("set {}", self.set.join(", "))));
        }
        tell(self.label, std::mem::take(&mut self.told));
    }
}

fn without(why: &str) -> (Level, String) {
    (Level::Error, format!("{why}: the camera streams without it"))
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
