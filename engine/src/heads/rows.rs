//! Functions shared by the heads' inner loops: maximum of a row, activations, boxes.

use super::spec::{Background, BoxFormat, BoxUnit};

/// Returns the maximum of a row, ignoring NaN; negative infinity for an empty row.
#[inline]
pub(super) fn max_of(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<8>();
    let mut lanes = [f32::NEG_INFINITY; 8];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            // Compiles to one max instruction, and is false for NaN.
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |best, &value| if value > best { value } else { best })
}

/// Returns the first class with the greatest score, if that is at least `threshold`.
///
/// One pass with eight lanes; searches for the class only in rows that pass.
#[inline]
pub(super) fn best_class(row: &[f32], threshold: f32) -> Option<(u32, f32)> {
    let best = max_of(row);
    if best >= threshold {
        let class = row.iter().position(|&score| score == best)?;
        Some((class as u32, best))
    } else {
        None
    }
}

/// Computes 1 / (1 + exp(-x)).
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Returns a lower bound for the logits of scores of at least `threshold`, to compare before computing the sigmoid.
pub(super) fn logit_floor(threshold: f32) -> f32 {
    if threshold <= 0.0 {
        return f32::NEG_INFINITY;
    }
    if threshold >= 1.0 {
        // The sigmoid rounds to 1 from about 16 on.
        return 15.0;
    }
    let t = f64::from(threshold);
    ((t / (1.0 - t)).ln() - 1e-3) as f32
}

/// Writes the softmax of `row` to `out`.
pub(super) fn softmax(row: &[f32], out: &mut Vec<f32>) {
    let top = max_of(row);
    out.clear();
    out.extend(row.iter().map(|&x| (x - top).exp()));
    let sum: f32 = out.iter().sum();
    for value in out {
        *value /= sum;
    }
}

/// Returns the expected bin of a distribution given as logits: softmax, then the mean of 0, 1, 2, ...
pub(super) fn expected_bin(logits: &[f32]) -> f32 {
    let top = max_of(logits);
    let (mut sum, mut weighted) = (0.0_f32, 0.0_f32);
    for (bin, &logit) in logits.iter().enumerate() {
        let weight = (logit - top).exp();
        sum += weight;
        weighted += weight * bin as f32;
    }
    weighted / sum
}

/// Converts a box to left, top, right, bottom in pixels of the input.
pub(super) fn corners(numbers: [f32; 4], format: BoxFormat, unit: BoxUnit, input_size: (u32, u32)) -> [f32; 4] {
    let [a, b, c, d] = numbers;
    let [x1, y1, x2, y2] = match format {
        BoxFormat::Xyxy => [a, b, c, d],
        BoxFormat::Yxyx => [b, a, d, c],
        BoxFormat::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        BoxFormat::Xywh => [a, b, a + c, b + d],
    };
    match unit {
        BoxUnit::Pixels => [x1, y1, x2, y2],
        BoxUnit::Normalized => {
            let (w, h) = (input_size.0 as f32, input_size.1 as f32);
            [x1 * w, y1 * h, x2 * w, y2 * h]
        }
    }
}

/// Returns four numbers from `at` on; the caller has checked the tensor's length against its shape.
#[inline]
pub(super) fn four(values: &[f32], at: usize) -> Option<[f32; 4]> {
    values.get(at..at + 4)?.try_into().ok()
}

/// Returns a class number that a model wrote as a float.
pub(super) fn class_number(value: f32) -> Option<u32> {
    // 2^24: beyond this, f32 cannot represent every integer.
    (-0.5..16_777_216.0).contains(&value).then(|| value.round() as u32)
}

/// Returns the class for a number from the model; `None` for the background.
pub(super) fn class_of(number: u32, background: Background, class_count: usize) -> Option<u32> {
    match background {
        Background::None => Some(number),
        Background::First => number.checked_sub(1),
        Background::Last => (class_count == 0 || (number as usize) < class_count).then_some(number),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn the_best_of_a_row_is_the_first_greatest_and_never_a_nan() {
        let mut row = vec![0.1_f32; 21];
        row[13] = 0.9;
        row[17] = 0.9;
        row[2] = f32::NAN;
        assert_eq!(best_class(&row, 0.5), Some((13, 0.9)));
        assert_eq!(best_class(&row, 0.95), None);
        assert_eq!(best_class(&[f32::NAN; 9], 0.0), None);
        assert_eq!(best_class(&[], 0.0), None);
    }

    #[test]
    fn the_logit_floor_is_below_every_logit_that_passes() {
        for threshold in [0.001_f32, 0.05, 0.3, 0.5, 0.9, 0.999] {
            let floor = logit_floor(threshold);
            assert!(sigmoid(floor) < threshold, "{threshold}");
            assert!(sigmoid(floor + 2e-3) >= threshold, "{threshold}");
        }
    }

    #[test]
    fn a_distribution_on_one_bin_is_that_bin() {
        let mut logits = [0.0_f32; 11];
        logits[7] = 60.0;
        assert!((expected_bin(&logits) - 7.0).abs() < 1e-5);
        assert!((expected_bin(&[1.0; 11]) - 5.0).abs() < 1e-5);
    }
}
