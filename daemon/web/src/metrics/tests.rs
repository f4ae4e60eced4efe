#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use visiond_message::status::{
    BundleStatus, CameraModelStatus, GpuSnapshot, LabelFacts, RolloutStatus, RuleStatus, StageFacts,
};
use visiond_system::thermal::{GpuSummary, Temperature};

use super::*;

fn zone_rule(kind: &str, begun: u64) -> RuleStatus {
    let (name, kind) = ("dock".to_owned(), kind.to_owned());
    RuleStatus { name, kind, begun, inside: Some(3), under_way: 2, ..RuleStatus::default() }
}

/// Something in every field that a metric is made of.
fn full() -> StatusReport {
    let stage =
        StageFacts { count: 3, sum_us: 4_500, buckets: vec![(Some(1_000), 2), (None, 1)], ..StageFacts::default() };
    let stages = ["capture", "total"].map(|name| (name.to_owned(), stage.clone()));
    let camera = CameraStatus {
        name: "front \"door\"".to_owned(),
        phase: "streaming".to_owned(),
        dropped: BTreeMap::from([("driver".to_owned(), 2), ("overload".to_owned(), 3)]),
        labels: vec![LabelFacts { label: "person".to_owned(), total: 9, newest: 1 }],
        models: vec![CameraModelStatus {
            name: "m".to_owned(),
            fps: 4.5,
            published: 8,
            dropped: BTreeMap::from([("overload".to_owned(), 3)]),
            labels: vec![LabelFacts { label: "person".to_owned(), total: 9, newest: 1 }],
        }],
        fractions: BTreeMap::from([("road".to_owned(), 0.1234)]),
        attributes: BTreeMap::from([
            ("age".to_owned(), PlainAttribute::Number(31.4)),
            ("hair".to_owned(), PlainAttribute::Text("dark".to_owned())),
        ]),
        rules: vec![
            RuleStatus {
                name: "door".to_owned(),
                kind: "line".to_owned(),
                begun: 7,
                crossed_to: BTreeMap::from([("shop".to_owned(), 4), ("street".to_owned(), 3)]),
                ..RuleStatus::default()
            },
            zone_rule("zone", 12),
            zone_rule("dwell", 1),
        ],
        stages: stages.into(),
        pictures: Some(Default::default()),
        clips: Some(Default::default()),
        ..CameraStatus::default()
    };
    let sink = SinkCounts {
        name: "fleet".to_owned(),
        lost: 6,
        dropped_full: 3,
        failed: 2,
        unsent: 1,
        connected: Some(true),
        spool: Some(SpoolCounts { bytes: 10, ..SpoolCounts::default() }),
        ..SinkCounts::default()
    };
    StatusReport {
        version: "1.2.3".to_owned(),
        started_at: "2026-01-31T12:00:00.500Z".to_owned(),
        ready: true,
        cameras: vec![camera],
        models: vec![ModelStatus {
            name: "m".to_owned(),
            gpu: Some(GpuSnapshot::default()),
            bundle: Some(BundleStatus {
                name: "street".to_owned(),
                version: 7,
                signed_by: Some("0123456789ABCDEF".to_owned()),
                rollout: Some(RolloutStatus {
                    step: "refused".to_owned(),
                    newest: Some(8),
                    ..RolloutStatus::default()
                }),
                ..BundleStatus::default()
            }),
            ..ModelStatus::default()
        }],
        sinks: vec![sink],
        settings: Some(BundleStatus { name: "north".to_owned(), version: 3, ..BundleStatus::default() }),
        gpu: Some(GpuSummary { load_now_percent: Some(45.0), clock_mhz: Some(624), ..GpuSummary::default() }),
        jetson: Some(JetsonSummary {
            power_mode: Some("MAXN".to_owned()),
            temperatures_c: BTreeMap::from([("gpu".to_owned(), Temperature { last: 51.5, max: 60.0 })]),
            ..JetsonSummary::default()
        }),
        ..StatusReport::default()
    }
}

#[test]
fn what_is_seen_is_told_in_base_units() {
    let page = render(&full());
    for line in [
        "visiond_camera_model_frames_per_second{camera=\"front \\\"door\\\"\",model=\"m\"} 4.5",
        "visiond_camera_model_frames_total{camera=\"front \\\"door\\\"\",model=\"m\",outcome=\"dropped\"} 3",
        "visiond_camera_model_detections{camera=\"front \\\"door\\\"\",model=\"m\",label=\"person\"} 1",
        "visiond_build_info{version=\"1.2.3\",target=\"\"} 1",
        "visiond_ready 1",
        "visiond_model_bundle_info{model=\"m\",bundle=\"street\",version=\"7\",signed_by=\"0123456789ABCDEF\"} 1",
        "visiond_settings_bundle_version{bundle=\"north\"} 3",
        "visiond_model_bundle_version{model=\"m\",bundle=\"street\"} 7",
        "visiond_model_bundle_newest_version{model=\"m\",bundle=\"street\"} 8",
        "visiond_model_rollout_step{model=\"m\",bundle=\"street\",step=\"refused\"} 1",
        "visiond_model_rollout_step{model=\"m\",bundle=\"street\",step=\"fetching\"} 0",
        "visiond_frames_total{camera=\"front \\\"door\\\"\",outcome=\"dropped\"} 5",
        "visiond_frames_dropped_total{camera=\"front \\\"door\\\"\",cause=\"overload\"} 3",
        "visiond_camera_phase{camera=\"front \\\"door\\\"\",phase=\"streaming\"} 1",
        "visiond_camera_phase{camera=\"front \\\"door\\\"\",phase=\"waiting\"} 0",
        "visiond_stage_duration_seconds_bucket{camera=\"front \\\"door\\\"\",stage=\"capture\",le=\"0.001\"} 2",
        "visiond_capture_to_publish_seconds_bucket{camera=\"front \\\"door\\\"\",le=\"+Inf\"} 3",
        "visiond_capture_to_publish_seconds_sum{camera=\"front \\\"door\\\"\"} 0.0045",
        "visiond_sink_lost_total{sink=\"fleet\",cause=\"unsent\"} 1",
        "visiond_events_total{camera=\"front \\\"door\\\"\",rule=\"door\",kind=\"line\"} 7",
        "visiond_events_total{camera=\"front \\\"door\\\"\",rule=\"dock\",kind=\"dwell\"} 1",
        "visiond_events_under_way{camera=\"front \\\"door\\\"\",rule=\"dock\",kind=\"zone\"} 2",
        "visiond_line_crossings_total{camera=\"front \\\"door\\\"\",rule=\"door\",to=\"shop\"} 4",
        "visiond_zone_objects{camera=\"front \\\"door\\\"\",rule=\"dock\"} 3",
        "visiond_frame_fraction{camera=\"front \\\"door\\\"\",label=\"road\"} 0.1234",
        "visiond_attribute{camera=\"front \\\"door\\\"\",attribute=\"age\"} 31.4",
        "visiond_attribute_info{camera=\"front \\\"door\\\"\",attribute=\"hair\",label=\"dark\"} 1",
        "visiond_sink_connected{sink=\"fleet\"} 1",
        "visiond_spool_bytes{sink=\"fleet\"} 10",
        "visiond_temperature_celsius{zone=\"gpu\"} 51.5",
        "visiond_gpu_load_ratio 0.45",
        "visiond_gpu_clock_hertz 624000000",
        "process_start_time_seconds 1769860800.5",
    ] {
        assert!(page.lines().any(|is| is == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("stage=\"total\""));
    assert_eq!(page.matches("visiond_zone_objects{").count(), 1, "a zone has its objects once");
    assert!(!page.contains("visiond_events_under_way{camera=\"front \\\"door\\\"\",rule=\"door\""));
}

#[test]
fn a_family_stands_together_and_every_sample_has_its_own() {
    let page = render(&full());
    let mut families = BTreeSet::new();
    let mut current = "";
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            current = head.split(' ').next().unwrap_or_default();
            assert!(families.insert(current), "{current} begins twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(current), "{line} under {current}");
        }
    }
    assert!(families.len() > 50, "{}", families.len());
}

#[test]
fn the_documentation_has_every_name_and_no_other() {
    let manual = include_str!("../../../../docs/metrics.md");
    let page = render(&full());
    let families: BTreeSet<_> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<_> =
        rows.filter(|name| name.starts_with("visiond_") || name.starts_with("process_")).collect();
    assert_eq!(documented, families);
}

/// Checks that every number of a part of the status is a sample on the page that `page` makes of it, but for those in `elsewhere`.
fn assert_has_metrics<T>(page: impl Fn(T) -> String, elsewhere: &[&str])
where
    T: Default + serde::Serialize + serde::de::DeserializeOwned,
{
    let numbers = serde_json::to_value(T::default()).unwrap();
    let numbers = numbers.as_object().unwrap().iter().filter(|(_, value)| value.is_number()).map(|(name, _)| name);
    for name in numbers.filter(|name| !elsewhere.contains(&name.as_str())) {
        let part = serde_json::from_value(serde_json::json!({ (name.as_str()): 1_000_003 })).unwrap();
        let has_it = page(part).lines().any(|line| line.ends_with(" 1000003"));
        assert!(has_it, "{name} has no metric: add it to daemon/web/src/metrics.rs and docs/metrics.md");
    }
}

#[test]
fn every_counter_of_the_status_has_a_metric() {
    // Detections are counted by label, the size is a label, and the turn is a setting.
    assert_has_metrics(
        |part: CameraStatus| render(&StatusReport { cameras: vec![part], ..StatusReport::default() }),
        &["detections", "width", "height", "rotate"],
    );
    assert_has_metrics(
        |part: ModelStatus| render(&StatusReport { models: vec![part], ..StatusReport::default() }),
        &[],
    );
    // Losses are counted by cause.
    assert_has_metrics(
        |part: SinkCounts| render(&StatusReport { sinks: vec![part], ..StatusReport::default() }),
        &["lost"],
    );
}
