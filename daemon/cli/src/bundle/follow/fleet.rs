//! The fleet as a source: its operators say which version this device uses, and its object store has the bundles.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use jiff::Zoned;
use jiff::tz::TimeZone;
use toml::de::{DeTable, DeValue};
use visiond_bundle::{BundleSource, SourceError, Take};
use visiond_config::types::DeviceConfig;
use visiond_fleet::{Order, check_name};
use visiond_nats::{NatsError, Options};
use visiond_system::exit::{Exit, ExitError};

use super::super::reporter::{Identity, Reporter};
use crate::config_path::config_path;
use crate::fleet_buckets::{Buckets, unreadable};

/// The longest configuration in which the device's name is looked for.
const MOST_CONFIG: u64 = 4 << 20;

/// How long the last report may take after the work of `--once`.
const LAST_REPORT: Duration = Duration::from_secs(10);

/// The devices of a group ask within this time after a change.
const LONGEST_SCATTER: Duration = Duration::from_secs(10);

/// The longest time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(15 * 60);

/// Arguments of a device of a fleet.
#[derive(Debug, clap::Args)]
pub struct FleetArgs {
    /// In a fleet: this device's group
    #[arg(long, value_name = "GROUP", default_value = "default", value_parser = name)]
    pub group: String,

    /// In a fleet: this device's name [default: `[device] name` of CONFIG, otherwise the host name]
    #[arg(long, value_name = "DEVICE", value_parser = name)]
    device: Option<String>,
}

/// The fleet that this device belongs to.
pub struct Fleet {
    options: Options,
    identity: Identity,
    time_zone: TimeZone,
    /// Connected while there is something to ask.
    buckets: Option<Buckets>,
    /// Reports what this device does.
    pub reporter: Reporter,
}

impl Fleet {
    /// Starts to report, at least every `interval`. The first question connects to `servers`.
    ///
    /// # Errors
    /// If the login cannot be read, the configuration's name of this device is none, or the system has no thread.
    pub fn new(
        args: &FleetArgs,
        servers: &str,
        config: Option<PathBuf>,
        interval: Duration,
    ) -> Result<Self, ExitError> {
        let configured = Configured::read(config);
        let device = match (&args.device, configured.name) {
            (Some(device), _) => device.clone(),
            (None, Some(name)) => {
                check_name(&name).map_err(|reason| ExitError::new(Exit::Config, format!("`device.name`: {reason}")))?;
                name
            }
            (None, None) => DeviceConfig::default().resolved(),
        };
        let options = Options::from_env(Some(servers), format!("visiond {device} bundle follow"));
        let mut options = options.map_err(|error| ExitError::new(Exit::Config, error))?;
        // A server can then keep what it answers from other devices.
        options.inbox_word = Some(device.clone());
        options.check().map_err(|error| ExitError::new(Exit::Config, error))?;
        let identity = Identity { device, group: args.group.clone() };
        let reporter = Reporter::start(options.clone(), identity.clone(), interval.min(REPORT_EVERY))?;
        let time_zone = configured.time_zone.unwrap_or_else(TimeZone::system);
        Ok(Self { options, identity, time_zone, buckets: None, reporter })
    }

    /// Asks what to do about a bundle, of which `versions` are the current and the previous one.
    ///
    /// # Errors
    /// If the fleet cannot be asked, or its record cannot be read.
    pub fn order(&mut self, name: &str, versions: [Option<u64>; 2]) -> Result<Order, SourceError> {
        let Identity { device, group } = self.identity.clone();
        let now = Zoned::now().with_time_zone(self.time_zone.clone()).datetime();
        let asked =
            self.buckets().and_then(|buckets| Ok((buckets.desired(&group, name)?, buckets.pin(&device, name)?)));
        let (desired, pin) = asked.map_err(|error| unreadable(name, &error))?;
        let of = |reason: String| SourceError::Unreadable { path: format!("the fleet's records of {name}"), reason };
        let desired = desired.map(|(desired, _)| desired).transpose().map_err(|error| of(error.to_string()))?;
        let pin = pin.transpose().map_err(|error| of(error.to_string()))?;
        Ok(Order::of(&device, versions, desired.as_ref(), pin.as_ref(), now))
    }

    /// Waits until the next turn, or until an operator changes something for this device.
    pub fn rest(&mut self, pause: Duration) {
        // A thousand devices need no connection while they wait.
        self.buckets = None;
        if self.reporter.rest(pause) {
            // Not all of them at once, and not before every server has it.
            thread::sleep(Duration::from_secs(1).min(pause) + (pause / 4).min(LONGEST_SCATTER).mul_f64(random()));
        }
    }

    /// Lets the last report arrive.
    pub fn finish(&self) {
        self.reporter.finish(LAST_REPORT);
    }

    fn buckets(&mut self) -> Result<&mut Buckets, NatsError> {
        match &mut self.buckets {
            Some(buckets) => Ok(buckets),
            none => Ok(none.insert(Buckets::open(self.options.clone())?)),
        }
    }
}

impl BundleSource for Fleet {
    fn read_small(&mut self, path: &str, most: u64) -> Result<Vec<u8>, SourceError> {
        self.buckets().map_err(|error| unreadable(path, &error))?.read_small(path, most)
    }

    fn read_range(&mut self, path: &str, range: Range<u64>, take: &mut Take<'_>) -> Result<(), SourceError> {
        self.buckets().map_err(|error| unreadable(path, &error))?.read_range(path, range, take)
    }
}

/// What the configuration says about this device. An error elsewhere in it does not matter.
#[derive(Debug, Default)]
struct Configured {
    name: Option<String>,
    time_zone: Option<TimeZone>,
}

impl Configured {
    fn read(named: Option<PathBuf>) -> Self {
        let text = config_path(named).ok().and_then(|path| read_text(&path));
        text.map(|text| Self::of(&text)).unwrap_or_default()
    }

    fn of(text: &str) -> Self {
        let (root, _) = DeTable::parse_recoverable(text);
        let value = |key: &str| {
            let device = root.get_ref().get("device")?.get_ref().as_table()?;
            device.get(key).map(|value| value.get_ref()).and_then(DeValue::as_str).map(str::to_owned)
        };
        let time_zone = value("time_zone").and_then(|name| TimeZone::get(&name).ok());
        Self { name: value("name"), time_zone }
    }
}

fn read_text(path: &Path) -> Option<String> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()))?;
    let mut text = String::new();
    file.take(MOST_CONFIG).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns a random number from 0 to 1.
pub fn random() -> f64 {
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_configuration_still_names_the_device() {
        let found = Configured::of("[[camera]]\nname = door\n[device]\nname = \"gate-7\"\ntime_zone = \"UTC\"\n");
        assert_eq!((found.name.as_deref(), found.time_zone), (Some("gate-7"), Some(TimeZone::UTC)));
        let none = Configured::of("[device]\nname = 7\ntime_zone = \"Mars\"");
        assert_eq!((none.name, none.time_zone), (None, None));
    }
}
