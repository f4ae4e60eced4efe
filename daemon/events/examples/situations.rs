//! Runs situations from a JSON file, and prints those whose events are not the expected ones.
//!
//! ```sh
//! cargo run -p visiond-events --example situations -- situations.json
//! ```
//! The file is an array of objects with `name`, `fps`, `rule`, `rows` and `expect`. A rule has `type` (`line` or `zone`), `points`, `settle`,
//! `hold`, and perhaps `dwell` or `crowd` and `crowd_time`. A row is `[seconds, track, x1, y1, x2, y2]` in a frame of 1280x720. `expect` has
//! `down`, `up`, `left`, `right`, `net`, `enter`, `leave`, `dwell`, `dwell_at`, `crowded` or `occupancy_at_3s`. Each situation runs twice:
//! once with the frames that have rows, and once with empty frames between them as well.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use visiond_events::{EndReason, Event, Kind, Object, Phase, Rule, Scene};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: situations FILE")?;
    let situations: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let mut failed = 0;
    for situation in &situations {
        for with_empty_frames in [false, true] {
            let name = situation["name"].as_str().unwrap_or_default();
            let found = run(situation, with_empty_frames).map_err(|error| format!("{name}: {error}"))?;
            for (what, wanted) in situation["expect"].as_object().into_iter().flatten() {
                let is_right = match (what.as_str(), wanted.as_array()) {
                    ("dwell_at", Some(range)) => {
                        let limits: Vec<f64> = range.iter().filter_map(Value::as_f64).collect();
                        matches!(limits[..], [from, to] if (from..=to).contains(&found["dwell_at"]))
                    }
                    _ => found.get(what.as_str()).copied() == wanted.as_f64(),
                };
                if !is_right {
                    failed += 1;
                    println!("{name}, empty frames {with_empty_frames}: {what} must be {wanted}: {found:?}");
                }
            }
        }
    }
    println!("{} situations, {failed} wrong", situations.len());
    if failed > 0 { Err("some are wrong".into()) } else { Ok(()) }
}

fn number(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("{value} is no number"))
}

/// Counts the events of a situation by what `expect` calls them.
fn run(situation: &Value, with_empty_frames: bool) -> Result<BTreeMap<&'static str, f64>, Box<dyn Error>> {
    let rule = &situation["rule"];
    let mut points = Vec::new();
    for point in rule["points"].as_array().into_iter().flatten() {
        points.push([number(&point[0])? as f32, number(&point[1])? as f32]);
    }
    let seconds = |value: &Value| number(value).map(Duration::from_secs_f64);
    let (settle, hold) = (seconds(&rule["settle"])?, seconds(&rule["hold"])?);
    let mut rules = Vec::new();
    let mut add = |name: &str, kind: Kind, area: &[[f32; 2]]| {
        rules.push(Rule { area: area.to_vec(), settle, hold, ..Rule::new(name, kind) });
    };
    if rule["type"] == "line" {
        add("line", Kind::Line { points: points.clone(), sides: ["left".into(), "right".into()] }, &[]);
    } else {
        add("zone", Kind::Zone, &points);
        if let Some(time) = rule["dwell"].as_f64() {
            add("dwell", Kind::Dwell { time: Duration::from_secs_f64(time) }, &points);
        }
        if let Some(least) = rule["crowd"].as_u64() {
            let at_least = Some(u32::try_from(least)?);
            add("crowd", Kind::Occupancy { at_least, at_most: None, lasting: seconds(&rule["crowd_time"])? }, &points);
        }
    }
    let mut scene = Scene::new([1280, 720], rules, Arc::default())?;

    let mut frames: BTreeMap<u64, Vec<Object>> = BTreeMap::new();
    let microseconds = |seconds: f64| (seconds * 1e6).round() as u64;
    for row in situation["rows"].as_array().into_iter().flatten() {
        let mut bounds = [0.0; 4];
        for (index, side) in bounds.iter_mut().enumerate() {
            *side = number(&row[index + 2])? as f32;
        }
        let track = row[1].as_u64().ok_or("a track is no number")?;
        let object = Object { track, bounds, class_id: 0, score: 0.9 };
        frames.entry(microseconds(number(&row[0])?)).or_default().push(object);
    }
    let lasts_3s = !situation["expect"]["occupancy_at_3s"].is_null();
    let last = frames.keys().next_back().copied().unwrap_or_default();
    if with_empty_frames {
        let interval = 1.0 / number(&situation["fps"])?;
        let mut frame = 0;
        while microseconds(f64::from(frame) * interval) < last {
            let at = microseconds(f64::from(frame) * interval);
            // Rows have rounded times.
            if frames.range(at.saturating_sub(200)..at + 200).next().is_none() {
                frames.insert(at, Vec::new());
            }
            frame += 1;
        }
    }
    if lasts_3s {
        for tenth in last / 100_000 + 1..=30 {
            frames.insert(tenth * 100_000, Vec::new());
        }
    }

    let mut found: BTreeMap<&'static str, f64> = BTreeMap::new();
    for name in ["down", "up", "left", "right", "net", "enter", "leave", "dwell", "crowded"] {
        found.insert(name, 0.0);
    }
    let is_level = matches!(points[..], [[_, a], [_, b], ..] if a == b);
    let mut events: Vec<Event> = Vec::new();
    for (at, objects) in &frames {
        scene.step(Duration::from_micros(*at), objects, &[], &mut events);
        for event in &events {
            // Lines of the situations lead to the right, or down.
            let (what, sign) = match (&*event.rule, event.phase, event.to.as_deref()) {
                ("line", _, Some("right")) => (if is_level { "down" } else { "left" }, 1.0),
                ("line", ..) => (if is_level { "up" } else { "right" }, -1.0),
                ("zone", Phase::Begin, _) => ("enter", 0.0),
                ("zone", Phase::End, _) if event.reason != Some(EndReason::Shutdown) => ("leave", 0.0),
                ("dwell", Phase::Begin, _) => {
                    found.insert("dwell_at", event.at.as_secs_f64());
                    ("dwell", 0.0)
                }
                ("crowd", Phase::Begin, _) => ("crowded", 0.0),
                _ => continue,
            };
            *found.entry(what).or_default() += 1.0;
            *found.entry("net").or_default() += sign;
        }
    }
    let inside: u32 = scene.counters().filter(|(name, _)| &***name == "zone").map(|(_, totals)| totals.inside).sum();
    found.insert("occupancy_at_3s", f64::from(inside));
    Ok(found)
}
