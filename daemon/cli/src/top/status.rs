//! The daemon's status as lines and tables, for the terminal and for text output.

use clap::ValueEnum;
use visiond_message::status::{CameraStatus, SinkCounts, StageFacts};
use visiond_pipeline::status_line::millis;
use visiond_telemetry::metrics::{Phase, Stage};
use visiond_web::status::report::StatusReport;

use crate::text_table::TextTable;

/// The column that cameras are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By model, in the order of the configuration
    Config,
    /// By name
    Name,
    /// Fewest frames per second first
    Fps,
    /// Highest age (p99) first
    #[value(alias = "latency")]
    Age,
    /// Most drops first
    Dropped,
}

impl Sort {
    /// Returns the column `by` places to the right, wrapping around.
    pub fn turned(self, by: isize) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|sort| *sort == self).unwrap_or(0) as isize;
        all[(at + by).rem_euclid(all.len() as isize) as usize]
    }

    /// Returns the cameras in this order; `reversed` reverses it.
    pub fn apply(self, cameras: &[CameraStatus], reversed: bool) -> Vec<&CameraStatus> {
        let mut sorted: Vec<_> = cameras.iter().collect();
        match self {
            Self::Config => {}
            Self::Name => sorted.sort_by(|a, b| a.name.cmp(&b.name)),
            Self::Fps => sorted.sort_by(|a, b| a.fps.total_cmp(&b.fps)),
            Self::Age => sorted.sort_by_key(|camera| std::cmp::Reverse(total(camera).recent_p99_us)),
            Self::Dropped => sorted.sort_by_key(|camera| std::cmp::Reverse(dropped(camera))),
        }
        if reversed {
            sorted.reverse();
        }
        sorted
    }
}

/// Returns the statistics of a frame's age at publishing.
pub fn total(camera: &CameraStatus) -> StageFacts {
    camera.stages.get(Stage::Total.name()).cloned().unwrap_or_default()
}

fn dropped(camera: &CameraStatus) -> u64 {
    camera.dropped.values().sum()
}

/// Returns the share of dropped frames among those published or dropped, in per cent.
fn dropped_percent(camera: &CameraStatus) -> String {
    let dropped = dropped(camera);
    let percent = 100.0 * dropped as f64 / (dropped + camera.published).max(1) as f64;
    if dropped > 0 && percent < 0.1 { "<0.1".to_owned() } else { format!("{percent:.1}") }
}

/// Returns the whole status as text.
pub fn text(seen: &StatusReport, sort: Sort) -> String {
    let mut parts = vec![head(seen, average_load(seen)).join("\n") + "\n"];
    let tables = [cameras(&sort.apply(&seen.cameras, false)), models(seen), sinks(seen)];
    parts.extend(tables.into_iter().filter(|table| !table.rows.is_empty()).map(|table| table.text()));
    parts.join("\n")
}

/// Returns the lines about the daemon as a whole. `load` is its CPU use in cores.
pub fn head(seen: &StatusReport, load: f64) -> Vec<String> {
    let process = &seen.process;
    let ready = if seen.ready { "ready".to_owned() } else { format!("not ready: {}", seen.not_ready.join("; ")) };
    let mut lines = vec![
        format!("visiond {} on {}, up {}, {ready}", seen.version, seen.target, span(seen.uptime_s)),
        format!(
            "{}, {:.0} % of a core, {} threads, {} descriptors",
            memory(process.resident_bytes),
            load * 100.0,
            process.threads,
            process.descriptors
        ),
    ];
    let gpu = seen.gpu.iter().filter_map(|gpu| {
        let clock = gpu.clock_mhz.map_or_else(String::new, |clock| format!(" at {clock} MHz"));
        Some(format!("GPU {:.0} %{clock}", gpu.load_now_percent?))
    });
    if let Some(jetson) = &seen.jetson {
        let zones = jetson.temperatures_c.iter().map(|(zone, is)| format!("{zone} {:.0} °C", is.last));
        let mode = jetson.power_mode.iter().map(|mode| format!("power mode {mode}"));
        let throttled = jetson.throttled_now.then(|| "throttled".to_owned());
        lines.push(zones.chain(mode).chain(gpu).chain(throttled).collect::<Vec<_>>().join(", "));
    } else {
        lines.extend(gpu);
    }
    if let Some(last) = seen.reloads.last.as_ref().filter(|last| !last.applied) {
        let why = last.message.lines().next().unwrap_or_default();
        lines.push(format!("the last reload was rejected; the previous configuration stays in force: {why}"));
    }
    lines
}

/// Returns the daemon's mean CPU use since its start, in cores.
pub fn average_load(seen: &StatusReport) -> f64 {
    if seen.uptime_s > 0.0 { seen.process.cpu_seconds / seen.uptime_s } else { 0.0 }
}

/// Returns a table with a row for each camera.
pub fn cameras(cameras: &[&CameraStatus]) -> TextTable {
    let head = ["CAMERA", "PHASE", ">FPS", ">P50 MS", ">P99 MS", ">PUBLISHED", ">DROPPED", ">%", "DETECTIONS"];
    let mut table = TextTable::new(&head);
    for camera in cameras {
        let total = total(camera);
        let newest = camera.labels.iter().filter(|label| label.newest > 0);
        let newest: Vec<_> = newest.map(|label| format!("{} {}", label.newest, label.label)).collect();
        let streams = camera.phase == Phase::Streaming.name();
        let away = camera.reason.clone().filter(|_| !streams);
        table.push([
            camera.name.clone(),
            camera.phase.clone(),
            format!("{:.1}", camera.fps),
            millis(total.recent_p50_us),
            millis(total.recent_p99_us),
            camera.published.to_string(),
            dropped(camera).to_string(),
            dropped_percent(camera),
            away.unwrap_or_else(|| newest.join(", ")),
        ]);
        // A single model has the camera's numbers.
        for model in camera.models.iter().filter(|_| camera.models.len() > 1) {
            let newest = model.labels.iter().filter(|label| label.newest > 0 && streams);
            let newest: Vec<_> = newest.map(|label| format!("{} {}", label.newest, label.label)).collect();
            table.push([
                format!("  {}", model.name),
                String::new(),
                format!("{:.1}", model.fps),
                String::new(),
                String::new(),
                model.published.to_string(),
                model.dropped.values().sum::<u64>().to_string(),
                String::new(),
                newest.join(", "),
            ]);
        }
    }
    table
}

/// Returns a table with a row for each model.
pub fn models(seen: &StatusReport) -> TextTable {
    let mut table = TextTable::new(&["MODEL", ">RUNS", ">ERRORS", ">REBUILT", "ON", "FILE"]);
    for model in &seen.models {
        let numbers = [model.runs, model.errors, model.rebuilds].map(|number| number.to_string());
        let file = model.bundle.as_ref().map_or_else(|| model.file.clone(), ToString::to_string);
        let texts = [model.backend.clone(), file];
        // One on detections is below the model that finds them.
        let indent = if model.on.is_some() { "  " } else { "" };
        table.push([format!("{indent}{}", model.name)].into_iter().chain(numbers).chain(texts));
    }
    table
}

/// Returns a table with a row for each sink.
pub fn sinks(seen: &StatusReport) -> TextTable {
    let mut table = TextTable::new(&["SINK", "STATE", ">WAITING", ">WRITTEN", ">LOST", "TO"]);
    for sink in &seen.sinks {
        let spooled = sink.spool.as_ref().map_or(0, |spool| spool.records);
        let numbers = [sink.waiting + spooled, sink.written, sink.lost].map(|number| number.to_string());
        table.push([sink.name.clone(), state(sink).to_owned()].into_iter().chain(numbers).chain([sink.to.clone()]));
    }
    table
}

/// Returns the sink's state as the live page words it.
fn state(sink: &SinkCounts) -> &'static str {
    let works = sink.outage.is_none() && sink.connected != Some(false);
    match (works, sink.connected, &sink.spool) {
        (true, _, Some(spool)) if spool.outage.is_some() => "connected, messages are not kept on disk",
        (true, Some(_), _) => "connected",
        (true, None, _) => "writing",
        (false, _, Some(spool)) if spool.outage.is_none() && !spool.is_full() => "waiting, messages are kept on disk",
        (false, ..) => "outage",
    }
}

/// Returns a table with the times of each stage of a camera, the total first: a small terminal shows only the first rows.
pub fn stages(camera: &CameraStatus) -> TextTable {
    let mut table = TextTable::new(&["STAGE", ">P50 MS", ">P99 MS", ">P99 MS, EVER", ">MAX MS"]);
    let parts = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Total);
    for stage in [Stage::Total].into_iter().chain(parts).map(Stage::name) {
        let facts = camera.stages.get(stage).cloned().unwrap_or_default();
        let times = [facts.recent_p50_us, facts.recent_p99_us, facts.p99_us, facts.max_us].map(millis);
        table.push([stage.to_owned()].into_iter().chain(times));
    }
    table
}

/// Returns a line about a camera's format, drops and errors.
pub fn camera_line(camera: &CameraStatus) -> String {
    let io = camera.io.as_ref().or(camera.decoder.as_ref()).map(|io| format!(", by {io}")).unwrap_or_default();
    let causes = camera.dropped.iter().filter(|(_, frames)| **frames > 0);
    let causes: Vec<_> = causes.map(|(cause, frames)| format!("{cause} {frames}")).collect();
    let causes =
        if causes.is_empty() { "nothing dropped".to_owned() } else { format!("dropped: {}", causes.join(", ")) };
    let CameraStatus { name, width, height, format, model, errors, restarts, watchers, .. } = camera;
    format!(
        "{name}: {width}x{height} {format}{io}, model {model}; {causes}; {errors} errors, reopened {restarts} times, \
         {watchers} viewers"
    )
}

/// Formats a size of memory such as `87 MiB` or `1.5 GiB`.
fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / 1_048_576.0;
    if mib < 1023.5 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Formats a time such as `3 d 4 h`, `2 h 5 min`, `5 min 12 s` or `12 s`.
fn span(seconds: f64) -> String {
    let s = seconds as u64;
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use visiond_message::status::{BundleStatus, LabelFacts, ModelStatus, SpoolCounts};
    use visiond_system::thermal::{GpuSummary, JetsonSummary, Temperature};
    use visiond_web::status::report::LastReload;

    fn camera(name: &str, fps: f64, p99: u64, dropped: u64) -> CameraStatus {
        let total = StageFacts { recent_p99_us: p99, ..StageFacts::default() };
        CameraStatus {
            name: name.to_owned(),
            phase: "streaming".to_owned(),
            fps,
            stages: [("total".to_owned(), total)].into(),
            dropped: [("overload".to_owned(), dropped)].into(),
            labels: vec![LabelFacts { label: "dog".to_owned(), total: 3, newest: 2 }],
            ..CameraStatus::default()
        }
    }

    #[test]
    fn cameras_are_sorted_by_the_chosen_column() {
        let cameras = [camera("b", 30.0, 9_000, 1), camera("c", 5.0, 2_000, 7), camera("a", 10.0, 44_000, 0)];
        let names = |sort: Sort, round| {
            sort.apply(&cameras, round).iter().map(|camera| camera.name.as_str()).collect::<Vec<_>>().join("")
        };
        assert_eq!(names(Sort::Config, false), "bca");
        assert_eq!(names(Sort::Name, false), "abc");
        assert_eq!(names(Sort::Name, true), "cba");
        assert_eq!(names(Sort::Fps, false), "cab");
        assert_eq!(names(Sort::Age, false), "abc");
        assert_eq!(Sort::from_str("latency", false), Ok(Sort::Age), "its name in 0.1.0");
        assert_eq!(names(Sort::Dropped, false), "cba");
        assert_eq!(Sort::Config.turned(-1), Sort::Dropped);
        assert_eq!(Sort::Dropped.turned(1), Sort::Config);
    }

    #[test]
    fn the_text_has_a_row_for_each_camera_with_the_reason_why_one_is_missing() {
        let mut away = camera("gate", 0.0, 0, 0);
        (away.phase, away.reason) = ("waiting".to_owned(), Some("no camera is at /dev/video9".to_owned()));
        let seen = StatusReport {
            cameras: vec![camera("door", 29.96, 44_000, 12), away],
            uptime_s: 7_500.0,
            ..StatusReport::default()
        };
        let text = text(&seen, Sort::Name);
        assert!(text.starts_with("visiond  on , up 2 h 5 min, not ready: "), "{text}");
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("door"), "door streaming 30.0 0.0 44 0 12 100.0 2 dog");
        assert_eq!(row("gate"), "gate waiting 0.0 0.0 0.0 0 0 0.0 no camera is at /dev/video9");
    }

    #[test]
    fn drops_are_a_share_of_the_frames_published_or_dropped() {
        let percent =
            |published, dropped| dropped_percent(&CameraStatus { published, ..camera("door", 30.0, 0, dropped) });
        assert_eq!(percent(0, 0), "0.0");
        assert_eq!(percent(75, 25), "25.0");
        assert_eq!(percent(1_000_000, 0), "0.0");
        assert_eq!(percent(1_000_000, 1), "<0.1");
    }

    #[test]
    fn memory_has_the_units_of_the_configuration() {
        assert_eq!(memory(87 << 20), "87 MiB");
        assert_eq!(memory((1 << 30) - 1), "1.0 GiB");
        assert_eq!(memory(3 << 29), "1.5 GiB");
        let mut seen = StatusReport::default();
        seen.process.resident_bytes = 100_000_000;
        assert!(head(&seen, 0.0)[1].starts_with("95 MiB, "), "{:?}", head(&seen, 0.0));
    }

    #[test]
    fn a_sink_waits_while_its_spool_keeps_the_messages() {
        let sink = |outage: Option<&str>, connected, spool| {
            state(&SinkCounts { outage: outage.map(str::to_owned), connected, spool, ..SinkCounts::default() })
        };
        let spool = |bytes, dropped| {
            Some(SpoolCounts { bytes, limit_bytes: 100, records: 1, dropped, ..SpoolCounts::default() })
        };
        let unwritable =
            || Some(SpoolCounts { outage: Some("no space left on device".to_owned()), ..SpoolCounts::default() });
        let waiting = "waiting, messages are kept on disk";
        assert_eq!(sink(None, Some(true), spool(10, 0)), "connected");
        assert_eq!(sink(None, None, None), "writing");
        assert_eq!(sink(Some("connection refused"), Some(false), spool(10, 0)), waiting);
        assert_eq!(sink(None, Some(false), spool(80, 0)), waiting);
        assert_eq!(sink(Some("connection refused"), Some(false), spool(99, 0)), "outage", "it drops soon");
        assert_eq!(sink(Some("connection refused"), Some(false), spool(70, 7)), waiting, "it has room again");
        assert_eq!(sink(Some("connection refused"), Some(false), unwritable()), "outage");
        assert_eq!(sink(None, Some(true), unwritable()), "connected, messages are not kept on disk");
        assert_eq!(sink(Some("no space left on device"), None, None), "outage");
        assert_eq!(sink(None, Some(false), None), "outage");
    }

    #[test]
    fn a_share_of_drops_just_below_a_tenth_of_a_per_cent_is_not_shown_as_none() {
        let percent =
            |published, dropped| dropped_percent(&CameraStatus { published, ..camera("door", 30.0, 0, dropped) });
        assert_eq!([percent(999, 1), percent(1_000, 1), percent(0, 5)], ["0.1", "<0.1", "100.0"]);
    }

    #[test]
    fn an_uptime_has_its_two_largest_units() {
        for (seconds, text) in [
            (0.9, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min 0 s"),
            (3_599.0, "59 min 59 s"),
            (3_600.0, "1 h 0 min"),
            (86_399.0, "23 h 59 min"),
            (86_400.0, "1 d 0 h"),
            (30.0 * 86_400.0 + 5.0 * 3_600.0, "30 d 5 h"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn the_average_load_is_that_since_the_start() {
        let seen = |uptime_s, cpu_seconds| {
            let mut seen = StatusReport { uptime_s, ..StatusReport::default() };
            seen.process.cpu_seconds = cpu_seconds;
            average_load(&seen)
        };
        assert_eq!([seen(0.0, 3.0), seen(4.0, 3.0)], [0.0, 0.75]);
    }

    #[test]
    fn the_head_names_what_a_board_measures_and_a_rejected_reload() {
        let temperature = Temperature { last: 51.6, max: 70.0 };
        let jetson = JetsonSummary {
            temperatures_c: [("tj".to_owned(), temperature)].into(),
            power_mode: Some("MAXN".to_owned()),
            throttled_now: true,
            ..Default::default()
        };
        let gpu = GpuSummary { load_now_percent: Some(87.4), clock_mhz: Some(1300), ..GpuSummary::default() };
        let mut seen = StatusReport { gpu: Some(gpu), jetson: Some(jetson), ready: true, ..StatusReport::default() };
        let last = |applied| LastReload {
            at: String::new(),
            applied,
            message: "visiond.toml:3: no such key\n3 | colour = 1".to_owned(),
        };
        seen.reloads.last = Some(last(false));
        let lines = head(&seen, 0.126);
        assert_eq!(
            lines,
            [
                "visiond  on , up 0 s, ready",
                "0 MiB, 13 % of a core, 0 threads, 0 descriptors",
                "tj 52 °C, power mode MAXN, GPU 87 % at 1300 MHz, throttled",
                "the last reload was rejected; the previous configuration stays in force: visiond.toml:3: no such key",
            ]
        );
        seen.reloads.last = Some(last(true));
        assert_eq!(head(&seen, 0.126).len(), 3);
        // A PC.
        seen.jetson = None;
        assert_eq!(head(&seen, 0.126)[2..], ["GPU 87 % at 1300 MHz"]);
    }

    #[test]
    fn a_camera_has_a_line_with_its_drops_by_cause() {
        let mut seen = camera("door", 30.0, 0, 0);
        (seen.width, seen.height, seen.format) = (1280, 720, "nv12".to_owned());
        (seen.model, seen.errors, seen.restarts, seen.watchers) = ("net".to_owned(), 1, 2, 3);
        let end = "1 errors, reopened 2 times, 3 viewers";
        assert_eq!(camera_line(&seen), format!("door: 1280x720 nv12, model net; nothing dropped; {end}"));
        seen.io = Some("mmap".to_owned());
        seen.dropped = [("overload".to_owned(), 4), ("corrupt".to_owned(), 0), ("stale".to_owned(), 1)].into();
        let expected = format!("door: 1280x720 nv12, by mmap, model net; dropped: overload 4, stale 1; {end}");
        assert_eq!(camera_line(&seen), expected);
    }

    #[test]
    fn tables_have_a_row_for_each_model_sink_and_stage() {
        let rows = |table: TextTable| -> Vec<String> { table.rows.iter().map(|row| row.join("|")).collect() };
        let model = ModelStatus {
            name: "net".to_owned(),
            backend: "rten".to_owned(),
            file: "net.onnx".to_owned(),
            runs: 7,
            errors: 2,
            rebuilds: 1,
            ..Default::default()
        };
        let mut seen = StatusReport { models: vec![model], ..StatusReport::default() };
        assert_eq!(rows(models(&seen)), ["net|7|2|1|rten|net.onnx"]);
        let bundle = BundleStatus { name: "street".to_owned(), version: 7, ..BundleStatus::default() };
        seen.models[0].bundle = Some(bundle);
        assert_eq!(rows(models(&seen)), ["net|7|2|1|rten|street 7"]);
        let spool = Some(SpoolCounts { records: 30, limit_bytes: 100, ..SpoolCounts::default() });
        let sink = SinkCounts { name: "fleet".to_owned(), to: "mqtt".to_owned(), spool, ..SinkCounts::default() };
        seen.sinks = vec![SinkCounts { waiting: 4, written: 5, lost: 6, ..sink }];
        assert_eq!(rows(sinks(&seen)), ["fleet|writing|34|5|6|mqtt"]);
        let facts = |us| StageFacts {
            recent_p50_us: us,
            recent_p99_us: 2 * us,
            p99_us: 3 * us,
            max_us: 4 * us,
            ..StageFacts::default()
        };
        let stages_us = [("total", 5_000), ("infer", 3_000)].map(|(stage, us)| (stage.to_owned(), facts(us)));
        let seen = CameraStatus { stages: stages_us.into(), ..CameraStatus::default() };
        let table = rows(stages(&seen));
        assert_eq!(table[0], "total|5.0|10|15|20");
        assert_eq!(table[4], "infer|3.0|6.0|9.0|12");
        assert_eq!((table.len(), table[1].as_str()), (6, "capture|0.0|0.0|0.0|0.0"));
    }

    #[test]
    fn labels_that_are_not_on_the_newest_frame_are_not_listed() {
        let label = |label: &str, newest| LabelFacts { label: label.to_owned(), total: 9, newest };
        let seen = CameraStatus { labels: vec![label("dog", 0), label("cat", 1)], ..camera("door", 1.0, 0, 0) };
        assert_eq!(cameras(&[&seen]).rows[0][8], "1 cat");
    }
}
