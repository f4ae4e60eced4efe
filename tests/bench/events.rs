//! Times a scene's step for 20, 100 and 500 objects: `cargo run --release -p visiond-events --example events-bench`.
//!
//! People walk about a 1080p frame; one in ten is hidden at a time. Ten rules: a line of some points, a zone of as many points with five kinds
//! of rules, and four zones of four points; or twenty, each of these twice. A rule looks at all edges of its zone for each person within its bounds, so that many points
//! cost the most. Prints the median and the 99th percentile of 2,000 steps at 30 frames a second.
//!
//! Then 64 scenes of twenty rules in turn, and between two steps other memory is read, so that each step finds its own far away. This is what
//! rules cost a daemon with many cameras.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_events::{Belonging, Kind, MOST_POINTS, Object, Rule, Scene};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let few = [(1, 8, 20, 10), (1, 8, 100, 50), (1, 8, 500, 500)];
    let many = [(1, MOST_POINTS, 20, 100), (1, MOST_POINTS, 100, 500), (1, MOST_POINTS, 500, 2500)];
    let twice = [(2, 8, 20, 20), (2, 8, 100, 100), (2, 8, 500, 1000)];
    for (times, points, objects, wanted_us) in few.into_iter().chain(many).chain(twice) {
        let rules: Vec<Rule> = (0..times).flat_map(|time| rules(time, points)).collect();
        let count = rules.len();
        let mut scene = Scene::new([1920, 1080], rules, Arc::default())?;
        let mut events = Vec::new();
        let mut seen = Vec::new();
        let mut happened = 0;
        let mut times: Vec<Duration> = (0..2200_u64)
            .map(|frame| {
                seen.clear();
                seen.extend((0..objects).filter_map(|object| walker(object, frame)));
                let began = Instant::now();
                scene.step(Duration::from_millis(frame * 100 / 3), &seen, &[], &mut events);
                std::hint::black_box(&events);
                let time = began.elapsed();
                happened += events.len();
                time
            })
            .skip(200)
            .collect();
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        let (median, most) = (at(50), at(99));
        println!(
            "{count} rules, {points:4} points, {objects:4} objects: {median:7.1} us, 99 % {most:7.1} us, wanted {wanted_us} us; {happened} events"
        );
    }
    many_cameras()
}

/// Times steps whose memory is in no near cache: five lines, and five zones with visits, dwell and occupancy.
fn many_cameras() -> Result<(), Box<dyn std::error::Error>> {
    const SCENES: usize = 64;
    const OBJECTS: u64 = 8;
    let ids = Arc::default();
    let scene = |_| Scene::new([1920, 1080], few_rules(), Arc::clone(&ids));
    let mut scenes = (0..SCENES).map(scene).collect::<Result<Vec<Scene>, _>>()?;
    let other = vec![1_u8; 64 << 20];
    let (mut events, mut seen, mut happened, mut sum) = (Vec::new(), Vec::new(), 0, 0_u64);
    let mut times = Vec::new();
    for frame in 0..200_u64 {
        for (index, scene) in scenes.iter_mut().enumerate() {
            seen.clear();
            let camera = index as u64 * 1000;
            let objects = (0..OBJECTS).filter_map(|object| walker(camera + object, frame));
            seen.extend(objects);
            let part = other.chunks(4 << 20).nth(index % 16).unwrap_or_default();
            sum += part.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>();
            let began = Instant::now();
            scene.step(Duration::from_millis(frame * 100 / 3), &seen, &[], &mut events);
            if frame >= 20 {
                times.push(began.elapsed());
            }
            happened += events.len();
        }
    }
    std::hint::black_box(sum);
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
    println!(
        "{SCENES} scenes in turn, 20 rules, {OBJECTS} objects: {:.1} us, 99 % {:.1} us; {happened} events",
        at(50),
        at(99)
    );
    Ok(())
}

/// Returns twenty rules on parts of the frame.
fn few_rules() -> Vec<Rule> {
    let kinds = || {
        let dwell = Kind::Dwell { time: Duration::from_secs(10) };
        [Kind::Zone, dwell, Kind::Occupancy { at_least: Some(5), at_most: None, lasting: Duration::ZERO }]
    };
    let part = |part: usize| {
        let (left, right) = (384.0 * part as f32, 384.0 * part as f32 + 307.0);
        let line = Kind::Line { points: vec![[left, 648.0], [right, 702.0]], sides: ["up".into(), "down".into()] };
        let zone = move |(index, kind)| Rule {
            area: vec![[left, 756.0], [right, 756.0], [right, 972.0], [left, 972.0]],
            ..Rule::new(&format!("zone{part}-{index}"), kind)
        };
        let zones = kinds().into_iter().enumerate().map(zone);
        zones.chain([Rule::new(&format!("line{part}"), line)])
    };
    (0..5).flat_map(part).collect()
}

/// Returns ten rules, whose names begin with a number.
fn rules(number: u32, points: usize) -> Vec<Rule> {
    let wave = |index: usize| {
        let part = index as f32 / points as f32;
        [1920.0 * part, 540.0 + 200.0 * (part * 60.0).sin()]
    };
    let star = |index: usize| {
        let angle = index as f32 / points as f32 * std::f32::consts::TAU;
        let radius = 350.0 + 100.0 * (index % 2) as f32;
        [960.0 + radius * angle.cos(), 540.0 + radius * angle.sin()]
    };
    let time = Duration::from_secs(1);
    let belonging = Belonging { distance: 20.0, time, owners: vec![1], near: 100.0 };
    let kinds = [
        Kind::Zone,
        Kind::Dwell { time },
        Kind::Occupancy { at_least: Some(5), at_most: None, lasting: time },
        Kind::WrongWay { direction: [1.0, 0.0], distance: 30.0 },
        Kind::LeftBehind(belonging),
        Kind::Zone,
        Kind::Stopped { distance: 10.0, time },
        Kind::Loitering { time, away: time },
        Kind::Absence { time },
    ];
    let rule = |(index, kind): (usize, Kind)| {
        let corner = 100.0 * index as f32;
        let area = if index < 5 {
            (0..points).map(star).collect()
        } else {
            vec![[corner, 100.0], [corner + 400.0, 100.0], [corner + 400.0, 900.0], [corner, 900.0]]
        };
        Rule { area, ..Rule::new(&format!("{number}-{index}"), kind) }
    };
    let mut rules: Vec<Rule> = kinds.into_iter().enumerate().map(rule).collect();
    let wave = (0..points).map(wave).collect();
    rules.push(Rule::new(
        &format!("{number}-line"),
        Kind::Line { points: wave, sides: ["above".into(), "below".into()] },
    ));
    rules
}

/// Object number `object` in a frame; `None` while it is hidden.
fn walker(object: u64, frame: u64) -> Option<Object> {
    // Somewhere else for each object, and the same in each run.
    let spread = |salt: u64, range: u64| (object.wrapping_mul(2_654_435_761).wrapping_add(salt * 40_503) >> 7) % range;
    if (frame / 20 + object).is_multiple_of(10) {
        return None;
    }
    let (speed, phase) = (0.01 + spread(1, 100) as f32 / 10_000.0, spread(2, 628) as f32 / 100.0);
    let x = spread(3, 1800) as f32 + 200.0 * (frame as f32 * speed + phase).sin();
    let y = 100.0 + spread(4, 900) as f32 + 100.0 * (frame as f32 * speed * 0.7 + phase).cos();
    let class_id = u32::from(object.is_multiple_of(4));
    Some(Object { track: object, bounds: [x - 20.0, y - 80.0, x + 20.0, y], class_id, score: 0.9 })
}
