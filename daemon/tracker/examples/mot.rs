//! Tracks the detections of a MOTChallenge sequence.
//!
//! ```sh
//! cargo run --release -p visiond-tracker --example mot -- 30 det.txt [det.times] > tracks.txt
//! ```
//! The first argument is the video's frame rate. A row of det.txt is `frame,-1,left,top,width,height,score`; line N of det.times has the
//! number in the whole video of frame N, where frames are missing. Tracks that are confirmed are printed as rows of a tracker's results.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use visiond_tracker::{Observation, Parameters, Step, TrackState, Tracker};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rate, detections, times @ ..] = &arguments[..] else {
        return Err("usage: mot RATE DETECTIONS [TIMES]".into());
    };
    let rate: f64 = rate.parse()?;
    let mut frames: Vec<Vec<Observation<'_>>> = Vec::new();
    for line in std::fs::read_to_string(detections)?.lines() {
        let numbers = line.split(',').map(|number| number.trim().parse::<f32>()).collect::<Result<Vec<_>, _>>()?;
        let [frame, _, left, top, width, height, score, ..] = numbers[..] else {
            return Err(format!("{line}: fewer than seven numbers").into());
        };
        let frame = frame as usize;
        if frames.len() < frame {
            frames.resize(frame, Vec::new());
        }
        let bounds = [left, top, left + width, top + height];
        let seen = Observation { bounds, oriented: None, score, class_id: 0, embedding: None };
        frames.get_mut(frame.wrapping_sub(1)).ok_or("frames count from 1")?.push(seen);
    }
    let numbers: Vec<f64> = match times.first() {
        Some(times) => {
            std::fs::read_to_string(times)?.lines().map(|line| line.trim().parse()).collect::<Result<_, _>>()?
        }
        None => (1..=frames.len()).map(|frame| frame as f64).collect(),
    };
    let (mut tracker, mut step) = (Tracker::new(Parameters::default(), Arc::default()), Step::default());
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for ((frame, seen), number) in frames.iter().enumerate().zip(numbers) {
        tracker.step(Duration::try_from_secs_f64(number / rate)?, seen, &mut step);
        for (seen, track) in seen.iter().zip(&step.tracks) {
            if let Some(track) = track.filter(|track| track.state == TrackState::Confirmed) {
                let [left, top, right, bottom] = seen.bounds;
                writeln!(
                    out,
                    "{},{},{left:.2},{top:.2},{:.2},{:.2},1,-1,-1,-1",
                    frame + 1,
                    track.id,
                    right - left,
                    bottom - top
                )?;
            }
        }
    }
    Ok(out.flush()?)
}
