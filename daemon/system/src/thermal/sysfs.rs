//! The files of a Jetson's temperatures, power mode, GPU load and signs of throttling, and how to read them.
//!
//! A reading leaves out files that cannot be read at the time: a zone whose part of the chip is switched off returns EAGAIN.
//! Names differ between JetPack 5, 6 and 7, so visiond finds everything by its type.
//!
//! visiond searches the files once, except those of the GPU, which appear late. Its driver makes the devfreq node and the
//! cooling device when the GPU is powered on for the first time (`gk20a_pm_finalize_poweron` calls `gk20a_scale_init` in
//! drivers/gpu/nvgpu/os/linux/module.c and scale.c of github.com/OE4T/linux-nvgpu), which is often after visiond's start.
//! Until the GPU's load appears, every reading searches again: a hundred small files in five seconds.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use visiond_ground::jetson::is_jetson;

/// The files of one Jetson.
#[derive(Debug)]
pub struct Files {
    /// Folder to use instead of `/`.
    root: PathBuf,
    /// Name (`cpu`, `gpu`, `tj`) and file, in millidegrees.
    zones: Vec<(String, PathBuf)>,
    /// Throttled part (`gpu`) and file: above 0 while it is throttled.
    cooling: Vec<(String, PathBuf)>,
    /// Name (`oc3`) and file: count since the boot.
    currents: Vec<(String, PathBuf)>,
    /// File of the GPU's load, in tenths of a per cent, or why there is none yet.
    gpu_load: Result<PathBuf, GpuLoad>,
    /// File of the GPU's clock, in Hz.
    gpu_clock: Option<PathBuf>,
    /// Whether all files are found. The driver makes the GPU's cooling device after its load file, so one more search follows.
    complete: bool,
}

/// One reading of all files.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    /// Degrees Celsius by zone.
    pub temperatures: Vec<(String, f64)>,
    /// Name of the power mode in nvpmodel.
    pub power_mode: Option<String>,
    /// Share of time in which the GPU worked.
    pub gpu_load: GpuLoad,
    /// Clock of the GPU's cores, in MHz.
    pub gpu_clock_mhz: Option<u32>,
    /// Parts that heat throttles.
    pub cooled: Vec<String>,
    /// Alarms of the supply (under-voltage, over-current) since the boot.
    pub alarms: Vec<(String, u64)>,
}

/// Load of the GPU, or why it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum GpuLoad {
    /// The load, 0 to 100.
    Percent(f64),
    /// No program has used the GPU since the boot.
    #[default]
    Off,
    /// The driver does not report it: a Thor's has no such file, nor has a PC's.
    Unreported,
    /// It cannot be read now.
    Unreadable,
}

impl GpuLoad {
    /// Returns the load in per cent, if known.
    pub fn percent(self) -> Option<f64> {
        if let Self::Percent(percent) = self { Some(percent) } else { None }
    }
}

impl fmt::Display for GpuLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "GPU {percent:.0} % busy"),
            Self::Off => f.write_str("GPU not used since the boot"),
            Self::Unreported => f.write_str("the driver does not report the GPU's load"),
            Self::Unreadable => f.write_str("the GPU's load cannot be read"),
        }
    }
}

impl Files {
    /// Searches below `root` instead of `/`; returns `None` on a machine that is not a Jetson.
    pub fn find(root: &Path) -> Option<Self> {
        is_jetson(root).then(|| Self::search(root))
    }

    /// Searches below `root` on any machine, because a PC also has zones.
    pub fn search(root: &Path) -> Self {
        let devfreq = entries(&root.join("sys/class/devfreq"));
        let gpus: Vec<_> = devfreq.iter().filter(|device| is_gpu(device)).collect();
        let file = |name: &str| gpus.iter().map(|gpu| gpu.join(name)).find(|file| file.is_file());
        let (load, clock) = (file("device/load"), file("cur_freq"));
        let thermal = entries(&root.join("sys/class/thermal"));
        let zones = thermal.iter().filter_map(|zone| Some((zone_name(&read(&zone.join("type"))?)?, zone.join("temp"))));
        let cooling = thermal
            .iter()
            .filter_map(|device| Some((cooled_name(&read(&device.join("type"))?)?, device.join("cur_state"))));
        let currents = entries(&root.join("sys/class/hwmon")).into_iter().flat_map(|device| entries(&device));
        Self {
            root: root.to_owned(),
            zones: zones.collect(),
            cooling: cooling.collect(),
            currents: currents.filter_map(|file| Some((alarm_name(&file)?, file))).collect(),
            gpu_load: load.ok_or(if gpus.is_empty() { GpuLoad::Off } else { GpuLoad::Unreported }),
            gpu_clock: clock,
            complete: false,
        }
    }

    /// Reads all files.
    pub fn look(&mut self) -> Look {
        if !self.complete {
            let had_load = self.gpu_load.is_ok();
            *self = Self { complete: had_load, ..Self::search(&self.root) };
        }
        let number = |file: &Path| read(file)?.parse::<i64>().ok();
        Look {
            temperatures: self
                .zones
                .iter()
                .filter_map(|(name, file)| {
                    let degrees = number(file)? as f64 / 1e3;
                    // A zone that is switched off reads -256 on some releases.
                    (degrees > -100.0).then(|| (name.clone(), degrees))
                })
                .collect(),
            power_mode: self.power_mode(),
            gpu_load: match &self.gpu_load {
                Ok(file) => number(file).map_or(GpuLoad::Unreadable, |tenths| GpuLoad::Percent(tenths as f64 / 10.0)),
                Err(unknown) => *unknown,
            },
            gpu_clock_mhz: self.gpu_clock.as_deref().and_then(number).and_then(|hz| u32::try_from(hz / 1_000_000).ok()),
            cooled: self
                .cooling
                .iter()
                .filter(|(_, file)| number(file).is_some_and(|state| state > 0))
                .map(|(name, _)| name.clone())
                .collect(),
            alarms: self
                .currents
                .iter()
                .filter_map(|(name, file)| Some((name.clone(), u64::try_from(number(file)?).ok()?)))
                .collect(),
        }
    }

    /// Returns the mode's name in nvpmodel's table, otherwise its number.
    fn power_mode(&self) -> Option<String> {
        let status = read(&self.root.join("var/lib/nvpmodel/status"))?;
        let number: u32 = status.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?.parse().ok()?;
        let modes = read(&self.root.join("etc/nvpmodel.conf")).unwrap_or_default();
        let named = modes.lines().filter(|line| line.trim_start().starts_with("< POWER_MODEL")).find_map(|line| {
            let field = |key: &str| line.split_whitespace().find_map(|word| word.strip_prefix(key));
            (field("ID=")?.parse() == Ok(number)).then(|| field("NAME=").map(str::to_owned))?
        });
        Some(named.unwrap_or_else(|| format!("mode {number}")))
    }
}

/// Returns `cpu` for `CPU-therm` and `cpu-thermal`; `None` for other temperatures than the chip's.
fn zone_name(kind: &str) -> Option<String> {
    let kind = kind.to_ascii_lowercase();
    // A fixed number on Xavier, and the fan's estimate from the other zones.
    if kind.starts_with("pmic") || kind.starts_with("thermal-fan") {
        return None;
    }
    let name = ["-thermal", "-therm", "_thermal"].iter().find_map(|end| kind.strip_suffix(end));
    Some(name.unwrap_or(&kind).to_owned())
}

/// Returns `gpu` for `gpu-throttle-alert`; `None` for fans and other devices that throttle nothing.
fn cooled_name(kind: &str) -> Option<String> {
    if let Some(name) = kind.strip_suffix("-throttle-alert") {
        return Some(name.to_owned());
    }
    let name = kind.strip_prefix("thermal-").unwrap_or(kind);
    (name.starts_with("cpufreq") || name.starts_with("devfreq")).then(|| name.to_owned())
}

/// Returns `oc3` for `.../oc3_event_cnt`; `None` for other files and for alarms that throttle nothing.
///
/// Xavier's driver calls the count `oc3_irq_cnt` and has no `oc3_throt_en` (drivers/thermal/tegra19x_oc_event.c and
/// tegra23x_oc_event.c of L4T 35, drivers/thermal/tegra234-oc-event.c of L4T 36).
fn alarm_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let name = name.strip_suffix("_event_cnt").or_else(|| name.strip_suffix("_irq_cnt"))?;
    let throttles = read(&file.with_file_name(format!("{name}_throt_en")));
    (name.starts_with("oc") && throttles.as_deref() != Some("0")).then(|| name.to_owned())
}

/// Returns whether a device that changes its frequency is the GPU: `17000000.ga10b`, `17000000.gpu`, `gpu-gpc-0`.
fn is_gpu(device: &Path) -> bool {
    let name = device.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let kind = name.split_once('.').map_or(name, |(_, kind)| kind);
    kind.starts_with("gpu") || ["gv11b", "ga10b", "gb10b"].contains(&kind)
}

/// Returns the paths in a folder, sorted, so that a Jetson's parts are always reported in the same order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = read.map(|entry| entry.path()).collect();
    // thermal_zone10 after thermal_zone9.
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}
