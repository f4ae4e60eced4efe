//! Matches the configured controls with a camera's: what to set, in which order, and what is wrong.

use std::collections::BTreeMap;
use std::fmt;

use v4l::v4l_sys as sys;
use visiond_config::types::ControlValue;
use visiond_ground::nearest::nearest;

use super::control::{Control, ControlKind, FRAME_RATE, MenuItem, Value, spelled};

#[derive(Debug, PartialEq)]
pub struct Assignment<'a> {
    pub control: &'a Control,
    pub value: Value,
}

impl fmt::Display for Assignment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.control.name, self.control.show(&self.value))
    }
}

impl Assignment<'_> {
    /// Returns a value next to this one; `None` if it is not a number, or the only value.
    pub fn neighbour(&self) -> Option<Value> {
        let Control { kind: ControlKind::Integer | ControlKind::Integer64, minimum, maximum, step, .. } = self.control
        else {
            return None;
        };
        let Value::Number(value) = self.value else { return None };
        let step = i64::try_from(*step).unwrap_or(1).max(1);
        let near = [value.checked_sub(step), value.checked_add(step)];
        let number = near.into_iter().flatten().find(|number| (minimum..=maximum).contains(&number));
        number.map(Value::Number)
    }
}

/// Returns what to set, in order, and what is wrong: the control's configured name, and a sentence that says what is possible.
pub fn resolve<'a>(
    controls: &'a [Control],
    wanted: &BTreeMap<String, ControlValue>,
) -> (Vec<Assignment<'a>>, Vec<(String, String)>) {
    let (mut assignments, mut refusals) = (Vec::new(), Vec::new());
    for (name, value) in wanted {
        let assignment = find(controls, name).and_then(|control| {
            let value = fit(control, value).ok_or_else(|| unfit(control, value))?;
            Ok(Assignment { control, value })
        });
        match assignment {
            Ok(assignment) => assignments.push(assignment),
            Err(why) => refusals.push((name.clone(), why)),
        }
    }
    // The sort is stable: equal ranks stay in order of their names.
    assignments.sort_by_key(|assignment| rank(assignment.control));
    (assignments, refusals)
}

/// Names that drivers changed: uvcvideo's before Linux 5.16, and since then.
const RENAMED: &[(&str, &str)] = &[
    ("exposure_auto", "auto_exposure"),
    ("exposure_absolute", "exposure_time_absolute"),
    ("exposure_auto_priority", "exposure_dynamic_framerate"),
    ("white_balance_temperature_auto", "white_balance_automatic"),
    ("focus_auto", "focus_automatic_continuous"),
];

/// Finds a control by any of its names.
pub fn named<'a>(controls: &'a [Control], name: &str) -> Option<&'a Control> {
    let wanted = spelled(name);
    let named = |name: &str| controls.iter().find(|control| control.name == name);
    let other = RENAMED.iter().find_map(|&(old, new)| match wanted.as_str() {
        wanted if wanted == old => Some(new),
        wanted if wanted == new => Some(old),
        _ => None,
    });
    named(&wanted).or_else(|| named(other?))
}

/// Finds a control. The error is a sentence, because it goes into the log and into `check`'s report only.
fn find<'a>(controls: &'a [Control], name: &str) -> Result<&'a Control, String> {
    named(controls, name).ok_or_else(|| {
        let wanted = spelled(name);
        let near = nearest(&wanted, controls.iter().map(|control| control.name.as_str()));
        let remedy = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None if controls.is_empty() => "it has none".to_owned(),
            None => "`visiond probe` lists those it has".to_owned(),
        };
        format!("the camera has no control `{}`: {remedy}", visiond_system::logging::escape(name))
    })
}

/// Converts a configured value to the driver's; `None` if it does not fit.
fn fit(control: &Control, value: &ControlValue) -> Option<Value> {
    if control.read_only {
        return None;
    }
    let in_range = |number: &i64| (control.minimum..=control.maximum).contains(number);
    let number = match (control.kind, value) {
        (ControlKind::Integer | ControlKind::Integer64, ControlValue::Number(number)) => Some(*number).filter(in_range),
        (ControlKind::Boolean, ControlValue::Flag(flag)) => Some(i64::from(*flag)),
        (ControlKind::Boolean, ControlValue::Number(number @ (0 | 1))) => Some(*number),
        (ControlKind::Button, ControlValue::Flag(true)) => Some(1),
        (ControlKind::Bitmask, ControlValue::Number(number)) => {
            Some(*number).filter(|bits| bits & !control.maximum == 0)
        }
        (ControlKind::Menu | ControlKind::IntegerMenu, value) => item(control, value).map(|item| item.index),
        (ControlKind::String, ControlValue::Text(text)) => return fit_text(control, text),
        // A word on the command line may look like a number but be meant as text.
        (ControlKind::String, ControlValue::Number(number)) => return fit_text(control, &number.to_string()),
        _ => None,
    };
    number.map(Value::Number)
}

fn fit_text(control: &Control, text: &str) -> Option<Value> {
    let length = i64::try_from(text.len()).ok()?;
    let fits = (control.minimum..=control.maximum).contains(&length);
    // The length of a text has steps, as numbers have.
    let step = i64::try_from(control.step.max(1)).ok()?;
    (fits && (length - control.minimum) % step == 0).then(|| Value::Text(text.to_owned()))
}

/// Finds a menu's item by its index or its name; case and punctuation do not matter, as in v4l2-ctl.
fn item<'a>(control: &'a Control, value: &ControlValue) -> Option<&'a MenuItem> {
    let mut items = control.items.iter();
    match value {
        ControlValue::Number(number) => items.find(|item| item.index == *number),
        ControlValue::Text(text) => {
            let exact = items.clone().find(|item| item.text == *text);
            exact.or_else(|| items.find(|item| !spelled(text).is_empty() && spelled(&item.text) == spelled(text)))
        }
        ControlValue::Flag(_) => None,
    }
}

/// Returns why a value does not fit.
fn unfit(control: &Control, value: &ControlValue) -> String {
    let Control { name, kind, .. } = control;
    if control.read_only {
        return format!("the control `{name}` is read-only");
    }
    let takes = control.takes();
    match kind {
        ControlKind::Compound => format!("the control `{name}` is {takes}"),
        ControlKind::Menu => format!("the control `{name}` has no item {value}: it has {takes}"),
        ControlKind::IntegerMenu => format!(
            "the control `{name}` has no item {value}: it has {takes}; without quotes the number before the brackets \
             counts, with quotes the one in them"
        ),
        ControlKind::String if control.step > 1 && control.minimum != control.maximum => {
            let step = control.step;
            format!("the control `{name}` does not accept {value}: it accepts {takes}, in steps of {step}")
        }
        _ => format!("the control `{name}` does not accept {value}: it accepts {takes}"),
    }
}

/// Orders the controls: automatic modes, which lock others; the rate, which limits the exposure; the others; controls that
/// lock everything; and buttons, which act on the values set.
fn rank(control: &Control) -> u8 {
    let is_automatic = control.name.split('_').any(|word| matches!(word, "auto" | "automatic" | "autogain"));
    match control.kind {
        ControlKind::Button => 4,
        _ if control.id == sys::V4L2_CID_3A_LOCK => 3,
        _ if is_automatic || control.changes_others => 0,
        _ if control.name == FRAME_RATE => 1,
        _ => 2,
    }
}
