//! A colour for every class, the same in every image and every run.

/// Red, green, blue.
pub type Color = [u8; 3];

/// White, for text on dark colours.
pub const WHITE: Color = [255; 3];

/// Black, for text on bright colours and for outlines.
pub const BLACK: Color = [0; 3];

/// Returns the colour of a class.
///
/// Hues step by the golden angle, so that neighbouring classes differ strongly; shades change too, so that classes with similar
/// hues differ. All are strong enough to stand out from an ordinary scene.
pub fn class_color(class_id: u32) -> Color {
    const SHADES: [(f64, f64); 5] = [(0.85, 1.0), (0.55, 1.0), (0.95, 0.72), (0.55, 0.82), (1.0, 0.88)];
    // 0.38 starts with green, which is rarer on people and streets than red or blue.
    let hue = (0.38 + f64::from(class_id) * 0.618_033_988_749_895).fract();
    let (saturation, value) = SHADES[(class_id / 8 % 5) as usize];
    from_hsv(hue, saturation, value)
}

/// Returns black or white, whichever has the greater contrast to `color` by WCAG 2.2.
pub fn text_color(color: Color) -> Color {
    // Contrast with black and with white are equal where (L + 0.05)^2 = 1.05 * 0.05.
    if luminance(color) > 0.179 { BLACK } else { WHITE }
}

/// Returns the relative luminance by WCAG 2.2, 0 to 1.
fn luminance(color: Color) -> f64 {
    let [r, g, b] = color.map(|byte| {
        let value = f64::from(byte) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn from_hsv(hue: f64, saturation: f64, value: f64) -> Color {
    [5.0, 3.0, 1.0].map(|n| {
        let k = (n + hue * 6.0) % 6.0;
        let channel = value - value * saturation * k.min(4.0 - k).clamp(0.0, 1.0);
        (channel * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_classes_have_eighty_colours_and_neighbours_differ_clearly() {
        let colors: Vec<_> = (0..80).map(class_color).collect();
        let distance = |a: Color, b: Color| a.iter().zip(b).map(|(&a, b)| a.abs_diff(b) as u32).sum::<u32>();
        for (i, &a) in colors.iter().enumerate() {
            for (j, &b) in colors.iter().enumerate().skip(i + 1) {
                let far = if j - i < 4 { 60 } else { 8 };
                assert!(distance(a, b) >= far, "classes {i} and {j}: {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_class_has_the_colour_of_its_hue() {
        // Computed with Python 3.11's colorsys.hsv_to_rgb.
        for (class_id, color) in [
            (0, [38, 255, 99]),
            (1, [255, 38, 41]),
            (2, [38, 104, 255]),
            (7, [90, 38, 255]),
            (8, [122, 255, 115]),
            (9, [255, 115, 163]),
            (16, [77, 184, 9]),
            (24, [177, 209, 94]),
            (33, [146, 0, 224]),
            (39, [0, 224, 202]),
            (40, [255, 170, 38]),
            (79, [173, 224, 0]),
            (1000, [38, 255, 143]),
        ] {
            assert_eq!(class_color(class_id), color, "{class_id}");
        }
    }

    #[test]
    fn luminance_is_that_of_wcag() {
        // <https://www.w3.org/TR/WCAG22/#dfn-relative-luminance>, computed in Python.
        for (color, wanted) in [
            ([0, 0, 0], 0.000000),
            ([255, 255, 255], 1.000000),
            ([255, 0, 0], 0.212600),
            ([0, 255, 0], 0.715200),
            ([0, 0, 255], 0.072200),
            ([10, 10, 10], 0.003035),
            ([11, 11, 11], 0.003347),
            ([119, 119, 119], 0.184475),
            ([200, 100, 50], 0.216240),
        ] {
            assert!((luminance(color) - wanted).abs() < 1e-6, "{color:?}: {}", luminance(color));
        }
        // Of these two greys, one has more contrast with white, the other with black.
        assert_eq!([[117; 3], [118; 3]].map(text_color), [WHITE, BLACK]);
    }

    #[test]
    fn text_is_read_on_every_colour() {
        for color in (0..1000).map(class_color) {
            let (a, b) = (luminance(color), luminance(text_color(color)));
            let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
            assert!(contrast >= 4.5, "{color:?}: {contrast}");
        }
    }
}
