//! Rounds numbers for messages.

use visiond_message::BoxMessage;

/// Rounds to a thousandth of a pixel.
pub(super) fn rounded_pixels(value: f64) -> f64 {
    // Adding 0.0 turns -0.0 into 0.0.
    (value * 1e3).round() / 1e3 + 0.0
}

/// Rounds a score to 4 decimals; `None` if JSON cannot represent it.
pub(super) fn rounded_score(value: f32) -> Option<f32> {
    rounded_part(value, 1e4)
}

/// Rounds a number from 0 to 1 to one of `steps` steps; `None` if JSON cannot represent it.
pub(super) fn rounded_part(value: f32, steps: f64) -> Option<f32> {
    value.is_finite().then(|| ((f64::from(value.clamp(0.0, 1.0)) * steps).round() / steps) as f32)
}

/// Rounds to 5 significant digits, so that neither metres nor fractions of a thousandth lose meaningful digits. `None` if
/// JSON cannot represent it.
pub(super) fn significant(value: f32) -> Option<f32> {
    if !value.is_finite() {
        return None;
    }
    // Adding 0.0 turns -0.0 into 0.0. The text is always a number.
    format!("{:.4e}", value + 0.0).parse().ok().filter(|rounded: &f32| rounded.is_finite())
}

/// Returns the box of the corners x1, y1, x2, y2. The printed numbers add up: `x + width` is the rounded right edge, so a box that
/// ends at the edge of the frame still does. (f32 distinguishes numbers of three decimals below 16,384.)
pub(super) fn box_of(corners: [f32; 4]) -> BoxMessage {
    let [x1, y1, x2, y2] = corners.map(|v| rounded_pixels(f64::from(v)));
    let size = |low: f64, high: f64| rounded_pixels((high - low).max(0.0)) as f32;
    BoxMessage { x: x1 as f32, y: y1 as f32, width: size(x1, x2), height: size(y1, y2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zero_has_a_sign() {
        // JSON has -0.0, which readers take for a negative position.
        for zero in [0.0, -0.0, 0.000_4, -0.000_4] {
            assert_eq!(rounded_pixels(zero).to_bits(), 0, "{zero}");
        }
        assert_eq!(significant(-0.0).map(f32::to_bits), Some(0));
        for (value, wanted) in [(12.345_67, 12.346), (-12.345_67, -12.346), (0.000_6, 0.001), (4_095.999_6, 4_096.0)] {
            assert_eq!(rounded_pixels(value), wanted);
        }
    }

    #[test]
    fn scores_have_four_decimals_from_0_to_1() {
        for (value, wanted) in [(0.123_456, 0.123_5), (-0.5, 0.0), (1.5, 1.0), (0.999_96, 1.0)] {
            assert_eq!(rounded_score(value), Some(wanted));
        }
        assert_eq!(rounded_score(f32::NAN), None);
        assert_eq!(rounded_part(0.3, 2.0), Some(0.5));
    }

    #[test]
    fn numbers_have_five_digits_that_mean_something() {
        for (value, wanted) in [(31.234_56, 31.235), (0.000_123_456, 0.000_123_46), (123_456.0, 123_460.0), (-0.0, 0.0)]
        {
            assert_eq!(significant(value), Some(wanted));
        }
        assert_eq!(significant(1e-45), Some(1e-45));
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(significant(wrong), None);
        }
        // Rounding must not exceed the range of f32.
        assert!(significant(f32::MAX).is_none_or(f32::is_finite));
    }
}
