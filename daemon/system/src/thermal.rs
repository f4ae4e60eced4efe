//! A Jetson's temperatures, power mode and GPU load, and a warning when heat or its power supply throttles it. Of a PC with
//! NVIDIA's driver, the GPU's load and clock.
//!
//! A separate thread reads them every few seconds, because a read from sysfs may wait for the chip's power controller, and no
//! other thread should wait for that. Other machines have no such thread. Its memory does not grow.

mod nvml;
mod sysfs;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use log::Level;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::board;
use crate::stop::Stop;
use nvml::Nvml;
use sysfs::GpuLoad;
pub use sysfs::{Files, Look};

/// Interval of the readings.
const INTERVAL: Duration = Duration::from_secs(5);
/// Throttling counts as over after this time without a sign of it. Heat and supply problems come and go within seconds, and a
/// line each time would add nothing.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// Watches this Jetson, or the GPU of a PC. Clones share the watch.
#[derive(Debug, Clone)]
pub struct Thermals {
    seen: Arc<Mutex<Readings>>,
}

impl Thermals {
    /// Starts to watch, until `stop` is raised; returns `None` on machines that are not a Jetson and have no driver from NVIDIA.
    pub fn start(stop: &Stop) -> Option<Self> {
        let mut probe = Probe::new(&board::root(), Path::new(nvml::LIBRARY))?;
        // Without NVML, whose start may take a second. The thread reads it at once.
        let first = probe.look_at_files();
        let thermals = Self { seen: Arc::new(Mutex::new(Readings::new(probe.is_jetson(), first, Instant::now()))) };
        let (watched, stop) = (thermals.clone(), stop.clone());
        let watch = move || {
            let mut is_first = true;
            while is_first || !stop.sleep(INTERVAL) {
                let look = probe.look();
                let change = watched.seen.lock().take(look, Instant::now());
                if let Some((level, text)) = change {
                    log::log!(level, "{text}");
                }
                if std::mem::take(&mut is_first) {
                    log::info!("{}", watched.line());
                }
            }
        };
        match thread::Builder::new().name("thermal".into()).spawn(watch) {
            Ok(_) => Some(thermals),
            Err(error) => {
                log::warn!("cannot watch temperatures and the GPU's load: {error}");
                None
            }
        }
    }

    /// Returns the text of the status line: `gpu 52 °C, MAXN, GPU 45 %`; empty if nothing can be read.
    pub fn short(&self) -> String {
        self.seen.lock().short()
    }

    /// Returns the line of the log.
    pub fn line(&self) -> String {
        self.seen.lock().line()
    }

    /// Returns the summary of the run so far; `None` on a machine that is not a Jetson.
    pub fn summary(&self) -> Option<JetsonSummary> {
        let seen = self.seen.lock();
        seen.is_jetson.then(|| seen.summary(Instant::now()))
    }

    /// Returns the load and the clock of the GPU.
    pub fn gpu(&self) -> GpuSummary {
        self.seen.lock().gpu()
    }
}

/// Reads a Jetson's files, and asks NVML where these do not have the GPU's load.
#[derive(Debug)]
struct Probe {
    /// `None` on a PC.
    files: Option<Files>,
    /// `None` until it is needed and there.
    nvml: Option<Nvml>,
    /// The file or name of NVML.
    library: PathBuf,
}

impl Probe {
    fn new(root: &Path, library: &Path) -> Option<Self> {
        let files = Files::find(root);
        let nvml = if files.is_some() { None } else { Nvml::open(library) };
        (files.is_some() || nvml.is_some()).then(|| Self { files, nvml, library: library.to_owned() })
    }

    fn is_jetson(&self) -> bool {
        self.files.is_some()
    }

    fn look_at_files(&mut self) -> Look {
        self.files.as_mut().map_or_else(|| Look { gpu_load: GpuLoad::Unreported, ..Look::default() }, Files::look)
    }

    /// Reads everything. While the files lack the GPU's load, they are searched again, and NVML is tried again.
    fn look(&mut self) -> Look {
        let mut look = self.look_at_files();
        if look.gpu_load.percent().is_some() {
            return look;
        }
        self.nvml = self.nvml.take().or_else(|| Nvml::open(&self.library));
        match self.nvml.as_mut().map(Nvml::read) {
            Some(Some(gpu)) => {
                look.gpu_load = gpu.load_percent.map_or(look.gpu_load, |load| GpuLoad::Percent(load.into()));
                look.gpu_clock_mhz = look.gpu_clock_mhz.or(gpu.clock_mhz);
            }
            Some(None) if !self.is_jetson() => look.gpu_load = GpuLoad::Unreadable,
            Some(None) | None => {}
        }
        look
    }
}

/// Load and clock of the GPU, by all programs that use it. Of several GPUs, those of the busiest one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSummary {
    /// Mean load, 0 to 100, read every five seconds.
    pub load_percent: Option<f64>,
    /// Load at the last reading, 0 to 100.
    pub load_now_percent: Option<f64>,
    /// Clock of its cores at the last reading, in MHz.
    pub clock_mhz: Option<u32>,
}

/// A Jetson in a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JetsonSummary {
    /// The power mode at the end, by nvpmodel's name.
    pub power_mode: Option<String>,
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

impl GpuSummary {
    /// Returns the line of the summary; `None` if the load is unknown.
    pub fn line(&self) -> Option<String> {
        let clock = self.clock_mhz.map_or_else(String::new, |clock| format!(", {clock} MHz at the end"));
        Some(format!("GPU: {:.0} % busy{clock}", self.load_percent?))
    }
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
    is_jetson: bool,
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
    fn new(is_jetson: bool, look: Look, now: Instant) -> Self {
        let mut seen = Self {
            is_jetson,
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
        let clock = self.look.gpu_clock_mhz.map_or_else(String::new, |clock| format!(" at {clock} MHz"));
        let gpu = format!("{}{clock}", self.look.gpu_load);
        if !self.is_jetson {
            return gpu;
        }
        let zones: Vec<_> = self.look.temperatures.iter().map(|(zone, c)| format!("{zone} {c:.0} °C")).collect();
        let mut text =
            format!("Jetson: {}", if zones.is_empty() { "no temperature".to_owned() } else { zones.join(", ") });
        let mode = self.look.power_mode.as_deref().unwrap_or("unknown");
        let _ = write!(text, "; power mode {mode}, {gpu}");
        text += if self.throttle.is_some() { ", throttled" } else { "" };
        text
    }

    fn gpu(&self) -> GpuSummary {
        GpuSummary {
            load_percent: (self.loads.1 > 0).then(|| (self.loads.0 / f64::from(self.loads.1) * 10.0).round() / 10.0),
            load_now_percent: self.look.gpu_load.percent(),
            clock_mhz: self.look.gpu_clock_mhz,
        }
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
