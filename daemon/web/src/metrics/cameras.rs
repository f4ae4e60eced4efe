//! The metrics of cameras.

use visiond_flow::metrics::{Phase, Stage};

use super::text_format::{Column, Family, Labels, Page, flag};
use crate::status::report::{CameraFacts, StageFacts};

/// Writes the metrics of all cameras.
pub fn render(page: &mut Page, cameras: &[CameraFacts]) {
    states(page, cameras);
    frames(page, cameras);
    stages(page, cameras);
    detections(page, cameras);
    let counters: [Column<CameraFacts>; 4] = [
        ("visiond_camera_restarts_total", "Times that a camera was opened again.", |camera| camera.restarts as f64),
        ("visiond_camera_errors_total", "Times that a camera could not be opened, or died.", |camera| {
            camera.errors as f64
        }),
        ("visiond_camera_copied_bytes_total", "Bytes of frames copied between source and network.", |camera| {
            camera.copied_bytes as f64
        }),
        ("visiond_camera_cpu_seconds_total", "CPU time of a camera's thread.", |camera| camera.capture_cpu_s),
    ];
    for (name, help, value) in counters {
        let mut family = page.counter(name, help);
        cameras.iter().for_each(|camera| family.add(&[("camera", &camera.name)], value(camera)));
    }
    let help = "Pictures with boxes for `annotate`, by outcome.";
    let mut pictures = page.counter("visiond_pictures_total", help);
    for (camera, counts) in cameras.iter().filter_map(|camera| Some((camera, camera.pictures.as_ref()?))) {
        for (outcome, count) in
            [("written", counts.written), ("dropped", counts.dropped_busy), ("failed", counts.failed)]
        {
            pictures.add(&[("camera", &camera.name), ("outcome", outcome)], count as f64);
        }
    }
}

fn states(page: &mut Page, cameras: &[CameraFacts]) {
    let mut info = page.gauge("visiond_camera_info", "What a camera's frames are, and the network that looks at them.");
    for camera in cameras {
        let size = format!("{}x{}", camera.width, camera.height);
        let io = camera.io.as_deref().unwrap_or_default();
        let labels: [(&str, &str); 5] = [
            ("camera", &camera.name),
            ("model", &camera.model),
            ("size", &size),
            ("format", &camera.format),
            ("io", io),
        ];
        info.add(&labels, 1.0);
    }
    let mut phases = page.gauge("visiond_camera_phase", "1 for the phase that a camera is in, 0 for the others.");
    for camera in cameras {
        for phase in Phase::ALL {
            let is = flag(camera.phase == phase.name());
            phases.add(&[("camera", &camera.name), ("phase", phase.name())], is);
        }
    }
    let gauges: [Column<CameraFacts>; 2] = [
        ("visiond_camera_frames_per_second", "Messages a second, over the last five seconds.", |camera| camera.fps),
        ("visiond_camera_watchers", "Who looks at a camera's pictures.", |camera| camera.watchers as f64),
    ];
    for (name, help, value) in gauges {
        let mut family = page.gauge(name, help);
        cameras.iter().for_each(|camera| family.add(&[("camera", &camera.name)], value(camera)));
    }
}

fn frames(page: &mut Page, cameras: &[CameraFacts]) {
    let mut captured = page.counter("visiond_frames_captured_total", "Frames that came from a camera.");
    cameras.iter().for_each(|camera| captured.add(&[("camera", &camera.name)], camera.captured as f64));
    let help = "Frames by outcome: a message went out (published), or none did (dropped).";
    let mut outcomes = page.counter("visiond_frames_total", help);
    for camera in cameras {
        let dropped = camera.dropped.values().sum::<u64>();
        outcomes.add(&[("camera", &camera.name), ("outcome", "published")], camera.published as f64);
        outcomes.add(&[("camera", &camera.name), ("outcome", "dropped")], dropped as f64);
    }
    let mut dropped = page.counter("visiond_frames_dropped_total", "Frames without a message, by cause.");
    for camera in cameras {
        for (cause, frames) in &camera.dropped {
            dropped.add(&[("camera", &camera.name), ("cause", cause)], *frames as f64);
        }
    }
}

fn stages(page: &mut Page, cameras: &[CameraFacts]) {
    let mut stages = page.histogram("visiond_stage_duration_seconds", "What each stage of a frame's way took.");
    for camera in cameras {
        for (stage, facts) in camera.stages.iter().filter(|(stage, _)| *stage != Stage::Total.name()) {
            add(&mut stages, &[("camera", &camera.name), ("stage", stage)], facts);
        }
    }
    let help = "A frame's age when its message is published.";
    let mut age = page.histogram("visiond_capture_to_publish_seconds", help);
    for camera in cameras {
        camera.stages.get(Stage::Total.name()).into_iter().for_each(|facts| {
            add(&mut age, &[("camera", &camera.name)], facts);
        });
    }
}

fn add(family: &mut Family<'_>, labels: &Labels<'_>, facts: &StageFacts) {
    let buckets: Vec<_> =
        facts.buckets.iter().map(|(le_us, frames)| (le_us.map(|us| us as f64 / 1e6), *frames)).collect();
    family.add_histogram(labels, &buckets, facts.sum_us as f64 / 1e6);
}

fn detections(page: &mut Page, cameras: &[CameraFacts]) {
    let mut totals = page.counter("visiond_detections_total", "Things seen, by label.");
    for camera in cameras {
        for label in &camera.labels {
            totals.add(&[("camera", &camera.name), ("label", &label.label)], label.total as f64);
        }
    }
    let mut newest = page.gauge("visiond_detections", "Things on the newest frame, by label.");
    for camera in cameras {
        for label in &camera.labels {
            newest.add(&[("camera", &camera.name), ("label", &label.label)], label.newest as f64);
        }
    }
}
