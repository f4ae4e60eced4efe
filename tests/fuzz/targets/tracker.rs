//! Detections and times, through a camera's tracker.

#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use visiond_kernels::oriented::OrientedBox;
use visiond_tracker::{Observation, Parameters, Step, Tracker};

/// A frame: the nanoseconds since the last one, or back, and how many detections follow.
const FRAME: usize = 9;
/// A detection: five numbers, the score, what it has, and two numbers of an embedding.
const DETECTION: usize = 33;

fn number(bytes: &[u8], at: usize) -> f32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0.0, f32::from_le_bytes)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (mut tracker, mut step) = (Tracker::new(Parameters::default(), Arc::default()), Step::default());
    let (mut now, mut over, mut rest) = (0_u64, BTreeSet::new(), data);
    while let Some((head, after)) = rest.split_at_checked(FRAME) {
        rest = after;
        now = now.wrapping_add_signed(head.first_chunk().map_or(0, |eight| i64::from_le_bytes(*eight)));
        let wanted =
            head.last().map_or(0, |count| usize::from(*count) * DETECTION).min(rest.len() / DETECTION * DETECTION);
        let (detections, after) = rest.split_at(wanted);
        rest = after;
        let looks: Vec<[f32; 2]> =
            detections.chunks_exact(DETECTION).map(|one| [number(one, 25), number(one, 29)]).collect();
        let observations: Vec<Observation<'_>> = detections
            .chunks_exact(DETECTION)
            .zip(&looks)
            .map(|(one, looks)| {
                let [a, b, c, d, angle] = [0, 4, 8, 12, 16].map(|at| number(one, at));
                let flags = one.get(24).copied().unwrap_or_default();
                Observation {
                    bounds: [a, b, c, d],
                    oriented: (flags & 1 != 0).then_some(OrientedBox { center: [a, b], size: [c, d], angle }),
                    score: number(one, 20),
                    class_id: u32::from(flags >> 4 & 3),
                    embedding: (flags & 2 != 0).then_some(&looks[..usize::from(flags >> 2 & 3).min(2)]),
                }
            })
            .collect();
        tracker.step(Duration::from_nanos(now), &observations, &mut step);
        assert_eq!(step.tracks.len(), observations.len());
        let mut ids = BTreeSet::new();
        for track in step.tracks.iter().flatten() {
            assert!(ids.insert(track.id) && !over.contains(&track.id), "{} is not the only one", track.id);
            assert!(track.velocity.iter().chain(&track.smooth).all(|number| number.is_finite()), "{track:?}");
        }
        for track in &step.ended {
            assert!(over.insert(track.id), "{} ended twice", track.id);
        }
    }
});
