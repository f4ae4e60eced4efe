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
    /// Whether the sensor would have started with its mode's values if no value were configured.
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
            // Otherwise the switch would apply the stored values, which are the minimum right after the driver was loaded.
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

    /// Sets the controls of a sensor again that had no power until now. To be called while streaming.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use v4l::v4l_sys as sys;

    use super::*;
    use crate::v4l2::device::fake_camera::{FakeCamera, FakeControl};

    const INTEGER: u32 = sys::v4l2_ctrl_type_V4L2_CTRL_TYPE_INTEGER;

    /// `TEGRA_CAMERA_CID_*` of tegra-v4l2-camera.h: SENSOR_MODE_ID, GAIN, EXPOSURE, FRAME_RATE, OVERRIDE_ENABLE.
    const MODE: u32 = 0x009a_2008;
    const GAIN: u32 = 0x009a_2009;
    const EXPOSURE: u32 = 0x009a_200a;
    const RATE: u32 = 0x009a_200b;
    const SWITCH: u32 = 0x009a_2065;

    fn config(controls: &[(&str, i64)], fps: Option<f64>) -> V4l2Config {
        let controls = controls.iter().map(|&(name, value)| (name.to_owned(), ControlValue::Number(value))).collect();
        V4l2Config { controls, fps, ..V4l2Config::default() }
    }

    fn control(id: u32, title: &'static str) -> FakeControl {
        FakeControl {
            id,
            title,
            kind: INTEGER,
            range: (0, 100),
            step: 1,
            default: 50,
            value: 7,
            ..FakeControl::default()
        }
    }

    fn writes(node: &Node) -> Vec<(u32, i64)> {
        std::mem::take(&mut node.fake.as_ref().unwrap().lock().writes)
    }

    /// The log line and its level.
    fn said(setter: &ControlSetter<'_>) -> Vec<String> {
        setter.messages.iter().map(|(level, line)| format!("{level} {line}")).collect()
    }

    #[test]
    fn most_cameras_get_all_controls_after_the_format() {
        let controls = vec![control(1, "Gain"), control(2, "Contrast")];
        let node = FakeCamera { driver: "uvcvideo", controls, ..FakeCamera::default() }.node();
        let wanted = config(&[("gain", 20), ("contrast", 7)], Some(30.0));
        let mut setter = ControlSetter::new(&node, &wanted, "camera a");
        setter.before_format();
        assert_eq!(writes(&node), []);
        setter.after_format();
        assert_eq!(writes(&node), [(2, 7), (1, 20)]);
        setter.while_streaming();
        assert_eq!(writes(&node), []);
        assert_eq!((setter.set.join(", "), said(&setter)), ("contrast = 7, gain = 20".to_owned(), vec![]));
    }

    #[test]
    fn without_anything_to_set_the_driver_is_not_asked() {
        let node = FakeCamera { controls: vec![control(1, "Gain")], ..FakeCamera::default() }.node();
        let nothing = config(&[], None);
        assert!(ControlSetter::new(&node, &nothing, "camera b").list().is_none());
        let one = config(&[("gain", 3)], None);
        assert_eq!(ControlSetter::new(&node, &one, "camera b").list().unwrap().len(), 1);
    }

    #[test]
    fn what_the_driver_refuses_or_changes_is_said_with_the_reason() {
        let inactive = FakeControl { flags: sys::V4L2_CTRL_FLAG_INACTIVE, ..control(3, "Exposure") };
        let controls = vec![
            FakeControl { error: Some(libc::EBUSY), ..control(1, "Busy") },
            FakeControl { error: Some(libc::EIO), ..control(2, "Broken") },
            FakeControl { error: Some(libc::EIO), ..inactive.clone() },
            FakeControl { becomes: Some(8), ..control(4, "Rounded") },
            FakeControl { becomes: Some(8), flags: sys::V4L2_CTRL_FLAG_VOLATILE, ..control(5, "Volatile") },
            FakeControl { id: 6, title: "Overridden", ..inactive },
        ];
        let node = FakeCamera { controls, ..FakeCamera::default() }.node();
        let names = ["absent", "busy", "broken", "exposure", "rounded", "volatile", "overridden"];
        let mut setter = ControlSetter::new(&node, &config(&names.map(|name| (name, 9)), None), "camera c");
        setter.after_format();
        let said = said(&setter);
        let has = |words: &[&str]| said.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(has(&["ERROR", "absent", "the camera streams without it"]), "{said:?}");
        assert!(has(&["ERROR cannot set busy = 9 now", "end the other program"]), "{said:?}");
        assert!(has(&["ERROR the driver refuses broken = 9", "it accepts 0 to 100"]), "{said:?}");
        assert!(has(&["ERROR the driver refuses exposure = 9", "configure that mode as well"]), "{said:?}");
        assert!(has(&["WARN set rounded = 9, but the driver changed it to 8"]), "{said:?}");
        assert!(has(&["WARN overridden = 9 has no effect", "configure that mode as well"]), "{said:?}");
        assert_eq!((said.len(), setter.set.len()), (6, 3), "{said:?}");
    }

    /// A sensor with NVIDIA's driver: the control of the mode, the rate in millionths, and the switch that applies stored
    /// values.
    fn sensor(switch: i64) -> Node {
        let controls = vec![
            control(GAIN, "Gain"),
            FakeControl { default: 33, ..control(EXPOSURE, "Exposure") },
            control(MODE, "Sensor Mode"),
            FakeControl { range: (2_000_000, 60_000_000), default: 30_000_000, ..control(RATE, "Frame Rate") },
            FakeControl { range: (0, 1), value: switch, ..control(SWITCH, "Override Enable") },
        ];
        FakeCamera { driver: "tegra-video", controls, ..FakeCamera::default() }.node()
    }

    #[test]
    fn a_sensor_without_power_gets_its_controls_in_three_steps() {
        let node = sensor(1);
        let mut setter = ControlSetter::new(
            &node,
            &config(&[("sensor_mode", 2), ("gain", 20), ("exposure", 100)], Some(30.0)),
            "camera d",
        );
        setter.before_format();
        let before = writes(&node);
        assert!(before.contains(&(MODE, 2)) && before.contains(&(SWITCH, 1)), "{before:?}");
        assert!(!before.iter().any(|(id, _)| [GAIN, EXPOSURE, RATE].contains(id)), "{before:?}");
        setter.after_format();
        let mut after = writes(&node);
        after.sort_unstable();
        assert_eq!(after, [(GAIN, 20), (EXPOSURE, 100), (RATE, 30_000_000)]);
        // Set through a neighbouring value, because the kernel does not pass on an unchanged one.
        setter.while_streaming();
        let again = writes(&node);
        for (id, near, value) in [(GAIN, 19, 20), (EXPOSURE, 99, 100), (RATE, 29_999_999, 30_000_000)] {
            let of: Vec<_> = again.iter().filter(|write| write.0 == id).collect();
            assert_eq!(of, [&(id, near), &(id, value)], "{again:?}");
        }
        assert_eq!(again.len(), 6, "{again:?}");
        assert_eq!(said(&setter), [] as [String; 0]);
    }

    #[test]
    fn a_switch_that_was_off_brings_the_defaults_of_what_is_not_configured() {
        let node = sensor(0);
        let mut setter = ControlSetter::new(&node, &config(&[("gain", 20)], None), "camera e");
        setter.before_format();
        assert_eq!(writes(&node), [(SWITCH, 1)]);
        setter.after_format();
        let mut after = writes(&node);
        after.sort_unstable();
        assert_eq!(after, [(GAIN, 20), (EXPOSURE, 33), (RATE, 30_000_000)]);
        // If there is nothing to store, the switch stays as it is. A configured switch belongs to the user.
        for (wanted, expected) in [
            (config(&[("sensor_mode", 2)], None), vec![(MODE, 2)]),
            (config(&[("gain", 20), ("override_enable", 0)], None), vec![(SWITCH, 0)]),
        ] {
            let node = sensor(0);
            ControlSetter::new(&node, &wanted, "camera f").before_format();
            assert_eq!(writes(&node), expected);
        }
    }
}
