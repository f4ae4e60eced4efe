//! `visiond fleet pause`, `resume` and `rollback`.

use visiond_fleet::{Desired, EVERY_PLACE, Limits, Progress};
use visiond_system::exit::{Exit, ExitError};

use super::arguments::{ServerArgs, TargetArgs, operator};
use super::drive::{drive, read_desired};
use super::failure::refuse;
use crate::fleet_buckets::{Buckets, random_id};
use crate::output::note;
use crate::wall_clock::unix_s;

/// Pause the rollout of a group: no further device switches until `resume`
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    servers: ServerArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Reason shown to other operators
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Continue a rollout that was paused or stopped, or whose command was ended
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    servers: ServerArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// From now on, stop if more devices than this share fail, in percent [default: as before]
    #[arg(long, value_name = "PERCENT", value_parser = super::rollout::percent)]
    max_failed: Option<f64>,

    /// Let devices go on, and exit
    #[arg(long)]
    no_wait: bool,
}

/// Take a group back to the version that it had before
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A device goes one version back: to the one that it had before. It then refuses the version that it left. Others report why they cannot.")]
pub struct RollbackArgs {
    #[command(flatten)]
    servers: ServerArgs,

    #[command(flatten)]
    target: TargetArgs,

    /// Reason shown to other operators
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Let devices go back, and exit
    #[arg(long)]
    no_wait: bool,
}

/// Pauses a rollout.
pub fn pause(args: &PauseArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let (desired, revision) = read_desired(&mut buckets, &args.target)?;
    if desired.progress == Progress::Done {
        let message = format!(
            "cannot pause: version {} of {} is already in use: use `visiond fleet rollback` to go back",
            desired.version, args.target
        );
        return Err(ExitError::new(Exit::Failure, message));
    }
    let why = args.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let reason = Some(format!("by {}{why}", operator()));
    write(&mut buckets, &args.target, &Desired { progress: Progress::Paused, reason, ..desired }, revision)?;
    note("paused: devices that have switched stay as they are");
    Ok(Exit::Success)
}

/// Goes on with a rollout.
pub fn resume(args: &ResumeArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let (desired, revision) = read_desired(&mut buckets, &args.target)?;
    if desired.progress != Progress::Done {
        let max_failed_percent = args.max_failed.unwrap_or(desired.limits.max_failed_percent);
        let limits = Limits { max_failed_percent, ..desired.limits };
        // A pause is not time in which a version showed what it does.
        let succeeded_since_unix_s = desired.succeeded_since_unix_s.filter(|_| desired.progress == Progress::Running);
        let resumed = Desired { progress: Progress::Running, reason: None, limits, succeeded_since_unix_s, ..desired };
        write(&mut buckets, &args.target, &resumed, revision)?;
    }
    if args.no_wait { Ok(Exit::Success) } else { drive(&mut buckets, &args.target) }
}

/// Takes a group back.
pub fn roll_back(args: &RollbackArgs) -> Result<Exit, ExitError> {
    let mut buckets = args.servers.open()?;
    let (desired, revision) = read_desired(&mut buckets, &args.target)?;
    let before = desired.before.filter(|before| *before < desired.version);
    let Some(version) = before else {
        let message = format!(
            "the fleet gave {} no version before {}: push older files as a newer version, and roll that out",
            args.target, desired.version
        );
        return Err(ExitError::new(Exit::Failure, message));
    };
    let now = unix_s();
    let back = Desired {
        version,
        before: Some(desired.version),
        is_rollback: true,
        rollout: random_id()?,
        first: Vec::new(),
        progress: Progress::Running,
        reason: args.reason.clone(),
        admitted: EVERY_PLACE,
        waves: vec![100.0],
        wave: 0,
        wave_since_unix_s: now,
        succeeded_since_unix_s: None,
        since_unix_s: now,
        by: operator(),
        // A device that cannot go back keeps no other from it.
        limits: Limits { max_failed_percent: 100.0, min_succeeded_percent: 0.0, soak_s: 0, ..desired.limits },
        windows: Vec::new(),
        ..desired
    };
    write(&mut buckets, &args.target, &back, revision)?;
    note(&format!("{} goes back to version {version}", args.target));
    if args.no_wait { Ok(Exit::Success) } else { drive(&mut buckets, &args.target) }
}

fn write(buckets: &mut Buckets, target: &TargetArgs, desired: &Desired, revision: u64) -> Result<(), ExitError> {
    buckets.write_desired(&target.group, &target.name, desired, Some(revision)).map_err(refuse)
}
