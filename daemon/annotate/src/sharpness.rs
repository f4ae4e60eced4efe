//! How sharp an object is in a picture, to find its best image.

use image::RgbImage;

use super::canvas::Rect;

/// The most samples along a side of the area.
const SAMPLES: u32 = 128;

/// Returns the mean of the absolute Laplacian of green, 0 to 1020, over an area, or over the picture: the larger, the sharper. Compare only
/// pictures of the same object.
///
/// Green is most of what the eye sees as brightness, and what most sensors have the most pixels of. Costs four differences for each of at
/// most 128 x 128 pixels.
pub fn sharpness(picture: &RgbImage, area: Option<Rect>) -> f32 {
    let (width, height) = picture.dimensions();
    let area = area.unwrap_or(Rect::new(0, 0, width as i32, height as i32));
    // A pixel needs its neighbours.
    let range = |from: i32, to: i32, size: u32| {
        let within = |at: i32| at.clamp(1, (size as i32 - 1).max(1)) as u32;
        within(from)..within(to)
    };
    let (columns, rows) = (range(area.left, area.right, width), range(area.top, area.bottom, height));
    let step = |range: &std::ops::Range<u32>| (range.len() as u32).div_ceil(SAMPLES).max(1) as usize;
    let green = |x: u32, y: u32| i32::from(picture.get_pixel(x, y).0[1]);
    let (mut sum, mut count) = (0_u64, 0_u64);
    for y in rows.clone().step_by(step(&rows)) {
        for x in columns.clone().step_by(step(&columns)) {
            let around = green(x - 1, y) + green(x + 1, y) + green(x, y - 1) + green(x, y + 1);
            sum += u64::from((4 * green(x, y) - around).unsigned_abs());
            count += 1;
        }
    }
    sum as f32 / count.max(1) as f32
}

#[cfg(test)]
mod tests {
    use image::{Rgb, imageops};

    use super::*;

    #[test]
    fn a_blurred_picture_is_less_sharp_where_it_is_blurred() {
        let noise = |x: u32, y: u32| (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)) as u8;
        let sharp = RgbImage::from_fn(400, 300, |x, y| Rgb([0, noise(x / 3, y / 3), 0]));
        let mut half = sharp.clone();
        imageops::replace(
            &mut half,
            &imageops::blur(&imageops::crop_imm(&sharp, 0, 0, 200, 300).to_image(), 2.0),
            0,
            0,
        );
        let of = |picture: &RgbImage, left| sharpness(picture, Some(Rect::new(left, 10, 180, 280)));
        assert!(of(&half, 10) < 0.5 * of(&sharp, 10), "{} {}", of(&half, 10), of(&sharp, 10));
        assert_eq!(of(&half, 210), of(&sharp, 210));
        assert!(sharpness(&half, None) < sharpness(&sharp, None));
    }

    #[test]
    fn an_area_outside_the_picture_or_a_tiny_picture_is_not_sharp() {
        let picture = RgbImage::from_fn(40, 30, |x, y| Rgb([0, (x * y) as u8, 0]));
        for area in [Rect::new(100, 100, 10, 10), Rect::new(-50, -50, 10, 10), Rect::new(5, 5, 0, 0)] {
            assert_eq!(sharpness(&picture, Some(area)), 0.0, "{area:?}");
        }
        for size in [(1, 1), (2, 1), (2, 2)] {
            assert_eq!(sharpness(&RgbImage::new(size.0, size.1), None), 0.0);
        }
    }
}
