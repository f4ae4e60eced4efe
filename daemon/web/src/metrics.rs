//! `GET /metrics`: the status report in Prometheus' text format 0.0.4; docs/metrics.md lists every metric.
//!
//! The format asks for a family in one piece. Names end with their unit, and with `_total` if the number only rises while the
//! process lives.

mod cameras;
mod sinks;
mod text_format;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use visiond_system::thermal::JetsonSummary;

use self::text_format::{Column, Page, flag};
use crate::state::State;
use crate::status::counters::HttpFacts;
use crate::status::report::{ModelFacts, StatusReport};
use visiond_system::process::ProcessFacts;

/// The media type of what [`render`] returns.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the route.
pub fn routes() -> Router<State> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(Shared(state): Shared<State>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], render(&state.observer.observe())).into_response()
}

/// Writes every metric.
fn render(seen: &StatusReport) -> String {
    let mut page = Page::default();
    daemon(&mut page, seen);
    cameras::render(&mut page, &seen.cameras);
    models(&mut page, &seen.models);
    sinks::render(&mut page, &seen.sinks);
    http(&mut page, &seen.http);
    seen.jetson.iter().for_each(|facts| jetson(&mut page, facts));
    process(&mut page, &seen.process, &seen.started_at);
    page.finish()
}

fn daemon(page: &mut Page, seen: &StatusReport) {
    let labels = [("version", seen.version.as_str()), ("target", seen.target.as_str())];
    page.gauge("visiond_build_info", "The daemon's version and what it was built for.").add(&labels, 1.0);
    page.gauge("visiond_ready", "Whether a frame went through every network that can start.")
        .add(&[], flag(seen.ready));
    let mut reloads = page.counter("visiond_reloads_total", "Reloads of the configuration, by outcome.");
    reloads.add(&[("outcome", "applied")], seen.reloads.applied as f64);
    reloads.add(&[("outcome", "refused")], seen.reloads.refused as f64);
    let applied = seen.reloads.last.as_ref().is_none_or(|last| last.applied);
    let help = "Whether the newest reload was applied; 1 where there was none.";
    page.gauge("visiond_reload_last_applied", help).add(&[], flag(applied));
}

fn models(page: &mut Page, models: &[ModelFacts]) {
    let mut info = page.gauge("visiond_model_info", "What a network is and what runs it.");
    for model in models {
        info.add(
            &[
                ("model", &model.name),
                ("file", &model.file),
                ("sha256", &model.sha256),
                ("backend", &model.backend),
                ("memory", &model.memory),
                ("input", &model.input),
            ],
            1.0,
        );
    }
    let counters: [Column<ModelFacts>; 3] = [
        ("visiond_model_runs_total", "Runs of a network, well or not.", |model| model.runs as f64),
        ("visiond_model_errors_total", "Frames and runs that failed.", |model| model.errors as f64),
        ("visiond_model_rebuilds_total", "Times that a network was built anew.", |model| model.rebuilds as f64),
    ];
    for (name, help, value) in counters {
        let mut family = page.counter(name, help);
        models.iter().for_each(|model| family.add(&[("model", &model.name)], value(model)));
    }
    let on_gpu: Vec<_> = models.iter().filter_map(|model| Some((model.name.as_str(), model.gpu.as_ref()?))).collect();
    let help = "Runs that the GPU was given, as one CUDA graph or call by call.";
    let mut runs = page.counter("visiond_model_gpu_runs_total", help);
    for (model, gpu) in &on_gpu {
        runs.add(&[("model", model), ("kind", "graph")], gpu.graph_runs as f64);
        runs.add(&[("model", model), ("kind", "single")], gpu.single_runs as f64);
    }
    let help = "Runs that were begun while another was under way.";
    let mut overlapped = page.counter("visiond_model_gpu_overlapped_runs_total", help);
    on_gpu.iter().for_each(|(model, gpu)| overlapped.add(&[("model", model)], gpu.overlapped_runs as f64));
    let help = "Bytes of frames that were copied because the GPU does not see their memory.";
    let mut copied = page.counter("visiond_model_gpu_copied_bytes_total", help);
    on_gpu.iter().for_each(|(model, gpu)| copied.add(&[("model", model)], gpu.copied_bytes as f64));
    let help = "Candidates that the filter on the GPU had no room for.";
    let mut lost = page.counter("visiond_model_gpu_lost_candidates_total", help);
    on_gpu.iter().for_each(|(model, gpu)| lost.add(&[("model", model)], gpu.lost_candidates as f64));
}

fn http(page: &mut Page, http: &HttpFacts) {
    page.gauge("visiond_http_connections", "Connections that are open.").add(&[], http.connections as f64);
    let mut connections = page.counter("visiond_http_connections_total", "Connections, by outcome.");
    connections.add(&[("outcome", "accepted")], http.accepted as f64);
    connections.add(&[("outcome", "refused")], http.refused as f64);
    let mut requests = page.counter("visiond_http_requests_total", "Requests answered, by kind of status.");
    for (code, answers) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().zip(http.answers) {
        requests.add(&[("code", code)], answers as f64);
    }
    let help = "Requests without a valid token.";
    page.counter("visiond_http_unauthorized_total", help).add(&[], http.unauthorized as f64);
    let mut readers = page.gauge("visiond_http_stream_readers", "Readers of the stream of detections.");
    readers.add(&[("kind", "events")], http.event_readers as f64);
    readers.add(&[("kind", "websocket")], http.websocket_readers as f64);
    let help = "Messages that a reader of the stream was too slow for.";
    page.counter("visiond_http_stream_lost_total", help).add(&[], http.events_lost as f64);
}

fn jetson(page: &mut Page, jetson: &JetsonSummary) {
    let mut zones = page.gauge("visiond_temperature_celsius", "The Jetson's temperatures, by zone.");
    for (zone, temperature) in &jetson.temperatures_c {
        zones.add(&[("zone", zone)], temperature.last);
    }
    if let Some(load) = jetson.gpu_load_now_percent {
        page.gauge("visiond_gpu_load_ratio", "How busy the GPU is, 0 to 1.").add(&[], load / 100.0);
    }
    if let Some(mode) = &jetson.power_mode {
        page.gauge("visiond_power_mode_info", "The Jetson's power mode.").add(&[("mode", mode)], 1.0);
    }
    let help = "Whether the Jetson is slowed down by heat or by its supply.";
    page.gauge("visiond_throttled", help).add(&[], flag(jetson.throttled_now));
    let help = "Times that the Jetson was slowed down.";
    page.counter("visiond_throttles_total", help).add(&[], jetson.throttled as f64);
    let help = "How long the Jetson was slowed down in all.";
    page.counter("visiond_throttled_seconds_total", help).add(&[], jetson.throttled_seconds);
}

/// Writes the process's metrics under the names that all Prometheus clients use.
fn process(page: &mut Page, process: &ProcessFacts, started_at: &str) {
    let help = "CPU time of all threads, user and system.";
    page.counter("process_cpu_seconds_total", help).add(&[], process.cpu_seconds);
    let gauges = [
        ("process_open_fds", "Open descriptors.", process.descriptors),
        ("process_max_fds", "Descriptors that the process may have.", process.descriptors_limit),
        ("process_virtual_memory_bytes", "Address space.", process.virtual_bytes),
        ("process_resident_memory_bytes", "Resident memory.", process.resident_bytes),
        ("process_resident_memory_peak_bytes", "Resident memory at most so far.", process.peak_resident_bytes),
        ("process_threads", "Threads.", process.threads),
    ];
    for (name, help, value) in gauges {
        page.gauge(name, help).add(&[], value as f64);
    }
    if let Ok(started) = started_at.parse::<jiff::Timestamp>() {
        let help = "When the process was started, in seconds since 1970.";
        page.gauge("process_start_time_seconds", help).add(&[], started.as_millisecond() as f64 / 1e3);
    }
}

#[cfg(test)]
mod tests;
