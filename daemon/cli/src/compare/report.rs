//! The report of a comparison on live frames, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use visiond_config::diagnostics::count;
use visiond_engine::compare::Agreement;
use visiond_system::logging::escape;
use visiond_web::status::report::StatusReport;

use super::rival::Rival;
use crate::text_table::TextTable;

/// The fewest detections of the daemon's model that say something.
const FEWEST: u64 = 20;

/// The new model may detect this many times as many objects, and this many more in each frame.
const FACTOR: u64 = 4;

/// What was measured while frames were compared.
#[derive(Debug, Default)]
pub struct Measured {
    /// Frames of each camera.
    cameras: BTreeMap<String, u64>,
    /// How long each run took, in microseconds: of the new model, and of the daemon's.
    runs_us: [Vec<u64>; 2],
    hottest_c: Option<f64>,
    throttled: bool,
    /// Why a frame was not compared.
    pub last_error: Option<String>,
}

impl Measured {
    /// Notes a compared frame.
    pub fn add(&mut self, camera: &str, new_us: u64, running_us: u64) {
        *self.cameras.entry(camera.to_owned()).or_default() += 1;
        self.runs_us[0].push(new_us);
        self.runs_us[1].push(running_us);
    }

    /// Notes the temperature.
    pub fn note_status(&mut self, status: &StatusReport) {
        let Some(jetson) = &status.jetson else { return };
        let now = jetson.temperatures_c.values().map(|zone| zone.last);
        self.hottest_c = now.chain(self.hottest_c).reduce(f64::max);
        self.throttled |= jetson.throttled_now;
    }

    /// Returns how many frames were compared.
    pub fn frames(&self) -> usize {
        self.runs_us[0].len()
    }
}

/// A model of the report.
#[derive(Debug, Serialize)]
struct ReportedModel {
    /// The name in the daemon's configuration; of the new model its path.
    name: String,
    file: PathBuf,
    sha256: String,
    backend: String,
    /// The 50th and 99th percentile of the time of a run with its preprocess, in microseconds.
    run_p50_us: u64,
    run_p99_us: u64,
}

/// The detections of one class, or of all.
#[derive(Debug, Default, Serialize)]
struct ClassCounts {
    label: String,
    /// Those of the daemon's model.
    running: u64,
    /// Those of the new model.
    new: u64,
    /// Those of the daemon's model that the new one finds as well.
    found: u64,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    visiond: &'static str,
    /// Whether the new model may take the place of the daemon's.
    pub agree: bool,
    /// Whether there were enough detections to say so.
    judged: bool,
    /// Why not, as sentences.
    pub reasons: Vec<String>,
    running: ReportedModel,
    new: ReportedModel,
    seconds: f64,
    frames: usize,
    /// Frames of each camera.
    cameras: BTreeMap<String, u64>,
    /// The share of the detections of the daemon's model that the new one finds.
    found_share: Option<f64>,
    min_found: f64,
    detections: ClassCounts,
    classes: Vec<ClassCounts>,
    /// The highest temperature of a zone of the Jetson, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    hottest_c: Option<f64>,
    /// Whether the Jetson was throttled.
    throttled: bool,
}

impl LiveReport {
    /// Makes the report.
    pub fn new<'a>(
        rival: &Rival,
        status: &StatusReport,
        name: &str,
        agreements: impl Iterator<Item = &'a Agreement>,
        measured: &Measured,
        min_found: f64,
        took: Duration,
    ) -> Self {
        let mut of_class = BTreeMap::<u32, ClassCounts>::new();
        for (class, one) in agreements.flat_map(|agreement| &agreement.classes) {
            let counts = of_class
                .entry(*class)
                .or_insert_with(|| ClassCounts { label: rival.label(*class), ..ClassCounts::default() });
            counts.running += one.matched + one.missing;
            counts.new += one.matched + one.extra;
            counts.found += one.matched;
        }
        let mut classes: Vec<_> = of_class.into_values().collect();
        classes.sort_by_key(|counts| std::cmp::Reverse(counts.running.max(counts.new)));
        let sum = |of: fn(&ClassCounts) -> u64| classes.iter().map(of).sum();
        let detections = ClassCounts {
            label: "all".to_owned(),
            running: sum(|counts| counts.running),
            new: sum(|counts| counts.new),
            found: sum(|counts| counts.found),
        };
        let frames = measured.frames();
        let (judged, reasons) = judge(&detections, frames as u64, min_found);
        let [of_new, of_running] = measured.runs_us.each_ref().map(|runs_us| [50, 99].map(|p| percentile(runs_us, p)));
        let known = status.models.iter().find(|model| model.name == name);
        let known =
            |of: fn(&visiond_message::status::ModelStatus) -> &String| known.map(of).cloned().unwrap_or_default();
        Self {
            visiond: env!("CARGO_PKG_VERSION"),
            agree: reasons.is_empty(),
            judged,
            reasons,
            running: ReportedModel {
                name: name.to_owned(),
                file: known(|model| &model.file).into(),
                sha256: known(|model| &model.sha256),
                backend: known(|model| &model.backend),
                run_p50_us: of_running[0],
                run_p99_us: of_running[1],
            },
            new: ReportedModel {
                name: rival.file.display().to_string(),
                file: rival.file.clone(),
                sha256: rival.sha256.clone(),
                backend: rival.backend.clone(),
                run_p50_us: of_new[0],
                run_p99_us: of_new[1],
            },
            seconds: (took.as_secs_f64() * 1e3).round() / 1e3,
            frames,
            cameras: measured.cameras.clone(),
            found_share: share(&detections),
            min_found,
            detections,
            classes,
            hottest_c: measured.hottest_c,
            throttled: measured.throttled,
        }
    }

    /// Returns the table and the verdict.
    pub fn text(&self) -> String {
        let Self { running, new, frames, cameras, .. } = self;
        // Writing into a String cannot fail.
        let mut out = String::new();
        for (head, model) in [("running", running), ("new", new)] {
            let [p50, p99] = [model.run_p50_us, model.run_p99_us].map(|us| us as f64 / 1e3);
            let (name, backend) = (escape(&model.name), escape(&model.backend));
            let _ = writeln!(out, "{head:8} {name} on {backend}: a run takes {p50:.1} ms, p99 {p99:.1} ms");
        }
        let seconds = self.seconds;
        let _ = writeln!(out, "{frames} frames of {} in {seconds:.0} s\n", count(cameras.len(), "camera"));
        let mut table = TextTable::new(&["CLASS", ">RUNNING", ">NEW", ">BOTH"]);
        for counts in self.classes.iter().chain([&self.detections]) {
            let ClassCounts { label, running, new, found } = counts;
            table.push([label.clone(), running.to_string(), new.to_string(), found.to_string()]);
        }
        out += &table.text();
        if let Some(hottest) = self.hottest_c {
            let throttled = if self.throttled { ", and the Jetson was throttled" } else { "" };
            let _ = writeln!(out, "\nat most {hottest:.0} degrees Celsius{throttled}");
        }
        out += &match (&*self.reasons, self.judged, self.found_share) {
            ([], true, Some(share)) => {
                format!("\nthe new model finds {:.1} % of what the running one detects\n", share * 100.0)
            }
            ([], ..) => format!("\nnot judged: the running model has fewer than {FEWEST} detections in these frames\n"),
            (reasons, ..) => reasons.iter().map(|reason| format!("\n{reason}\n")).collect(),
        };
        out
    }
}

/// Returns whether there is something to judge, and what speaks against the new model.
fn judge(all: &ClassCounts, frames: u64, min_found: f64) -> (bool, Vec<String>) {
    let ClassCounts { running, new, found, .. } = *all;
    let mut reasons = Vec::new();
    let judged = running >= FEWEST;
    if let Some(share) = share(all).filter(|share| judged && *share < min_found) {
        let (percent, least) = (share * 100.0, min_found * 100.0);
        reasons.push(format!(
            "on live frames it finds {found} of {running} detections of the version in use: {percent:.0} %, and {least:.0} % are \
             required"
        ));
    }
    if new > FACTOR * running + FACTOR * frames {
        let [new, running] = [new, running].map(|detections| detections as f64 / frames.max(1) as f64);
        reasons.push(format!("on live frames it has {new:.1} detections a frame, the version in use {running:.1}"));
    }
    (judged || !reasons.is_empty(), reasons)
}

fn share(all: &ClassCounts) -> Option<f64> {
    (all.running > 0).then(|| all.found as f64 / all.running as f64)
}

/// Returns a percentile by the nearest rank.
fn percentile(numbers: &[u64], percent: usize) -> u64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(running: u64, new: u64, found: u64) -> ClassCounts {
        ClassCounts { label: "all".to_owned(), running, new, found }
    }

    #[test]
    fn a_model_that_finds_too_few_or_far_too_many_objects_is_named() {
        let reasons = |all, min_found| judge(&all, 10, min_found);
        assert_eq!(reasons(counts(40, 20, 20), 0.5), (true, vec![]));
        assert_eq!(
            reasons(counts(40, 20, 19), 0.5),
            (
                true,
                vec![
                    "on live frames it finds 19 of 40 detections of the version in use: 48 %, and 50 % are required"
                        .to_owned()
                ]
            )
        );
        assert_eq!(reasons(counts(40, 0, 0), 0.0), (true, vec![]), "nothing is required");
        assert_eq!(reasons(counts(19, 0, 0), 0.5), (false, vec![]), "too few to say something");
        assert_eq!(reasons(counts(0, 40, 0), 0.5), (false, vec![]), "four a frame");
        assert_eq!(
            reasons(counts(5, 61, 5), 0.5),
            (true, vec!["on live frames it has 6.1 detections a frame, the version in use 0.5".to_owned()])
        );
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&hundred, percent)), [50, 99, 100]);
        assert_eq!((percentile(&[7], 99), percentile(&[], 50)), (7, 0));
    }
}
