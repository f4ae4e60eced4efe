//! `GET /metrics`: the status report in Prometheus' text format 0.0.4; docs/metrics.md lists every metric.
//!
//! The format requires the samples of each family to be consecutive. Names end with their unit, and with `_total` if the
//! number only rises while the process lives.

mod text_format;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use visiond_message::PlainAttribute;
use visiond_message::status::{
    CameraStatus, DISABLED, GpuSnapshot, LabelFacts, ModelStatus, ROLLOUT_STEPS, SinkCounts, SpoolCounts,
};
use visiond_system::process::ProcessFacts;
use visiond_system::thermal::{GpuSummary, JetsonSummary};
use visiond_telemetry::metrics::{Phase, Stage};

use self::text_format::{COUNTER, Column, GAUGE, HISTOGRAM, MetricsText, flag};
use crate::state::AppState;
use crate::status::report::{HttpCounts, StatusReport};

/// The media type of the text from [`render`].
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`
pub async fn metrics(State(state): State<AppState>) -> Response {
    let mut seen = state.status.observe();
    // Its counters are those of no run.
    seen.cameras.retain(|camera| camera.phase != DISABLED);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&seen)).into_response()
}

/// Writes every metric.
fn render(seen: &StatusReport) -> String {
    let mut page = MetricsText::default();
    daemon(&mut page, seen);
    cameras(&mut page, &seen.cameras);
    models(&mut page, &seen.models);
    let help = "Version of the bundle whose settings lie over the configuration file.";
    let mut settings = page.family(GAUGE, "visiond_settings_bundle_version", help);
    if let Some(bundle) = &seen.settings {
        settings.add(&[("bundle", &bundle.name)], bundle.version as f64);
    }
    sinks(&mut page, &seen.sinks);
    http(&mut page, &seen.http);
    seen.gpu.iter().for_each(|facts| gpu(&mut page, facts));
    seen.jetson.iter().for_each(|facts| jetson(&mut page, facts));
    process(&mut page, &seen.process, &seen.started_at);
    page.finish()
}

fn daemon(page: &mut MetricsText, seen: &StatusReport) {
    let mut info = page.family(GAUGE, "visiond_build_info", "Version of the daemon, and the target it was built for.");
    info.add(&[("version", &seen.version), ("target", &seen.target)], 1.0);
    page.single(GAUGE, "visiond_ready", "Whether every model that can start processed a frame.", flag(seen.ready));
    let mut reloads = page.family(COUNTER, "visiond_reloads_total", "Reloads of the configuration, by outcome.");
    reloads.add(&[("outcome", "applied")], seen.reloads.applied as f64);
    reloads.add(&[("outcome", "refused")], seen.reloads.refused as f64);
    let applied = seen.reloads.last.as_ref().is_none_or(|last| last.applied);
    let help = "Whether the last reload was applied; 1 before the first reload.";
    page.single(GAUGE, "visiond_reload_last_applied", help, flag(applied));
}

/// The share of each model in the counts of its cameras.
fn models_of_cameras(page: &mut MetricsText, cameras: &[CameraStatus]) {
    let all: Vec<_> =
        cameras.iter().flat_map(|camera| camera.models.iter().map(move |model| (camera, model))).collect();
    let help = "Messages of a model about a camera per second over the last five seconds.";
    let mut rates = page.family(GAUGE, "visiond_camera_model_frames_per_second", help);
    for (camera, model) in &all {
        rates.add(&[("camera", &camera.name), ("model", &model.name)], model.fps);
    }
    let help = "Frames of a camera by model and outcome: published as a message, or dropped.";
    let mut outcomes = page.family(COUNTER, "visiond_camera_model_frames_total", help);
    for (camera, model) in &all {
        for (outcome, frames) in [("published", model.published), ("dropped", model.dropped.values().sum())] {
            outcomes.add(&[("camera", &camera.name), ("model", &model.name), ("outcome", outcome)], frames as f64);
        }
    }
    let help = "Frames of a camera that a model did not process, by cause.";
    let mut dropped = page.family(COUNTER, "visiond_camera_model_frames_dropped_total", help);
    for (camera, model) in &all {
        for (cause, frames) in &model.dropped {
            dropped.add(&[("camera", &camera.name), ("model", &model.name), ("cause", cause)], *frames as f64);
        }
    }
    let help = "Detections of a model in the newest frame of a camera, by label.";
    let mut detections = page.family(GAUGE, "visiond_camera_model_detections", help);
    for (camera, model) in &all {
        for label in &model.labels {
            let labels = [("camera", &*camera.name), ("model", &model.name), ("label", &label.label)];
            detections.add(&labels, label.newest as f64);
        }
    }
}

fn cameras(page: &mut MetricsText, cameras: &[CameraStatus]) {
    let help = "Size and format of a camera's frames, how the driver passes them or what decodes them, and the models that run on them.";
    let mut info = page.family(GAUGE, "visiond_camera_info", help);
    for camera in cameras {
        let size = format!("{}x{}", camera.width, camera.height);
        let io = camera.io.as_deref().unwrap_or_default();
        let decoder = camera.decoder.as_deref().unwrap_or_default();
        let labels = [
            ("camera", &*camera.name),
            ("model", &camera.model),
            ("size", &size),
            ("format", &camera.format),
            ("io", io),
            ("decoder", decoder),
        ];
        info.add(&labels, 1.0);
    }
    let mut phases =
        page.family(GAUGE, "visiond_camera_phase", "1 for the current phase of a camera, 0 for the others.");
    for (camera, phase) in cameras.iter().flat_map(|camera| Phase::ALL.map(|phase| (camera, phase.name()))) {
        phases.add(&[("camera", &camera.name), ("phase", phase)], flag(camera.phase == phase));
    }
    let by_name: Vec<_> = cameras.iter().map(|camera| (camera.name.as_str(), camera)).collect();
    let columns: [Column<CameraStatus>; 3] = [
        (GAUGE, "visiond_camera_frames_per_second", "Messages per second over the last five seconds.", |camera| {
            camera.fps
        }),
        (GAUGE, "visiond_camera_watchers", "Clients that watch a camera's pictures.", |camera| camera.watchers as f64),
        (COUNTER, "visiond_frames_captured_total", "Frames captured.", |camera| camera.captured as f64),
    ];
    page.table("camera", &by_name, &columns);
    let help = "Frames by outcome: published as a message, or dropped.";
    let mut outcomes = page.family(COUNTER, "visiond_frames_total", help);
    for camera in cameras {
        let dropped = camera.dropped.values().sum::<u64>();
        outcomes.add(&[("camera", &camera.name), ("outcome", "published")], camera.published as f64);
        outcomes.add(&[("camera", &camera.name), ("outcome", "dropped")], dropped as f64);
    }
    let mut dropped = page.family(COUNTER, "visiond_frames_dropped_total", "Frames without a message, by cause.");
    for (camera, (cause, frames)) in
        cameras.iter().flat_map(|camera| camera.dropped.iter().map(move |drop| (camera, drop)))
    {
        dropped.add(&[("camera", &camera.name), ("cause", cause)], *frames as f64);
    }
    models_of_cameras(page, cameras);
    stages(page, cameras);
    for (kind, name, help, count) in [
        (COUNTER, "visiond_detections_total", "Detections, by label.", (|label| label.total) as fn(&LabelFacts) -> u64),
        (GAUGE, "visiond_detections", "Detections in the newest frame, by label, of all models.", |label| label.newest),
    ] {
        let mut family = page.family(kind, name, help);
        for (camera, label) in cameras.iter().flat_map(|camera| camera.labels.iter().map(move |label| (camera, label)))
        {
            family.add(&[("camera", &camera.name), ("label", &label.label)], count(label) as f64);
        }
    }
    lines_and_zones(page, cameras);
    let help = "Part of the newest frame that a class covers, 0 to 1.";
    let mut family = page.family(GAUGE, "visiond_frame_fraction", help);
    for (camera, (label, part)) in
        cameras.iter().flat_map(|camera| camera.fractions.iter().map(move |one| (camera, one)))
    {
        family.add(&[("camera", &camera.name), ("label", label)], decimal(*part));
    }
    let attributes = || cameras.iter().flat_map(|camera| camera.attributes.iter().map(move |one| (camera, one)));
    let mut family = page.family(GAUGE, "visiond_attribute", "Attribute of the newest frame that is a number.");
    for (camera, (name, value)) in attributes() {
        if let PlainAttribute::Number(value) = value {
            family.add(&[("camera", &camera.name), ("attribute", name)], decimal(*value));
        }
    }
    let help = "1 for the label, or the labels with commas, of an attribute of the newest frame.";
    let mut family = page.family(GAUGE, "visiond_attribute_info", help);
    for (camera, (name, value)) in attributes() {
        if let PlainAttribute::Text(label) = value {
            family.add(&[("camera", &camera.name), ("attribute", name), ("label", label)], 1.0);
        }
    }
    let columns: [Column<CameraStatus>; 6] = [
        (
            COUNTER,
            "visiond_camera_incomplete_groups_total",
            "Messages of several models without the result of each.",
            |camera| camera.incomplete_groups as f64,
        ),
        (COUNTER, "visiond_camera_truncated_masks_total", "Masks that were too much for their message.", |camera| {
            camera.truncated_masks as f64
        }),
        (COUNTER, "visiond_camera_restarts_total", "Times a camera was reopened.", |camera| camera.restarts as f64),
        (COUNTER, "visiond_camera_errors_total", "Times a camera could not be opened, or failed.", |c| c.errors as f64),
        (COUNTER, "visiond_camera_copied_bytes_total", "Bytes of frames copied between source and model.", |camera| {
            camera.copied_bytes as f64
        }),
        (
            COUNTER,
            "visiond_camera_cpu_seconds_total",
            "CPU time of a camera's thread, and its part of a shared one.",
            |camera| camera.capture_cpu_s,
        ),
    ];
    page.table("camera", &by_name, &columns);
    let mut family = page.family(COUNTER, "visiond_pictures_total", "Annotated pictures for `annotate`, by outcome.");
    for (camera, counts) in cameras.iter().filter_map(|camera| Some((camera, camera.pictures.as_ref()?))) {
        let outcomes = [("written", counts.written), ("dropped", counts.dropped_busy), ("failed", counts.failed)];
        for (outcome, count) in outcomes {
            family.add(&[("camera", &camera.name), ("outcome", outcome)], count as f64);
        }
    }
    let help = "Whether the folder of a camera's annotated pictures cannot be written.";
    let mut family = page.family(GAUGE, "visiond_pictures_outage", help);
    for (camera, counts) in cameras.iter().filter_map(|camera| Some((camera, camera.pictures.as_ref()?))) {
        family.add(&[("camera", &camera.name)], flag(counts.outage.is_some()));
    }
    let mut family = page.family(COUNTER, "visiond_clips_total", "Clips of events, by outcome.");
    for (camera, counts) in cameras.iter().filter_map(|camera| Some((camera, camera.clips.as_ref()?))) {
        for (outcome, count) in [("written", counts.written), ("dropped", counts.dropped), ("failed", counts.failed)] {
            family.add(&[("camera", &camera.name), ("outcome", outcome)], count as f64);
        }
    }
    let help = "Whether the folder of a camera's clips cannot be written.";
    let mut family = page.family(GAUGE, "visiond_clips_outage", help);
    for (camera, counts) in cameras.iter().filter_map(|camera| Some((camera, camera.clips.as_ref()?))) {
        family.add(&[("camera", &camera.name)], flag(counts.outage.is_some()));
    }
}

fn lines_and_zones(page: &mut MetricsText, cameras: &[CameraStatus]) {
    let rules = || cameras.iter().flat_map(|camera| camera.rules.iter().map(move |rule| (&*camera.name, rule)));
    let help = "Events of a line or zone, by kind.";
    let mut events = page.family(COUNTER, "visiond_events_total", help);
    for (camera, rule) in rules() {
        events.add(&[("camera", camera), ("rule", &rule.name), ("kind", &rule.kind)], rule.begun as f64);
    }
    let help = "Events of a zone that have begun and not ended, by kind.";
    let mut under_way = page.family(GAUGE, "visiond_events_under_way", help);
    for (camera, rule) in rules().filter(|(_, rule)| rule.inside.is_some()) {
        under_way.add(&[("camera", camera), ("rule", &rule.name), ("kind", &rule.kind)], f64::from(rule.under_way));
    }
    let mut crossings = page.family(COUNTER, "visiond_line_crossings_total", "Crossings of a line, by side.");
    for (camera, rule) in rules() {
        for (side, count) in &rule.crossed_to {
            crossings.add(&[("camera", camera), ("rule", &rule.name), ("to", side)], *count as f64);
        }
    }
    let mut objects = page.family(GAUGE, "visiond_zone_objects", "Objects in a zone.");
    let mut last = None;
    // The rules of a zone follow each other. The first one sees the objects of the zone: belongings have their own classes.
    for (camera, rule) in rules() {
        if let Some(inside) = rule.inside
            && last.replace((camera, &rule.name)) != Some((camera, &rule.name))
        {
            objects.add(&[("camera", camera), ("rule", &rule.name)], f64::from(inside));
        }
    }
}

/// Returns the number with the digits in messages; the exact binary value would have seventeen.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::NAN)
}

fn stages(page: &mut MetricsText, cameras: &[CameraStatus]) {
    let total = Stage::Total.name();
    let help = "Duration of each stage of processing a frame.";
    let mut family = page.family(HISTOGRAM, "visiond_stage_duration_seconds", help);
    for camera in cameras {
        for (stage, facts) in camera.stages.iter().filter(|(stage, _)| *stage != total) {
            family.add_histogram(&[("camera", &camera.name), ("stage", stage)], &facts.buckets, facts.sum_us);
        }
    }
    let help = "Age of a frame when its message is published.";
    let mut family = page.family(HISTOGRAM, "visiond_capture_to_publish_seconds", help);
    for (camera, facts) in cameras.iter().filter_map(|camera| Some((camera, camera.stages.get(total)?))) {
        family.add_histogram(&[("camera", &camera.name)], &facts.buckets, facts.sum_us);
    }
}

fn models(page: &mut MetricsText, models: &[ModelStatus]) {
    let help = "File, backend, frame memory and input of a model.";
    let mut info = page.family(GAUGE, "visiond_model_info", help);
    for model in models {
        let labels = [
            ("model", &*model.name),
            ("file", &model.file),
            ("sha256", &model.sha256),
            ("backend", &model.backend),
            ("memory", &model.memory),
            ("input", &model.input),
        ];
        info.add(&labels, 1.0);
    }
    bundles(page, models);
    let by_name: Vec<_> = models.iter().map(|model| (model.name.as_str(), model)).collect();
    let columns: [Column<ModelStatus>; 5] = [
        (COUNTER, "visiond_model_runs_total", "Runs of a model, successful or not.", |model| model.runs as f64),
        (COUNTER, "visiond_model_errors_total", "Frames and runs that failed.", |model| model.errors as f64),
        (COUNTER, "visiond_model_rebuilds_total", "Times a model was loaded again.", |model| model.rebuilds as f64),
        (COUNTER, "visiond_model_crops_total", "Detections of another model on which a model ran.", |model| {
            model.crops as f64
        }),
        (COUNTER, "visiond_model_crops_left_out_total", "Detections beyond `max_crops` of their frame.", |model| {
            model.crops_left_out as f64
        }),
    ];
    page.table("model", &by_name, &columns);
    let on_gpu: Vec<_> = models.iter().filter_map(|model| Some((model.name.as_str(), model.gpu.as_ref()?))).collect();
    let help = "Runs on the GPU, launched as one CUDA graph or call by call.";
    let mut runs = page.family(COUNTER, "visiond_model_gpu_runs_total", help);
    for (model, gpu) in &on_gpu {
        runs.add(&[("model", model), ("kind", "graph")], gpu.graph_runs as f64);
        runs.add(&[("model", model), ("kind", "single")], gpu.single_runs as f64);
    }
    let columns: [Column<GpuSnapshot>; 3] = [
        (COUNTER, "visiond_model_gpu_overlapped_runs_total", "Runs that started while another was in flight.", |gpu| {
            gpu.overlapped_runs as f64
        }),
        (COUNTER, "visiond_model_gpu_copied_bytes_total", "Bytes of frames copied for the GPU.", |gpu| {
            gpu.copied_bytes as f64
        }),
        (COUNTER, "visiond_model_gpu_lost_candidates_total", "Candidates dropped by a full filter.", |gpu| {
            gpu.lost_candidates as f64
        }),
    ];
    page.table("model", &on_gpu, &columns);
}

fn bundles(page: &mut MetricsText, models: &[ModelStatus]) {
    let bundles = || models.iter().filter_map(|model| Some((&*model.name, model.bundle.as_ref()?)));
    let rollouts = || bundles().filter_map(|(model, bundle)| Some((model, bundle, bundle.rollout.as_ref()?)));
    let help = "Version of the bundle that a model is, and the key that signed it.";
    let mut info = page.family(GAUGE, "visiond_model_bundle_info", help);
    for (model, bundle) in bundles() {
        let (version, signed_by) = (bundle.version.to_string(), bundle.signed_by.as_deref().unwrap_or_default());
        let labels = [("model", model), ("bundle", &bundle.name), ("version", &version), ("signed_by", signed_by)];
        info.add(&labels, 1.0);
    }
    let help = "Version of the bundle that a model is, as a number.";
    let mut versions = page.family(GAUGE, "visiond_model_bundle_version", help);
    for (model, bundle) in bundles() {
        versions.add(&[("model", model), ("bundle", &bundle.name)], bundle.version as f64);
    }
    let help = "Newest version that the source of a model's bundle has.";
    let mut newest = page.family(GAUGE, "visiond_model_bundle_newest_version", help);
    for (model, bundle, rollout) in rollouts() {
        if let Some(version) = rollout.newest {
            newest.add(&[("model", model), ("bundle", &bundle.name)], version as f64);
        }
    }
    let help = "1 for what is done about newer versions of a model's bundle, 0 for the other steps.";
    let mut steps = page.family(GAUGE, "visiond_model_rollout_step", help);
    for (model, bundle, rollout) in rollouts() {
        for step in ROLLOUT_STEPS {
            steps.add(&[("model", model), ("bundle", &bundle.name), ("step", step)], flag(rollout.step == step));
        }
    }
}

fn sinks(page: &mut MetricsText, sinks: &[SinkCounts]) {
    let mut info = page.family(GAUGE, "visiond_sink_info", "Type and output of a sink.");
    for sink in sinks {
        info.add(&[("sink", &sink.name), ("type", &sink.kind), ("to", &sink.to)], 1.0);
    }
    let by_name: Vec<_> = sinks.iter().map(|sink| (sink.name.as_str(), sink)).collect();
    let columns: [Column<SinkCounts>; 11] = [
        (GAUGE, "visiond_sink_queue_messages", "Messages in a sink's queue.", |sink| sink.waiting as f64),
        (GAUGE, "visiond_sink_queue_limit_messages", "Size of a sink's queue.", |sink| sink.capacity as f64),
        (GAUGE, "visiond_sink_outage", "Whether a sink's output cannot be written.", |s| flag(s.outage.is_some())),
        (GAUGE, "visiond_sink_readers", "Readers of a sink's socket.", |sink| sink.readers as f64),
        (COUNTER, "visiond_sink_queued_total", "Messages that entered a sink's queue.", |sink| sink.queued as f64),
        (COUNTER, "visiond_sink_written_total", "Messages written; for a broker, acknowledged.", |s| s.written as f64),
        (COUNTER, "visiond_sink_thinned_total", "Messages skipped because of `max_rate`.", |sink| sink.thinned as f64),
        (COUNTER, "visiond_sink_reconnects_total", "Reconnections to a broker.", |sink| sink.reconnects as f64),
        (COUNTER, "visiond_sink_resent_total", "Messages sent again after a lost connection.", |sink| {
            sink.resent as f64
        }),
        (COUNTER, "visiond_sink_reader_lost_total", "Messages that slow readers of a socket lost.", |sink| {
            sink.reader_lost as f64
        }),
        (COUNTER, "visiond_sink_readers_refused_total", "Readers of a socket that were refused.", |sink| {
            sink.readers_refused as f64
        }),
    ];
    page.table("sink", &by_name, &columns);
    let mut lost = page.family(COUNTER, "visiond_sink_lost_total", "Messages that a sink lost, by cause.");
    for sink in sinks {
        // Messages that a full spool drops have a family of their own.
        for (cause, messages) in [("queue_full", sink.dropped_full), ("failed", sink.failed), ("unsent", sink.unsent)] {
            lost.add(&[("sink", &sink.name), ("cause", cause)], messages as f64);
        }
    }
    let mut connected = page.family(GAUGE, "visiond_sink_connected", "Whether a sink is connected to its broker.");
    for (sink, is) in sinks.iter().filter_map(|sink| Some((sink, sink.connected?))) {
        connected.add(&[("sink", &sink.name)], flag(is));
    }
    let spools: Vec<_> = sinks.iter().filter_map(|sink| Some((sink.name.as_str(), sink.spool.as_ref()?))).collect();
    let columns: [Column<SpoolCounts>; 6] = [
        (GAUGE, "visiond_spool_bytes", "Bytes on disk of a durable sink.", |spool| spool.bytes as f64),
        (GAUGE, "visiond_spool_limit_bytes", "Most bytes on disk of a durable sink.", |spool| spool.limit_bytes as f64),
        (GAUGE, "visiond_spool_messages", "Messages on disk that are not acknowledged.", |spool| spool.records as f64),
        (COUNTER, "visiond_spool_dropped_total", "Messages that a full spool dropped.", |spool| spool.dropped as f64),
        (COUNTER, "visiond_spool_unreadable_total", "Files of a spool that could not be read.", |s| {
            s.unreadable as f64
        }),
        (GAUGE, "visiond_spool_outage", "Whether the disk of a durable sink cannot be used.", |spool| {
            flag(spool.outage.is_some())
        }),
    ];
    page.table("sink", &spools, &columns);
}

fn http(page: &mut MetricsText, http: &HttpCounts) {
    page.single(GAUGE, "visiond_http_connections", "Open connections.", http.connections as f64);
    let mut connections = page.family(COUNTER, "visiond_http_connections_total", "Connections, by outcome.");
    connections.add(&[("outcome", "accepted")], http.accepted as f64);
    connections.add(&[("outcome", "refused")], http.refused as f64);
    let mut requests = page.family(COUNTER, "visiond_http_requests_total", "Requests answered, by class of status.");
    for (code, answers) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(http.answers) {
        requests.add(&[("code", code)], answers as f64);
    }
    let unauthorized = http.unauthorized as f64;
    page.single(COUNTER, "visiond_http_unauthorized_total", "Requests without a valid token.", unauthorized);
    let mut readers = page.family(GAUGE, "visiond_http_stream_readers", "Readers of the stream of detections.");
    readers.add(&[("kind", "events")], http.event_readers as f64);
    readers.add(&[("kind", "websocket")], http.websocket_readers as f64);
    let lost = http.events_lost as f64;
    page.single(COUNTER, "visiond_http_stream_lost_total", "Messages that slow readers of the stream lost.", lost);
}

fn gpu(page: &mut MetricsText, gpu: &GpuSummary) {
    if let Some(load) = gpu.load_now_percent {
        page.single(GAUGE, "visiond_gpu_load_ratio", "Load of the busiest GPU, 0 to 1.", load / 100.0);
    }
    if let Some(mhz) = gpu.clock_mhz {
        page.single(GAUGE, "visiond_gpu_clock_hertz", "Clock of the busiest GPU's cores.", f64::from(mhz) * 1e6);
    }
}

fn jetson(page: &mut MetricsText, jetson: &JetsonSummary) {
    let mut zones = page.family(GAUGE, "visiond_temperature_celsius", "Temperatures of the Jetson, by zone.");
    for (zone, temperature) in &jetson.temperatures_c {
        zones.add(&[("zone", zone)], temperature.last);
    }
    if let Some(mode) = &jetson.power_mode {
        let mut info = page.family(GAUGE, "visiond_power_mode_info", "Power mode of the Jetson.");
        info.add(&[("mode", mode)], 1.0);
    }
    let throttled = flag(jetson.throttled_now);
    page.single(GAUGE, "visiond_throttled", "Whether heat or the power supply throttles the Jetson.", throttled);
    page.single(COUNTER, "visiond_throttles_total", "Times the Jetson was throttled.", jetson.throttled as f64);
    let help = "Total time the Jetson was throttled.";
    page.single(COUNTER, "visiond_throttled_seconds_total", help, jetson.throttled_seconds);
}

/// Writes the process's metrics under the names that all Prometheus clients use.
fn process(page: &mut MetricsText, process: &ProcessFacts, started_at: &str) {
    let help = "CPU time of all threads, user and system.";
    page.single(COUNTER, "process_cpu_seconds_total", help, process.cpu_seconds);
    for (name, help, value) in [
        ("process_open_fds", "Open file descriptors.", process.descriptors),
        ("process_max_fds", "Limit of open file descriptors.", process.descriptors_limit),
        ("process_virtual_memory_bytes", "Address space.", process.virtual_bytes),
        ("process_resident_memory_bytes", "Resident memory.", process.resident_bytes),
        ("process_resident_memory_peak_bytes", "Peak of resident memory.", process.peak_resident_bytes),
        ("process_threads", "Threads.", process.threads),
    ] {
        page.single(GAUGE, name, help, value as f64);
    }
    if let Ok(started) = started_at.parse::<jiff::Timestamp>() {
        let help = "Start of the process, in seconds since 1970.";
        page.single(GAUGE, "process_start_time_seconds", help, started.as_millisecond() as f64 / 1e3);
    }
}

#[cfg(test)]
mod tests;
