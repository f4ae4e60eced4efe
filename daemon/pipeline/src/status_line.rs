//! Rates, ages and counts since the last report: one line for the terminal and systemd, one line per camera for the log.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use visiond_telemetry::metrics::{CameraMetrics, CameraSnapshot, DropCause, LaneView, Phase, Stage, cameras_of};

/// Reports rates, ages and counts since its last report.
#[derive(Debug)]
pub struct Reporter {
    cameras: Vec<Arc<CameraMetrics>>,
    previous: Vec<CameraSnapshot>,
    since: Instant,
}

/// One camera since the last report.
struct CameraReport<'a> {
    name: &'a str,
    phase: Phase,
    frames_per_second: f64,
    age_p50_us: u64,
    age_p99_us: u64,
    /// Detections in the newest frame, by label.
    newest: String,
    /// Counters since the start.
    total: &'a CameraSnapshot,
}

impl Reporter {
    /// Creates a reporter; its first report counts from now.
    pub fn new(lanes: &[LaneView]) -> Self {
        let cameras = cameras(lanes);
        Self { previous: snapshots(&cameras), cameras, since: Instant::now() }
    }

    /// Reports these lanes from now on; cameras that it already reports continue.
    pub fn follow(&mut self, lanes: &[LaneView]) {
        let known: Vec<_> = self.cameras.iter().zip(std::mem::take(&mut self.previous)).collect();
        let before = |camera: &Arc<CameraMetrics>| {
            let known = known.iter().find(|(known, _)| Arc::ptr_eq(known, camera));
            known.map_or_else(|| camera.snapshot(), |(_, before)| before.clone())
        };
        let cameras = cameras(lanes);
        self.previous = cameras.iter().map(before).collect();
        self.cameras = cameras;
    }

    /// Returns one line for all cameras.
    pub fn line(&mut self) -> String {
        self.report(|recent| recent.short()).join(" | ")
    }

    /// Returns a line per camera.
    pub fn lines(&mut self) -> Vec<String> {
        self.report(|recent| recent.long())
    }

    fn report(&mut self, text: impl Fn(&CameraReport<'_>) -> String) -> Vec<String> {
        let now = Instant::now();
        let seconds = now.duration_since(self.since).as_secs_f64();
        let current = snapshots(&self.cameras);
        let lines = self.cameras.iter().zip(current.iter().zip(&self.previous)).map(|(camera, (total, before))| {
            let age = total.stage(Stage::Total).since(before.stage(Stage::Total));
            text(&CameraReport {
                name: &camera.name,
                phase: camera.phase(),
                frames_per_second: if seconds > 0.0 { age.count() as f64 / seconds } else { 0.0 },
                age_p50_us: age.quantile_us(0.5),
                age_p99_us: age.quantile_us(0.99),
                newest: newest(total),
                total,
            })
        });
        let lines = lines.collect();
        (self.previous, self.since) = (current, now);
        lines
    }
}

impl CameraReport<'_> {
    /// `street 10.0/s p50 31 p99 44 ms, 3 person 1 dog, dropped 12`
    fn short(&self) -> String {
        let mut text = self.name.to_owned();
        if self.phase != Phase::Streaming {
            // Writing into a String cannot fail, here and below.
            let _ = write!(text, " {}", self.phase.name());
        }
        if self.frames_per_second > 0.0 {
            let (p50, p99) = (millis(self.age_p50_us), millis(self.age_p99_us));
            let _ = write!(text, " {:.1}/s p50 {p50} p99 {p99} ms", self.frames_per_second);
            let _ = write!(text, ", {}", if self.newest.is_empty() { "nothing" } else { &self.newest });
        }
        let dropped = self.total.dropped_in_all();
        if dropped > 0 {
            let _ = write!(text, ", dropped {dropped}");
        }
        text
    }

    /// Returns the same with words and causes.
    fn long(&self) -> String {
        let mut text = format!(
            "camera {} {}: {:.1} frames/s, {} so far",
            self.name,
            self.phase.name(),
            self.frames_per_second,
            self.total.published
        );
        if self.frames_per_second > 0.0 {
            let (p50, p99) = (millis(self.age_p50_us), millis(self.age_p99_us));
            let _ = write!(text, ", age p50 {p50} ms, p99 {p99} ms");
            let _ = write!(text, ", sees {}", if self.newest.is_empty() { "nothing" } else { &self.newest });
        }
        let _ = write!(text, ", {}", drops(self.total));
        if self.total.errors > 0 {
            let _ = write!(text, ", {} errors, {} restarts", self.total.errors, self.total.restarts);
        }
        text
    }
}

/// `dropped 12 (overload 10, driver 2)`, or `none dropped`.
pub fn drops(snapshot: &CameraSnapshot) -> String {
    dropped_text(DropCause::ALL.iter().zip(snapshot.dropped).map(|(cause, frames)| (cause.name(), frames)))
}

/// The same for the frames of each cause.
pub fn dropped_text<'c>(causes: impl Iterator<Item = (&'c str, u64)>) -> String {
    let causes: Vec<_> = causes.filter(|(_, frames)| *frames > 0).collect();
    if causes.is_empty() {
        return "none dropped".to_owned();
    }
    let in_all: u64 = causes.iter().map(|(_, frames)| frames).sum();
    let causes: Vec<_> = causes.iter().map(|(cause, frames)| format!("{cause} {frames}")).collect();
    format!("dropped {in_all} ({})", causes.join(", "))
}

/// Formats microseconds as milliseconds, with a decimal below 10.
pub fn millis(us: u64) -> String {
    let ms = us as f64 / 1e3;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// `3 person 1 dog`, most first.
fn newest(snapshot: &CameraSnapshot) -> String {
    let mut labels: Vec<_> = snapshot.labels.iter().filter(|(_, count)| count.newest > 0).collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(count.newest));
    labels.iter().map(|(label, count)| format!("{} {label}", count.newest)).collect::<Vec<_>>().join(" ")
}

fn cameras(lanes: &[LaneView]) -> Vec<Arc<CameraMetrics>> {
    cameras_of(lanes).iter().map(|known| Arc::clone(known.camera)).collect()
}

fn snapshots(cameras: &[Arc<CameraMetrics>]) -> Vec<CameraSnapshot> {
    cameras.iter().map(|camera| camera.snapshot()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_message::testing::message;
    use visiond_telemetry::metrics::LaneMetrics;

    fn view() -> LaneView {
        let camera = |name: &str| Arc::new(CameraMetrics::new(name.into()));
        LaneView { lane: Arc::new(LaneMetrics::new("m".into())), cameras: vec![camera("street"), camera("gate")] }
    }

    #[test]
    fn a_line_tells_rates_since_the_last_one_and_drops_in_all() {
        let view = view();
        view.cameras[0].enter(Phase::Streaming);
        view.cameras[1].enter(Phase::Waiting);
        let mut reporter = Reporter::new(std::slice::from_ref(&view));
        view.cameras[0].count_published(&message("street", &["dog", "person", "person"]));
        view.cameras[0].count_dropped(DropCause::Overload, 12);
        reporter.since -= std::time::Duration::from_secs(2);
        assert_eq!(reporter.line(), "street 0.5/s p50 1.0 p99 1.0 ms, 2 person 1 dog, dropped 12 | gate waiting");
        assert_eq!(reporter.line(), "street, dropped 12 | gate waiting");
    }

    #[test]
    fn the_log_has_rates_and_ages_of_what_was_published_since() {
        let view = view();
        view.cameras[0].enter(Phase::Streaming);
        let mut reporter = Reporter::new(std::slice::from_ref(&view));
        view.cameras[0].count_published(&message("street", &["dog"]));
        view.cameras[1].count_published(&message("gate", &[]));
        reporter.since -= std::time::Duration::from_secs(4);
        let lines = reporter.lines();
        let street =
            "camera street streaming: 0.2 frames/s, 1 so far, age p50 1.0 ms, p99 1.0 ms, sees 1 dog, none dropped";
        assert!(lines[0] == street || lines[0] == street.replace("0.2 f", "0.3 f"), "{lines:?}");
        assert!(lines[1].contains(", sees nothing, none dropped"), "{lines:?}");
        // Cameras that stay continue; new ones begin now.
        let known = Arc::clone(&view.cameras[0]);
        let new = Arc::new(CameraMetrics::new("new".into()));
        new.count_published(&message("new", &["cat"]));
        known.count_published(&message("street", &["dog"]));
        reporter.follow(&[LaneView { lane: view.lane, cameras: vec![known, new] }]);
        reporter.since -= std::time::Duration::from_secs(4);
        let lines = reporter.lines();
        assert!(lines[0].contains(", 2 so far, age p50 1.0 ms"), "{lines:?}");
        assert_eq!(lines[1], "camera new opening: 0.0 frames/s, 1 so far, none dropped");
        assert_eq!([0, 9_949, 9_999, 10_400, 123_456].map(millis), ["0.0", "9.9", "10.0", "10", "123"]);
    }

    #[test]
    fn the_log_has_the_causes() {
        let view = view();
        view.cameras[0].enter(Phase::Streaming);
        view.cameras[0].count_dropped(DropCause::Overload, 10);
        view.cameras[0].count_dropped(DropCause::Driver, 2);
        view.cameras[1].errors.add(1);
        let mut reporter = Reporter::new(&[view]);
        assert_eq!(
            reporter.lines(),
            [
                "camera street streaming: 0.0 frames/s, 0 so far, dropped 12 (driver 2, overload 10)",
                "camera gate opening: 0.0 frames/s, 0 so far, none dropped, 1 errors, 0 restarts"
            ]
        );
    }
}
