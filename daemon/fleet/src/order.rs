//! What a device does about a bundle.

use jiff::civil::DateTime;

use crate::advance::is_admitted;
use crate::desired::{Desired, Pin, Progress};
use crate::window::Window;

/// What a device does about a bundle now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// It uses the version that it should use, or none is desired.
    Stay {
        /// The newest version for its group, if there is one.
        newest: Option<u64>,
    },
    /// It is not its turn.
    Wait {
        /// The version that it will use.
        version: u64,
        /// What it waits for.
        reason: String,
    },
    /// It fetches a version, and switches to it unless something is to be waited for.
    Use {
        /// The version.
        version: u64,
        /// What the switch waits for.
        wait: Option<String>,
    },
    /// It goes back to the version before.
    GoBack {
        /// The version in use.
        from: u64,
        /// Why.
        reason: String,
    },
    /// It should go back to a version that it does not have.
    Impossible {
        /// That version.
        version: u64,
        /// Why.
        reason: String,
    },
}

impl Order {
    /// Decides for a device that uses `current` and can go back to `previous`. `now` is its local time.
    pub fn of(
        device: &str,
        [current, previous]: [Option<u64>; 2],
        desired: Option<&Desired>,
        pin: Option<&Pin>,
        now: DateTime,
    ) -> Self {
        let newest = desired.map(|desired| desired.version);
        if let Some(pin) = pin {
            // Without a version, it keeps the one that it has.
            let Some(version) = pin.version else { return Self::Stay { newest } };
            if current.is_some_and(|current| current > version) {
                return go_back(current, previous, version, pinned(pin));
            }
            return if current == Some(version) { Self::Stay { newest } } else { Self::Use { version, wait: None } };
        }
        let Some(desired) = desired else { return Self::Stay { newest } };
        let version = desired.version;
        let is_newer = current.is_some_and(|current| current > version);
        // Of a rollback, only the version that is left is gone back from.
        let is_left = desired.left().is_some() && current == desired.left();
        if current == Some(version) || is_newer && !is_left {
            return Self::Stay { newest };
        }
        if !is_admitted(device, desired) {
            return Self::Wait { version, reason: not_yet(desired).unwrap_or_else(|| waits_for_wave(desired)) };
        }
        let wait = not_yet(desired).or_else(|| closed(&desired.windows, now));
        if is_newer {
            return match wait {
                Some(reason) => Self::Wait { version, reason },
                // Whichever version it had before.
                None => go_back(current, previous, previous.unwrap_or(version), rolled_back(desired)),
            };
        }
        Self::Use { version, wait }
    }
}

fn go_back(current: Option<u64>, previous: Option<u64>, version: u64, reason: String) -> Order {
    match current {
        Some(from) if previous == Some(version) => Order::GoBack { from, reason },
        _ => {
            let has = previous.map_or_else(|| "no other".to_owned(), |previous| format!("only version {previous}"));
            let reason =
                format!("{reason}, but there is {has} here to go back to: publish its files as a newer version");
            Order::Impossible { version, reason }
        }
    }
}

fn pinned(pin: &Pin) -> String {
    let why = pin.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} pinned this device to an older version{why}", pin.by)
}

fn rolled_back(desired: &Desired) -> String {
    let why = desired.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} rolled the group back{why}", desired.by)
}

fn waits_for_wave(desired: &Desired) -> String {
    format!("not in the first {} % of its group, which get this version now", desired.share())
}

/// Returns why no device of the group may switch now.
fn not_yet(desired: &Desired) -> Option<String> {
    let why = desired.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match desired.progress {
        Progress::Running | Progress::Done => None,
        Progress::Paused => Some(format!("the rollout is paused{why}")),
        Progress::Stopped => Some(format!("the rollout was stopped{why}")),
    }
}

/// Returns why the device may not switch at this time.
fn closed(windows: &[String], now: DateTime) -> Option<String> {
    let mut parsed = windows.iter().map(|window| window.parse::<Window>());
    let is_open = windows.is_empty() || parsed.any(|window| window.is_ok_and(|window| window.is_open(now)));
    (!is_open).then(|| format!("outside of its maintenance window ({})", windows.join("; ")))
}
