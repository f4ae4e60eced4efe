//! When a lane begins its next run while one is under way: just before that one is done.
//!
//! Begun too early, a frame grows old behind the run before it, and a newer one comes that could have taken its place; begun
//! too late, the GPU stands idle. So the next run begins a lead before the expected end of the one under way: the lead is
//! what beginning costs the host, the preprocess, which goes on beside the other run, and a margin for a thread that wakes
//! late. The expected end is the smoothed time of networks with as many frames, less twice its deviation, so that a run that
//! ends early is not noticed late.
//!
//! It holds: a frame that is published is at most as old as one run, two frame intervals of its camera and what the host
//! does, since it was the newest when its run began, and it waited there no longer than the lead.
//!
//! Where no frame waited at the end of a run, or when the next was to begin, the lane keeps up with its cameras, and there is nothing to gain: it
//! then waits for the run, and begins the next when a frame comes. Where frames must not be lost (pace "fastest"), age does
//! not matter, and the next run begins as soon as a frame is there.

use visiond_engine::detector::RunTimings;

/// How late a thread may wake.
const MARGIN_NS: u64 = 300_000;
/// A new run time moves the smoothed one by this part of the difference.
const SMOOTHING: f64 = 0.125;

/// What the lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAction {
    /// Wait for a frame: nothing is under way.
    WaitForFrame,
    /// Sleep until then, and begin a run if a frame waits; else wait for the one under way.
    BeginAt {
        /// On CLOCK_MONOTONIC; may have passed.
        at_ns: u64,
    },
    /// Wait for the oldest run under way.
    Finish,
}

/// Paces one lane.
#[derive(Debug)]
pub struct Pacer {
    flights: usize,
    eager: bool,
    /// By the number of frames in the run, from 1 on.
    run_times: Vec<Option<Smoothed>>,
    /// From the call that begins a run to its network's begin, if the GPU is free.
    loading: Option<Smoothed>,
    /// When the run that was begun last is expected to end; `None`: not known.
    end_ns: Option<u64>,
    /// Frames of the run that was begun last.
    frames: usize,
    /// Whether frames wait for the GPU.
    behind: bool,
}

impl Pacer {
    /// For a network that can have `flights` runs under way. `eager`: a frame's age does not matter.
    pub fn new(flights: usize, eager: bool) -> Self {
        Self { flights, eager, run_times: Vec::new(), loading: None, end_ns: None, frames: 0, behind: false }
    }

    /// Whether a frame's age does not matter from here on.
    pub fn set_eager(&mut self, eager: bool) {
        self.eager = eager;
    }

    /// What to do now, with so many runs under way.
    pub fn step(&self, now_ns: u64, in_flight: usize) -> NextAction {
        if in_flight == 0 {
            return NextAction::WaitForFrame;
        }
        if in_flight >= self.flights {
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

    /// A run of so many frames was begun at `now_ns`.
    pub fn begun(&mut self, now_ns: u64, frames: usize) {
        let ready_ns = now_ns + self.loading.map_or(0, |loading| loading.mean as u64);
        // Behind the run that was begun before, if that is not over by then.
        let starts_ns = self.end_ns.map_or(ready_ns, |end_ns| end_ns.max(ready_ns));
        self.frames = frames;
        self.end_ns = self.expected_ns(frames).map(|run_ns| starts_ns + run_ns);
    }

    /// The oldest run ended at `now_ns`; `waits`: frames wait to be taken.
    pub fn finished(&mut self, now_ns: u64, in_flight: usize, frames: usize, timings: &RunTimings, waits: bool) {
        if self.run_times.len() < frames {
            self.run_times.resize(frames, None);
        }
        smooth(&mut self.run_times[frames - 1], timings.infer_us as f64 * 1e3);
        smooth(&mut self.loading, (timings.launch_us + timings.preprocess_us) as f64 * 1e3);
        // One that is still under way begins now.
        self.end_ns = self.expected_ns(self.frames).filter(|_| in_flight > 0).map(|run_ns| now_ns + run_ns);
        // With another run under way the frame for it was just taken; `nothing_waits` tells when that ends.
        if in_flight == 0 {
            self.behind = waits;
        }
    }

    /// There was no frame to begin a run with.
    pub fn nothing_waits(&mut self) {
        self.behind = false;
    }

    /// A run failed: nothing is known of its end.
    pub fn lost(&mut self) {
        self.end_ns = None;
    }

    /// A network of so many frames takes at least about so long.
    fn expected_ns(&self, frames: usize) -> Option<u64> {
        let run = self.run_times.get(frames.checked_sub(1)?).copied().flatten()?;
        Some((run.mean - 2.0 * run.deviation).max(0.0) as u64)
    }

    fn lead_ns(&self) -> u64 {
        let loading = self.loading.map_or(0.0, |loading| loading.mean + 2.0 * loading.deviation);
        loading as u64 + MARGIN_NS
    }
}

/// A mean and a mean deviation that forget.
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
