//! `visiond fleet devices` and `forget`.

use std::collections::BTreeMap;

use serde::Serialize;
use visiond_bundle::rollout::{Rollout, Step};
use visiond_fleet::{BundleReport, Pin, check_name};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, check_known, name};
use super::failure::refuse;
use crate::bundle::described;
use crate::fleet_buckets::Device;
use crate::output::{complain, note, print_report};
use crate::text_table::TextTable;
use crate::wall_clock::{ago, rfc3339_of, unix_s};

/// List the devices of a fleet, with the versions that they use
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    servers: ServerArgs,

    /// Only devices of this group
    #[arg(long, value_name = "GROUP", value_parser = name)]
    group: Option<String>,

    /// Only devices whose last step was to refuse a version, or to go back from one
    #[arg(long)]
    failed: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove a device that no longer exists from the lists; one that runs reports again
#[derive(Debug, clap::Args)]
pub struct ForgetArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Name of the device
    #[arg(value_name = "DEVICE", value_parser = name)]
    device: String,
}

/// A device as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    device: String,
    group: String,
    visiond: String,
    /// When its last report arrived, in RFC 3339.
    seen: String,
    bundles: Vec<ListedBundle>,
}

#[derive(Debug, Serialize)]
struct ListedBundle {
    name: String,
    #[serde(flatten)]
    report: BundleReport,
    pin: Option<ListedPin>,
}

#[derive(Debug, Serialize)]
struct ListedPin {
    /// `None`: it keeps the version that it has.
    version: Option<u64>,
    by: String,
    /// In RFC 3339.
    since: String,
    reason: Option<String>,
}

impl From<Pin> for ListedPin {
    fn from(pin: Pin) -> Self {
        let Pin { version, by, since_unix_s, reason, .. } = pin;
        Self { version, by, since: rfc3339_of(since_unix_s), reason }
    }
}

/// Lists devices.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let devices = buckets.reported().map_err(refuse)?;
    if let Some(group) = args.group.as_ref().filter(|_| !devices.is_empty()) {
        check_known("group", group, devices.values().map(|device| &*device.reported.group))?;
    }
    let mut pins = BTreeMap::new();
    for (key, pin) in buckets.pins().map_err(refuse)? {
        match pin {
            Ok(pin) => drop(pins.insert(key, pin)),
            Err(error) => complain(&error.to_string()),
        }
    }
    for (device, bundle) in pins.keys() {
        if !devices.get(device).is_some_and(|device| device.reported.bundles.contains_key(bundle)) {
            note(&format!(
                "{device} has a pin for {bundle}, but has not reported it: `visiond fleet unpin {device} {bundle}`"
            ));
        }
    }
    let is_listed = |device: &Device| args.group.as_ref().is_none_or(|group| *group == device.reported.group);
    let now = unix_s();
    let mut seen = Vec::new();
    let mut listed = Vec::new();
    for Device { name, reported, seen_unix_s } in devices.into_values().filter(is_listed) {
        let has_failed = |report: &BundleReport| matches!(report.step, Step::Refused | Step::WentBack);
        let bundles = reported.bundles.into_iter().filter(|(_, report)| !args.failed || has_failed(report));
        let mut pin_of = |bundle: &String| pins.remove(&(name.clone(), bundle.clone())).map(ListedPin::from);
        let bundles: Vec<_> = bundles.map(|(name, report)| ListedBundle { pin: pin_of(&name), name, report }).collect();
        if args.failed && bundles.is_empty() {
            continue;
        }
        seen.push(ago(now, seen_unix_s));
        let (group, visiond) = (reported.group, reported.visiond);
        listed.push(Listed { device: name, group, visiond, seen: rfc3339_of(seen_unix_s), bundles });
    }
    print_report(args.json, &listed, |listed| {
        let mut table = TextTable::new(&["device", "group", "seen", "visiond", "bundle", ">version", ">pin", "step"]);
        for (device, seen) in listed.iter().zip(&seen) {
            for ListedBundle { name, report, pin } in &device.bundles {
                let version = report.current.map_or_else(|| "-".to_owned(), |version| version.to_string());
                let pin = match pin {
                    None => "-".to_owned(),
                    Some(ListedPin { version: None, .. }) => "kept".to_owned(),
                    Some(ListedPin { version: Some(version), .. }) => version.to_string(),
                };
                let cells = [&device.device, &device.group, seen, &device.visiond, name, &version, &pin];
                table.push(cells.into_iter().cloned().chain([described(&rollout_of(report))]));
            }
        }
        if table.rows.is_empty() {
            let what = if args.failed {
                "no device has refused a version or gone back from one"
            } else {
                "no device has reported"
            };
            return format!("{what}\n");
        }
        table.text()
    })
}

/// Returns a report as the device's own state.
fn rollout_of(report: &BundleReport) -> Rollout {
    let BundleReport { step, version, since_unix_s, percent, ref reason, .. } = *report;
    Rollout { source: String::new(), step, version, newest: None, since_unix_s, percent, reason: reason.clone() }
}

/// Removes a device's report.
pub fn forget(args: &ForgetArgs) -> Result<Exit, ExitError> {
    check_name(&args.device).map_err(|reason| ExitError::new(Exit::Usage, reason))?;
    let mut buckets = args.servers.open()?;
    if !buckets.delete_reported(&args.device).map_err(refuse)? {
        return Err(ExitError::new(
            Exit::Input,
            format!("no device {} has reported: check the name with `visiond fleet devices`", args.device),
        ));
    }
    note(&format!("{} is no longer listed", args.device));
    Ok(Exit::Success)
}
