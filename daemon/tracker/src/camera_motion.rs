//! How far the camera moved, by the objects themselves.

/// Objects that it takes to tell the camera's motion from theirs.
pub(crate) const LEAST_OBJECTS: usize = 5;
/// How many times its own variance the square of a shift loses. At 4, one that could be chance at two standard deviations is 0.
const DOUBT: f64 = 4.0;

/// Estimates by how much all objects are off their predictions.
///
/// A camera that turns shifts everything alike, which the filters of single objects learn only after some frames, and those of objects
/// out of sight never. Pixels are not needed: the median of what the surest pairs are off is the shift. It is shrunk by its own
/// uncertainty (positive-part James and Stein), so that a camera that stands gets none.
#[derive(Debug, Default)]
pub(crate) struct CameraMotion {
    off: [Vec<f64>; 2],
}

impl CameraMotion {
    pub(crate) fn begin(&mut self) {
        self.off.iter_mut().for_each(Vec::clear);
    }

    /// Adds by how many pixels an object is off.
    pub(crate) fn add(&mut self, off: [f64; 2]) {
        for (all, off) in self.off.iter_mut().zip(off) {
            all.push(off);
        }
    }

    /// Returns the shift in pixels; `None` if there is none.
    pub(crate) fn shift(&mut self) -> Option<[f64; 2]> {
        if self.off[0].len() < LEAST_OBJECTS {
            return None;
        }
        let [x, y] = &mut self.off;
        let shift = [shrunk_median(x), shrunk_median(y)];
        (shift != [0.0; 2]).then_some(shift)
    }
}

/// Returns the median, less what chance explains. The values are lost.
fn shrunk_median(values: &mut [f64]) -> f64 {
    let middle = median(values);
    for value in values.iter_mut() {
        *value = (*value - middle).abs();
    }
    // The standard deviation of a normal distribution by the median of deviations, and the variance of its median.
    let deviation = 1.4826 * median(values);
    let variance = std::f64::consts::FRAC_PI_2 * deviation.powi(2) / values.len() as f64;
    let square = middle.powi(2);
    if square > 0.0 { middle * (1.0 - DOUBT * variance / square).max(0.0) } else { 0.0 }
}

fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    if values.is_empty() { 0.0 } else { *values.select_nth_unstable_by(half, f64::total_cmp).1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(off: &[[f64; 2]]) -> Option<[f64; 2]> {
        let mut motion = CameraMotion::default();
        motion.begin();
        off.iter().for_each(|off| motion.add(*off));
        motion.shift()
    }

    #[test]
    fn a_camera_that_turned_is_told_from_objects_that_walk() {
        let turned: Vec<[f64; 2]> =
            (0..9).map(|object| [40.0 + f64::from(object % 3), f64::from(object % 5) - 2.0]).collect();
        let [x, y] = shift(&turned).unwrap();
        assert!((x - 41.0).abs() < 0.1, "{x}");
        assert_eq!(y, 0.0);
        // One that runs the other way does not count.
        let mut outlier = turned.clone();
        outlier[4] = [-500.0, 300.0];
        assert!((shift(&outlier).unwrap()[0] - 41.0).abs() < 0.5);
    }

    #[test]
    fn a_camera_that_stands_has_no_shift() {
        let walking: Vec<[f64; 2]> =
            (0..20).map(|object| [f64::from(object * 7 % 11) - 5.0, f64::from(object % 3) - 1.0]).collect();
        assert_eq!(shift(&walking), None);
        assert_eq!(shift(&[[50.0, 0.0]; 4]), None, "four are too few");
    }
}
