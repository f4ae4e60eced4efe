//! Draws text on an image in the built-in font.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, PxScale, ScaleFont};
use image::RgbImage;

use super::canvas::blend;
use super::palette::Color;

/// A subset of DejaVu Sans Bold; see `assets/README.md`.
static FONT_FILE: &[u8] = include_bytes!("../assets/labels.ttf");

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
static FONT: LazyLock<FontRef<'static>> =
    LazyLock::new(|| FontRef::try_from_slice(FONT_FILE).expect("the built-in font is a font"));

/// Text of one height, in pixels.
#[derive(Debug, Clone, Copy)]
pub struct Pen {
    scale: PxScale,
}

impl Pen {
    /// Creates a pen for lines of `height` pixels, from the highest ascender to the lowest descender.
    pub fn new(height: f32) -> Self {
        Self { scale: PxScale::from(height) }
    }

    /// Returns the height of a line in whole pixels.
    pub fn height(&self) -> i32 {
        self.scale.y.ceil() as i32
    }

    /// Returns the width of a text in whole pixels.
    pub fn width(&self, text: &str) -> i32 {
        let font = FONT.as_scaled(self.scale);
        text.chars().map(|c| font.h_advance(font.glyph_id(shown(c)))).sum::<f32>().ceil() as i32
    }

    /// Writes a line whose top left corner is at `left`, `top`.
    pub fn write(&self, picture: &mut RgbImage, left: i32, top: i32, text: &str, color: Color) {
        let font = FONT.as_scaled(self.scale);
        let mut x = left as f32;
        let baseline = top as f32 + font.ascent();
        for c in text.chars() {
            let mut glyph = font.scaled_glyph(shown(c));
            glyph.position = ab_glyph::point(x, baseline);
            x += font.h_advance(glyph.id);
            if let Some(outline) = font.outline_glyph(glyph) {
                let corner = outline.px_bounds().min;
                outline.draw(|dx, dy, coverage| {
                    blend(picture, corner.x as i32 + dx as i32, corner.y as i32 + dy as i32, color, coverage.min(1.0));
                });
            }
        }
    }

    /// Returns `text` and `end`; cuts `text`, never `end`, to be at most `width` pixels wide together.
    pub fn fit(&self, text: &str, end: &str, width: i32) -> String {
        let whole = format!("{text}{end}");
        if self.width(&whole) <= width {
            return whole;
        }
        let mut kept: Vec<char> = text.chars().collect();
        while kept.pop().is_some() {
            let cut: String = kept.iter().collect::<String>().trim_end().to_owned() + "…" + end;
            if self.width(&cut) <= width {
                return cut;
            }
        }
        end.trim_start().to_owned()
    }
}

/// Returns the character that is drawn: a space for control characters and line breaks.
fn shown(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_the_letters_of_europe() {
        for c in "person 0.87 Ärger ñ ø ł Ελλάδα Київ … – €".chars().filter(|c| *c != ' ') {
            assert_ne!(FONT.glyph_id(c).0, 0, "{c} is missing");
        }
    }

    #[test]
    fn a_long_label_is_cut_and_keeps_its_score() {
        let pen = Pen::new(12.0);
        let cut = pen.fit("traffic light of the northern crossing", " 0.87", 100);
        assert!(cut.starts_with("traffic") && cut.ends_with("… 0.87"), "{cut}");
        assert!(pen.width(&cut) <= 100);
        assert_eq!(pen.fit("person", " 0.87", 5), "0.87");
    }

    #[test]
    fn a_text_is_as_wide_as_its_letters_and_is_cut_when_it_is_wider_than_its_room() {
        let pen = Pen::new(100.0);
        // DejaVu Sans Bold: 1,425 of 2,048 units for each digit and 1,714 for H, which are ascender and descender of 1,901 and 483.
        let unit = 100.0 / (1901.0 + 483.0);
        for (text, units) in
            [("", 0.0), ("0", 1425.0), ("01", 2850.0), ("H", 1714.0), ("H\n0", 1714.0 + 713.0 + 1425.0)]
        {
            let width = f64::from(pen.width(text));
            assert!((width - units * unit).abs() <= 1.0, "{text}: {width} for {}", units * unit);
        }
        let width = pen.width("person 0.87");
        assert_eq!(pen.fit("person", " 0.87", width), "person 0.87");
        let cut = pen.fit("person", " 0.87", width - 1);
        assert!(cut.starts_with("pers") && cut.ends_with("… 0.87"), "{cut}");
        // No space remains before the dots.
        assert_eq!(pen.fit("a b", "", pen.width("a…")), "a…");
    }

    #[test]
    fn letters_follow_each_other() {
        let pen = Pen::new(20.0);
        let columns = |text: &str| {
            let mut picture = RgbImage::new(200, 40);
            pen.write(&mut picture, 10, 10, text, [255; 3]);
            (0..200).filter(|&x| (0..40).any(|y| picture.get_pixel(x, y).0 != [0; 3])).collect::<Vec<_>>()
        };
        let (one, three) = (columns("H"), columns("H H"));
        assert_eq!(three[..one.len()], one);
        // The second one starts where the width of the text before it ends, to the pixel.
        let shift = i64::from(three[one.len()]) - i64::from(one[0]);
        assert!((shift - i64::from(pen.width("H "))).abs() <= 1, "{shift}");
        assert!(one[0] >= 10 && one[one.len() - 1] < 10 + pen.width("H") as u32, "{one:?}");
    }

    #[test]
    fn text_stays_between_its_lines() {
        let pen = Pen::new(20.0);
        let mut picture = RgbImage::new(200, 60);
        pen.write(&mut picture, 10, 20, "gjpqÅ|", [255; 3]);
        for (_, y, pixel) in picture.enumerate_pixels() {
            assert!(pixel.0[0] == 0 || (19..=20 + pen.height() as u32).contains(&y), "row {y}");
        }
        assert!(picture.pixels().any(|pixel| pixel.0[0] > 200));
    }
}
