//! A Jetson's temperatures, power mode and GPU load, and a warning when heat or its power supply throttles it.
//!
//! A separate thread reads them every few seconds, because a read from sysfs may wait for the chip's power controller, and no
//! other thread should wait for that. Other machines have no such thread. Its memory does not grow.

mod sysfs;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::board;
use crate::stop::Stop;
pub use sysfs::{Files, Look};

/// Interval of the readings.
const INTERVAL: Duration = Duration::from_secs(5);
/// Throttling counts as over after this time without a sign of it. Heat and supply problems come and go within seconds, and a
/// line each time would add nothing.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// Watches this Jetson. Clones share the watch.
#[derive(Debug, Clone)]
pub struct Thermals {
    seen: Arc<Mutex<Readings>>,
}

impl Thermals {
    /// Starts to watch, until `stop` is raised; returns `None` on other machines.
    pub fn start(stop: &Stop) -> Option<Self> {
        let mut files = Files::find(&board::root())?;
        let thermals = Self { seen: Arc::new(Mutex::new(Readings::new(files.look(), Instant::now()))) };
        log::info!("{}", thermals.line());
        let (seen, stop) = (Arc::clone(&thermals.seen), stop.clone());
        let watch = move || {
            while !stop.sleep(INTERVAL) {
                let look = files.look();
                let change = seen.lock().take(look, Instant::now());
                if let Some((level, text)) = change {
                    log::log!(level, "{text}");
                }
            }
        };
        match thread::Builder::new().name("thermal".into()).spawn(watch) {
            Ok(_) => Some(thermals),
            Err(error) => {
                log::warn!("cannot watch the Jetson's temperatures: {error}");
                None
            }
        }
    }

    /// Returns the text of the status line: `gpu 52 °C, MAXN, GPU 45 %`.
    pub fn short(&self) -> String {
        self.seen.lock().short()
    }

    /// Returns the line of the log.
    pub fn line(&self) -> String {
        self.seen.lock().line()
    }

    /// Returns the summary of the run so far.
    pub fn summary(&self) -> JetsonSummary {
        self.seen.lock().summary(Instant::now())
    }
}

/// A Jetson in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JetsonSummary {
    /// The power mode at the end, by nvpmodel's name.
    pub power_mode: Option<String>,
    /// Mean load of the GPU, read every five seconds.
    pub gpu_load_percent: Option<f64>,
    /// Load of the GPU at the last reading.
    pub gpu_load_now_percent: Option<f64>,
    /// Whether it is throttled now.
    pub throttled_now: bool,
    /// Temperatures by zone, in degrees Celsius.
    pub temperatures_c: BTreeMap<String, Temperature>,
    /// How many times heat or the power supply throttled it.
    pub throttled: u64,
    /// How long it was throttled in total.
    pub throttled_seconds: f64,
}

/// A zone's temperature, in degrees Celsius.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Temperature {
    /// At the last reading.
    pub last: f64,
    /// The maximum so far.
    pub max: f64,
}

impl JetsonSummary {
    /// Returns the line of the summary.
    pub fn line(&self) -> String {
        let hottest = self.temperatures_c.iter().max_by(|a, b| a.1.max.total_cmp(&b.1.max));
        let mut text = "Jetson:".to_owned();
        if let Some((zone, temperature)) = hottest {
            // Writing into a String cannot fail, here and below.
            let _ = write!(text, " at most {:.0} °C ({zone}),", temperature.max);
        }
        let _ = write!(text, " power mode {}", self.power_mode.as_deref().unwrap_or("unknown"));
        if let Some(load) = self.gpu_load_percent {
            let _ = write!(text, ", GPU {load:.0} % busy");
        }
        match self.throttled {
            0 => text += ", never throttled",
            1 => {
                let _ = write!(text, ", throttled once, for {:.0} s", self.throttled_seconds);
            }
            times => {
                let _ = write!(text, ", throttled {times} times, {:.0} s in all", self.throttled_seconds);
            }
        }
        text
    }
}

/// The last reading, and sums and maxima of all.
#[derive(Debug)]
struct Readings {
    look: Look,
    hottest: BTreeMap<String, f64>,
    loads: (f64, u32),
    throttle: Option<Throttle>,
    throttled: u64,
    throttled_for: Duration,
}

/// A time of throttling.
#[derive(Debug, Clone, Copy)]
struct Throttle {
    since: Instant,
    last_sign: Instant,
}

impl Readings {
    fn new(look: Look, now: Instant) -> Self {
        let mut seen = Self {
            // Ignore alarms before the start.
            look: Look { alarms: look.alarms.clone(), ..Look::default() },
            hottest: BTreeMap::new(),
            loads: (0.0, 0),
            throttle: None,
            throttled: 0,
            throttled_for: Duration::ZERO,
        };
        if let Some((level, text)) = seen.take(look, now) {
            log::log!(level, "{text}");
        }
        seen
    }

    /// Adds a reading; returns the line to log if throttling began or ended.
    fn take(&mut self, look: Look, now: Instant) -> Option<(Level, String)> {
        for (zone, degrees) in &look.temperatures {
            let hottest = self.hottest.entry(zone.clone()).or_insert(*degrees);
            *hottest = hottest.max(*degrees);
        }
        if let Some(load) = look.gpu_load.percent() {
            self.loads = (self.loads.0 + load, self.loads.1 + 1);
        }
        let alarms = new_alarms(&self.look.alarms, &look.alarms);
        self.look = look;
        let sign = !self.look.cooled.is_empty() || !alarms.is_empty();
        match &mut self.throttle {
            None if sign => {
                self.throttle = Some(Throttle { since: now, last_sign: now });
                self.throttled += 1;
                Some((Level::Warn, self.reason(&alarms)))
            }
            Some(throttle) if sign => {
                throttle.last_sign = now;
                None
            }
            Some(throttle) if now.saturating_duration_since(throttle.last_sign) >= OVER_AFTER => {
                let lasted = throttle.last_sign.saturating_duration_since(throttle.since) + INTERVAL;
                self.throttled_for += lasted;
                self.throttle = None;
                let text = format!("the Jetson is no longer throttled; it was for {} s", lasted.as_secs());
                Some((Level::Info, text))
            }
            _ => None,
        }
    }

    fn reason(&self, alarms: &[String]) -> String {
        let mut text = "the Jetson is throttled".to_owned();
        if !self.look.cooled.is_empty() {
            let _ = write!(text, " by heat ({}", self.look.cooled.join(", "));
            if let Some((zone, degrees)) = self.hottest_now() {
                let _ = write!(text, "; {zone} at {degrees:.0} °C");
            }
            text += ")";
        }
        if !alarms.is_empty() {
            let and = if self.look.cooled.is_empty() { "" } else { " and" };
            let _ = write!(text, "{and} by its supply ({}: voltage too low or current too high)", alarms.join(", "));
        }
        text += ": models run slower. ";
        text += match (self.look.cooled.is_empty(), alarms.is_empty()) {
            (false, true) => "Cool it better (fan, heat sink, air), or choose a lower power mode: nvpmodel -m",
            _ => "Give it a stronger supply or a shorter cable, or choose a lower power mode: nvpmodel -m",
        };
        text
    }

    fn hottest_now(&self) -> Option<(&str, f64)> {
        let hottest = self.look.temperatures.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((&hottest.0, hottest.1))
    }

    fn short(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.hottest_now().map(|(zone, degrees)| format!("{zone} {degrees:.0} °C")));
        parts.extend(self.look.power_mode.clone());
        parts.extend(self.look.gpu_load.percent().map(|load| format!("GPU {load:.0} %")));
        parts.extend(self.throttle.map(|_| "throttled".to_owned()));
        parts.join(", ")
    }

    fn line(&self) -> String {
        let zones: Vec<_> = self.look.temperatures.iter().map(|(zone, c)| format!("{zone} {c:.0} °C")).collect();
        let mut text =
            format!("Jetson: {}", if zones.is_empty() { "no temperature".to_owned() } else { zones.join(", ") });
        let mode = self.look.power_mode.as_deref().unwrap_or("unknown");
        let _ = write!(text, "; power mode {mode}, {}", self.look.gpu_load);
        text += if self.throttle.is_some() { ", throttled" } else { "" };
        text
    }

    fn summary(&self, now: Instant) -> JetsonSummary {
        let last =
            |zone: &str| self.look.temperatures.iter().find(|(name, _)| name == zone).map(|(_, degrees)| *degrees);
        let temperatures = self.hottest.iter().map(|(zone, max)| {
            let temperature = Temperature { last: last(zone).unwrap_or(*max), max: *max };
            (zone.clone(), temperature)
        });
        let under_way = self.throttle.map_or(Duration::ZERO, |throttle| {
            (throttle.last_sign + INTERVAL).min(now).saturating_duration_since(throttle.since)
        });
        JetsonSummary {
            power_mode: self.look.power_mode.clone(),
            gpu_load_percent: (self.loads.1 > 0)
                .then(|| (self.loads.0 / f64::from(self.loads.1) * 10.0).round() / 10.0),
            gpu_load_now_percent: self.look.gpu_load.percent(),
            throttled_now: self.throttle.is_some(),
            temperatures_c: temperatures.collect(),
            throttled: self.throttled,
            throttled_seconds: (self.throttled_for + under_way).as_secs_f64(),
        }
    }
}

/// Returns the alarms whose count rose since the previous reading.
pub fn new_alarms(before: &[(String, u64)], now: &[(String, u64)]) -> Vec<String> {
    let earlier = |name: &str| before.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    now.iter().filter(|(name, count)| *count > earlier(name)).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests;
