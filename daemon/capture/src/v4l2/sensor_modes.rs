//! Chooses a sensor's mode by size and rate, for drivers whose control `sensor_mode` decides ([`Quirk::ModeByControl`]).
//!
//! The control's value is the mode's index in the driver's list of sizes, which is not sorted. Where the device tree has
//! `use_sensor_mode_id`, the driver takes the mode that is stored in the control and answers any other size with its default
//! one (`camera_common_try_fmt`). Elsewhere it looks for the size, and the control changes nothing.
//!
//! The driver lists the rates of the first mode of a size only (`camera_common_enum_frameintervals`). The differences between
//! modes of one size are in two arrays, `Sensor Image Properties` and `Sensor Control Properties`: rows of 32-bit numbers,
//! one row for each mode (`tegra_channel_sensorprops_setup` in vi/channel.c, tegra-v4l2-camera.h).

use visiond_config::types::{ControlValue, V4l2Config};

use super::controls::{self, Control, Value};
use super::device::Node;
use super::formats::{self, FrameRates, is_fast_enough};
use super::fourcc::{self, FourCc};
use super::quirks::Quirk;

/// The control that chooses the mode.
pub const SENSOR_MODE: &str = "sensor_mode";

/// The control with which NVIDIA's camera daemon bypasses V4L2. It stays set after the daemon has used the sensor, and then
/// the node delivers no frames.
const BYPASS_MODE: &str = "bypass_mode";

/// A mode of a sensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SensorMode {
    width: u32,
    height: u32,
    /// The highest rate, if the driver says.
    fps: Option<f64>,
    /// The pixel format, if the driver says and offers it.
    fourcc: Option<FourCc>,
}

/// Returns the configuration, completed from size and rate: the control of the mode, and the mode's own size and format. A
/// mode that is configured stays, and decides the size. Changes nothing in the camera.
///
/// The size must be the mode's: for any other one, the driver would report its default size and send the mode's.
pub fn resolved(node: &Node, config: &V4l2Config) -> V4l2Config {
    let mut config = config.clone();
    if !node.has(Quirk::ModeByControl) {
        return config;
    }
    // Without controls nothing can be set, which is logged when they are set.
    let Ok(found) = controls::list(node) else { return config };
    let control = |name| found.iter().find(|control| control.name == name);
    let configured =
        |name| config.controls.iter().find(|(key, _)| controls::spelled(key) == name).map(|(_, value)| value);
    let takes_frames = |bypass: &Control| bypass.value != Some(Value::Number(0));
    let unsets_bypass = configured(BYPASS_MODE).is_none() && control(BYPASS_MODE).is_some_and(takes_frames);
    let chosen = control(SENSOR_MODE).and_then(|sensor_mode| {
        let modes = list(node, &found);
        let index = match configured(SENSOR_MODE) {
            Some(ControlValue::Number(number)) => usize::try_from(*number).ok(),
            Some(_) => None,
            None => {
                // A size that the sensor lacks counts as not configured; it is logged when the format is set.
                let sizeless = V4l2Config { width: None, height: None, ..config.clone() };
                let choose = |config| choose(&modes, stored(sensor_mode), current(node), config);
                choose(&config).or_else(|| choose(&sizeless))
            }
        };
        index.and_then(|index| Some((index, *modes.get(index)?)))
    });
    if unsets_bypass {
        config.controls.insert(BYPASS_MODE.to_owned(), ControlValue::Number(0));
    }
    if let Some((index, mode)) = chosen {
        let is_configured = config.controls.keys().any(|key| controls::spelled(key) == SENSOR_MODE);
        if !is_configured {
            config.controls.insert(SENSOR_MODE.to_owned(), ControlValue::Number(index as i64));
        }
        (config.width, config.height) = (Some(mode.width), Some(mode.height));
        config.format = config.format.or(mode.fourcc.and_then(fourcc::format_of));
    }
    config
}

/// Returns the size that is set now.
fn current(node: &Node) -> Option<(u32, u32)> {
    node.format().ok().map(|pix| (pix.width, pix.height))
}

fn stored(sensor_mode: &Control) -> Option<usize> {
    match sensor_mode.value {
        Some(Value::Number(value)) => usize::try_from(value).ok(),
        _ => None,
    }
}

/// Lists the modes in the driver's order. `found` are the node's controls.
fn list(node: &Node, found: &[Control]) -> Vec<SensorMode> {
    let offered: Vec<_> =
        formats::pixel_formats(node).unwrap_or_default().into_iter().map(|(fourcc, _)| fourcc).collect();
    // Each format has the sizes of all modes.
    let Some(&fourcc) = offered.first() else { return Vec::new() };
    let mode = |size: formats::SupportedSize| {
        let fps = match size.rates {
            FrameRates::List(rates) => rates.first().copied(),
            FrameRates::Range { highest, .. } => Some(highest),
        };
        SensorMode { width: size.largest.0, height: size.largest.1, fps, fourcc: None }
    };
    let mut modes: Vec<_> = formats::sizes_in_order(node, fourcc).into_iter().map(mode).collect();
    let numbers = |name: &str| {
        let control = found.iter().find(|control| control.name == name);
        control.and_then(|control| controls::numbers(node, control).ok()).unwrap_or_default()
    };
    let count = found.iter().find(|control| control.name == "sensor_modes").and_then(stored).unwrap_or(0);
    add_properties(&mut modes, count, &numbers("sensor_image_properties"), &numbers("sensor_control_properties"));
    for mode in &mut modes {
        // The device tree calls it RGB24, the driver offers it as AB24.
        mode.fourcc = mode.fourcc.filter(|fourcc| offered.contains(fourcc));
    }
    modes
}

/// Adds the properties from the rows of both arrays, one row for each of `count` modes.
fn add_properties(modes: &mut [SensorMode], count: usize, image: &[u32], control: &[u32]) {
    // struct sensor_image_properties: width, height, line_length, pixel_format.
    const PIXEL_FORMAT: usize = 3;
    // struct sensor_control_properties: gain_factor, framerate_factor, five of gain and HDR, min_framerate, max_framerate.
    const RATE_FACTOR: usize = 1;
    const MAX_RATE: usize = 8;
    let rows = |numbers: &'_ [u32]| numbers.len().checked_div(count).unwrap_or(0);
    let (image_row, control_row) = (rows(image), rows(control));
    for (index, mode) in modes.iter_mut().enumerate().take(count) {
        let at = |numbers: &[u32], row: usize, field: usize| {
            (field < row).then(|| numbers[index * row + field]).filter(|&number| number > 0)
        };
        mode.fourcc = at(image, image_row, PIXEL_FORMAT).map(u32::to_le_bytes);
        let rate = at(control, control_row, MAX_RATE).zip(at(control, control_row, RATE_FACTOR));
        mode.fps = rate.map(|(rate, factor)| f64::from(rate) / f64::from(factor)).or(mode.fps);
    }
}

/// Returns the index of the mode that the configuration requires: of its size and format, and fast enough.
///
/// Without a configured size it is the current one; if that is not fast enough, the largest one that is. Among several modes
/// of a configured size, the first wins; among several of the current size, the stored one. If none is fast enough, the
/// fastest one wins. `None` if no mode has the size, as with a bridge whose size is that of its signal.
fn choose(
    modes: &[SensorMode],
    stored: Option<usize>,
    current: Option<(u32, u32)>,
    config: &V4l2Config,
) -> Option<usize> {
    let V4l2Config { width, height, fps, format, .. } = config;
    let keeps_size = width.is_none() && height.is_none();
    let has_size = |mode: &SensorMode| match current.filter(|_| keeps_size) {
        Some(current) => current == (mode.width, mode.height),
        None => width.is_none_or(|width| width == mode.width) && height.is_none_or(|height| height == mode.height),
    };
    let has_format = |mode: &SensorMode| match (format, mode.fourcc) {
        (Some(format), Some(fourcc)) => fourcc::format_of(fourcc) == Some(*format),
        _ => true,
    };
    let rank = |index: usize, mode: &SensorMode| {
        let is_fast = fps.zip(mode.fps).is_none_or(|(fps, highest)| is_fast_enough(highest, fps));
        let pixels = f64::from(mode.width) * f64::from(mode.height);
        match (has_size(mode), is_fast) {
            _ if !has_format(mode) => None,
            (true, true) => Some((2, keeps_size && stored == Some(index), pixels)),
            (false, true) if keeps_size && fps.is_some() => Some((1, false, pixels)),
            (true, false) => Some((0, false, mode.fps.unwrap_or(0.0))),
            (false, _) => None,
        }
    };
    let ranked = modes.iter().enumerate().filter_map(|(index, mode)| Some((rank(index, mode)?, index)));
    // The first of several equal ones.
    ranked.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, index)| index)
}

#[cfg(test)]
mod tests;
