use std::collections::BTreeMap;
use std::io;

use log::Level;
use parking_lot::Mutex;
use visiond_config::types::{ControlValue, V4l2Config};

use super::control::{Control, ControlKind, FrameRateControl, OVERRIDE, Value, spelled};
use super::ioctl;
use super::resolve::{Assignment, named, resolve};
use crate::v4l2::device::Node;
use crate::v4l2::quirks::Quirk;

/// Sets a camera's controls as configured. Automatic modes come first, because they lock others. Most drivers accept all
/// controls once the format is set; a driver with [`Quirk::SensorOffUntilStreaming`] needs three steps.
///
/// When dropped, it logs what was set and what was not: the first time a camera is opened, and later whenever that differs.
pub struct ControlSetter<'a> {
    node: &'a Node,
    label: &'a str,
    wanted: BTreeMap<String, ControlValue>,
    /// Frames per second, if a control sets them.
    fps: Option<f64>,
    /// Whether the sensor receives its controls' values only while it streams.
    is_off: bool,
    /// Whether the sensor would have started with the values of its mode, but for a value that is configured.
    has_switched: bool,
    set: Vec<String>,
    messages: Vec<(Level, String)>,
}

impl<'a> ControlSetter<'a> {
    /// Creates the setter for `node`; `label` is for the log.
    pub fn new(node: &'a Node, config: &V4l2Config, label: &'a str) -> Self {
        let is_off = node.has(Quirk::SensorOffUntilStreaming);
        let fps = config.fps.filter(|_| node.has(Quirk::RateByControl));
        let wanted = config.controls.clone();
        Self { node, label, wanted, fps, is_off, has_switched: false, set: Vec::new(), messages: Vec::new() }
    }

    /// Sets the controls that decide which formats there are. To be called before streaming.
    pub fn before_format(&mut self) {
        if !self.is_off {
            return;
        }
        let Some(controls) = self.list() else { return };
        let is_sensors = |name: &String| named(&controls, name).is_some_and(|control| !control.is_captures());
        let stores = self.fps.is_some() || self.wanted.keys().any(is_sensors);
        let switch = controls.iter().find(|control| control.name == OVERRIDE).filter(|_| stores);
        if let Some(switch) = switch.filter(|switch| !self.wanted.contains_key(&switch.name)) {
            self.wanted.insert(switch.name.clone(), ControlValue::Number(1));
            self.has_switched = switch.value == Some(Value::Number(0));
        }
        self.set(&controls, Control::is_captures);
    }

    /// Sets the other controls, whose ranges depend on the format. To be called before streaming.
    pub fn after_format(&mut self) {
        let Some(controls) = self.list() else { return };
        if let Some((fps, rate)) = self.fps.zip(FrameRateControl::among(&controls)) {
            let value = ControlValue::Number(rate.value(fps));
            self.wanted.entry(rate.control.name.clone()).or_insert(value);
        }
        if self.has_switched {
            // Otherwise the stored values would come with the switch, which are the least ones when the driver was just loaded.
            let is_wanted = |control: &Control| self.wanted.keys().any(|key| spelled(key) == control.name);
            let others = controls.iter().filter(|control| control.is_modes() && !is_wanted(control));
            let others: Vec<_> =
                others.map(|control| (control.name.clone(), ControlValue::Number(control.default))).collect();
            self.wanted.extend(others);
        }
        let is_off = self.is_off;
        // This also reports controls that the camera does not have.
        let (_, refusals) = resolve(&controls, &self.wanted);
        self.messages.extend(refusals.iter().map(|(_, why)| without(why)));
        self.set(&controls, |control| !is_off || !control.is_captures());
    }

    /// Sets the controls again of a sensor that had no power until now. To be called while streaming.
    ///
    /// The kernel does not pass on a value that equals the current one, so a number is set to a neighbouring value first.
    pub fn while_streaming(&mut self) {
        if !self.is_off {
            return;
        }
        let Some(controls) = self.list() else { return };
        let (assignments, _) = resolve(&controls, &self.wanted);
        for assignment in assignments.iter().filter(|assignment| !assignment.control.is_captures()) {
            if let Some(neighbour) = assignment.neighbour() {
                let result = ioctl::set(self.node, assignment.control, &neighbour);
                let result = result.and_then(|()| ioctl::set(self.node, assignment.control, &assignment.value));
                self.messages.extend(result.err().map(|error| without(&refused(self.node, assignment, &error))));
            }
            self.messages.extend(read_back(self.node, assignment).map(|text| (Level::Warn, text)));
        }
    }

    /// Lists the camera's controls; `None` if there is nothing to set.
    fn list(&mut self) -> Option<Vec<Control>> {
        if self.wanted.is_empty() && self.fps.is_none() {
            return None;
        }
        match ioctl::list(self.node) {
            Ok(controls) => Some(controls),
            Err(error) => {
                let why =
                    format!("the driver cannot list its controls ({error}): the camera streams without setting any");
                self.messages.push((Level::Error, why));
                // Log this once.
                self.wanted.clear();
                self.fps = None;
                None
            }
        }
    }

    /// Sets the configured controls that `which` selects, and reads them back where that is meaningful.
    fn set(&mut self, controls: &[Control], which: impl Fn(&Control) -> bool) {
        let (assignments, _) = resolve(controls, &self.wanted);
        let mut set = Vec::new();
        for assignment in assignments.iter().filter(|assignment| which(assignment.control)) {
            match ioctl::set(self.node, assignment.control, &assignment.value) {
                Ok(()) => set.push(assignment),
                Err(error) => self.messages.push(without(&refused(self.node, assignment, &error))),
            }
        }
        self.set.extend(set.iter().map(|assignment| assignment.to_string()));
        // A sensor's stored value says nothing about the sensor yet.
        let is_known = |assignment: &&&Assignment<'_>| !self.is_off || assignment.control.is_captures();
        let differing =
            set.iter().filter(is_known).filter_map(|assignment| Some((Level::Warn, read_back(self.node, assignment)?)));
        self.messages.extend(differing.collect::<Vec<_>>());
    }
}

impl Drop for ControlSetter<'_> {
    fn drop(&mut self) {
        if !self.set.is_empty() {
            self.messages.push((Level::Info, format!("set {}", self.set.join(", "))));
        }
        log_news(self.label, std::mem::take(&mut self.messages));
    }
}

fn without(why: &str) -> (Level, String) {
    (Level::Error, format!("{why}: the camera streams without it"))
}

/// Logs the result; at debug level if it is the same as the last time.
fn log_news(label: &str, messages: Vec<(Level, String)>) {
    static LAST: Mutex<BTreeMap<String, Vec<(Level, String)>>> = Mutex::new(BTreeMap::new());
    let mut last = LAST.lock();
    let is_news = last.get(label) != Some(&messages);
    for (level, line) in &messages {
        log::log!(if is_news { *level } else { Level::Debug }, "{label}: {line}");
    }
    if is_news {
        last.insert(label.to_owned(), messages);
    }
}

/// Returns why the driver may have refused.
fn refused(node: &Node, assignment: &Assignment<'_>, error: &io::Error) -> String {
    match error.raw_os_error() {
        _ if ioctl::is_inactive(node, assignment.control) => {
            format!(
                "the driver refuses {assignment} ({error}): an automatic mode controls it, configure that mode as well"
            )
        }
        Some(libc::EBUSY) => {
            format!("cannot set {assignment} now ({error}): end the other program that uses the camera")
        }
        _ => format!("the driver refuses {assignment} ({error}): it accepts {}", assignment.control.takes()),
    }
}

/// Returns a warning if the control has another value than the one set, or no effect.
fn read_back(node: &Node, assignment: &Assignment<'_>) -> Option<String> {
    let Assignment { control, value, .. } = assignment;
    if control.write_only || control.kind == ControlKind::Button {
        return None;
    }
    if ioctl::is_inactive(node, control) {
        return Some(format!("{assignment} has no effect: an automatic mode controls it, configure that mode as well"));
    }
    let now = ioctl::get(node, control).ok().filter(|now| now != value && !control.volatile)?;
    Some(format!("set {assignment}, but the driver changed it to {}", control.show(&now)))
}
