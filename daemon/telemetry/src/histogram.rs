//! A histogram of durations with fixed buckets, which many threads write without allocation or lock.
//!
//! Buckets follow HDR histograms: exact up to 31 us, then 16 per power of two. A value is accurate to 6.3 % and a percentile
//! (the middle of its bucket) to 3.2 %. Values of 71 minutes and more fall into the last bucket.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sub-buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;
/// Maximum bits of a value; larger values count as the largest.
const MAX_BITS: u32 = 32;
/// Number of buckets.
const BUCKETS: usize = (MAX_BITS - SUB_BITS + 1) as usize * SUB;

fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << MAX_BITS) - 1);
    if value < SUB as u64 {
        return value as usize;
    }
    let exponent = value.ilog2();
    let sub = (value >> (exponent - SUB_BITS)) as usize & (SUB - 1);
    (exponent - SUB_BITS + 1) as usize * SUB + sub
}

/// Returns the smallest value of the bucket and of the next one.
fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < SUB {
        return (bucket as u64, bucket as u64 + 1);
    }
    let shift = (bucket / SUB - 1) as u32;
    let low = ((SUB + bucket % SUB) as u64) << shift;
    (low, low + (1 << shift))
}

/// A histogram of durations in microseconds.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0), max_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts a value. Three atomic additions.
    pub fn record_us(&self, value_us: u64) {
        self.buckets[bucket_of(value_us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(value_us, Ordering::Relaxed);
        self.max_us.fetch_max(value_us, Ordering::Relaxed);
    }

    /// Returns a snapshot. It may or may not include values that are recorded meanwhile.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum_us: self.sum_us.load(Ordering::Relaxed),
            max_us: self.max_us.load(Ordering::Relaxed),
        }
    }
}

/// A histogram at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Box<[u64]>,
    sum_us: u64,
    max_us: u64,
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the values.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// Returns the number of values between each of the rising `bounds_us` and the bound before it, and above the last one.
    /// Each bucket counts as its middle, so bounds are accurate to 3.2 %.
    pub fn within(&self, bounds_us: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds_us.len() + 1];
        for (bucket, values) in self.buckets.iter().enumerate().filter(|(_, values)| **values > 0) {
            let (low, next) = bounds(bucket);
            let middle = (low + next - 1) / 2;
            counts[bounds_us.partition_point(|&bound| bound < middle)] += values;
        }
        counts
    }

    /// Returns the mean of the values; 0 without values.
    pub fn mean_us(&self) -> u64 {
        self.sum_us.checked_div(self.count()).unwrap_or(0)
    }

    /// Returns the largest value, exactly.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// Returns the value at `quantile` (0 to 1); 0 without values.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let count = self.count();
        if count == 0 {
            return 0;
        }
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|values| {
            seen += values;
            seen >= rank
        });
        let (low, next) = bounds(bucket.unwrap_or(BUCKETS - 1));
        ((low + next - 1) / 2).min(self.max_us)
    }

    /// Returns the values counted since `earlier`, a snapshot of the same histogram. The maximum remains that of all time.
    pub fn since(&self, earlier: &Self) -> Self {
        let buckets = self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        Self { buckets, sum_us: self.sum_us.saturating_sub(earlier.sum_us), max_us: self.max_us }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_stand_side_by_side_and_none_is_wider_than_a_sixteenth() {
        for bucket in 0..BUCKETS {
            let (low, next) = bounds(bucket);
            assert_eq!(bucket_of(low), bucket);
            assert_eq!(bucket_of(next - 1), bucket);
            assert!((next - low) * 16 <= low.max(16), "{bucket}");
            if bucket + 1 < BUCKETS {
                assert_eq!(bounds(bucket + 1).0, next);
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_empty_histogram_has_no_percentile() {
        assert_eq!(Histogram::default().snapshot().quantile_us(0.5), 0);
    }

    #[test]
    fn a_percentile_is_the_middle_of_its_bucket_and_at_most_the_largest_value() {
        // 1,000 us lies in the bucket from 992 to 1,023, 100,000 us in the one from 98,304 to 102,399.
        for (values, quantile, wanted) in [
            (vec![1_000, 2_000_000], 0.5, 1_007),
            (vec![100_000, 2_000_000], 0.5, 100_351),
            (vec![1_000], 0.5, 1_000),
            (vec![5, 1_000, 2_000_000], 0.33, 5),
            (vec![5, 1_000, 2_000_000], 0.34, 1_007),
        ] {
            let histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record_us(value));
            assert_eq!(histogram.snapshot().quantile_us(quantile), wanted, "{values:?} at {quantile}");
        }
    }

    #[test]
    fn a_difference_forgets_what_came_before() {
        let histogram = Histogram::default();
        histogram.record_us(1_000_000);
        let before = histogram.snapshot();
        histogram.record_us(10);
        histogram.record_us(12);
        let new = histogram.snapshot().since(&before);
        assert_eq!((new.count(), new.mean_us(), new.quantile_us(0.99)), (2, 11, 12));
    }

    #[test]
    fn thirty_days_are_counted_exactly_and_never_fall() {
        let histogram = Histogram::default();
        let (mut sum_us, mut before) = (0, histogram.snapshot());
        // One frame a second; each day has a frame that waited for two hours, which is more than the last bucket's bound.
        for second in 0..30 * 86_400_u64 {
            let value_us = if second % 86_400 == 7 { 7_200_000_000 } else { 20_000 + second % 100 };
            histogram.record_us(value_us);
            sum_us += value_us;
            if second % 3600 == 3599 {
                let now = histogram.snapshot();
                assert!(now.buckets.iter().zip(&before.buckets).all(|(now, before)| now >= before));
                assert_eq!((now.count(), now.sum_us(), now.since(&before).count()), (second + 1, sum_us, 3600));
                before = now;
            }
        }
        assert_eq!((before.max_us(), before.within(&[100_000])), (7_200_000_000, vec![30 * 86_400 - 30, 30]));
    }

    #[test]
    fn values_are_sorted_into_the_buckets_that_others_ask_for() {
        let histogram = Histogram::default();
        [0, 10, 11, 990, 5_000, 80_000].iter().for_each(|&value| histogram.record_us(value));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.within(&[10, 1_000, 10_000]), [2, 2, 1, 1]);
        assert_eq!((snapshot.count(), snapshot.sum_us()), (6, 86_011));
        // 32 and 33 us share a bucket, whose middle is rounded down; a bound belongs to the range below it.
        let histogram = Histogram::default();
        [31, 32, 33, 34].iter().for_each(|&value| histogram.record_us(value));
        assert_eq!(histogram.snapshot().within(&[30, 31, 32, 33]), [0, 1, 2, 0, 1]);
    }

    proptest! {
        #[test]
        fn percentiles_are_right_to_a_twentieth(mut values in prop::collection::vec(0..10_000_000_u64, 1..300)) {
            let histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record_us(value));
            values.sort_unstable();
            let snapshot = histogram.snapshot();
            prop_assert_eq!(snapshot.count(), values.len() as u64);
            prop_assert_eq!(snapshot.mean_us(), values.iter().sum::<u64>() / values.len() as u64);
            for quantile in [0.0, 0.5, 0.9, 0.99, 1.0] {
                let rank = ((values.len() as f64 * quantile).ceil() as usize).clamp(1, values.len());
                let (exact, told) = (values[rank - 1] as f64, snapshot.quantile_us(quantile) as f64);
                prop_assert!((told - exact).abs() <= exact * 0.05, "{} {} {}", quantile, exact, told);
            }
        }
    }
}
