//! Checks colours with a sensor's test pattern: a driver may write bytes in a different order than its format says.

use image::RgbImage;

/// The bars from left to right, as in sensors, vivid and broadcast patterns (SMPTE ECR 1-1978), or mirrored.
pub const WANTED: &str = "white, yellow, cyan, green, magenta, red, blue, black";

/// Red, green and blue of the bars: on or off.
const BARS: [Bar; 8] = [
    [true, true, true],
    [true, true, false],
    [false, true, true],
    [false, true, false],
    [true, false, true],
    [true, false, false],
    [false, false, true],
    [false, false, false],
];

/// The least difference between the maximum and minimum of a channel that varies.
const LEAST_CONTRAST: u8 = 40;

type Bar = [bool; 3];

/// The channels read as red, green and blue if the driver swaps them.
type Order = fn(Bar) -> Bar;

/// The content of an image of the bars.
#[derive(Debug, PartialEq, Eq)]
pub enum Colors {
    /// The bars in the right colours.
    Right,
    /// The bars with channels swapped in this way.
    Wrong(&'static str),
    /// Other colours, or a different pattern: the names from left to right.
    Unknown(String),
}

impl Colors {
    /// Samples the middle of each bar of an image.
    pub fn of(picture: &RgbImage) -> Self {
        let bars = bars(picture);
        let is = |convert: Order| {
            let expected = BARS.map(convert);
            bars == expected || bars.iter().eq(expected.iter().rev())
        };
        const ORDERS: [(Order, &str); 6] = [
            (|[r, g, b]| [b, g, r], "red and blue are exchanged: the driver writes B G R"),
            (|[r, g, _]| [true, r, g], "the driver writes A R G B, with A set"),
            (|[r, g, _]| [false, r, g], "the driver writes A R G B, with A empty"),
            (|[_, g, b]| [true, b, g], "the driver writes A B G R, with A set"),
            (|[_, g, b]| [false, b, g], "the driver writes A B G R, with A empty"),
            (|[r, g, b]| [g, r, b], "red and green are exchanged: a mosaic of another order"),
        ];
        if is(|bar| bar) {
            return Self::Right;
        }
        match ORDERS.iter().find(|(convert, _)| is(*convert)) {
            Some((_, words)) => Self::Wrong(words),
            None => Self::Unknown(bars.map(name).join(", ")),
        }
    }
}

/// Returns which channels are on in the middle of eight bars: above the midpoint of the channel's extremes. A constant channel is
/// on if it is bright.
fn bars(picture: &RgbImage) -> [Bar; 8] {
    let (width, height) = picture.dimensions();
    let pixels: [[u8; 3]; 8] =
        std::array::from_fn(|bar| picture.get_pixel((2 * bar as u32 + 1) * width / 16, height / 2).0);
    let middle: [u8; 3] = std::array::from_fn(|channel| {
        let values = pixels.map(|pixel| pixel[channel]);
        let (least, most) = (values.into_iter().min().unwrap_or(0), values.into_iter().max().unwrap_or(0));
        if most - least < LEAST_CONTRAST { u8::MAX / 2 } else { least + (most - least) / 2 }
    });
    pixels.map(|pixel| std::array::from_fn(|channel| pixel[channel] > middle[channel]))
}

fn name(bar: Bar) -> &'static str {
    match bar {
        [true, true, true] => "white",
        [true, true, false] => "yellow",
        [false, true, true] => "cyan",
        [false, true, false] => "green",
        [true, false, true] => "magenta",
        [true, false, false] => "red",
        [false, false, true] => "blue",
        [false, false, false] => "black",
    }
}

#[cfg(test)]
mod tests {
    use image::Rgb;

    use super::*;

    /// An image of 75 % bars whose bytes are read in another order.
    fn picture(read: impl Fn([u8; 3]) -> [u8; 3]) -> RgbImage {
        RgbImage::from_fn(321, 64, |x, _| {
            let bar = BARS[(x * 8 / 321) as usize];
            Rgb(read(bar.map(|on| if on { 180 } else { 16 })))
        })
    }

    #[test]
    fn bars_are_right_from_either_side_and_with_uneven_channels() {
        assert_eq!(Colors::of(&picture(|pixel| pixel)), Colors::Right);
        assert_eq!(Colors::of(&image::imageops::flip_horizontal(&picture(|pixel| pixel))), Colors::Right);
        // A mosaic without white balance.
        assert_eq!(Colors::of(&picture(|[r, g, b]| [r / 2, g, b / 3 * 2])), Colors::Right);
        assert_eq!(BARS.map(name).join(", "), WANTED);
    }

    #[test]
    fn another_order_of_bytes_is_named() {
        let wrong = |read: fn([u8; 3]) -> [u8; 3]| match Colors::of(&picture(read)) {
            Colors::Wrong(words) => words,
            other => panic!("{other:?}"),
        };
        assert!(wrong(|[r, g, b]| [b, g, r]).contains("B G R"));
        assert!(wrong(|[r, g, _]| [255, r, g]).contains("A R G B, with A set"));
        assert!(wrong(|[r, g, _]| [0, r, g]).contains("A R G B, with A empty"));
        assert!(wrong(|[_, g, b]| [255, b, g]).contains("A B G R, with A set"));
        assert!(wrong(|[_, g, b]| [0, b, g]).contains("A B G R, with A empty"));
        assert!(wrong(|[r, g, b]| [g, r, b]).contains("a mosaic of another order"));
    }

    #[test]
    fn another_pattern_is_only_described() {
        let grey = RgbImage::from_pixel(64, 8, Rgb([90; 3]));
        assert_eq!(Colors::of(&grey), Colors::Unknown(["black"; 8].join(", ")));
        let two = RgbImage::from_fn(64, 8, |x, _| if x < 32 { Rgb([250, 0, 0]) } else { Rgb([0, 0, 250]) });
        assert_eq!(Colors::of(&two), Colors::Unknown("red, red, red, red, blue, blue, blue, blue".to_owned()));
        // Smaller than eight bars.
        assert!(matches!(Colors::of(&RgbImage::from_pixel(2, 1, Rgb([0; 3]))), Colors::Unknown(_)));
    }

    #[test]
    fn the_middle_of_a_bar_decides_and_a_channel_is_on_above_the_middle_of_its_range() {
        // Blurred edges, a caption at the top, uneven brightness and a black level that is not black.
        let bars = RgbImage::from_fn(320, 60, |x, y| {
            let (bar, within) = ((x / 40) as usize, x % 40);
            let uneven = (bar as u8) * 8;
            let level = |on: bool| if on { 180 - uneven } else { 20 + uneven };
            if !(10..30).contains(&within) || y < 15 { Rgb([100; 3]) } else { Rgb(BARS[bar].map(level)) }
        });
        assert_eq!(Colors::of(&bars), Colors::Right);
    }

    #[test]
    fn a_channel_varies_from_a_contrast_of_40_on() {
        let bars = |off| picture(move |pixel| pixel.map(|value| if value > 100 { 90 } else { off }));
        assert_eq!(Colors::of(&bars(50)), Colors::Right);
        assert_eq!(Colors::of(&bars(51)), Colors::Unknown(["black"; 8].join(", ")));
        let bright = picture(|pixel| pixel.map(|value| if value > 100 { 167 } else { 128 }));
        assert_eq!(Colors::of(&bright), Colors::Unknown(["white"; 8].join(", ")));
    }
}
