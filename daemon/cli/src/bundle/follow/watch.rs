//! Compares how cameras fare with a new version of a model with how they fared before, by the daemon's status.
//!
//! All numbers are of the models that use the bundle; detections are compared camera by camera. Rates are not judged on fewer than
//! [`FRAMES`] frames, neither before nor after. docs/bundles.md has the same rules for people.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use visiond_web::status::report::StatusReport;

/// Frames from which on detections and failures are compared.
pub const FRAMES: u64 = 200;

/// How long the version in use is measured: at least, and at most as long as fewer than [`FRAMES`] frames came.
const MEASURE: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(120)];

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

    /// How many of its runs failed.
    fn failed_share(&self) -> f64 {
        self.failed as f64 / self.runs.max(1) as f64
    }
}

/// Totals over all cameras, and of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Over all cameras.
    pub all: Totals,
    /// Frames and detections of each camera.
    cameras: BTreeMap<String, Totals>,
}

impl Counts {
    /// Returns what was added since.
    pub fn since(&self, earlier: &Self) -> Self {
        let of_camera = |(name, now): (&String, &Totals)| {
            let earlier = earlier.cameras.get(name).copied().unwrap_or_default();
            (name.clone(), now.since(&earlier))
        };
        Self { all: self.all.since(&earlier.all), cameras: self.cameras.iter().map(of_camera).collect() }
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
    /// Of these, those that cannot run at the moment.
    away: BTreeSet<String>,
    /// Whether one of their cameras gives frames.
    streams: bool,
    /// Their totals.
    pub counts: Counts,
    /// The 99th percentile of the last seconds from a frame to its result, of each camera that gives frames.
    pub p99_us: BTreeMap<String, u64>,
}

impl Sample {
    /// Reads the status; `is_ours` is true for the path of a model that uses the bundle.
    pub fn of(report: &StatusReport, is_ours: impl Fn(&str) -> bool) -> Self {
        let (started_at, visiond) = (report.started_at.clone(), report.version.clone());
        let mut sample = Self { started_at, visiond, ..Self::default() };
        let ours: Vec<_> = report.models.iter().filter(|model| is_ours(&model.file)).collect();
        sample.models = ours.len();
        let away = ours.iter().filter(|model| matches!(model.activity.as_str(), "backoff" | "ended"));
        sample.away = away.map(|model| model.name.clone()).collect();
        sample.counts.all.runs = ours.iter().map(|model| model.runs).sum();
        sample.counts.all.failed = ours.iter().map(|model| model.errors).sum();
        for camera in &report.cameras {
            let shares = camera.models.iter().filter(|share| ours.iter().any(|model| model.name == share.name));
            let mut of_camera = None;
            for share in shares {
                let totals: &mut Totals = of_camera.get_or_insert_default();
                totals.frames += share.published;
                totals.detections += share.labels.iter().map(|label| label.total).sum::<u64>();
            }
            let Some(totals) = of_camera else { continue };
            sample.counts.all.frames += totals.frames;
            sample.counts.all.detections += totals.detections;
            sample.counts.cameras.insert(camera.name.clone(), totals);
            if camera.phase == "streaming" {
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
    /// Models that could not run, for which no version is to blame.
    away: BTreeSet<String>,
    /// The 99th percentile of the last seconds, of each camera that gave frames.
    p99_us: BTreeMap<String, u64>,
    /// Since the daemon started.
    all: Counts,
    /// While it was measured.
    lately: Counts,
}

impl Before {
    /// Measures for a minute or two, but no longer than the watch, and not at all if no camera gives frames. `read` reads the status,
    /// which may fail; `pause` waits for the next read, and returns the time since the first one. `None` if every read failed.
    pub fn measure(
        watch: Duration,
        mut read: impl FnMut() -> Option<Sample>,
        mut pause: impl FnMut() -> Duration,
    ) -> Option<Self> {
        let [least, most] = MEASURE.map(|time| time.min(watch));
        let (mut begin, mut measured) = (None, None);
        loop {
            if let Some(sample) = read() {
                let begin: &Sample = begin.get_or_insert_with(|| sample.clone());
                measured = Some(Self::measured(begin, &sample));
                if !begin.streams {
                    return measured;
                }
            }
            let elapsed = pause();
            let is_enough = measured.as_ref().is_some_and(|it| it.lately.all.frames >= FRAMES);
            if elapsed >= most || (elapsed >= least && is_enough) {
                return measured;
            }
        }
    }

    /// Compares the begin and the end of the measurement.
    fn measured(begin: &Sample, end: &Sample) -> Self {
        let (mut all, mut lately) = (end.counts.clone(), end.counts.since(&begin.counts));
        // A camera that gives no frames now has nothing to be compared with.
        for counts in [&mut all, &mut lately] {
            counts.cameras.retain(|name, _| end.p99_us.contains_key(name));
        }
        Self { away: end.away.clone(), p99_us: end.p99_us.clone(), all, lately }
    }

    /// Whether there is something to compare with.
    pub fn has_frames(&self) -> bool {
        self.lately.all.frames > 0
    }
}

/// What a version is watched with; it survives a restart of this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The manifest's limit of a frame's 99th percentile.
    pub max_latency_p99_us: Option<u64>,
    /// Totals at the switch.
    pub at_switch: Counts,
    /// Whether the number of detections may be another one.
    #[serde(default)]
    pub may_change_detections: bool,
    /// Before the switch; absent if no camera used the bundle.
    pub before: Option<Before>,
}

/// Judges samples one after another, each some seconds after the last.
#[derive(Debug)]
pub struct Judge {
    limits: Limits,
    /// When detections are judged, so that a quiet minute condemns no version.
    detections_from: Instant,
    away: u32,
    late: u32,
    /// The frames that were counted last, and when they were fewer.
    frames: (u64, Instant),
    answered: Instant,
}

impl Judge {
    pub fn new(limits: Limits, detections_from: Instant, now: Instant) -> Self {
        Self { limits, detections_from, away: 0, late: 0, frames: (0, now), answered: now }
    }

    /// Returns why to go back, of a daemon that does not answer.
    pub fn silence(&self, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.answered);
        (silent >= SILENCE).then(|| format!("the daemon has not answered for {} s", silent.as_secs()))
    }

    /// Returns why to go back, if there is a reason.
    pub fn judge(&mut self, sample: &Sample, now: Instant) -> Option<String> {
        self.answered = now;
        let was_away = |model: &&String| self.limits.before.as_ref().is_some_and(|before| before.away.contains(*model));
        let away = sample.away.iter().find(|model| !was_away(model));
        self.away = away.map_or(0, |_| self.away + 1);
        if let Some(model) = away.filter(|_| self.away >= AWAY_READS) {
            return Some(format!("the model {model} cannot run: see the log of the daemon"));
        }
        if sample.counts.all.frames != self.frames.0 || !sample.streams {
            self.frames = (sample.counts.all.frames, now);
        }
        let since = sample.counts.since(&self.limits.at_switch);
        let before = self.limits.before.as_ref()?;
        let stuck = now.duration_since(self.frames.1);
        if before.has_frames() && stuck >= SILENCE {
            return Some(format!("its cameras stream, and no frame has had a result for {} s", stuck.as_secs()));
        }
        let may_judge = now >= self.detections_from && !self.limits.may_change_detections;
        let reason = failing(&since.all, before).or_else(|| detections(&since, before).filter(|_| may_judge));
        reason.or_else(|| self.latency(sample, &since.all))
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
    let is_more = since.failed >= FAILED && share > FAILED_SHARE + LATER as f64 * before.all.all.failed_share();
    is_more.then(|| format!("{} of {} runs of the model fail", since.failed, since.runs))
}

/// Whether frames of a camera have far more or far fewer detections than before, of all since the daemon started and of those lately.
fn detections(since: &Counts, before: &Before) -> Option<String> {
    since.cameras.iter().find_map(|(camera, since)| {
        let now = since.detections_a_frame()?;
        let known = [&before.all, &before.lately].map(|counts| counts.cameras.get(camera)?.detections_a_frame());
        let known = || known.iter().flatten().copied();
        let (fewest, most) = (known().reduce(f64::min)?, known().reduce(f64::max)?);
        let is_far = now > FACTOR * most + FACTOR || (fewest >= FEWEST && now < fewest / FACTOR);
        is_far.then(|| {
            format!("a frame of {camera} has {now:.2} detections on average, and had {fewest:.2} to {most:.2} before")
        })
    })
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
        Sample { models: 1, streams: true, counts: counts(totals, &[("gate", totals)]), p99_us, ..Sample::default() }
    }

    fn counts(all: Totals, cameras: &[(&str, Totals)]) -> Counts {
        let of_camera =
            |(name, totals): &(&str, Totals)| ((*name).to_owned(), Totals { runs: 0, failed: 0, ..*totals });
        Counts { all, cameras: cameras.iter().map(of_camera).collect() }
    }

    fn limits(before: Totals) -> Limits {
        let before = Before::measured(&sample(Totals::default(), 0), &sample(before, 20_000));
        Limits { at_switch: before.all.clone(), before: Some(before), ..Limits::default() }
    }

    /// Judges the same sample again and again, two seconds apart.
    fn judged(limits: Limits, sample: &Sample, reads: u32) -> Option<String> {
        let begin = Instant::now();
        let mut judge = Judge::new(limits, begin, begin);
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
        let reason = after(FRAMES, 0).unwrap();
        assert_eq!(reason, "a frame of gate has 0.00 detections on average, and had 2.00 to 2.00 before");
        assert!(after(1_000, 499).is_some() && after(1_000, 12_001).is_some());
        // Where hardly anything was detected, nothing is no sign.
        let quiet = super::tests::limits(totals(1_000, 400));
        assert_eq!(judged(quiet, &sample(totals(2_000, 400), 20_000), 9), None);
        // Nor is anything known without frames before.
        let new = super::tests::limits(totals(FRAMES - 1, 5_000));
        assert_eq!(judged(new, &sample(totals(5_000, 5_000), 20_000), 9), None);
    }

    #[test]
    fn detections_are_judged_late_and_camera_by_camera() {
        let begin = Instant::now();
        let none = sample(totals(2_000, 2_000), 20_000);
        let mut judge = Judge::new(limits(totals(1_000, 2_000)), begin + Duration::from_secs(60), begin);
        assert_eq!(judge.judge(&none, begin + Duration::from_secs(59)), None);
        assert!(judge.judge(&none, begin + Duration::from_secs(60)).is_some());
        // A busy camera that comes back later changes the sum, but no camera.
        let of = |gate: Totals, yard: Totals| {
            let all = totals(gate.frames + yard.frames, gate.detections + yard.detections);
            let p99_us = BTreeMap::from([("gate".to_owned(), 20_000), ("yard".to_owned(), 20_000)]);
            let counts = counts(all, &[("gate", gate), ("yard", yard)]);
            Sample { models: 1, streams: true, counts, p99_us, ..Sample::default() }
        };
        let mut before = of(totals(1_000, 1_000), totals(1_000, 20_000));
        before.p99_us.remove("yard");
        let before = Before::measured(&Sample::default(), &before);
        let limits = || Limits { at_switch: before.all.clone(), before: Some(before.clone()), ..Limits::default() };
        assert_eq!(judged(limits(), &of(totals(2_000, 2_000), totals(9_000, 180_000)), 9), None);
        // One of two cameras detects nothing any more.
        let before = Before::measured(&Sample::default(), &of(totals(1_000, 1_000), totals(1_000, 2_000)));
        let limits = Limits { at_switch: before.all.clone(), before: Some(before), ..Limits::default() };
        let settings = Limits { may_change_detections: true, ..limits.clone() };
        let reason = judged(limits, &of(totals(2_000, 1_000), totals(2_000, 4_000)), 9).unwrap();
        assert!(reason.contains("a frame of gate has 0.00"), "{reason}");
        // Settings that are meant to do that.
        assert_eq!(judged(settings, &of(totals(2_000, 1_000), totals(2_000, 4_000)), 9), None);
    }

    #[test]
    fn a_measurement_lasts_a_minute_or_two_and_survives_reads_that_fail() {
        let measure = |watch_s, frames_s: u64, fails: &dyn Fn(u64) -> bool| {
            let (now_s, mut paused_s) = (std::cell::Cell::new(0), 0);
            let read = || {
                let now_s = now_s.get();
                (!fails(now_s)).then(|| sample(totals(now_s * frames_s, 0), 20_000))
            };
            let measured = Before::measure(Duration::from_secs(watch_s), read, || {
                now_s.set(now_s.get() + 2);
                paused_s += 2;
                Duration::from_secs(now_s.get())
            });
            (measured.map(|it| it.lately.all.frames), paused_s)
        };
        assert_eq!(measure(600, 10, &|_| false), (Some(580), 60));
        assert_eq!(measure(600, 1, &|_| false), (Some(118), 120));
        assert_eq!(measure(10, 100, &|_| false), (Some(800), 10));
        assert_eq!(measure(600, 10, &|now_s| now_s == 0 || now_s == 50), (Some(560), 60));
        assert_eq!(measure(600, 10, &|_| true), (None, 120));
        let away = || Some(Sample { streams: false, ..sample(totals(9, 9), 0) });
        let measured = Before::measure(Duration::from_secs(600), away, || panic!("no camera gives frames"));
        assert!(!measured.unwrap().has_frames());
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
        failed.counts.all.failed = 5;
        assert_eq!(judged(limits(totals(1_000, 2_000)), &failed, 9).unwrap(), "5 of 100 runs of the model fail");
        let before = Totals { failed: 50, ..totals(1_000, 2_000) };
        failed.counts.all.failed = 55;
        assert_eq!(judged(limits(before), &failed, 9), None);
        let away = Sample { away: BTreeSet::from(["tiny".to_owned()]), ..sample(totals(1_000, 2_000), 20_000) };
        assert_eq!(judged(Limits::default(), &away, AWAY_READS - 1), None);
        assert!(judged(Limits::default(), &away, AWAY_READS).unwrap().contains("the model tiny cannot run"));
        // It could not run before either.
        let before = Before::measured(&away, &away);
        let limits = Limits { at_switch: before.all.clone(), before: Some(before), ..Limits::default() };
        assert_eq!(judged(limits, &away, AWAY_READS), None);
    }

    #[test]
    fn a_daemon_that_is_silent_and_cameras_without_results_are_noticed_after_a_minute() {
        let begin = Instant::now();
        let judge = Judge::new(Limits::default(), begin, begin);
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
        assert_eq!(again.since(&seen.counts.all), again);
    }
}
