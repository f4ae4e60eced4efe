//! `visiond fleet status`: the rollouts of a fleet.

use std::io::IsTerminal;
use std::time::{Duration, Instant};
use std::{io, thread};

use serde::Serialize;
use visiond_fleet::{Counts, Desired, Outcome, Progress, advance, outcome};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, bundle, check_known, name};
use super::drive::Group;
use super::failure::refuse;
use crate::fleet_buckets::Buckets;
use crate::output::{complain, print, print_report};
use crate::text_table::TextTable;
use crate::wall_clock::{rfc3339_of, unix_s};

/// Pause between two pages of `--watch`.
const EVERY: Duration = Duration::from_secs(2);

/// The most failed devices that are named for each rollout.
const MOST_NAMED: usize = 10;

/// Show which version each group should use, and how far its devices are
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    servers: ServerArgs,

    /// Only this bundle
    #[arg(value_name = "NAME", value_parser = bundle)]
    name: Option<String>,

    /// Only this group
    #[arg(long, value_name = "GROUP", value_parser = name)]
    group: Option<String>,

    /// Show it again every few seconds, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    watch: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A rollout as `--json` prints it.
#[derive(Debug, Serialize)]
struct Listed {
    bundle: String,
    group: String,
    version: u64,
    before: Option<u64>,
    is_rollback: bool,
    progress: Progress,
    reason: Option<String>,
    /// The wave under way, from 1.
    wave: usize,
    waves: Vec<f64>,
    windows: Vec<String>,
    /// When the rollout began, in RFC 3339.
    since: String,
    by: String,
    devices: ListedCounts,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct ListedCounts {
    succeeded: usize,
    failed: usize,
    busy: usize,
    offline: usize,
    waiting: usize,
    pinned_or_newer: usize,
}

#[derive(Debug, Serialize)]
struct Failed {
    device: String,
    reason: Option<String>,
}

/// Shows rollouts.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    if !args.watch {
        let listed = read(&mut buckets, args)?;
        return print_report(args.json, &listed, |listed| text(listed));
    }
    let is_terminal = io::stdout().is_terminal();
    loop {
        let begin = Instant::now();
        match read(&mut buckets, args) {
            Ok(listed) => {
                if is_terminal {
                    // To the top, and what is below goes.
                    crate::output::print_bytes(b"\x1b[H\x1b[2J")?;
                }
                print(&text(&listed))?;
            }
            Err(error) => complain(&error.message),
        }
        thread::sleep(EVERY.max(begin.elapsed() * 4));
    }
}

fn read(buckets: &mut Buckets, args: &Args) -> Result<Vec<Listed>, ExitError> {
    let devices = buckets.reported().map_err(refuse)?;
    let pinned = buckets.pinned().map_err(refuse)?;
    let now = unix_s();
    let all = buckets.all_desired().map_err(refuse)?;
    if let Some(name) = &args.name {
        let followed = devices.values().flat_map(|device| device.reported.bundles.keys());
        check_known("bundle", name, all.keys().map(|(_, bundle)| bundle).chain(followed).map(String::as_str))?;
    }
    if let Some(group) = &args.group {
        let reported = devices.values().map(|device| &device.reported.group);
        check_known("group", group, all.keys().map(|(group, _)| group).chain(reported).map(String::as_str))?;
    }
    let mut listed = Vec::new();
    for ((group, bundle), desired) in all {
        let is_wanted = |wanted: &Option<String>, own: &str| wanted.as_ref().is_none_or(|wanted| wanted == own);
        if !is_wanted(&args.group, &group) || !is_wanted(&args.name, &bundle) {
            continue;
        }
        let desired = match desired {
            Ok(desired) => desired,
            Err(error) => {
                complain(&error.to_string());
                continue;
            }
        };
        let pinned = pinned.get(&bundle).cloned().unwrap_or_default();
        let members = Group::of(devices.values().cloned(), pinned, &group, &bundle);
        listed.push(of(group, bundle, desired, &members, now));
    }
    Ok(listed)
}

fn of(group: String, bundle: String, desired: Desired, members: &Group, now: u64) -> Listed {
    let members = members.members();
    let Counts { apart, waiting, busy, offline, succeeded, failed } = advance(&desired, &members, now).counts;
    let failures = members.iter().filter(|member| outcome(&desired, member, now) == Outcome::Failed);
    let failures =
        failures.map(|member| Failed { device: member.device.to_owned(), reason: member.report.reason.clone() });
    Listed {
        failed: failures.collect(),
        devices: ListedCounts { succeeded, failed, busy, offline, waiting, pinned_or_newer: apart },
        bundle,
        group,
        version: desired.version,
        before: desired.before,
        is_rollback: desired.is_rollback,
        progress: desired.progress,
        reason: desired.reason,
        wave: desired.wave + 1,
        waves: desired.waves,
        windows: desired.windows,
        since: rfc3339_of(desired.since_unix_s),
        by: desired.by,
    }
}

fn text(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "no such group has a version yet: begin with `visiond fleet rollout`\n".to_owned();
    }
    let columns = [
        "bundle",
        "group",
        ">version",
        "state",
        "wave",
        ">succeeded",
        ">failed",
        ">busy",
        ">offline",
        ">waiting",
        ">apart",
    ];
    let mut table = TextTable::new(&columns);
    let mut below = String::new();
    for one in listed {
        let state = match one.progress {
            Progress::Running if one.is_rollback => "going back",
            Progress::Running => "running",
            Progress::Paused => "paused",
            Progress::Stopped => "stopped",
            Progress::Done => "done",
        };
        let share = one.waves.get(one.wave - 1).copied().unwrap_or(100.0);
        let wave = format!("{} of {} ({share} %)", one.wave, one.waves.len());
        let counts = &one.devices;
        let numbers =
            [counts.succeeded, counts.failed, counts.busy, counts.offline, counts.waiting, counts.pinned_or_newer];
        let words = [one.bundle.clone(), one.group.clone(), one.version.to_string(), state.to_owned(), wave];
        table.push(words.into_iter().chain(numbers.map(|number| number.to_string())));
        let reason = one.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let what = match (one.is_rollback, one.progress, one.before) {
            (true, Progress::Done, Some(left)) => Some(("rolled back", left)),
            (true, Progress::Running, Some(left)) => Some(("going back", left)),
            _ => None,
        };
        if let Some((what, left)) = what {
            let (version, by) = (one.version, &one.by);
            below += &format!("{} in {}: {what} from {left} to {version} by {by}{reason}\n", one.bundle, one.group);
        } else if one.reason.is_some() {
            below += &format!("{} in {}: {state}{reason}\n", one.bundle, one.group);
        }
        for Failed { device, reason } in one.failed.iter().take(MOST_NAMED) {
            below += &format!(
                "{} {} failed on {device}: {}\n",
                one.bundle,
                one.version,
                reason.as_deref().unwrap_or("no reason given")
            );
        }
        if one.failed.len() > MOST_NAMED {
            below += &format!("and on {} more: `visiond fleet devices --failed`\n", one.failed.len() - MOST_NAMED);
        }
    }
    let space = if below.is_empty() { "" } else { "\n" };
    format!("{}{space}{below}", table.text())
}
