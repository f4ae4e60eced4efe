//! Compares how cameras fare with a new version of a model with how they fared before, by the daemon's status.
//!
//! All numbers are of the models that use the bundle, over all of their cameras. Rates are not judged on fewer than [`FRAMES`] frames,
//! neither before nor after. docs/bundles.md has the same rules for people.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use visiond_web::status::report::StatusReport;

/// Frames from which on detections and failures are compared.
pub const FRAMES: u64 = 200;

/// The longest time without an answer of the daemon, or without a frame while a camera streams.
const SILENCE: Duration = Duration::from_secs(60);

/// Reads of the status in a row that must show a model away.
const AWAY_READS: u32 = 5;

/// Reads in a row that must show frames that take too long. One slow frame is in the percentile for up to ten seconds, or five reads.
const LATE_READS: u32 = 15;

/// The most that a 99th percentile may grow, and the least that counts as late without a limit in the manifest.
const LATER: u64 = 2;
const LATE_US: u64 = 100_000;

/// By how much the detections of a frame may change: by this factor, and to more by this many as well.
const FACTOR: f64 = 4.0;

/// The fewest detections of a frame, before, from which on too few are noticed.
const FEWEST: f64 = 0.5;

/// The fewest failed runs that count, and their share beyond which they do.
const FAILED: u64 = 5;
const FAILED_SHARE: f64 = 0.01;

/// Totals since the daemon started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Frames with a result.
    pub frames: u64,
    /// Detections in them.
    pub detections: u64,
    /// Runs of the models, successful or not.
    pub runs: u64,
    /// Frames and runs that failed.
    pub failed: u64,
}

impl Totals {
    /// Returns what was added since. Totals that began again are those since then.
    pub fn since(&self, earlier: &Self) -> Self {
        if self.frames < earlier.frames || self.runs < earlier.runs {
            return *self;
        }
        Self {
            frames: self.frames - earlier.frames,
            detections: self.detections.saturating_sub(earlier.detections),
            runs: self.runs - earlier.runs,
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }

    /// Detections of a frame; `None` of too few frames.
    fn detections_a_frame(&self) -> Option<f64> {
        (self.frames >= FRAMES).then(|| self.detections as f64 / self.frames as f64)
    }

    fn failed_share(&self) -> f64 {
        self.failed as f64 / self.runs.max(1) as f64
    }
}

/// What the status says about the models that use a bundle.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// When the daemon started, which tells one from another.
    pub started_at: String,
    /// The daemon's version.
    pub visiond: String,
    /// How many models use the bundle.
    pub models: usize,
    /// Of these, one that cannot run at the moment.
    away: Option<String>,
    /// Whether one of their cameras gives frames.
    streams: bool,
    /// Their totals.
    pub totals: Totals,
    /// The 99th percentile of the last seconds from a frame to its result, of each camera.
    pub p99_us: BTreeMap<String, u64>,
}

impl Sample {
    /// Reads the status; `is_ours` is true for the path of a model that uses the bundle.
    pub fn of(report: &StatusReport, is_ours: impl Fn(&str) -> bool) -> Self {
        let (started_at, visiond) = (report.started_at.clone(), report.version.clone());
        let mut sample = Self { started_at, visiond, ..Self::default() };
        let ours: Vec<_> = report.models.iter().filter(|model| is_ours(&model.file)).collect();
        sample.models = ours.len();
        let away = ours.iter().find(|model| matches!(model.activity.as_str(), "backoff" | "ended"));
        sample.away = away.map(|model| model.name.clone());
        sample.totals.runs = ours.iter().map(|model| model.runs).sum();
        sample.totals.failed = ours.iter().map(|model| model.errors).sum();
        for camera in &report.cameras {
            let shares = camera.models.iter().filter(|share| ours.iter().any(|model| model.name == share.name));
            let mut is_used = false;
            for share in shares {
                is_used = true;
                sample.totals.frames += share.published;
                sample.totals.detections += share.labels.iter().map(|label| label.total).sum::<u64>();
            }
            if is_used && camera.phase == "streaming" {
                sample.streams = true;
                let p99_us = camera.stages.get("total").map_or(0, |total| total.recent_p99_us);
                sample.p99_us.insert(camera.name.clone(), p99_us);
            }
        }
        sample
    }
}

/// How cameras fared before the switch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Since the daemon started.
    all: Totals,
    /// While it was measured.
    lately: Totals,
    /// The 99th percentile of the last seconds, of each camera.
    p99_us: BTreeMap<String, u64>,
}

impl Before {
    /// Compares the begin and the end of the measurement.
    pub fn measured(begin: &Sample, end: &Sample) -> Self {
        Self { all: end.totals, lately: end.totals.since(&begin.totals), p99_us: end.p99_us.clone() }
    }
}

/// What a version is watched with; it survives a restart of this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The manifest's limit of a frame's 99th percentile.
    pub max_latency_p99_us: Option<u64>,
    /// Totals at the switch.
    pub at_switch: Totals,
    /// Before the switch; absent if no camera used the bundle.
    pub before: Option<Before>,
}

/// Judges samples one after another, each some seconds after the last.
#[derive(Debug)]
pub struct Judge {
    limits: Limits,
    away: u32,
    late: u32,
    /// The frames that were counted last, and when they were fewer.
    frames: (u64, Instant),
    answered: Instant,
}

impl Judge {
    pub fn new(limits: Limits, now: Instant) -> Self {
        Self { limits, away: 0, late: 0, frames: (0, now), answered: now }
    }

    /// Returns why to go back, of a daemon that does not answer.
    pub fn silence(&self, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.answered);
        (silent >= SILENCE).then(|| format!("the daemon has not answered for {} s", silent.as_secs()))
    }

    /// Returns why to go back, if there is a reason.
    pub fn judge(&mut self, sample: &Sample, now: Instant) -> Option<String> {
        self.answered = now;
        self.away = sample.away.as_ref().map_or(0, |_| self.away + 1);
        if let Some(model) = sample.away.as_ref().filter(|_| self.away >= AWAY_READS) {
            return Some(format!("the model {model} cannot run: see the log of the daemon"));
        }
        if sample.totals.frames != self.frames.0 || !sample.streams {
            self.frames = (sample.totals.frames, now);
        }
        let since = sample.totals.since(&self.limits.at_switch);
        let before = self.limits.before.as_ref()?;
        let stuck = now.duration_since(self.frames.1);
        if before.lately.frames > 0 && stuck >= SILENCE {
            return Some(format!("its cameras stream, and no frame has had a result for {} s", stuck.as_secs()));
        }
        let reason = failing(&since, before).or_else(|| detections(&since, before));
        reason.or_else(|| self.latency(sample, &since))
    }

    fn latency(&mut self, sample: &Sample, since: &Totals) -> Option<String> {
        let before = self.limits.before.as_ref()?;
        let least_us = self.limits.max_latency_p99_us.unwrap_or(LATE_US);
        let late = sample.p99_us.iter().find_map(|(camera, p99_us)| {
            let before_us = *before.p99_us.get(camera).filter(|before_us| **before_us > 0)?;
            (*p99_us > least_us.max(LATER * before_us)).then_some((camera, *p99_us, before_us))
        });
        let Some((camera, p99_us, before_us)) = late.filter(|_| since.frames >= FRAMES) else {
            self.late = 0;
            return None;
        };
        self.late += 1;
        let [now_ms, before_ms] = [p99_us, before_us].map(|us| us as f64 / 1e3);
        let reason =
            format!("99 of 100 frames of {camera} take up to {now_ms:.1} ms, and took {before_ms:.1} ms before");
        (self.late >= LATE_READS).then_some(reason)
    }
}

/// Whether more runs fail than before.
fn failing(since: &Totals, before: &Before) -> Option<String> {
    let share = since.failed_share();
    let is_more = since.failed >= FAILED && share > FAILED_SHARE + LATER as f64 * before.all.failed_share();
    is_more.then(|| format!("{} of {} runs of the model fail", since.failed, since.runs))
}

/// Whether frames have far more or far fewer detections than before, of all since the daemon started and of those lately.
fn detections(since: &Totals, before: &Before) -> Option<String> {
    let now = since.detections_a_frame()?;
    let known = [before.all, before.lately].map(|totals| totals.detections_a_frame());
    let known = || known.iter().flatten().copied();
    let (fewest, most) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
    let is_far = now > FACTOR * most + FACTOR || (fewest >= FEWEST && now < fewest / FACTOR);
    is_far.then(|| format!("a frame has {now:.2} detections on average, and had {fewest:.2} to {most:.2} before"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_message::status::{CameraModelStatus, CameraStatus, LabelFacts, ModelStatus, StageFacts};

    use super::*;

    fn totals(frames: u64, detections: u64) -> Totals {
        Totals { frames, detections, runs: frames, failed: 0 }
    }

    /// A sample of one camera, "gate".
    fn sample(totals: Totals, p99_us: u64) -> Sample {
        let p99_us = BTreeMap::from([("gate".to_owned(), p99_us)]);
        Sample { models: 1, streams: true, totals, p99_us, ..Sample::default() }
    }

    fn limits(before: Totals) -> Limits {
        let before = Before::measured(&sample(Totals::default(), 0), &sample(before, 20_000));
        Limits { max_latency_p99_us: None, at_switch: before.all, before: Some(before) }
    }

    /// Judges the same sample again and again, two seconds apart.
    fn judged(limits: Limits, sample: &Sample, reads: u32) -> Option<String> {
        let begin = Instant::now();
        let mut judge = Judge::new(limits, begin);
        (1..=reads).find_map(|nth| judge.judge(sample, begin + Duration::from_secs(2) * nth))
    }

    #[test]
    fn detections_are_judged_by_their_factor_and_never_on_few_frames() {
        let limits = || limits(totals(1_000, 2_000));
        let after = |frames: u64, detections: u64| {
            judged(limits(), &sample(totals(1_000 + frames, 2_000 + detections), 20_000), 9)
        };
        assert_eq!(after(FRAMES - 1, 0), None);
        assert_eq!(after(1_000, 500), None);
        assert_eq!(after(1_000, 12_000), None);
        assert!(
            after(FRAMES, 0).unwrap().contains("a frame has 0.00 detections on average, and had 2.00 to 2.00 before")
        );
        assert!(after(1_000, 499).is_some() && after(1_000, 12_001).is_some());
        // Where hardly anything was detected, nothing is no sign.
        let quiet = super::tests::limits(totals(1_000, 400));
        assert_eq!(judged(quiet, &sample(totals(2_000, 400), 20_000), 9), None);
        // Nor is anything known without frames before.
        let new = super::tests::limits(totals(FRAMES - 1, 5_000));
        assert_eq!(judged(new, &sample(totals(5_000, 5_000), 20_000), 9), None);
    }

    #[test]
    fn latency_must_be_late_several_times_in_a_row_by_both_limits() {
        let after = |limits: Limits, p99_us, reads| judged(limits, &sample(totals(2_000, 4_000), p99_us), reads);
        let limits = || limits(totals(1_000, 2_000));
        assert_eq!(after(limits(), 100_000, 20), None);
        assert_eq!(after(limits(), 100_001, LATE_READS - 1), None);
        let reason = after(limits(), 100_001, LATE_READS).unwrap();
        assert!(reason.contains("99 of 100 frames of gate take up to 100.0 ms, and took 20.0 ms before"), "{reason}");
        let strict = || Limits { max_latency_p99_us: Some(30_000), ..limits() };
        assert_eq!(after(strict(), 40_000, 20), None);
        assert!(after(strict(), 40_001, 20).is_some());
        let wide = Limits { max_latency_p99_us: Some(200_000), ..limits() };
        assert_eq!(after(wide, 200_000, 20), None);
    }

    #[test]
    fn runs_that_fail_and_a_model_that_is_away_are_noticed() {
        let mut failed = sample(Totals { runs: 1_100, failed: 4, ..totals(1_100, 2_000) }, 20_000);
        assert_eq!(judged(limits(totals(1_000, 2_000)), &failed, 9), None);
        failed.totals.failed = 5;
        assert_eq!(judged(limits(totals(1_000, 2_000)), &failed, 9).unwrap(), "5 of 100 runs of the model fail");
        let before = Totals { failed: 50, ..totals(1_000, 2_000) };
        failed.totals.failed = 55;
        assert_eq!(judged(limits(before), &failed, 9), None);
        let away = Sample { away: Some("tiny".to_owned()), ..sample(totals(1_000, 2_000), 20_000) };
        assert_eq!(judged(Limits::default(), &away, AWAY_READS - 1), None);
        assert!(judged(Limits::default(), &away, AWAY_READS).unwrap().contains("the model tiny cannot run"));
    }

    #[test]
    fn a_daemon_that_is_silent_and_cameras_without_results_are_noticed_after_a_minute() {
        let begin = Instant::now();
        let judge = Judge::new(Limits::default(), begin);
        assert_eq!(judge.silence(begin + SILENCE - Duration::from_secs(1)), None);
        assert_eq!(judge.silence(begin + SILENCE).unwrap(), "the daemon has not answered for 60 s");
        let stuck = sample(totals(1_000, 2_000), 20_000);
        assert_eq!(judged(limits(totals(1_000, 2_000)), &stuck, 30), None);
        assert!(
            judged(limits(totals(1_000, 2_000)), &stuck, 31).unwrap().contains("no frame has had a result for 60 s")
        );
        let away = Sample { streams: false, ..stuck };
        assert_eq!(judged(limits(totals(1_000, 2_000)), &away, 99), None);
    }

    #[test]
    fn only_models_that_use_the_bundle_count_and_totals_that_began_again_are_new() {
        let share = |name: &str, published, total| CameraModelStatus {
            name: name.to_owned(),
            published,
            labels: vec![LabelFacts { label: "a".to_owned(), total, newest: 0 }],
            ..CameraModelStatus::default()
        };
        let total = StageFacts { recent_p99_us: 7_000, ..StageFacts::default() };
        let camera = CameraStatus {
            name: "gate".to_owned(),
            phase: "streaming".to_owned(),
            models: vec![share("tiny", 10, 20), share("other", 100, 200)],
            stages: BTreeMap::from([("total".to_owned(), total)]),
            ..CameraStatus::default()
        };
        let model = |name: &str, file: &str| ModelStatus {
            name: name.to_owned(),
            file: file.to_owned(),
            runs: 11,
            errors: 1,
            ..ModelStatus::default()
        };
        let report = StatusReport {
            cameras: vec![camera],
            models: vec![model("tiny", "/a/model"), model("other", "/b/model")],
            ..StatusReport::default()
        };
        let seen = Sample::of(&report, |file| file == "/a/model");
        assert_eq!(seen, sample(Totals { frames: 10, detections: 20, runs: 11, failed: 1 }, 7_000));
        let again = Totals { frames: 5, detections: 6, runs: 5, failed: 0 };
        assert_eq!(again.since(&seen.totals), again);
    }
}
