//! Times a tracker's step for 20, 100 and 500 objects: `cargo run --release -p visiond-tracker --example tracker-bench`.
//!
//! People of three sizes walk about a 1080p frame, so that as many overlap as in a crowd; one in ten is hidden at a time, and one in ten has
//! a low score. Prints the median and the 99th percentile of 2,000 steps at 30 frames a second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_tracker::{Observation, Parameters, Step, Tracker};

fn main() {
    for (objects, wanted_us) in [(20, 30), (100, 150), (500, 2000)] {
        let (mut tracker, mut step) = (Tracker::new(Parameters::default(), Arc::default()), Step::default());
        let mut times: Vec<Duration> = (0..2200_u64)
            .map(|frame| {
                let seen: Vec<Observation<'_>> = (0..objects).filter_map(|object| walker(object, frame)).collect();
                let began = Instant::now();
                tracker.step(Duration::from_millis(frame * 100 / 3), &seen, &mut step);
                std::hint::black_box(&step);
                began.elapsed()
            })
            .skip(200)
            .collect();
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        println!("{objects:4} objects: {:7.1} us, 99 % {:7.1} us, wanted {wanted_us} us", at(50), at(99));
    }
}

/// Object number `object` in a frame; `None` while it is hidden.
fn walker(object: u64, frame: u64) -> Option<Observation<'static>> {
    // Somewhere else for each object, and the same in each run.
    let spread = |salt: u64, range: u64| (object.wrapping_mul(2_654_435_761).wrapping_add(salt * 40_503) >> 7) % range;
    if (frame / 20 + object).is_multiple_of(10) {
        return None;
    }
    let height = 60.0 + 40.0 * (object % 3) as f32;
    let (speed, phase) = (0.01 + spread(1, 100) as f32 / 10_000.0, spread(2, 628) as f32 / 100.0);
    let x = spread(3, 1800) as f32 + 60.0 * (frame as f32 * speed + phase).sin();
    let y = spread(4, 900) as f32 + 20.0 * (frame as f32 * speed * 0.7 + phase).cos();
    let score = if (frame / 5 + object) % 10 == 3 { 0.3 } else { 0.9 };
    Some(Observation {
        bounds: [x, y, x + 0.4 * height, y + height],
        oriented: None,
        score,
        class_id: 0,
        embedding: None,
    })
}
