//! Fits a source frame into a model's input (letterbox, stretch or crop), and maps back.
//!
//! Coordinates are pixel edges: pixel `i` spans `[i, i + 1)`, its centre is `i + 0.5`. The placed picture is a whole number of
//! input pixels, and the two axes scale by what that rounding left (`width / source width`), exactly as OpenCV's `resize` and
//! Ultralytics' `LetterBox` sample; the inverse uses the same two numbers, so that a box on the frame's edge comes back on the
//! frame's edge.

/// How a frame is fitted into a model's input.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fit {
    /// Keeps the aspect ratio, centred, and pads the rest.
    #[default]
    Letterbox,
    /// Keeps the aspect ratio, at the top left, and pads on the right and at the bottom.
    LetterboxTopLeft,
    /// Fills the whole input and changes the aspect ratio.
    Stretch,
    /// Keeps the aspect ratio and fills the whole input with the centre of the frame; the rest is not used.
    Crop {
        /// The part of the largest such centre that is used, 0 to 1: 0.875 is the classifiers' "resize 256, crop 224".
        fraction: f64,
    },
}

/// The mapping between one frame size and one input size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mapping {
    source: (u32, u32),
    input: (u32, u32),
    /// The part of the source that is used, in source pixels: x, y, width, height.
    seen: [f64; 4],
    /// Where it is placed, in whole input pixels: x, y, width, height.
    placed: [u32; 4],
}

impl Mapping {
    /// Makes the mapping of a `source` (width, height) into an `input` (width, height); all at least 1.
    pub fn new(fit: Fit, source: (u32, u32), input: (u32, u32)) -> Self {
        let (sw, sh) = (f64::from(source.0), f64::from(source.1));
        let (iw, ih) = (f64::from(input.0), f64::from(input.1));
        let whole_source = [0.0, 0.0, sw, sh];
        let whole_input = [0, 0, input.0, input.1];
        let (seen, placed) = match fit {
            Fit::Letterbox | Fit::LetterboxTopLeft => {
                let ratio = (iw / sw).min(ih / sh);
                // Half to even, like Python's round in every letterbox that this must match.
                let side = |source: f64, limit: u32| ((source * ratio).round_ties_even() as u32).clamp(1, limit);
                let (w, h) = (side(sw, input.0), side(sh, input.1));
                let (x, y) = if fit == Fit::Letterbox { ((input.0 - w) / 2, (input.1 - h) / 2) } else { (0, 0) };
                (whole_source, [x, y, w, h])
            }
            Fit::Stretch => (whole_source, whole_input),
            Fit::Crop { fraction } => {
                let ratio = (iw / sw).max(ih / sh);
                let (w, h) = (iw / ratio * fraction, ih / ratio * fraction);
                ([(sw - w) / 2.0, (sh - h) / 2.0, w, h], whole_input)
            }
        };
        Self { source, input, seen, placed }
    }

    /// Returns width and height of the source in pixels.
    pub fn source(&self) -> (u32, u32) {
        self.source
    }

    /// Returns width and height of the input in pixels.
    pub fn input(&self) -> (u32, u32) {
        self.input
    }

    /// Returns the part of the source that is used, in source pixels: x, y, width, height.
    pub fn seen(&self) -> [f64; 4] {
        self.seen
    }

    /// Returns where it is placed, in whole input pixels: x, y, width, height.
    pub fn placed(&self) -> [u32; 4] {
        self.placed
    }

    /// Returns the source pixels per input pixel, along x and y.
    pub fn source_per_input(&self) -> (f64, f64) {
        (self.seen[2] / f64::from(self.placed[2]), self.seen[3] / f64::from(self.placed[3]))
    }

    /// Maps a point of the source to the input.
    pub fn to_input(&self, x: f64, y: f64) -> (f64, f64) {
        let (kx, ky) = self.source_per_input();
        ((x - self.seen[0]) / kx + f64::from(self.placed[0]), (y - self.seen[1]) / ky + f64::from(self.placed[1]))
    }

    /// Maps a point of the input to the source, without clipping.
    pub fn to_source(&self, x: f64, y: f64) -> (f64, f64) {
        let (kx, ky) = self.source_per_input();
        ((x - f64::from(self.placed[0])) * kx + self.seen[0], (y - f64::from(self.placed[1])) * ky + self.seen[1])
    }

    /// Maps a box (x1, y1, x2, y2) of the input to the source and clips it to the frame.
    pub fn box_to_source(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let (sx1, sy1) = self.to_source(f64::from(x1), f64::from(y1));
        let (sx2, sy2) = self.to_source(f64::from(x2), f64::from(y2));
        let (w, h) = (f64::from(self.source.0), f64::from(self.source.1));
        [sx1.clamp(0.0, w) as f32, sy1.clamp(0.0, h) as f32, sx2.clamp(0.0, w) as f32, sy2.clamp(0.0, h) as f32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wide_frame_is_centred_between_bars() {
        let map = Mapping::new(Fit::Letterbox, (768, 576), (416, 416));
        assert_eq!(map.placed(), [0, 52, 416, 312]);
        let map = Mapping::new(Fit::LetterboxTopLeft, (768, 576), (416, 416));
        assert_eq!(map.placed(), [0, 0, 416, 312]);
    }

    #[test]
    fn halves_round_to_even_as_python_does() {
        // 5 * (416 / 832) = 2.5
        assert_eq!(Mapping::new(Fit::Letterbox, (832, 5), (416, 416)).placed()[3], 2);
        assert_eq!(Mapping::new(Fit::Letterbox, (832, 7), (416, 416)).placed()[3], 4);
    }

    #[test]
    fn a_sliver_keeps_one_pixel() {
        assert_eq!(Mapping::new(Fit::Letterbox, (10_000, 1), (416, 416)).placed(), [0, 207, 416, 1]);
    }

    #[test]
    fn crop_takes_the_centre() {
        let map = Mapping::new(Fit::Crop { fraction: 1.0 }, (640, 480), (224, 224));
        assert_eq!(map.seen(), [80.0, 0.0, 480.0, 480.0]);
        let map = Mapping::new(Fit::Crop { fraction: 0.875 }, (256, 256), (224, 224));
        assert_eq!(map.seen(), [16.0, 16.0, 224.0, 224.0]);
    }

    fn fits() -> impl Strategy<Value = Fit> {
        prop_oneof![
            Just(Fit::Letterbox),
            Just(Fit::LetterboxTopLeft),
            Just(Fit::Stretch),
            (0.1..=1.0).prop_map(|fraction| Fit::Crop { fraction }),
        ]
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same_point(
            fit in fits(), sw in 1..8000_u32, sh in 1..8000_u32, iw in 1..2000_u32, ih in 1..2000_u32,
            fx in 0.0..1.0, fy in 0.0..1.0,
        ) {
            let map = Mapping::new(fit, (sw, sh), (iw, ih));
            let (x, y) = (fx * f64::from(sw), fy * f64::from(sh));
            let (ix, iy) = map.to_input(x, y);
            let (bx, by) = map.to_source(ix, iy);
            prop_assert!((bx - x).abs() < 1e-6 && (by - y).abs() < 1e-6, "{x},{y} came back as {bx},{by}");
        }

        #[test]
        fn the_placed_picture_is_inside_the_input_and_its_edges_are_the_frames(
            fit in fits(), sw in 1..8000_u32, sh in 1..8000_u32, iw in 1..2000_u32, ih in 1..2000_u32,
        ) {
            let map = Mapping::new(fit, (sw, sh), (iw, ih));
            let [x, y, w, h] = map.placed();
            prop_assert!(w >= 1 && h >= 1 && x + w <= iw && y + h <= ih);
            let [left, top, width, height] = map.seen();
            let corner = map.to_source(f64::from(x + w), f64::from(y + h));
            prop_assert!((corner.0 - left - width).abs() < 1e-6 && (corner.1 - top - height).abs() < 1e-6);
            let clipped = map.box_to_source([-10.0, -10.0, iw as f32 + 10.0, ih as f32 + 10.0]);
            prop_assert!(clipped[0] >= 0.0 && clipped[2] <= sw as f32 && clipped[3] <= sh as f32);
        }
    }
}
