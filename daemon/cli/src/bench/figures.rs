//! The figures of a series of durations.

use std::time::Duration;

use serde::Serialize;

/// Statistics of a series of durations, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    median: f64,
    p90: f64,
    p99: f64,
    min: f64,
    max: f64,
    mean: f64,
}

impl Figures {
    /// Returns the median.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// Computes the exact figures of at least one duration. A percentile is the smallest value that this share of the
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
}

/// Formats a line of the table.
pub fn figures_row(title: &str, f: &Figures) -> String {
    format!("{title:<16}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}\n", f.median, f.p90, f.p99, f.min, f.max)
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
}
