//! Decides when a lane starts its next run while one is in flight: shortly before that run ends.
//!
//! If it starts too early, its frame ages while the current run finishes, although a newer frame could have taken its place.
//! If it starts too late, the GPU idles. So the next run starts a lead before the expected end of the current one. The lead
//! is the host time to start a run, the preprocess, which overlaps with the current run, and a margin for a late wake-up. The
//! expected end is the smoothed duration of runs with as many frames, less twice its deviation, so that a run that ends early
//! is noticed in time.
//!
//! This gives a bound: a published frame is at most as old as one run, two frame intervals of its camera and the host's work,
//! because it was the newest when its run started, and it waited no longer than the lead.
//!
//! If no frame waited at the end of a run, or when the next was due to start, the lane keeps up with its cameras, and overlap
//! gains nothing. The lane then waits for the run, and starts the next one when a frame arrives. If frames must not be lost
//! (pace "fastest"), age does not matter, and the next run starts as soon as a frame is there.

use visiond_engine::detector::RunTimings;

/// How late a thread may wake.
const MARGIN_NS: u64 = 300_000;
/// A new run time moves the smoothed one by this part of the difference.
const SMOOTHING: f64 = 0.125;

/// The next action of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAction {
    /// Wait for a frame: no run is in flight.
    WaitForFrame,
    /// Sleep until then, and start a run if a frame waits; otherwise wait for the run in flight.
    BeginAt {
        /// Nanoseconds on CLOCK_MONOTONIC; may have passed.
        at_ns: u64,
    },
    /// Wait for the oldest run in flight.
    Finish,
}

/// Paces the runs of one lane.
#[derive(Debug)]
pub struct RunPacer {
    max_in_flight: usize,
    eager: bool,
    /// Durations of runs by their number of frames, from 1 on.
    run_times: Vec<Option<Smoothed>>,
    /// Time from the call that starts a run to the start of its inference, if the GPU is free.
    loading: Option<Smoothed>,
    /// When the newest run is expected to end; `None` if unknown.
    end_ns: Option<u64>,
    /// Number of frames in the newest run.
    frames: usize,
    /// Whether frames wait for the GPU.
    behind: bool,
}

impl RunPacer {
    /// Creates a pacer for a model that can have `max_in_flight` runs in flight. `eager`: a frame's age does not matter.
    pub fn new(max_in_flight: usize, eager: bool) -> Self {
        Self { max_in_flight, eager, run_times: Vec::new(), loading: None, end_ns: None, frames: 0, behind: false }
    }

    /// Sets whether a frame's age does not matter.
    pub fn set_eager(&mut self, eager: bool) {
        self.eager = eager;
    }

    /// Returns what to do now, with `in_flight` runs in flight.
    pub fn step(&self, now_ns: u64, in_flight: usize) -> NextAction {
        if in_flight == 0 {
            return NextAction::WaitForFrame;
        }
        if in_flight >= self.max_in_flight {
            return NextAction::Finish;
        }
        if self.eager {
            return NextAction::BeginAt { at_ns: now_ns };
        }
        match (self.behind, self.end_ns) {
            (true, Some(end_ns)) => NextAction::BeginAt { at_ns: end_ns.saturating_sub(self.lead_ns()).max(now_ns) },
            _ => NextAction::Finish,
        }
    }

    /// Notes that a run of `frames` frames was started at `now_ns`.
    pub fn begun(&mut self, now_ns: u64, frames: usize) {
        let ready_ns = now_ns + self.loading.map_or(0, |loading| loading.mean as u64);
        // It waits for the previous run if that is still running.
        let starts_ns = self.end_ns.map_or(ready_ns, |end_ns| end_ns.max(ready_ns));
        self.frames = frames;
        self.end_ns = self.expected_ns(frames).map(|run_ns| starts_ns + run_ns);
    }

    /// Notes that the oldest run ended at `now_ns`; `waits`: frames wait to be taken.
    pub fn finished(&mut self, now_ns: u64, in_flight: usize, frames: usize, timings: &RunTimings, waits: bool) {
        if self.run_times.len() < frames {
            self.run_times.resize(frames, None);
        }
        smooth(&mut self.run_times[frames - 1], timings.infer_us as f64 * 1e3);
        smooth(&mut self.loading, (timings.launch_us + timings.preprocess_us) as f64 * 1e3);
        // A run that is still in flight starts on the GPU now.
        self.end_ns = self.expected_ns(self.frames).filter(|_| in_flight > 0).map(|run_ns| now_ns + run_ns);
        // The frame of another run in flight was just taken, so `waits` says nothing; `nothing_waits` ends this state.
        if in_flight == 0 {
            self.behind = waits;
        }
    }

    /// Notes that no frame was waiting when a run was due to start.
    pub fn nothing_waits(&mut self) {
        self.behind = false;
    }

    /// Notes that a run failed, so that its end is unknown.
    pub fn lost(&mut self) {
        self.end_ns = None;
    }

    /// Returns roughly the shortest duration of a run of this many frames.
    fn expected_ns(&self, frames: usize) -> Option<u64> {
        let run = self.run_times.get(frames.checked_sub(1)?).copied().flatten()?;
        Some((run.mean - 2.0 * run.deviation).max(0.0) as u64)
    }

    fn lead_ns(&self) -> u64 {
        let loading = self.loading.map_or(0.0, |loading| loading.mean + 2.0 * loading.deviation);
        loading as u64 + MARGIN_NS
    }
}

/// An exponentially weighted mean and mean deviation.
#[derive(Debug, Clone, Copy)]
struct Smoothed {
    mean: f64,
    deviation: f64,
}

fn smooth(smoothed: &mut Option<Smoothed>, value: f64) {
    match smoothed {
        None => *smoothed = Some(Smoothed { mean: value, deviation: value / 8.0 }),
        Some(Smoothed { mean, deviation }) => {
            let error = value - *mean;
            *mean += SMOOTHING * error;
            *deviation += SMOOTHING * (error.abs() - *deviation);
        }
    }
}

#[cfg(test)]
mod tests;
