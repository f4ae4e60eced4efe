//! The length of a benchmark, and the statistics of its measurements.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::progress::Progress;
use crate::value_parsers::duration;

/// How many frames or how long to measure.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Iterations {
    /// Measure N frames
    #[arg(short = 'n', long, visible_alias = "iterations", value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub frames: u64,

    /// Measure for TIME, for example 10s, instead of a number of frames
    #[arg(long, value_name = "TIME", conflicts_with = "frames", value_parser = duration)]
    pub duration: Option<Duration>,

    /// Process N frames before measuring
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub warmup: u64,
}

impl Iterations {
    /// Returns the share of one of `parts` measurements, which split the duration evenly.
    pub fn part(&self, parts: u32) -> Self {
        Self { duration: self.duration.map(|duration| duration / parts), ..*self }
    }

    /// Calls `run` with the number of each iteration and returns the results. Progress names them as `what`.
    pub fn repeat<T, E>(&self, what: &str, mut run: impl FnMut(u64) -> Result<T, E>) -> Result<Vec<T>, E> {
        let (mut results, mut progress, began) = (Vec::new(), Progress::new(), Instant::now());
        while self.goes_on(results.len() as u64, began) {
            results.push(run(results.len() as u64)?);
            progress.tell(|| format!("{what}: {}", results.len()));
        }
        Ok(results)
    }

    /// Returns whether to continue after `count` iterations since `began`.
    pub fn goes_on(&self, count: u64, began: Instant) -> bool {
        match self.duration {
            Some(duration) => count == 0 || began.elapsed() < duration,
            None => count < self.frames,
        }
    }
}

/// Statistics of a series of durations, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    pub median: f64,
    p90: f64,
    p99: f64,
    min: f64,
    max: f64,
    mean: f64,
}

impl Figures {
    /// Computes the exact statistics of at least one duration. A percentile is the smallest value that this share of the
    /// durations does not exceed.
    pub fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut us: Vec<f64> = times.map(|time| (time.as_nanos() as f64 / 100.0).round() / 10.0).collect();
        us.sort_by(f64::total_cmp);
        let at = |quantile: f64| us[((us.len() as f64 * quantile).ceil() as usize).clamp(1, us.len()) - 1];
        let mean = us.iter().sum::<f64>() / us.len() as f64;
        Self {
            median: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            min: at(0.0),
            max: at(1.0),
            mean: (mean * 10.0).round() / 10.0,
        }
    }

    /// Formats a line of the table.
    pub fn row(&self, title: &str) -> String {
        let Self { median, p90, p99, min, max, .. } = self;
        format!("{title:<16}{median:>11.1}{p90:>11.1}{p99:>11.1}{min:>11.1}{max:>11.1}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let figures = Figures::of((1..=200).rev().map(Duration::from_micros));
        let expected = Figures { median: 100.0, p90: 180.0, p99: 198.0, min: 1.0, max: 200.0, mean: 100.5 };
        assert_eq!(figures, expected);
        let one = Figures::of([Duration::from_nanos(1_234)].into_iter());
        assert_eq!((one.min, one.median, one.p99, one.max), (1.2, 1.2, 1.2, 1.2));
    }

    fn iterations(frames: u64, duration: Option<Duration>) -> Iterations {
        Iterations { frames, duration, warmup: 0 }
    }

    #[test]
    fn a_measurement_ends_after_its_frames_or_its_time_but_has_at_least_one() {
        let began = Instant::now();
        let hour = Some(Duration::from_secs(3_600));
        let goes_on = |of: Iterations| [0, 1, 2].map(|count| of.goes_on(count, began));
        assert_eq!(goes_on(iterations(2, None)), [true, true, false]);
        assert_eq!(goes_on(iterations(2, Some(Duration::ZERO))), [true, false, false]);
        assert_eq!(goes_on(iterations(1, hour)), [true; 3]);
        assert_eq!(iterations(9, hour).part(4).duration, Some(Duration::from_secs(900)));
        assert_eq!((iterations(9, None).part(4).duration, iterations(9, None).part(4).frames), (None, 9));
    }

    #[test]
    fn an_iteration_is_numbered_and_its_error_ends_the_measurement() {
        let run = |fails_at| iterations(4, None).repeat("runs", |n| if n == fails_at { Err(n) } else { Ok(10 * n) });
        assert_eq!(run(9), Ok(vec![0, 10, 20, 30]));
        assert_eq!(run(2), Err(2));
    }

    #[test]
    fn times_are_rounded_to_a_tenth_of_a_microsecond_in_columns() {
        let figures = Figures::of([1_040, 1_060, 2_000].map(Duration::from_nanos).into_iter());
        let expected = Figures { median: 1.1, p90: 2.0, p99: 2.0, min: 1.0, max: 2.0, mean: 1.4 };
        assert_eq!(figures, expected);
        assert_eq!(figures.row("infer"), "infer                   1.1        2.0        2.0        1.0        2.0\n");
    }
}
