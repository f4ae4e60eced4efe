//! Commands: settings that change while the daemon runs, and totals that are reset.
//!
//! What a command sets lies over the file's settings until the daemon ends, or until a reload finds another value for that key in
//! the file. So the running configuration is always a configuration, and takes effect as a reload does.

use std::collections::BTreeMap;
use std::fmt;

use super::types::{CameraConfig, Config, SourceConfig};

/// A command to a camera, or to one of its lines and zones.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What it is for.
    pub target: Target,
    /// What to do.
    pub action: Action,
}

/// A camera, or a line or zone of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Name of the camera.
    pub camera: String,
    /// Name of the line or zone.
    pub rule: Option<String>,
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Changes settings.
    Set(SettingsChange),
    /// Resets the totals of a line or zone.
    Reset,
}

/// New values of settings; those without a value stay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SettingsChange {
    /// The key `enabled`.
    pub enabled: Option<bool>,
    /// The least score: the key `score_threshold` of a camera, or `min_score` of a line or zone.
    pub min_score: Option<f64>,
}

impl SettingsChange {
    /// Whether another change changes one of the same settings.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.enabled.is_some() && other.enabled.is_some() || self.min_score.is_some() && other.min_score.is_some()
    }

    /// Returns both changes as one; of a setting that both change, the later value counts.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self { enabled: later.enabled.or(self.enabled), min_score: later.min_score.or(self.min_score) }
    }
}

/// Why a command cannot be carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CommandError {
    /// No camera has this name.
    #[error("no camera has the name {0}: use a name of the configuration")]
    NoCamera(String),
    /// The camera has no line or zone of this name.
    #[error("camera {camera} has no line or zone {rule}: use a name of the configuration")]
    NoRule {
        /// The camera.
        camera: String,
        /// The name.
        rule: String,
    },
    /// A camera has no totals of its own.
    #[error("camera {0} has no totals: name one of its lines or zones")]
    NoTotals(String),
    /// It is no score.
    #[error("a score is a number from 0 to 1, not {0}: correct it")]
    Score(f64),
    /// Too many clients wait for the result of a command.
    #[error("too many clients wait for the result of a command: try again later")]
    Busy,
    /// Another camera has the device.
    #[error(
        "camera {other} uses the same device as camera {camera}, and only one can open it: switch {other} off first"
    )]
    SameDevice {
        /// The camera that is to be switched on.
        camera: String,
        /// The camera that has the device.
        other: String,
    },
    /// A command has switched a camera on whose device another one now has in the file.
    #[error(
        "a command has switched camera {switched_on} on, which uses the same device as camera {camera}, and only one can open it: \
         switch {switched_on} off by a command first, or name another device"
    )]
    DeviceTaken {
        /// The camera that a command has switched on.
        switched_on: String,
        /// The other camera.
        camera: String,
    },
}

/// `camera door`, or `camera door, entry` for a line or zone.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "camera {}", self.camera)?;
        self.rule.as_ref().map_or(Ok(()), |rule| write!(f, ", {rule}"))
    }
}

/// `camera door, entry: enabled = false`
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, action } = self;
        match action {
            Action::Reset => write!(f, "{target}: reset totals"),
            Action::Set(SettingsChange { enabled, min_score }) => {
                let key = if target.rule.is_some() { "min_score" } else { "score_threshold" };
                let enabled = enabled.map(|enabled| format!("enabled = {enabled}"));
                let min_score = min_score.map(|score| format!("{key} = {score}"));
                let both: Vec<_> = enabled.into_iter().chain(min_score).collect();
                write!(f, "{target}: {}", both.join(", "))
            }
        }
    }
}

impl Command {
    /// Takes in a later command that changes a setting of the same target again, so that one change does for both; returns whether it could.
    /// One that changes another setting stays apart: it may be refused by itself.
    pub fn merge(&mut self, later: &Self) -> bool {
        if self.target != later.target {
            return false;
        }
        match (self.action, later.action) {
            (Action::Set(change), Action::Set(later)) if change.overlaps(later) => {
                self.action = Action::Set(change.then(later));
            }
            (Action::Reset, Action::Reset) => {}
            _ => return false,
        }
        true
    }

    /// Returns whether it would change nothing, because the configuration has these settings.
    pub fn is_in_force(&self, config: &Config) -> bool {
        let Action::Set(change) = self.action else { return false };
        settings(config, &self.target).is_some_and(|(enabled, min_score)| {
            change.enabled.is_none_or(|new| new == enabled) && change.min_score.is_none_or(|new| new == min_score)
        })
    }

    /// Checks that it can be carried out in this configuration.
    ///
    /// # Errors
    /// The configuration does not have what it is for, or another camera has the device.
    pub fn check(&self, config: &Config) -> Result<(), CommandError> {
        let Target { camera: name, rule } = &self.target;
        let camera = config.cameras.iter().find(|camera| camera.name == *name);
        let camera = camera.ok_or_else(|| CommandError::NoCamera(name.clone()))?;
        if let Some(rule) = rule {
            let mut has = camera.line.iter().map(|line| &line.name).chain(camera.zone.iter().map(|zone| &zone.name));
            if !has.any(|known| known == rule) {
                return Err(CommandError::NoRule { camera: name.clone(), rule: rule.clone() });
            }
        }
        match self.action {
            Action::Reset if rule.is_none() => Err(CommandError::NoTotals(name.clone())),
            Action::Set(SettingsChange { min_score: Some(score), .. }) if !(0.0..=1.0).contains(&score) => {
                Err(CommandError::Score(score))
            }
            Action::Set(SettingsChange { enabled: Some(true), .. }) if rule.is_none() => {
                let has_it = |other: &&CameraConfig| other.enabled && other.name != *name && same_device(other, camera);
                match config.cameras.iter().find(has_it) {
                    Some(other) => Err(CommandError::SameDevice { camera: name.clone(), other: other.name.clone() }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Whether two cameras name the same V4L2 device.
fn same_device(a: &CameraConfig, b: &CameraConfig) -> bool {
    match (&a.source, &b.source) {
        (SourceConfig::V4l2(a), SourceConfig::V4l2(b)) => a.device == b.device,
        _ => false,
    }
}

/// The settings that commands have changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overrides(BTreeMap<Target, SettingsChange>);

impl Overrides {
    /// Adds what a command sets; earlier values of the same settings go.
    #[must_use]
    pub fn with(&self, target: &Target, change: SettingsChange) -> Self {
        let mut all = self.clone();
        let known = all.0.entry(target.clone()).or_default();
        *known = known.then(change);
        all
    }

    /// Returns those that stay when the file changes from `before` to `after`: of each setting that has the same value in both.
    #[must_use]
    pub fn kept(&self, before: &Config, after: &Config) -> Self {
        let keep = |(target, change): (&Target, &SettingsChange)| {
            let ((was_enabled, score), (is_enabled, new_score)) = (settings(before, target)?, settings(after, target)?);
            let kept = SettingsChange {
                enabled: change.enabled.filter(|_| was_enabled == is_enabled),
                min_score: change.min_score.filter(|_| score == new_score),
            };
            (kept != SettingsChange::default()).then(|| (target.clone(), kept))
        };
        Self(self.0.iter().filter_map(keep).collect())
    }

    /// Returns the file's configuration with these settings.
    pub fn over(&self, file: &Config) -> Config {
        let mut config = file.clone();
        for (target, change) in &self.0 {
            let Some(camera) = config.cameras.iter_mut().find(|camera| camera.name == target.camera) else { continue };
            match &target.rule {
                None => {
                    camera.enabled = change.enabled.unwrap_or(camera.enabled);
                    camera.score_threshold = change.min_score.or(camera.score_threshold);
                }
                Some(rule) => {
                    let lines = camera.line.iter_mut().map(|line| (&line.name, &mut line.enabled, &mut line.min_score));
                    let zones = camera.zone.iter_mut().map(|zone| (&zone.name, &mut zone.enabled, &mut zone.min_score));
                    for (_, enabled, min_score) in lines.chain(zones).filter(|(name, ..)| *name == rule) {
                        *enabled = change.enabled.unwrap_or(*enabled);
                        *min_score = change.min_score.unwrap_or(*min_score);
                    }
                }
            }
        }
        config
    }

    /// Checks that no camera that these switch on has the device of another one that runs.
    ///
    /// # Errors
    /// One has; the file alone may be valid, because it has that camera off.
    pub fn check(&self, file: &Config) -> Result<(), CommandError> {
        let config = self.over(file);
        let switched_on = config.cameras.iter().zip(&file.cameras).filter(|(runs, file)| runs.enabled && !file.enabled);
        for (switched_on, _) in switched_on {
            let has_it = |camera: &&CameraConfig| {
                camera.enabled && camera.name != switched_on.name && same_device(camera, switched_on)
            };
            if let Some(camera) = config.cameras.iter().find(has_it) {
                let (switched_on, camera) = (switched_on.name.clone(), camera.name.clone());
                return Err(CommandError::DeviceTaken { switched_on, camera });
            }
        }
        Ok(())
    }

    /// Returns the cameras that commands have switched off, although the file has them on.
    pub fn switched_off<'f>(&self, file: &'f Config) -> impl Iterator<Item = &'f CameraConfig> {
        file.cameras.iter().filter(|camera| camera.enabled).filter(|camera| {
            let target = Target { camera: camera.name.clone(), rule: None };
            self.0.get(&target).is_some_and(|change| change.enabled == Some(false))
        })
    }
}

/// Returns whether something is enabled, and its least score; `None` if the configuration does not have it.
fn settings(config: &Config, Target { camera, rule }: &Target) -> Option<(bool, f64)> {
    let camera = config.cameras.iter().find(|known| known.name == *camera)?;
    let Some(rule) = rule else { return Some((camera.enabled, camera.score_threshold.unwrap_or(0.0))) };
    let lines = camera.line.iter().map(|line| (&line.name, line.enabled, line.min_score));
    let mut rules = lines.chain(camera.zone.iter().map(|zone| (&zone.name, zone.enabled, zone.min_score)));
    rules.find(|(name, ..)| *name == rule).map(|(_, enabled, min_score)| (enabled, min_score))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    const FILE: &str = r#"
        [[model]]
        name = "objects"
        path = "objects.onnx"
        [[camera]]
        name = "door"
        source = { type = "v4l2", device = "/dev/video0" }
        track = {}
        [[camera.zone]]
        name = "dock"
        min_score = 0.25
        [[camera]]
        name = "spare"
        enabled = false
        source = { type = "v4l2", device = "/dev/video0" }
    "#;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("test.toml")).unwrap()
    }

    fn target(camera: &str, rule: Option<&str>) -> Target {
        Target { camera: camera.to_owned(), rule: rule.map(str::to_owned) }
    }

    fn set(enabled: Option<bool>, min_score: Option<f64>) -> SettingsChange {
        SettingsChange { enabled, min_score }
    }

    #[test]
    fn what_commands_set_lies_over_the_file_until_the_file_changes_that_key() {
        let file = config(FILE);
        let (door, dock) = (target("door", None), target("door", Some("dock")));
        let all = Overrides::default().with(&door, set(Some(false), None)).with(&door, set(None, Some(0.5)));
        let all = all.with(&dock, set(Some(false), Some(0.75)));
        let running = all.over(&file);
        assert_eq!((settings(&running, &door), settings(&running, &dock)), (Some((false, 0.5)), Some((false, 0.75))));
        assert_eq!(all.switched_off(&file).map(|camera| &*camera.name).collect::<Vec<_>>(), ["door"]);
        assert_eq!(all.kept(&file, &file), all);
        let after = config(&FILE.replace("min_score = 0.25", "min_score = 0.5"));
        let kept = all.kept(&file, &after);
        let running = kept.over(&after);
        assert_eq!((settings(&running, &door), settings(&running, &dock)), (Some((false, 0.5)), Some((false, 0.5))));
        let without = config(&FILE.replace("[[camera.zone]]\n        name = \"dock\"\n        min_score = 0.25", ""));
        assert_eq!(kept.kept(&after, &without), Overrides::default().with(&door, set(Some(false), Some(0.5))));
    }

    #[test]
    fn a_camera_that_a_command_has_switched_on_keeps_its_device_to_itself() {
        let file = config(FILE);
        let (door, spare) = (target("door", None), target("spare", None));
        let swapped = Overrides::default().with(&door, set(Some(false), None)).with(&spare, set(Some(true), None));
        swapped.check(&file).unwrap();
        // The file switches the door off, and later on.
        let off = config(&FILE.replacen("name = \"door\"", "name = \"door\"\nenabled = false", 1));
        let kept = swapped.kept(&file, &off);
        kept.check(&off).unwrap();
        let kept = kept.kept(&off, &file);
        let taken = CommandError::DeviceTaken { switched_on: "spare".to_owned(), camera: "door".to_owned() };
        assert_eq!(kept.check(&file), Err(taken));
        let other = config(&FILE.replacen("/dev/video0", "/dev/video1", 1));
        kept.check(&other).unwrap();
    }

    #[test]
    fn a_score_of_a_camera_raises_that_of_its_models() {
        let text = FILE.replace("track = {}", "models = [{ name = \"objects\", score_threshold = 0.5 }]\ntrack = {}");
        let file = config(&text);
        for (score, wanted) in [(0.25, 0.5), (0.75, 0.75)] {
            let running = Overrides::default().with(&target("door", None), set(None, Some(score))).over(&file);
            let scores = running.models_of(&running.cameras[0]).map(|(_, model)| model.score_threshold);
            assert_eq!(scores.collect::<Vec<_>>(), [Some(wanted)]);
        }
        let plain = Overrides::default().with(&target("door", None), set(None, Some(0.25))).over(&config(FILE));
        assert_eq!(plain.models_of(&plain.cameras[0]).next().unwrap().1.score_threshold, Some(0.25));
    }

    #[test]
    fn a_command_that_cannot_be_carried_out_says_why() {
        let file = config(FILE);
        let say = |camera: &str, rule: Option<&str>, action: Action| {
            let command = Command { target: target(camera, rule), action };
            command.check(&file).map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        let on = Action::Set(set(Some(true), None));
        let score = |score| Action::Set(set(None, Some(score)));
        assert_eq!(say("gone", None, on), "no camera has the name gone: use a name of the configuration");
        assert!(say("door", Some("gone"), Action::Reset).contains("camera door has no line or zone gone"));
        assert!(say("door", None, Action::Reset).contains("has no totals"));
        assert!(say("spare", None, on).contains("camera door uses the same device as camera spare"));
        for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(say("door", None, score(wrong)).contains("a number from 0 to 1"), "{wrong}");
        }
        let in_force = |rule: Option<&str>, action| Command { target: target("door", rule), action }.is_in_force(&file);
        assert!(in_force(None, on) && in_force(None, score(0.0)) && in_force(Some("dock"), score(0.25)));
        assert!(!in_force(None, score(0.5)) && !in_force(Some("dock"), Action::Reset));
        assert!(!in_force(Some("dock"), Action::Set(set(Some(true), Some(0.5)))));
        for (camera, rule, action) in [
            ("door", None, on),
            ("spare", None, Action::Set(set(Some(false), None))),
            ("door", Some("dock"), on),
            ("door", Some("dock"), Action::Reset),
            ("door", None, score(0.0)),
        ] {
            assert_eq!(say(camera, rule, action), "");
        }
        let both = Command { target: target("door", Some("dock")), action: Action::Set(set(Some(false), Some(0.5))) };
        assert_eq!(both.to_string(), "camera door, dock: enabled = false, min_score = 0.5");
    }
}
