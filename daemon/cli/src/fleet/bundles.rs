//! `visiond fleet bundles` and `delete`: what is in the store, and what is no longer used.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use visiond_bundle::Index;
use visiond_bundle::rollout::Step;
use visiond_config::diagnostics::count;
use visiond_fleet::{RecordError, Reported};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, bundle, version};
use super::failure::refuse;
use crate::fleet_buckets::Buckets;
use crate::output::{complain, note, print_report};
use crate::text_table::TextTable;
use crate::wall_clock::{ago, rfc3339_of, unix_s};

/// List the bundles in the fleet's store, and what uses them
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    servers: ServerArgs,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Delete a version from the fleet's store; devices that have it keep it
#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    servers: ServerArgs,

    /// Name of the bundle
    #[arg(value_name = "NAME", value_parser = bundle)]
    name: String,

    /// Version to delete
    #[arg(value_name = "VERSION", value_parser = version)]
    version: u64,

    /// Delete it though a group, a pin or a device uses it
    #[arg(long)]
    force: bool,
}

/// A version in the store, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    bundle: String,
    version: u64,
    bytes: u64,
    /// When it was pushed, in RFC 3339.
    pushed: String,
    /// Whether its file and its index are there.
    is_complete: bool,
    #[serde(flatten)]
    uses: Uses,
}

/// What uses a version.
#[derive(Debug, Default, Clone, Serialize)]
struct Uses {
    /// The groups that should use it.
    groups: BTreeSet<String>,
    /// The groups that can go back to it.
    groups_before: BTreeSet<String>,
    /// The devices that are pinned to it.
    pins: BTreeSet<String>,
    /// How many devices use it.
    devices: usize,
    /// How many devices can go back to it.
    devices_before: usize,
}

/// By bundle and version.
type AllUses = BTreeMap<(String, u64), Uses>;

/// Lists what is in the store.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let (mut uses, broken) = all_uses(&mut buckets)?;
    for (_, error) in broken {
        complain(&error.to_string());
    }
    let objects = buckets.objects().map_err(refuse)?;
    let indexes: BTreeSet<_> = objects.iter().filter_map(|it| versioned(&it.name, ".toml")).collect();
    let now = unix_s();
    let mut ages = BTreeMap::new();
    let mut listed = Vec::new();
    for object in &objects {
        let Some((name, version)) = versioned(&object.name, ".visiond") else { continue };
        let uses = uses.remove(&(name.to_owned(), version)).unwrap_or_default();
        let is_complete = indexes.contains(&(name, version));
        let pushed = rfc3339_of(object.stored_unix_s);
        ages.insert((name, version), ago(now, object.stored_unix_s));
        listed.push(Listed { bundle: name.to_owned(), version, bytes: object.bytes, pushed, is_complete, uses });
    }
    listed.sort_by(|one, other| (&one.bundle, one.version).cmp(&(&other.bundle, other.version)));
    print_report(args.json, &listed, |listed| {
        if listed.is_empty() {
            return "the store has no bundles: put one there with `visiond fleet push`\n".to_owned();
        }
        let mut table = TextTable::new(&["bundle", ">version", ">MB", "pushed", "used by"]);
        for one in listed {
            let used = if one.is_complete { one.uses.described() } else { "incomplete: push it again".to_owned() };
            let age = ages.get(&(&*one.bundle, one.version)).cloned().unwrap_or_default();
            let megabytes = format!("{:.1}", one.bytes as f64 / 1e6);
            table.push([one.bundle.clone(), one.version.to_string(), megabytes, age, used]);
        }
        table.text()
    })
}

/// Deletes a version.
pub fn delete(args: &DeleteArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let DeleteArgs { name, version, .. } = args;
    if !args.force {
        let (mut uses, broken) = all_uses(&mut buckets)?;
        if let Some(uses) = uses.remove(&(name.clone(), *version)) {
            let message =
                format!("{name} {version} is in use by {}: use --force to delete it all the same", uses.described());
            return Err(ExitError::new(Exit::Model, message));
        }
        // A record that cannot be read may want any version.
        if let Some((_, error)) = broken.into_iter().find(|(bundle, _)| bundle == name) {
            let message = format!(
                "cannot find out what uses {name} {version}: {error}, or use --force to delete it all the same"
            );
            return Err(ExitError::new(Exit::Input, message));
        }
    }
    // The index first: without it, no device begins to fetch the file.
    let paths = [Index::path_of_version(name, *version), format!("{name}/{version}.visiond")];
    let mut was_there = false;
    for path in paths {
        was_there |= buckets.delete_object(&path).map_err(refuse)?;
    }
    if !was_there {
        let message =
            format!("{name} {version} is not in the fleet's store: check the version with `visiond fleet bundles`");
        return Err(ExitError::new(Exit::Input, message));
    }
    note(&format!("{name} {version} is no longer in the store"));
    remove_leftovers(&mut buckets);
    Ok(Exit::Success)
}

/// Removes what interrupted pushes have left. If that fails, the next command tries again.
pub fn remove_leftovers(buckets: &mut Buckets) {
    match buckets.remove_leftovers() {
        Ok(0) => {}
        Ok(count) => note(&format!("removed what interrupted pushes had left (objects: {count})")),
        Err(error) => log::debug!("cannot remove what interrupted pushes have left: {error}"),
    }
}

impl Uses {
    fn described(&self) -> String {
        let some = |devices: usize, what: &str| (devices > 0).then(|| format!("{}{what}", count(devices, "device")));
        let groups = self.groups.iter().map(|group| format!("group {group}"));
        let groups_before = self.groups_before.iter().map(|group| format!("group {group} as the previous version"));
        let pins = self.pins.iter().map(|device| format!("the pin of {device}"));
        let devices = [some(self.devices, ""), some(self.devices_before, " as the previous version")];
        groups.chain(groups_before).chain(pins).chain(devices.into_iter().flatten()).collect::<Vec<_>>().join(", ")
    }
}

/// Reads what uses each version, and the bundles of records that cannot be read.
fn all_uses(buckets: &mut Buckets) -> Result<(AllUses, Vec<(String, RecordError)>), ExitError> {
    let (mut uses, mut broken) = (AllUses::new(), Vec::new());
    for ((group, bundle), desired) in buckets.all_desired().map_err(refuse)? {
        let desired = match desired {
            Ok(desired) => desired,
            Err(error) => {
                broken.push((bundle, error));
                continue;
            }
        };
        // A group that went back does not return to the version that it left.
        if let Some(before) = desired.before.filter(|_| !desired.is_rollback) {
            uses.entry((bundle.clone(), before)).or_default().groups_before.insert(group.clone());
        }
        uses.entry((bundle, desired.version)).or_default().groups.insert(group);
    }
    for ((device, bundle), pin) in buckets.pins().map_err(refuse)? {
        match pin.map(|pin| pin.version) {
            Ok(Some(version)) => {
                uses.entry((bundle, version)).or_default().pins.insert(device);
            }
            Ok(None) => {}
            Err(error) => broken.push((bundle, error)),
        }
    }
    for device in buckets.reported().map_err(refuse)?.into_values() {
        let Reported { bundles, .. } = device.reported;
        for (bundle, report) in bundles {
            let is_fetched = matches!(report.step, Step::Fetching | Step::Building | Step::Proving | Step::Comparing);
            let next = report.version.filter(|_| is_fetched);
            for current in [report.current, next].into_iter().flatten() {
                uses.entry((bundle.clone(), current)).or_default().devices += 1;
            }
            if let Some(previous) = report.previous {
                uses.entry((bundle, previous)).or_default().devices_before += 1;
            }
        }
    }
    Ok((uses, broken))
}

/// Returns the bundle and the version of an object's name.
fn versioned<'n>(object: &'n str, ending: &str) -> Option<(&'n str, u64)> {
    let (bundle, file) = object.split_once('/')?;
    Some((bundle, file.strip_suffix(ending)?.parse().ok()?))
}
