//! `visiond fleet rollout`: gives a version to a group, wave by wave.

use std::time::Duration;

use visiond_bundle::{Index, SourceError};
use visiond_config::parse_duration;
use visiond_fleet::{Desired, Limits, MOST_FIRST, Progress, Window, admit};
use visiond_nats::NatsError;
use visiond_nats::object::ObjectInfo;
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, TargetArgs, name, operator, version};
use super::drive::{Group, drive};
use super::failure::refuse;
use crate::fleet_buckets::{Buckets, random_id};
use crate::output::note;
use crate::value_parsers::duration;
use crate::wall_clock::unix_s;

/// Give a version to a group, wave by wave, and stop if too many devices fail
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    servers: ServerArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Version to use
    #[arg(value_name = "VERSION", value_parser = version)]
    version: u64,

    /// Shares of the group that get it one after another, in percent; all others come last
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "5,25", value_parser = share)]
    waves: Vec<f64>,

    /// Devices that get it before all others, at most 50; the first wave has all of them, also if they are more than its share
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', value_parser = name)]
    first: Vec<String>,

    /// Stop if more devices than this share fail, in percent of those whose turn it was
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
    max_failed: f64,

    /// Begin the next wave once this share has succeeded, in percent of the devices that are online
    #[arg(long, value_name = "PERCENT", default_value = "90", value_parser = percent)]
    min_succeeded: f64,

    /// Begin the next wave this long after enough devices have succeeded
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = soak)]
    soak: Duration,

    /// Do not wait for devices that have not reported for this long; they use the version when they come
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = offline)]
    offline_after: Duration,

    /// Switch devices only at this local time, such as 22:00-05:00 or 'Mon..Fri 22:00-05:00'; may be repeated
    #[arg(long, value_name = "TIMES", value_parser = window)]
    window: Vec<String>,

    /// Begin though no device of the group follows the bundle yet
    #[arg(long)]
    allow_empty: bool,

    /// Begin the first wave and exit; `visiond fleet resume` begins the next ones
    #[arg(long)]
    no_wait: bool,
}

const AFTER_HELP: &str = "\
The command runs until every device that is online has finished. If it is ended, devices of the current wave continue, and `visiond fleet resume` begins the next waves.

The status is 0 once all waves have succeeded, 4 if too many devices failed.

Examples:
  visiond fleet rollout street 7 --group north
  visiond fleet rollout street 7 --waves 1,10,50 --max-failed 2 --soak 1h
  visiond fleet rollout street 7 --first gate-1,gate-2 --waves 10
  visiond fleet rollout street 7 --window 'Mon..Fri 22:00-05:00'";

/// Begins a rollout.
pub fn run(args: &Args) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let TargetArgs { name, group } = &args.target;
    if !is_whole(&mut buckets, name, args.version)? {
        let message = format!(
            "{name} {} is not in the fleet's store, or not all of it: put it there with `visiond fleet push`",
            args.version
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    let (before, revision) = buckets.desired(group, name).map_err(refuse)?.unzip();
    // A record that cannot be read is replaced.
    let before = before.and_then(Result::ok);
    if let Some(before) = &before {
        check_order(args, before)?;
    }
    let now = unix_s();
    let mut waves = args.waves.clone();
    if !waves.is_sorted() {
        return Err(ExitError::new(Exit::Usage, "the shares of --waves must grow, such as 5,25: sort them"));
    }
    waves.push(100.0);
    waves.dedup();
    let good = before.as_ref().map(|before| match before.progress {
        Progress::Done => Some(before.version),
        // What it left is worse.
        _ if before.is_rollback => Some(before.version),
        _ => before.before,
    });
    let mut desired = Desired {
        format: 1,
        version: args.version,
        before: good.flatten(),
        is_rollback: false,
        rollout: random_id()?,
        first: args.first.clone(),
        progress: Progress::Running,
        reason: None,
        admitted: 0,
        waves,
        wave: 0,
        wave_since_unix_s: now,
        succeeded_since_unix_s: None,
        since_unix_s: now,
        by: operator(),
        limits: Limits {
            max_failed_percent: args.max_failed,
            min_succeeded_percent: args.min_succeeded,
            soak_s: args.soak.as_secs(),
            offline_after_s: args.offline_after.as_secs(),
        },
        windows: args.window.clone(),
    };
    let devices = Group::read(&mut buckets, &args.target).map_err(refuse)?;
    if devices.len() == 0 && !args.allow_empty {
        let message = format!(
            "no device in {group} follows {name}: start `visiond bundle follow` on devices, check --group (`visiond fleet devices`), or use \
             --allow-empty"
        );
        return Err(ExitError::new(Exit::Input, message));
    }
    check_first(&args.first, &devices, &args.target)?;
    desired.admitted = admit(&desired, &devices.members(), now);
    buckets.write_desired(group, name, &desired, revision).map_err(refuse)?;
    note(&format!("{} {} begins in {group} (devices: {})", name, args.version, devices.len()));
    if args.no_wait {
        note(&format!("`visiond fleet resume {name} --group {group}` begins the waves after the first"));
        return Ok(Exit::Success);
    }
    drive(&mut buckets, &args.target)
}

/// Checks that the devices that come first are there.
fn check_first(first: &[String], devices: &Group, target: &TargetArgs) -> Result<(), ExitError> {
    let TargetArgs { name, group } = target;
    if first.len() > MOST_FIRST {
        let message = format!("{} devices come first: name at most {MOST_FIRST}, or use --waves", first.len());
        return Err(ExitError::new(Exit::Usage, message));
    }
    let Some(unknown) = first.iter().find(|first| !devices.has(first)) else { return Ok(()) };
    let message = format!(
        "{unknown} does not follow {name} in {group}: check the name with `visiond fleet devices --group {group}`"
    );
    Err(ExitError::new(Exit::Input, message))
}

/// Returns whether a version is in the store, its file and its index, and each chunk of both.
pub fn is_whole(buckets: &mut Buckets, name: &str, version: u64) -> Result<bool, ExitError> {
    let Some(index) = stored_index(buckets, name, version)? else { return Ok(false) };
    let file = whole_object(buckets, &index.path())?;
    Ok(file.is_some_and(|info| info.size == index.bytes))
}

/// Reads the index of a version; `None` if there is none that can be read.
pub fn stored_index(buckets: &mut Buckets, name: &str, version: u64) -> Result<Option<Index>, ExitError> {
    if whole_object(buckets, &Index::path_of_version(name, version))?.is_none() {
        return Ok(None);
    }
    match Index::ask_version(buckets, name, version) {
        Ok(index) => Ok(Some(index)),
        Err(SourceError::Missing { .. } | SourceError::Index { .. }) => Ok(None),
        Err(error) => Err(ExitError::new(Exit::Failure, error)),
    }
}

/// Returns the description of an object; `None` if there is none, or a part of the object is gone.
fn whole_object(buckets: &mut Buckets, path: &str) -> Result<Option<ObjectInfo>, ExitError> {
    let found = buckets.object(path).and_then(|info| Ok(buckets.is_complete(&info)?.then_some(info)));
    match found {
        Err(NatsError::MissingObject { .. } | NatsError::BrokenObject { .. }) => Ok(None),
        found => found.map_err(refuse),
    }
}

/// Checks that the version may follow what the group should use now.
fn check_order(args: &Args, before: &Desired) -> Result<(), ExitError> {
    let (target, version) = (&args.target, args.version);
    let TargetArgs { name, group } = target;
    let newest = before.before.map_or(before.version, |older| older.max(before.version));
    let message = if before.progress == Progress::Running {
        format!(
            "a rollout of {name} {} in {group} is under way: begin its next waves with `visiond fleet resume {name} --group {group}`, or stop it \
             with `visiond fleet pause {name} --group {group}`",
            before.version
        )
    } else if version == before.version && before.progress != Progress::Done {
        format!(
            "the rollout of {name} {version} in {group} is not over: go on with `visiond fleet resume {name} --group {group}`"
        )
    } else if version == before.version {
        return Err(ExitError::new(
            Exit::Model,
            format!("{group} has {name} {version} already: see `visiond fleet status`"),
        ));
    } else if version <= newest {
        format!(
            "{name} {version} is not newer than {newest}, which {group} had: publish its files as a newer version, or go one version back with \
             `visiond fleet rollback {name} --group {group}`"
        )
    } else {
        return Ok(());
    };
    Err(ExitError::new(Exit::Model, message))
}

fn share(text: &str) -> Result<f64, String> {
    percent(text)
        .and_then(|share| if share > 0.0 { Ok(share) } else { Err("a wave must have more than 0 %".to_owned()) })
}

pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let number = number.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "expected percent: a number from 0 to 100".to_owned())
}

fn offline(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let is_longer = time >= Duration::from_secs(20 * 60);
    is_longer
        .then_some(time)
        .ok_or_else(|| "expected at least 20min, because devices report every 15 minutes".to_owned())
}

fn soak(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|_| "expected 0, or a time with a unit, such as 10min or 1h".to_owned())
}

fn window(text: &str) -> Result<String, String> {
    text.parse::<Window>().map(|window| window.to_string())
}
