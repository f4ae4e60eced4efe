//! Lets a rollout proceed: reads what devices report, and begins the next wave, or stops it.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use visiond_fleet::{Counts, Desired, Member, Outcome, Progress, Reported, advance, outcome};
use visiond_nats::NatsError;
use visiond_system::exit::{Exit, ExitError};

use super::arguments::TargetArgs;
use super::failure::refuse;
use crate::fleet_buckets::{Buckets, Device, describe};
use crate::output::{complain, note};
use crate::progress;
use crate::wall_clock::{in_largest_unit, unix_s};

/// The shortest pause between two looks at the devices.
const POLL: Duration = Duration::from_secs(2);

/// A look at the devices takes at most this part of the time.
const PART: u32 = 5;

/// The longest pause, after a look that busy servers delayed: the next wave should not wait for minutes because of one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The most devices that are named when a rollout ends.
const MOST_NAMED: usize = 10;

/// The devices of a group that follow one bundle.
pub struct Group {
    bundle: String,
    devices: Vec<Device>,
    pinned: BTreeSet<String>,
}

impl Group {
    /// Reads what devices of the group report.
    pub fn read(buckets: &mut Buckets, target: &TargetArgs) -> Result<Self, NatsError> {
        let pinned = buckets.pinned()?.remove(&target.name).unwrap_or_default();
        let devices = buckets.reported()?;
        Ok(Self::of(devices.into_values(), pinned, &target.group, &target.name))
    }

    /// Takes the devices of one group and bundle out of all.
    pub fn of(devices: impl Iterator<Item = Device>, pinned: BTreeSet<String>, group: &str, bundle: &str) -> Self {
        let is_in = |device: &Device| {
            let Reported { group: own, bundles, .. } = &device.reported;
            own == group && bundles.contains_key(bundle)
        };
        Self { bundle: bundle.to_owned(), devices: devices.filter(is_in).collect(), pinned }
    }

    /// The number of devices.
    pub fn len(&self) -> usize {
        self.devices.len()
    }

    /// Returns whether a device is one of them.
    pub fn has(&self, device: &str) -> bool {
        self.devices.iter().any(|it| it.name == device)
    }

    /// The devices, as a rollout needs them.
    pub fn members(&self) -> Vec<Member<'_>> {
        let reports = self.devices.iter().filter_map(|it| Some((it, it.reported.bundles.get(&self.bundle)?)));
        reports
            .map(|(it, report)| {
                let (device, is_pinned) = (&*it.name, self.pinned.contains(&it.name));
                Member { device, report, seen_unix_s: it.seen_unix_s, is_pinned }
            })
            .collect()
    }
}

/// Lets a rollout proceed until it is over.
pub fn drive(buckets: &mut Buckets, target: &TargetArgs) -> Result<Exit, ExitError> {
    let (mut progress, mut shown, mut away) = (progress::Progress::new(), None, None);
    let mut told = String::new();
    loop {
        let begin = Instant::now();
        match turn(buckets, target) {
            Ok((desired, counts, group)) => {
                if away.take().is_some() {
                    note("the servers answer again");
                }
                let state = (desired.rollout.clone(), desired.progress, desired.wave);
                let text = described(target, &desired, &counts);
                if shown.as_ref() != Some(&state) {
                    note(&text);
                    shown = Some(state);
                    told = text;
                } else if text != told {
                    // What a file or a journal gets has no line twice.
                    progress.tell(|| {
                        told.clone_from(&text);
                        text
                    });
                }
                if let Some(exit) = ended(target, &desired, &counts, &group) {
                    return Ok(exit);
                }
            }
            // Somebody else has written: the next look decides.
            Err(Fault::Nats(NatsError::LostRace { .. })) => {}
            // Devices go on; the next wave has time.
            Err(Fault::Nats(error)) => {
                let error = describe(&error);
                if away.as_ref() != Some(&error) {
                    complain(&format!("{error}; tries again"));
                    away = Some(error);
                }
            }
            Err(Fault::Exit(error)) => return Err(error),
        }
        thread::sleep((begin.elapsed() * (PART - 1)).clamp(POLL, LONGEST_PAUSE));
    }
}

/// Why a turn failed.
enum Fault {
    Nats(NatsError),
    Exit(ExitError),
}

/// Looks at the devices once, and writes what follows.
fn turn(buckets: &mut Buckets, target: &TargetArgs) -> Result<(Desired, Counts, Group), Fault> {
    let TargetArgs { name, group } = target;
    let found = buckets.desired(group, name).map_err(Fault::Nats)?;
    let Some((desired, revision)) = found else { return Err(Fault::Exit(nothing(target))) };
    let desired = desired.map_err(|error| Fault::Exit(ExitError::new(Exit::Input, error)))?;
    let devices = Group::read(buckets, target).map_err(Fault::Nats)?;
    let proceeds = advance(&desired, &devices.members(), unix_s());
    let Some(next) = proceeds.next else { return Ok((desired, proceeds.counts, devices)) };
    buckets.write_desired(group, name, &next, Some(revision)).map_err(Fault::Nats)?;
    Ok((next, proceeds.counts, devices))
}

/// The error of a group without a record.
pub fn nothing(target: &TargetArgs) -> ExitError {
    let TargetArgs { name, group } = target;
    let message =
        format!("{group} has no version of {name}: begin with `visiond fleet rollout {name} VERSION --group {group}`");
    ExitError::new(Exit::Input, message)
}

fn described(target: &TargetArgs, desired: &Desired, counts: &Counts) -> String {
    let Counts { waiting, busy, offline, succeeded, failed, apart } = counts;
    let mut text = format!("{} {}: ", target.name, desired.version);
    text += &match desired.progress {
        Progress::Running if desired.waves.len() > 1 => {
            format!("wave {} of {} ({} %): ", desired.wave + 1, desired.waves.len(), desired.share())
        }
        Progress::Running => String::new(),
        Progress::Paused => "paused: ".to_owned(),
        Progress::Stopped => "stopped: ".to_owned(),
        Progress::Done => "done: ".to_owned(),
    };
    text += &format!("{succeeded} succeeded, {failed} failed, {busy} busy, {waiting} waiting");
    for (count, what) in [(offline, "offline"), (apart, "pinned or newer")] {
        if *count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if let (Progress::Running, Some(since)) = (desired.progress, desired.succeeded_since_unix_s) {
        let left = since.saturating_add(desired.limits.soak_s).saturating_sub(unix_s());
        text += &format!(", soaking for {} more", in_largest_unit(left));
    }
    text
}

/// Says how a rollout ended; `None` if it goes on.
fn ended(target: &TargetArgs, desired: &Desired, counts: &Counts, group: &Group) -> Option<Exit> {
    if desired.progress == Progress::Running {
        return None;
    }
    let now = unix_s();
    let members = group.members();
    let failed = members.iter().filter(|member| outcome(desired, member, now) == Outcome::Failed);
    for member in failed.take(MOST_NAMED) {
        complain(&format!("{}: {}", member.device, member.report.reason.as_deref().unwrap_or("failed")));
    }
    if counts.failed > MOST_NAMED {
        complain(&format!("and {} more: `visiond fleet devices --failed`", counts.failed - MOST_NAMED));
    }
    let reason = desired.reason.as_deref().unwrap_or_default();
    let again = format!("visiond fleet resume {} --group {}", target.name, target.group);
    match desired.progress {
        Progress::Stopped => complain(&format!(
            "stopped: {reason}; `visiond fleet rollback {} --group {}` goes back, `{again} --max-failed PERCENT` goes on",
            target.name, target.group
        )),
        Progress::Paused => complain(&format!("paused: {reason}; `{again}` goes on")),
        Progress::Done if desired.is_rollback && counts.failed > 0 => {
            complain(&format!("{} devices could not go back: give them a newer version", counts.failed));
        }
        Progress::Running | Progress::Done => {}
    }
    Some(match desired.progress {
        Progress::Done if desired.is_rollback && counts.failed > 0 => Exit::Model,
        Progress::Stopped => Exit::Model,
        Progress::Paused => Exit::Failure,
        Progress::Running | Progress::Done => Exit::Success,
    })
}

/// Reads a group's record, which must be there.
pub fn read_desired(buckets: &mut Buckets, target: &TargetArgs) -> Result<(Desired, u64), ExitError> {
    let (desired, revision) =
        buckets.desired(&target.group, &target.name).map_err(refuse)?.ok_or_else(|| nothing(target))?;
    Ok((desired.map_err(|error| ExitError::new(Exit::Input, error))?, revision))
}
