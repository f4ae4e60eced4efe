//! A turned, mirrored or cropped frame has the tensor of a frame with those pixels, bit for bit.

use super::*;
use crate::view::{Orientation, View};

/// A frame with padded rows.
struct Picture {
    layout: FrameLayout,
    bytes: Vec<u8>,
}

impl Picture {
    fn noise(format: PixelFormat, (w, h): (u32, u32), color: ColorDescription, extra: usize, seed: u64) -> Self {
        let pitches: Vec<usize> = (0..format.plane_count()).map(|plane| format.row_bytes(plane, w) + extra).collect();
        let layout = FrameLayout::with_pitches(format, w, h, &pitches, color).unwrap();
        Self { bytes: noise(layout.size_bytes(), seed), layout }
    }

    fn frame(&self) -> FrameView<'_> {
        self.layout.view(&self.bytes).unwrap()
    }

    /// Moves the pixels of a view, as numpy does, where the format can hold the result.
    fn moved(&self, view: View) -> Option<Self> {
        let (format, Orientation { transposed, mirrored }) = (self.layout.format(), view.orientation());
        let [_, _, width, height] = view.crop();
        let even = (width % 2, height % 2) == (0, 0);
        let format = match format {
            PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::P010 | PixelFormat::I420 if even => format,
            PixelFormat::Nv16 | PixelFormat::Nv61 if even && !transposed => format,
            PixelFormat::Bayer(order, depth) => PixelFormat::Bayer(turned(order, view), depth),
            format if format.is_grey() => format,
            PixelFormat::Rgb | PixelFormat::Bgr | PixelFormat::Rgba | PixelFormat::Bgra => format,
            _ => return None,
        };
        let (w, h) = view.picture_size();
        let layout = FrameLayout::packed(format, w, h, self.layout.color()).unwrap();
        let mut bytes = vec![0; layout.size_bytes()];
        let [left, top, ..] = view.crop().map(|edge| edge as usize);
        for (index, (from, to)) in self.layout.planes().iter().zip(layout.planes()).enumerate() {
            let columns = if index == 0 { w } else { w / 2 } as usize;
            let rows = format.plane_rows(index, h);
            let (x_each, y_each) = if index == 0 { (1, 1) } else { (2, format.rows_per_chroma_row()) };
            let size = to.pitch_bytes / columns;
            for (x, y) in (0..rows).flat_map(|y| (0..columns).map(move |x| (x, y))) {
                let u = if mirrored[0] { columns - 1 - x } else { x };
                let v = if mirrored[1] { rows - 1 - y } else { y };
                let (u, v) = if transposed { (v, u) } else { (u, v) };
                let at = from.offset_bytes + (v + top / y_each) * from.pitch_bytes + (u + left / x_each) * size;
                bytes[to.offset_bytes + y * to.pitch_bytes + x * size..][..size]
                    .copy_from_slice(&self.bytes[at..at + size]);
            }
        }
        Some(Self { layout, bytes })
    }
}

/// The order of a mosaic whose pixels were moved.
fn turned(order: BayerOrder, view: View) -> BayerOrder {
    let (red_x, red_y) = order.first_red();
    let is_red = |x: f64, y: f64| {
        let (x, y) = view.point_to_frame(x + 0.5, y + 0.5);
        [x, y].map(|at| (at.floor() as i64).rem_euclid(2) as usize) == [red_x, red_y]
    };
    let found = [(0, 0), (1, 0), (0, 1), (1, 1)].into_iter().find(|&(x, y)| is_red(f64::from(x), f64::from(y)));
    let all = [BayerOrder::Rggb, BayerOrder::Grbg, BayerOrder::Gbrg, BayerOrder::Bggr];
    let found = found.map(|(x, y)| (x as usize, y as usize)).unwrap();
    all.into_iter().find(|order| order.first_red() == found).unwrap()
}

/// Any view of a frame of this size.
fn views((w, h): (u32, u32)) -> impl Strategy<Value = View> {
    let crop = (0..w, 0..h).prop_flat_map(move |(x, y)| (Just(x), Just(y), 1..=w - x, 1..=h - y));
    let crop = prop_oneof![Just((0, 0, w, h)), crop];
    (crop, 0..8_usize).prop_map(move |((x, y, width, height), which)| {
        View::new((w, h), [x, y, width, height], Orientation::all().nth(which).unwrap()).unwrap()
    })
}

fn sizes_and_views() -> impl Strategy<Value = ((u32, u32), View)> {
    // Wider and higher than a band of rows.
    let side = || prop_oneof![3 => 1..40_u32, 1 => 60..200_u32];
    (side(), side()).prop_flat_map(|size| (Just(size), views(size)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_view_is_a_frame_whose_pixels_moved(
        spec in specs(), format in formats(), color in colors(), (size, view) in sizes_and_views(), extra in 0..9_usize, seed: u64,
    ) {
        let picture = Picture::noise(format, size, color, extra, seed);
        if let Some(moved) = picture.moved(view) {
            prop_assert_eq!(run(&spec, &picture.frame().viewed(view).unwrap()), run(&spec, &moved.frame()));
        }
    }

    #[test]
    fn a_view_has_the_frames_converted_pixels(
        spec in specs(), format in formats(), color in colors(), (size, view) in sizes_and_views(), extra in 0..9_usize, seed: u64,
    ) {
        let picture = Picture::noise(format, size, color, extra, seed);
        // The pixels of the frame as bytes, or, for samplings that do not round them, as they are.
        let identity = |(width, height): (u32, u32), sampling| PreprocessSpec {
            placement: Fit::Stretch.into(), layout: TensorLayout::Nhwc, sampling, ..plain(width, height)
        };
        if spec.sampling == Sampling::Exact {
            let pixels = run(&identity(size, Sampling::Exact), &picture.frame());
            let found = run(&identity(view.picture_size(), Sampling::Exact), &picture.frame().viewed(view).unwrap());
            let width = view.picture_size().0 as usize;
            for (index, found) in found.chunks_exact(3).enumerate() {
                let (x, y) = view.point_to_frame((index % width) as f64 + 0.5, (index / width) as f64 + 0.5);
                let at = 3 * (y as usize * size.0 as usize + x as usize);
                let is_mosaic = matches!(format, PixelFormat::Bayer(..));
                // A mosaic is turned first, whose edges then are others.
                prop_assert!(is_mosaic || found == &pixels[at..at + 3], "{:?} {:?}", found, &pixels[at..at + 3]);
            }
            return Ok(());
        }
        // A mosaic's edges are those of the view.
        prop_assume!(!matches!(format, PixelFormat::Bayer(..)) || view.crop() == [0, 0, size.0, size.1]);
        let pixels = run(&identity(size, Sampling::Opencv), &picture.frame()).into_iter().map(|value| value as u8);
        let layout = FrameLayout::packed(PixelFormat::Rgb, size.0, size.1, color).unwrap();
        let moved = Picture { layout, bytes: pixels.collect() }.moved(view).unwrap();
        prop_assert_eq!(run(&spec, &picture.frame().viewed(view).unwrap()), run(&spec, &moved.frame()));
    }
}

#[test]
fn cameras_that_are_turned_take_turns() {
    let spec = PreprocessSpec { dtype: DType::U8, ..plain(33, 17) };
    let mut shared = Preprocessor::new(spec.clone()).unwrap();
    for round in 0..3 {
        for format in [PixelFormat::Yuyv, PixelFormat::Bayer(BayerOrder::Grbg, BayerDepth::Bits12), PixelFormat::Nv12] {
            for orientation in Orientation::all() {
                let picture = Picture::noise(format, (70, 70), ColorDescription::default(), 0, round);
                let view = View::new((70, 70), [0, 0, 70, 70], orientation).unwrap();
                let frame = picture.frame().viewed(view).unwrap();
                assert_eq!(tensor_of(&mut shared, &frame), run(&spec, &frame), "{format} {orientation:?}");
            }
        }
    }
}

#[test]
fn the_tables_of_sixty_four_kinds_of_views_stay_and_more_replace_the_oldest() {
    let mut shared = Preprocessor::new(PreprocessSpec { dtype: DType::U8, ..plain(9, 7) }).unwrap();
    let picture = Picture::noise(PixelFormat::Rgb, (200, 8), ColorDescription::default(), 0, 1);
    let mut look = |widths: std::ops::Range<u32>| {
        for width in widths {
            let view = View::new((200, 8), [0, 0, 2 * width, 8], Orientation::UPRIGHT).unwrap();
            tensor_of(&mut shared, &picture.frame().viewed(view).unwrap());
        }
        shared.plans()
    };
    let first = look(1..65);
    assert_eq!((first.len(), look(1..65)), (64, first.clone()), "nothing is made again");
    let then = look(65..75);
    assert_eq!((then.len(), &then[..54]), (64, &first[10..]));
}

#[test]
fn a_view_of_another_size_or_of_a_view_is_refused() {
    let picture = Picture::noise(PixelFormat::Grey, (8, 6), ColorDescription::JPEG, 0, 1);
    let view = |size| View::new(size, [2, 2, 4, 4], Orientation::UPRIGHT).unwrap();
    assert!(picture.frame().viewed(view((8, 8))).is_err());
    let part = picture.frame().viewed(view((8, 6))).unwrap();
    assert_eq!((part.width(), part.height(), part.planes()[0].row(0)[0]), (4, 4, picture.bytes[2 * 8 + 2]));
    assert!(part.viewed(view((8, 6))).is_err());
}
