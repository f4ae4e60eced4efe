//! What is blank, what is untouched, and the colours, for every format.

mod kernel;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::color::ColorMatrix;
use crate::frame::BayerDepth;

const WHOLE: [[f64; 2]; 4] = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];

fn mask(corners: &[[f64; 2]], fill: Fill) -> PrivacyMask {
    PrivacyMask { polygon: Polygon::new(corners, None).unwrap(), fill }
}

/// The places, as plane, row and byte of the row, that pixel x, y has a part in. Written from the formats' definitions.
fn places(format: PixelFormat, x: usize, y: usize) -> Vec<(usize, usize, usize)> {
    let pair = x / 2;
    match format {
        PixelFormat::Yuyv | PixelFormat::Yvyu => vec![(0, y, x * 2), (0, y, pair * 4 + 1), (0, y, pair * 4 + 3)],
        PixelFormat::Uyvy | PixelFormat::Vyuy => vec![(0, y, x * 2 + 1), (0, y, pair * 4), (0, y, pair * 4 + 2)],
        PixelFormat::Nv12 | PixelFormat::Nv21 => vec![(0, y, x), (1, y / 2, pair * 2), (1, y / 2, pair * 2 + 1)],
        PixelFormat::Nv16 | PixelFormat::Nv61 => vec![(0, y, x), (1, y, pair * 2), (1, y, pair * 2 + 1)],
        PixelFormat::P010 => {
            let chroma = (0..4).map(|byte| (1, y / 2, pair * 4 + byte));
            [(0, y, x * 2), (0, y, x * 2 + 1)].into_iter().chain(chroma).collect()
        }
        PixelFormat::I420 => vec![(0, y, x), (1, y / 2, pair), (2, y / 2, pair)],
        PixelFormat::Rgb | PixelFormat::Bgr => (0..3).map(|byte| (0, y, x * 3 + byte)).collect(),
        PixelFormat::Rgba | PixelFormat::Bgra => (0..4).map(|byte| (0, y, x * 4 + byte)).collect(),
        PixelFormat::Grey => vec![(0, y, x)],
        PixelFormat::Grey10 | PixelFormat::Grey12 | PixelFormat::Grey16 => vec![(0, y, x * 2), (0, y, x * 2 + 1)],
        PixelFormat::Bayer(_, BayerDepth::Bits8) => vec![(0, y, x)],
        PixelFormat::Bayer(..) => vec![(0, y, x * 2), (0, y, x * 2 + 1)],
    }
}

/// A layout whose rows are padded.
fn padded(format: PixelFormat, width: u32, height: u32, padding: usize) -> FrameLayout {
    let pitches: Vec<_> =
        (0..format.plane_count()).map(|plane| format.row_bytes(plane, width) + padding * (plane + 1)).collect();
    FrameLayout::with_pitches(format, width, height, &pitches, ColorDescription::default()).unwrap()
}

fn noise(layout: &FrameLayout) -> Vec<u8> {
    (0..layout.size_bytes() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn byte_at(layout: &FrameLayout, (plane, row, byte): (usize, usize, usize)) -> usize {
    let plane = layout.planes()[plane];
    plane.offset_bytes + row * plane.pitch_bytes + byte
}

/// Whether some points of a pixel are inside.
fn is_touched(polygon: &Polygon, [width, height]: [u32; 2], x: usize, y: usize) -> bool {
    let part = |i: usize| (i as f64 + 0.5) / 8.0;
    let inside = |i: usize, j: usize| {
        polygon.contains([(x as f64 + part(i)) / f64::from(width), (y as f64 + part(j)) / f64::from(height)])
    };
    (0..64).any(|point| inside(point % 8, point / 8))
}

/// Whether a pixel is more than three pixels from the polygon.
fn is_far(polygon: &Polygon, [width, height]: [u32; 2], x: usize, y: usize) -> bool {
    let near = |value: f64, pixel: usize| (pixel as f64 - 3.0..=pixel as f64 + 4.0).contains(&value);
    let on_edge = polygon.edges().any(|[from, to]| {
        (0..=200).any(|step| {
            let along = f64::from(step) / 200.0;
            let at = |axis: usize| from[axis] + along * (to[axis] - from[axis]);
            near(at(0) * f64::from(width), x) && near(at(1) * f64::from(height), y)
        })
    });
    !on_edge && !is_touched(polygon, [width, height], x, y)
}

fn polygons() -> impl Strategy<Value = Polygon> {
    // Corners in order around a point have no crossing.
    let radii = proptest::collection::vec(0.02..0.5_f64, 3..9);
    ([0.1..0.9_f64, 0.1..0.9_f64], radii).prop_filter_map("not a polygon", |([x, y], radii)| {
        let count = radii.len() as f64;
        let corner = |(i, radius): (usize, &f64)| {
            let (sin, cos) = (i as f64 / count * std::f64::consts::TAU).sin_cos();
            [(x + radius * cos).clamp(0.0, 1.0), (y + radius * sin).clamp(0.0, 1.0)]
        };
        Polygon::new(&radii.iter().enumerate().map(corner).collect::<Vec<_>>(), None).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_a_polygon_touches_is_blank_and_the_rest_is_untouched(
        format in select(PixelFormat::all().collect::<Vec<_>>()), polygon in polygons(),
        (width, height) in (1..40_u32, 1..40_u32), padding in 0..9_usize, mosaic: bool,
    ) {
        let layout = padded(format, width, height, padding);
        let original = noise(&layout);
        let (mut bytes, mut blank) = (original.clone(), original.clone());
        // In a frame of 40 pixels, a block of a mosaic has 4 x 4; a mosaic over all has the same blocks.
        let fill = if mosaic { Fill::Mosaic } else { Fill::Color([10, 200, 90]) };
        let part = PrivacyMask { polygon: polygon.clone(), fill };
        prop_assert!(MaskPlan::new(&[part], &layout).apply(&mut bytes));
        prop_assert!(MaskPlan::new(&[mask(&WHOLE, fill)], &layout).apply(&mut blank));
        let mut in_a_pixel = vec![false; bytes.len()];
        for (x, y) in (0..width as usize).flat_map(|x| (0..height as usize).map(move |y| (x, y))) {
            let touched = is_touched(&polygon, [width, height], x, y);
            let far = is_far(&polygon, [width, height], x, y);
            for place in places(format, x, y) {
                let at = byte_at(&layout, place);
                in_a_pixel[at] = true;
                prop_assert!(!touched || bytes[at] == blank[at], "{format}: {place:?} of pixel {x}, {y} is not blank");
                prop_assert!(!far || bytes[at] == original[at], "{format}: {place:?} of pixel {x}, {y} is not as it was");
            }
        }
        let padding = (0..bytes.len()).filter(|&at| !in_a_pixel[at]);
        // The second luma sample of an odd width belongs to no pixel, but to a masked pair.
        let packed = Cell::of(format, 0).samples == 4 && width % 2 == 1;
        prop_assert!(packed || padding.clone().all(|at| bytes[at] == original[at]), "{format}: padding was written");
    }
}

#[test]
fn a_colour_is_the_same_in_every_format() {
    let cell =
        |name: &str, plane, row, color, rgb| color_cell(PixelFormat::from_name(name).unwrap(), color, plane, row, rgb);
    let (limited, full) = (ColorDescription::default(), ColorDescription::JPEG);
    let (black, red) = ([0, 0, 0], [255, 0, 0]);
    // Black and red of BT.601.
    assert_eq!(
        (cell("yuyv", 0, 0, limited, black), cell("yuyv", 0, 0, full, black)),
        (vec![16, 128, 16, 128], vec![0, 128, 0, 128])
    );
    assert_eq!(cell("yuyv", 0, 0, limited, red), [81, 90, 81, 240]);
    assert_eq!(cell("vyuy", 0, 0, limited, red), [240, 81, 90, 81]);
    assert_eq!((cell("nv12", 0, 0, limited, red), cell("nv12", 1, 0, limited, red)), (vec![81], vec![90, 240]));
    assert_eq!(
        (cell("nv21", 1, 0, limited, red), cell("p010", 1, 0, limited, red)),
        (vec![240, 90], vec![0, 90, 0, 240])
    );
    assert_eq!((cell("i420", 1, 0, full, red), cell("i420", 2, 0, full, red)), (vec![85], vec![255]));
    let hd = ColorDescription::new(ColorMatrix::Bt709, ColorRange::Limited);
    assert_eq!(cell("nv12", 1, 0, hd, red), [102, 240]);
    assert_eq!(
        (cell("bgr", 0, 0, limited, red), cell("rgba", 0, 0, limited, red)),
        (vec![0, 0, 255], vec![255, 0, 0, 255])
    );
    assert_eq!((cell("grey", 0, 0, limited, black), cell("grey", 0, 0, full, black)), (vec![16], vec![0]));
    let levels = limited.with_levels(GreyLevels::new(256, 512));
    assert_eq!((cell("grey12", 0, 0, levels, black), cell("grey12", 0, 0, levels, [255; 3])), (vec![0, 1], vec![0, 2]));
    assert_eq!((cell("grbg8", 0, 0, full, red), cell("grbg8", 0, 1, full, red)), (vec![0, 255], vec![0, 0]));
    assert_eq!((cell("rggb10", 0, 0, full, red), cell("bggr8", 0, 1, full, red)), (vec![255, 3, 0, 0], vec![0, 255]));
}

#[test]
fn a_block_of_a_mosaic_has_its_mean_and_a_colour_covers_it() {
    let layout = FrameLayout::packed(PixelFormat::Grey, 8, 4, ColorDescription::JPEG).unwrap();
    let mut bytes: Vec<u8> = (0..32).collect();
    let masks = [mask(&[[0.0, 0.0], [0.1, 0.0], [0.1, 0.2]], Fill::Color([0; 3])), mask(&WHOLE, Fill::Mosaic)];
    assert!(MaskPlan::new(&masks, &layout).apply(&mut bytes));
    // The means of 0 to 3, 8 to 11, 16 to 19, 24 to 27, and of the four after each.
    assert_eq!(bytes[..8], [0, 13, 13, 13, 17, 17, 17, 17]);
    assert_eq!(bytes[24..], [13, 13, 13, 13, 17, 17, 17, 17]);
}

#[test]
fn nothing_below_a_colour_shows_in_the_mean_of_a_mosaic() {
    let half = [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]];
    for format in [PixelFormat::Grey, PixelFormat::Nv12, PixelFormat::Yuyv, PixelFormat::Bgr] {
        let layout = FrameLayout::packed(format, 80, 40, ColorDescription::JPEG).unwrap();
        let masks = [mask(&WHOLE, Fill::Mosaic), mask(&half, Fill::Color([0; 3]))];
        let blanked = |below: u8| {
            // The left half differs, and the right half is the same.
            let mut bytes = noise(&layout);
            for (x, y) in (0..40).flat_map(|x| (0..40).map(move |y| (x, y))) {
                places(format, x, y).into_iter().for_each(|place| bytes[byte_at(&layout, place)] = below);
            }
            assert!(MaskPlan::new(&masks, &layout).apply(&mut bytes));
            bytes
        };
        assert_eq!(blanked(0), blanked(255), "{format}");
    }
}

#[test]
fn a_later_colour_covers_an_earlier_one_and_no_byte_is_written_twice() {
    let layout = FrameLayout::packed(PixelFormat::Nv12, 64, 32, ColorDescription::JPEG).unwrap();
    let left = [[0.0, 0.0], [0.6, 0.1], [0.5, 1.0]];
    let masks = [mask(&WHOLE, Fill::Color([255; 3])), mask(&left, Fill::Mosaic), mask(&left, Fill::Color([0; 3]))];
    let plan = MaskPlan::new(&masks, &layout);
    let runs = plan.runs.iter().map(|run| run.start..run.start + run.bytes.len());
    let blocks = plan.bands.iter().flat_map(|band| &band.masked);
    let mut written = vec![0; layout.size_bytes()];
    runs.chain(blocks.map(|(start, bytes)| start + bytes.start..start + bytes.end))
        .flatten()
        .for_each(|at| written[at] += 1);
    assert!(written.iter().all(|&count| count == 1));
    let (mut plan, mut bytes) = (plan, noise(&layout));
    assert!(plan.apply(&mut bytes));
    assert_eq!([bytes[64 * 8 + 8], bytes[63]], [0, 255]);
}

#[test]
fn no_block_at_an_edge_is_thin() {
    for length in 1..400_usize {
        for side in [4, 8, 48] {
            let edges: Vec<_> = edges(length, side).collect();
            assert_eq!((edges[0], edges[edges.len() - 1]), (0, length));
            let mut lengths = edges.windows(2).map(|block| block[1] - block[0]);
            assert!(lengths.clone().rev().skip(1).all(|length| length == side));
            assert!(
                lengths.next_back().is_some_and(|last| length < side || (side / 2..side + side / 2).contains(&last))
            );
        }
    }
    // 81 pixels have blocks of 4 and one of 5.
    let layout = FrameLayout::packed(PixelFormat::Grey, 81, 4, ColorDescription::JPEG).unwrap();
    let mut bytes = vec![0; layout.size_bytes()];
    (0..4).for_each(|row| bytes[row * 81 + 80] = 255);
    assert!(MaskPlan::new(&[mask(&WHOLE, Fill::Mosaic)], &layout).apply(&mut bytes));
    assert_eq!(bytes[76..81], [51; 5]);
}

#[test]
fn a_mosaic_is_made_of_eight_rows_of_a_block_and_two_mosaics_are_one() {
    let layout = FrameLayout::packed(PixelFormat::Grey, 1920, 96, ColorDescription::JPEG).unwrap();
    let of = |masks: &[PrivacyMask], bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        assert!(MaskPlan::new(masks, &layout).apply(&mut bytes));
        bytes
    };
    // Each row of a block of 48 has its number: the mean of rows 0, 6 and so on to 42 is 21.
    let numbered: Vec<u8> = (0..96).flat_map(|row| [(row % 48) as u8; 1920]).collect();
    assert!(of(&[mask(&WHOLE, Fill::Mosaic)], &numbered).iter().all(|&byte| byte == 21));
    let (left, right) =
        ([[0.0, 0.0], [0.6, 0.0], [0.6, 1.0], [0.0, 1.0]], [[0.4, 0.0], [1.0, 0.0], [1.0, 1.0], [0.4, 1.0]]);
    let two = [mask(&left, Fill::Mosaic), mask(&right, Fill::Mosaic)];
    let bytes = noise(&layout);
    assert_eq!(of(&two, &bytes), of(&[mask(&WHOLE, Fill::Mosaic)], &bytes));
}

#[test]
fn a_frame_that_is_too_short_is_left_alone() {
    let layout = FrameLayout::packed(PixelFormat::Nv12, 16, 16, ColorDescription::default()).unwrap();
    let mut bytes = vec![7; layout.size_bytes() - 1];
    assert!(!MaskPlan::new(&[mask(&WHOLE, Fill::Color([0; 3]))], &layout).apply(&mut bytes));
    assert!(bytes.iter().all(|&byte| byte == 7));
}
