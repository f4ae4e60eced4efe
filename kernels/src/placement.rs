//! Places a source frame in a model's input (letterbox, stretch, crop, warp), and maps back, as each training framework does.
//!
//! Coordinates are pixel edges: pixel `i` spans `[i, i + 1)`, its centre is `i + 0.5`. A framework is characterised by four
//! choices: how the frame is fitted ([`Fit`]), how the resized size is rounded ([`Rounding`]), which step the resize uses
//! ([`Step`]), and how boxes are mapped back ([`WayBack`]). The defaults are those of OpenCV's `resize` to a size and of
//! Ultralytics' `LetterBox`: each axis is scaled by its rounded size (`width / source width`), in both directions, so that a box
//! on the frame's edge maps back to the frame's edge.

use crate::oriented::OrientedBox;
use crate::view::View;

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
        /// The part of the largest such centre that is used, 0 to 1: 0.875 is roughly "resize 256, crop 224".
        fraction: f64,
    },
    /// Resizes to whole pixels, then cuts out the centre: torchvision's and timm's classifiers, Caffe's, Keras'.
    ResizeCrop(Resize),
    /// Keeps the aspect ratio, centred to fractions of a pixel, by OpenCV's `warpAffine` or `warpPerspective`, where coordinates
    /// count pixel centres: the pipelines of NanoDet, CenterNet and MediaPipe.
    Warp,
    /// Fills the whole input by such a warp and changes the aspect ratio: NanoDet-Plus.
    WarpStretch,
}

impl Fit {
    /// Whether the frame is placed by a warp.
    pub const fn warps(self) -> bool {
        matches!(self, Self::Warp | Self::WarpStretch)
    }
}

/// The size before a crop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Resize {
    /// The shorter side gets this length, the longer one what keeps the aspect ratio, rounded down: torchvision's `Resize(256)`.
    ShortSide(u32),
    /// The same, with the input's longer side divided by this, 0 to 1, and rounded: 0.875 is "resize 256, crop 224".
    Fraction(f64),
    /// Width and height, whatever the aspect ratio.
    Stretch(u32, u32),
}

impl Resize {
    /// Returns width and height that a `source` is resized to, for an `input` of that size.
    fn size(self, rounding: Rounding, source: (u32, u32), input: (u32, u32)) -> (u32, u32) {
        let short = match self {
            Self::Stretch(width, height) => return (width, height),
            Self::ShortSide(side) => side,
            Self::Fraction(fraction) => rounding.of(f64::from(input.0.max(input.1)) / fraction) as u32,
        };
        let (width, height) = (f64::from(source.0), f64::from(source.1));
        // `int(short * long / short side)` in Python.
        let long = |long: f64, short_source: f64| (f64::from(short) * long / short_source) as u32;
        if width <= height { (short, long(height, width)) } else { (long(width, height), short) }
    }
}

/// How a resized size is rounded, unless it is given in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// To the nearest, half to even: Python's `round`.
    #[default]
    HalfEven,
    /// To the nearest, half up: `int(x + 0.5)`.
    HalfUp,
    /// Down: `int(x)`.
    Down,
    /// Up: `ceil(x)`.
    Up,
}

impl Rounding {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::HalfEven => value.round_ties_even(),
            Self::HalfUp => (value + 0.5).floor(),
            Self::Down => value.floor(),
            Self::Up => value.ceil(),
        }
    }
}

/// The step of a letterbox's resize, in source pixels per resized pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Step {
    /// By axis, from the rounded size: `resize(frame, (width, height))`.
    #[default]
    Size,
    /// The ratio before rounding, for both axes: `resize(frame, None, fx = ratio, fy = ratio)`.
    Ratio,
}

/// How a letterbox's boxes are mapped back to the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WayBack {
    /// Each axis by its rounded size: `(x - left) * source_width / width`.
    #[default]
    Axes,
    /// Both axes by the ratio before rounding: `(x - left) / ratio`. Megvii's YOLOX; Ultralytics 8.4.25 to 8.4.173.
    Ratio,
    /// The same from where the picture would begin if its size were not rounded, `left = (input - source * ratio) / 2`: YOLOv5,
    /// YOLOv7, Ultralytics up to 8.0.107.
    RatioFromMiddle,
    /// The same with this `left` rounded, `round((input - source * ratio) / 2 - 0.1)`: Ultralytics 8.0.108 to 8.4.24.
    RatioFromRoundedMiddle,
    /// Both axes by the rounded height: `(x - left) * source_height / height`. InsightFace.
    Height,
}

/// How a frame is placed in a model's input.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Placement {
    /// How the frame is fitted.
    pub fit: Fit,
    /// How a letterbox rounds the resized size, and [`Resize::Fraction`] the shorter side.
    pub rounding: Rounding,
    /// The step of a letterbox's resize.
    pub step: Step,
    /// How a letterbox's boxes are mapped back.
    pub way_back: WayBack,
    /// Whether a letterbox pads the frame to the input's aspect ratio first, and resizes frame and padding together.
    pub pad_first: bool,
}

impl Placement {
    /// Returns the placement with the defaults for everything else.
    pub const fn new(fit: Fit) -> Self {
        Self { fit, rounding: Rounding::HalfEven, step: Step::Size, way_back: WayBack::Axes, pad_first: false }
    }
}

impl From<Fit> for Placement {
    fn from(fit: Fit) -> Self {
        Self::new(fit)
    }
}

/// How one axis of a frame becomes one axis of the input.
///
/// The frame lies in a canvas of `canvas` pixels, of which it begins at pixel `lead`; the rest of the canvas is padding. The
/// canvas from `from` to `from + extent` becomes `resized` pixels, and `count` of these from `first` on lie in the input from
/// pixel `at` on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisMap {
    /// The frame's pixels.
    pub source: u32,
    /// The pixels of padding before the frame.
    pub lead: u32,
    /// The pixels of frame and padding.
    pub canvas: u32,
    /// Where the resized part begins, in pixels of the canvas.
    pub from: f64,
    /// The length of that part, in pixels of the canvas.
    pub extent: f64,
    /// Its length after the resize, in pixels.
    pub resized: u32,
    /// The first pixel of the resized picture that is used.
    pub first: u32,
    /// How many of its pixels are used.
    pub count: u32,
    /// Where they begin in the input.
    pub at: u32,
    /// Pixels of the canvas per resized pixel, as the resize uses it.
    pub step: f64,
    /// Whether positions count pixel centres: resized pixel `i` is at pixel `i * step + from` of the canvas, and beyond the
    /// canvas is padding. Else it is at `(i + 0.5) * step - 0.5 + from`, and beyond the canvas its edge is repeated.
    pub warped: bool,
    back: Back,
}

/// The mapping from the input to the frame along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Back {
    /// `(x - at + first) * factor + origin`
    Multiply { factor: f64, origin: f64 },
    /// `(x - left) / divisor`
    Divide { divisor: f64, left: f64 },
    /// `x * factor + origin`
    Affine { factor: f64, origin: f64 },
}

impl AxisMap {
    /// Maps the whole axis to `resized` pixels that begin at pixel `at` of the input.
    fn whole(source: u32, resized: u32, at: u32) -> Self {
        Self::part(source, (0.0, f64::from(source)), resized, at)
    }

    /// Maps a part (origin, length) of the axis to `resized` pixels that begin at pixel `at` of the input.
    fn part(source: u32, (from, extent): (f64, f64), resized: u32, at: u32) -> Self {
        Self {
            source,
            lead: 0,
            canvas: source,
            from,
            extent,
            resized,
            first: 0,
            count: resized,
            at,
            // The inverse of the inverse has the last bit of OpenCV's scale.
            step: 1.0 / (f64::from(resized) / extent),
            warped: false,
            back: Back::Multiply { factor: extent / f64::from(resized), origin: from },
        }
    }

    /// Maps the frame in a canvas of padding to the whole axis of the input.
    fn padded(source: u32, lead: u32, canvas: u32, input: u32) -> Self {
        let map = Self::whole(canvas, input, 0);
        let back = Back::Multiply { factor: map.extent / f64::from(input), origin: -f64::from(lead) };
        Self { source, lead, back, ..map }
    }

    /// Keeps `count` of the resized pixels, from `first` on.
    fn cut(self, first: u32, count: u32) -> Self {
        Self { first, count, ..self }
    }

    /// Maps the axis by a warp that puts the middle of the frame in the middle of the input.
    fn warped(source: u32, input: u32, ratio: f64) -> Self {
        let shift = ratio * (-f64::from(source) / 2.0) + f64::from(input) / 2.0;
        let (factor, origin) = (1.0 / ratio, -shift / ratio);
        let map = Self::part(source, (origin, f64::from(input) * factor), input, 0);
        Self { step: factor, warped: true, back: Back::Affine { factor, origin }, ..map }
    }

    /// Returns where an edge of the input is on the frame.
    fn to_source(self, x: f64) -> f64 {
        let at = f64::from(self.at);
        match self.back {
            Back::Multiply { factor, origin } => (x - at + f64::from(self.first)) * factor + origin,
            Back::Divide { divisor, left } => (x - left) / divisor,
            Back::Affine { factor, origin } => x * factor + origin,
        }
    }

    /// Returns where an edge of the frame is in the input.
    fn to_input(self, x: f64) -> f64 {
        let at = f64::from(self.at);
        match self.back {
            Back::Multiply { factor, origin } => (x - origin) / factor - f64::from(self.first) + at,
            Back::Divide { divisor, left } => x * divisor + left,
            Back::Affine { factor, origin } => (x - origin) / factor,
        }
    }

    fn source_per_input(self) -> f64 {
        match self.back {
            Back::Multiply { factor, .. } | Back::Affine { factor, .. } => factor,
            Back::Divide { divisor, .. } => 1.0 / divisor,
        }
    }
}

/// The mapping between one frame size and one input size. If the model sees a part of the frame, or sees it turned, the source is the
/// picture that it sees, and [`Mapping::view`] maps that to the frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mapping {
    source: (u32, u32),
    input: (u32, u32),
    /// Columns, rows.
    axes: [AxisMap; 2],
    view: View,
}

impl Mapping {
    /// Makes the mapping of a `source` (width, height) into an `input` (width, height); all at least 1.
    pub fn new(placement: impl Into<Placement>, source: (u32, u32), input: (u32, u32)) -> Self {
        let placement = placement.into();
        let (sw, sh) = (f64::from(source.0), f64::from(source.1));
        let (iw, ih) = (f64::from(input.0), f64::from(input.1));
        let axes = match placement.fit {
            Fit::Letterbox | Fit::LetterboxTopLeft => letterbox(&placement, source, input),
            Fit::Stretch => [AxisMap::whole(source.0, input.0, 0), AxisMap::whole(source.1, input.1, 0)],
            Fit::Crop { fraction } => {
                let ratio = (iw / sw).max(ih / sh);
                let (w, h) = (iw / ratio * fraction, ih / ratio * fraction);
                [
                    AxisMap::part(source.0, ((sw - w) / 2.0, w), input.0, 0),
                    AxisMap::part(source.1, ((sh - h) / 2.0, h), input.1, 0),
                ]
            }
            Fit::ResizeCrop(resize) => {
                let (w, h) = resize.size(placement.rounding, source, input);
                // Python's rounding, half to even. A crop is never larger than the picture: the spec is checked.
                let first = |resized: u32, input: u32| {
                    (f64::from(resized.saturating_sub(input)) / 2.0).round_ties_even() as u32
                };
                [
                    AxisMap::whole(source.0, w, 0).cut(first(w, input.0), input.0),
                    AxisMap::whole(source.1, h, 0).cut(first(h, input.1), input.1),
                ]
            }
            Fit::Warp | Fit::WarpStretch => {
                let (x, y) = (iw / sw, ih / sh);
                let (x, y) = if placement.fit == Fit::Warp { (x.min(y), x.min(y)) } else { (x, y) };
                [AxisMap::warped(source.0, input.0, x), AxisMap::warped(source.1, input.1, y)]
            }
        };
        Self { source, input, axes, view: View::whole(source) }
    }

    /// Returns the same mapping for a source that is the picture of a view.
    #[must_use]
    pub fn of_view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// Returns how the source lies in the camera's frame.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns width and height of the source in pixels.
    pub fn source(&self) -> (u32, u32) {
        self.source
    }

    /// Returns width and height of the input in pixels.
    pub fn input(&self) -> (u32, u32) {
        self.input
    }

    /// Returns how columns and rows of the source become those of the input.
    pub fn axes(&self) -> &[AxisMap; 2] {
        &self.axes
    }

    /// Returns where the picture is placed, in whole input pixels: x, y, width, height.
    pub fn placed(&self) -> [u32; 4] {
        let [x, y] = &self.axes;
        [x.at, y.at, x.count, y.count]
    }

    /// Returns the source pixels per input pixel, along x and y.
    pub fn source_per_input(&self) -> (f64, f64) {
        let [x, y] = &self.axes;
        (x.source_per_input(), y.source_per_input())
    }

    /// Maps a point of the source to the input.
    pub fn to_input(&self, x: f64, y: f64) -> (f64, f64) {
        (self.axes[0].to_input(x), self.axes[1].to_input(y))
    }

    /// Maps a point of the input to the source, without clipping.
    pub fn to_source(&self, x: f64, y: f64) -> (f64, f64) {
        (self.axes[0].to_source(x), self.axes[1].to_source(y))
    }

    /// Maps a box (x1, y1, x2, y2) of the input to the source and clips it to the frame.
    pub fn box_to_source(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let (sx1, sy1) = self.to_source(f64::from(x1), f64::from(y1));
        let (sx2, sy2) = self.to_source(f64::from(x2), f64::from(y2));
        let (w, h) = (f64::from(self.source.0), f64::from(self.source.1));
        [sx1.clamp(0.0, w) as f32, sy1.clamp(0.0, h) as f32, sx2.clamp(0.0, w) as f32, sy2.clamp(0.0, h) as f32]
    }

    /// Maps an oriented box of the input to the source, without clipping: the centre as a point, the sides by the scales of x and
    /// y, the angle unchanged, as `scale_boxes` with `xywh=True` of ultralytics `utils/ops.py`. The scales may differ by rounding
    /// only; an image that is stretched has no right angles to map.
    pub fn oriented_to_source(&self, turned: &OrientedBox) -> OrientedBox {
        let [x, y] = turned.center.map(f64::from);
        let (x, y) = self.to_source(x, y);
        let (across, down) = self.source_per_input();
        let [width, height] = turned.size.map(f64::from);
        OrientedBox {
            center: [x as f32, y as f32],
            size: [(width * across) as f32, (height * down) as f32],
            angle: turned.angle,
        }
    }

    /// Clips a box (x1, y1, x2, y2) of the source to the frame.
    pub fn clip_to_source(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let (w, h) = (self.source.0 as f32, self.source.1 as f32);
        [x1.clamp(0.0, w), y1.clamp(0.0, h), x2.clamp(0.0, w), y2.clamp(0.0, h)]
    }
}

fn letterbox(placement: &Placement, source: (u32, u32), input: (u32, u32)) -> [AxisMap; 2] {
    let (sw, sh) = (f64::from(source.0), f64::from(source.1));
    let (iw, ih) = (f64::from(input.0), f64::from(input.1));
    let centred = placement.fit == Fit::Letterbox;
    let before = |whole: u32, part: u32| if centred { (whole - part) / 2 } else { 0 };
    if placement.pad_first {
        let wider = iw * sh > ih * sw;
        let width = if wider { ((sh * iw / ih).ceil() as u32).max(source.0) } else { source.0 };
        let height = if wider { source.1 } else { ((sw * ih / iw).ceil() as u32).max(source.1) };
        return [
            AxisMap::padded(source.0, before(width, source.0), width, input.0),
            AxisMap::padded(source.1, before(height, source.1), height, input.1),
        ];
    }
    let ratio = (iw / sw).min(ih / sh);
    let (width, height) = match placement.way_back {
        // InsightFace's order of operations, which decides where a side is whole but for rounding errors.
        WayBack::Height if sh / sw > ih / iw => (ih / (sh / sw), ih),
        WayBack::Height => (iw, iw * (sh / sw)),
        _ => (sw * ratio, sh * ratio),
    };
    let whole = |side: f64, input: u32| (placement.rounding.of(side) as u32).clamp(1, input);
    let by_height = f64::from(whole(height, input.1)) / sh;
    let axis = |source: u32, side: f64, input: u32| {
        let resized = whole(side, input);
        let mut map = AxisMap::whole(source, resized, before(input, resized));
        if placement.step == Step::Ratio {
            map.step = 1.0 / ratio;
        }
        // Where a centred picture of unrounded size begins.
        let middle = if centred { (f64::from(input) - f64::from(source) * ratio) / 2.0 } else { 0.0 };
        let divide = |left| Back::Divide { divisor: ratio, left };
        let left = f64::from(map.at);
        match placement.way_back {
            WayBack::Axes => {}
            WayBack::Ratio => map.back = divide(left),
            WayBack::RatioFromMiddle => map.back = divide(middle),
            WayBack::RatioFromRoundedMiddle => map.back = divide((middle - 0.1).round_ties_even()),
            WayBack::Height => map.back = Back::Divide { divisor: by_height, left },
        }
        map
    };
    [axis(source.0, width, input.0), axis(source.1, height, input.1)]
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
        assert_eq!((map.to_source(0.0, 0.0), map.to_source(224.0, 224.0)), ((80.0, 0.0), (560.0, 480.0)));
        let map = Mapping::new(Fit::Crop { fraction: 0.875 }, (256, 256), (224, 224));
        assert_eq!((map.to_source(0.0, 0.0), map.to_source(224.0, 224.0)), ((16.0, 16.0), (240.0, 240.0)));
    }

    #[test]
    fn points_and_boxes_come_back_through_what_was_padded_or_cut() {
        // 768 x 576 into 416 x 416: 24/13 source pixels per input pixel, 52 rows of padding above.
        let map = Mapping::new(Fit::Letterbox, (768, 576), (416, 416));
        assert_eq!((map.source(), map.input()), ((768, 576), (416, 416)));
        assert_eq!(map.to_input(384.0, 288.0), (208.0, 208.0));
        assert_eq!(map.box_to_source([0.0, 52.0, 208.0, 208.0]), [0.0, 0.0, 384.0, 288.0]);
        assert_eq!(map.box_to_source([-5.0, 0.0, 500.0, 416.0]), [0.0, 0.0, 768.0, 576.0], "clipped to the frame");
        assert_eq!(map.box_to_source([430.0, 400.0, 440.0, 410.0]), [768.0, 576.0, 768.0, 576.0], "beyond it");
        // The middle 480 x 480 of 640 x 480 into 240 x 240: two source pixels per input pixel, 80 columns cut on the left.
        let map = Mapping::new(Fit::Crop { fraction: 1.0 }, (640, 480), (240, 240));
        assert_eq!(map.source_per_input(), (2.0, 2.0));
        assert_eq!((map.to_source(10.0, 20.0), map.to_input(100.0, 40.0)), ((100.0, 40.0), (10.0, 20.0)));
        // Each axis by itself.
        let map = Mapping::new(Fit::Stretch, (640, 480), (320, 120));
        assert_eq!(map.placed(), [0, 0, 320, 120]);
        assert_eq!((map.source_per_input(), map.to_source(10.0, 20.0)), ((2.0, 4.0), (20.0, 80.0)));
    }

    #[test]
    fn a_short_side_is_resized_and_the_centre_cut_out() {
        let map = Mapping::new(Fit::ResizeCrop(Resize::ShortSide(256)), (640, 427), (224, 224));
        let [x, y] = map.axes();
        // 256 * 640 / 427 = 383.7; (383 - 224) / 2 = 79.5
        assert_eq!((x.resized, x.first, y.resized, y.first), (383, 80, 256, 16));
        assert_eq!(map.placed(), [0, 0, 224, 224]);
        let fraction = Mapping::new(Fit::ResizeCrop(Resize::Fraction(0.875)), (640, 427), (224, 224));
        assert_eq!(fraction, map);
        let map = Mapping::new(Fit::ResizeCrop(Resize::Stretch(256, 256)), (640, 427), (224, 224));
        assert_eq!((map.axes()[0].first, map.to_source(-16.0, -16.0)), (16, (0.0, 0.0)));
    }

    #[test]
    fn sizes_are_rounded_as_told() {
        let size = |rounding| {
            let placement = Placement { rounding, ..Fit::LetterboxTopLeft.into() };
            Mapping::new(placement, (1280, 1024), (416, 416)).placed()[3]
        };
        // 1024 * (416 / 1280) = 332.8
        assert_eq!(
            [Rounding::HalfEven, Rounding::HalfUp, Rounding::Down, Rounding::Up].map(size),
            [333, 333, 332, 333]
        );
        let down = Placement { rounding: Rounding::Down, ..Fit::LetterboxTopLeft.into() };
        // 720 * (416 / 720) is below 416 in double precision, and Megvii's code has it so.
        assert_eq!(Mapping::new(down, (720, 576), (416, 416)).placed(), [0, 0, 415, 332]);
    }

    #[test]
    fn one_ratio_goes_back_for_both_axes() {
        let placement = Placement { way_back: WayBack::Ratio, ..Fit::LetterboxTopLeft.into() };
        let map = Mapping::new(placement, (1280, 1024), (640, 640));
        assert_eq!(map.to_source(320.0, 256.0), (640.0, 512.0));
        assert_eq!(map.source_per_input(), (2.0, 2.0));
        let left = |way_back| {
            let placement = Placement { way_back, ..Fit::Letterbox.into() };
            // 641 * (416 / 854) = 312.2, (416 - 312.2) / 2 = 51.9
            Mapping::new(placement, (641, 854), (416, 416)).to_input(0.0, 0.0).0
        };
        assert_eq!([WayBack::Axes, WayBack::Ratio, WayBack::RatioFromRoundedMiddle].map(left), [52.0, 52.0, 52.0]);
        assert!((left(WayBack::RatioFromMiddle) - 51.878).abs() < 1e-3);
    }

    #[test]
    fn the_height_brings_back_both_axes() {
        let placement =
            Placement { way_back: WayBack::Height, rounding: Rounding::Down, ..Fit::LetterboxTopLeft.into() };
        // 90 * (416 / 1600) = 23.4
        let map = Mapping::new(placement, (1600, 90), (416, 416));
        assert_eq!((map.placed(), map.to_source(23.0, 23.0)), ([0, 0, 416, 23], (90.0, 90.0)));
        // InsightFace's order of operations: 416 * (1080 / 1440) is 312, 1080 * (416 / 1440) is less.
        assert_eq!(Mapping::new(placement, (1440, 1080), (416, 320)).placed(), [0, 0, 416, 312]);
        assert_eq!(Mapping::new(placement, (1080, 1440), (320, 416)).placed(), [0, 0, 312, 416]);
    }

    #[test]
    fn padding_may_come_before_the_resize() {
        let placement = Placement { pad_first: true, ..Fit::LetterboxTopLeft.into() };
        let map = Mapping::new(placement, (640, 480), (320, 320));
        let [x, y] = map.axes();
        assert_eq!((x.canvas, y.canvas, y.lead, y.source, map.placed()), (640, 640, 0, 480, [0, 0, 320, 320]));
        assert_eq!(map.to_source(320.0, 240.0), (640.0, 480.0));
        let centred = Mapping::new(Placement { pad_first: true, ..Fit::Letterbox.into() }, (640, 480), (320, 320));
        assert_eq!((centred.axes()[1].lead, centred.to_source(0.0, 40.0)), (80, (0.0, 0.0)));
    }

    #[test]
    fn a_warp_centres_the_frame_to_fractions_of_a_pixel() {
        let map = Mapping::new(Fit::Warp, (640, 427), (416, 416));
        assert_eq!(map.to_source(208.0, 208.0), (320.0, 213.5));
        assert_eq!(map.placed(), [0, 0, 416, 416]);
    }

    fn placements() -> impl Strategy<Value = Placement> {
        let fit = prop_oneof![
            Just(Fit::Letterbox),
            Just(Fit::LetterboxTopLeft),
            Just(Fit::Stretch),
            (0.1..=1.0).prop_map(|fraction| Fit::Crop { fraction }),
            (2000..3000_u32).prop_map(|side| Fit::ResizeCrop(Resize::ShortSide(side))),
            (0.1..=1.0).prop_map(|fraction| Fit::ResizeCrop(Resize::Fraction(fraction))),
            (2000..3000_u32, 2000..3000_u32).prop_map(|(w, h)| Fit::ResizeCrop(Resize::Stretch(w, h))),
            Just(Fit::Warp),
            Just(Fit::WarpStretch),
        ];
        let rounding =
            prop_oneof![Just(Rounding::HalfEven), Just(Rounding::HalfUp), Just(Rounding::Down), Just(Rounding::Up)];
        let step = prop_oneof![Just(Step::Size), Just(Step::Ratio)];
        let way_back = prop_oneof![
            Just(WayBack::Axes),
            Just(WayBack::Ratio),
            Just(WayBack::RatioFromMiddle),
            Just(WayBack::RatioFromRoundedMiddle),
            Just(WayBack::Height)
        ];
        (fit, rounding, step, way_back, any::<bool>()).prop_map(|(fit, rounding, step, way_back, pad_first)| {
            Placement { fit, rounding, step, way_back, pad_first }
        })
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same_point(
            placement in placements(), sw in 1..8000_u32, sh in 1..8000_u32, iw in 1..2000_u32, ih in 1..2000_u32,
            fx in 0.0..1.0, fy in 0.0..1.0,
        ) {
            let map = Mapping::new(placement, (sw, sh), (iw, ih));
            let (x, y) = (fx * f64::from(sw), fy * f64::from(sh));
            let (ix, iy) = map.to_input(x, y);
            let (bx, by) = map.to_source(ix, iy);
            prop_assert!((bx - x).abs() < 1e-6 && (by - y).abs() < 1e-6, "{x},{y} came back as {bx},{by}");
        }

        #[test]
        fn the_placed_picture_is_inside_the_input_and_its_edges_are_the_frames(
            placement in placements(), sw in 1..8000_u32, sh in 1..8000_u32, iw in 1..2000_u32, ih in 1..2000_u32,
        ) {
            let map = Mapping::new(placement, (sw, sh), (iw, ih));
            let [x, y, w, h] = map.placed();
            prop_assert!(w >= 1 && h >= 1 && x + w <= iw && y + h <= ih);
            for (axis, back) in map.axes().iter().zip([map.source_per_input().0, map.source_per_input().1]) {
                prop_assert!(axis.first + axis.count <= axis.resized && axis.lead + axis.source <= axis.canvas);
                // Half a pixel of rounding is the most that sampling and the way back may differ by, a pixel of the height where
                // columns go back by it.
                let by_height = match (placement.way_back, placement.fit) {
                    (WayBack::Height, Fit::Letterbox | Fit::LetterboxTopLeft) => {
                        f64::from(axis.resized) / f64::from(map.axes()[1].resized)
                    }
                    _ => 0.0,
                };
                let most = (1.01 + by_height) * axis.step.max(back);
                prop_assert!((axis.step - back).abs() * f64::from(axis.resized) <= most);
            }
            let clipped = map.box_to_source([-10.0, -10.0, iw as f32 + 10.0, ih as f32 + 10.0]);
            prop_assert!(clipped[0] >= 0.0 && clipped[2] <= sw as f32 && clipped[3] <= sh as f32);
        }
    }
}
