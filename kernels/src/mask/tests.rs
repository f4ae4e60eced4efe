//! Masks of small frames that can be checked by eye, and of any numbers.

mod kernel;

use proptest::prelude::*;

use super::*;
use crate::filter::Values;
use crate::placement::{Fit, Mapping, Resize};
use crate::tensor::{DType, TensorRef};

/// A mask of lines in which `#` is a pixel of the object.
fn mask(left: u32, top: u32, lines: &[&str]) -> Mask {
    let mut mask = Mask { left, top, width: lines[0].len() as u32, height: lines.len() as u32, words: Vec::new() };
    mask.words = vec![0; mask.words_per_row() * lines.len()];
    for (y, line) in lines.iter().enumerate() {
        for (x, _) in line.bytes().enumerate().filter(|(_, byte)| *byte == b'#') {
            let per_row = mask.words_per_row();
            mask.words[y * per_row + x / 32] |= 1 << (x % 32);
        }
    }
    mask
}

fn rings(mask: &Mask, tolerance: f32) -> Vec<Vec<[f32; 2]>> {
    let mut polygons = Polygons::new();
    polygons.trace(mask, tolerance);
    polygons.rings().map(<[_]>::to_vec).collect()
}

/// Fills rings by the even-odd rule at the middles of a mask's pixels.
fn filled<'a>(rings: impl Iterator<Item = &'a [[f32; 2]]>, like: &Mask) -> Mask {
    let mut out = like.clone();
    out.words.fill(0);
    let per_row = out.words_per_row();
    for ring in rings {
        for (i, &a) in ring.iter().enumerate() {
            let b = ring[(i + 1) % ring.len()];
            let (a, b) = (a.map(f64::from), b.map(f64::from));
            let (low, high) = (a[1].min(b[1]), a[1].max(b[1]));
            for y in 0..out.height {
                let middle = f64::from(out.top + y) + 0.5;
                if middle < low || middle >= high {
                    continue;
                }
                let x = a[0] + (middle - a[1]) / (b[1] - a[1]) * (b[0] - a[0]);
                // Every pixel whose middle is right of the edge changes sides.
                let first = (x - f64::from(out.left) - 0.5).ceil().max(0.0) as u32;
                for x in first..out.width {
                    out.words[y as usize * per_row + x as usize / 32] ^= 1 << (x % 32);
                }
            }
        }
    }
    out
}

fn f32_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// One channel of `width` x `height` cells, and one row with the coefficient 1.
fn spec(width: usize, height: usize) -> MaskSpec {
    MaskSpec {
        planes: Values::planes(0, 1, width * height),
        height,
        width,
        parts: MaskParts::Prototypes { channels: 1, coefficients: Values::rows(1, 1, 1) },
    }
}

fn assemble(
    spec: &MaskSpec,
    frame: &MaskFrame,
    prototypes: &[f32],
    coefficients: &[f32],
    jobs: &[MaskJob],
) -> Vec<Mask> {
    let (prototypes, coefficients) = (f32_bytes(prototypes), f32_bytes(coefficients));
    let shapes = [[prototypes.len() / 4], [coefficients.len() / 4]];
    let outputs = [
        TensorRef::new(DType::F32, &shapes[0], &prototypes).unwrap(),
        TensorRef::new(DType::F32, &shapes[1], &coefficients).unwrap(),
    ];
    let mut out = Vec::new();
    MaskAssembler::new().run(spec, frame, &outputs, jobs, &mut out);
    out
}

#[test]
fn a_mask_is_where_the_logits_between_cells_are_above_0_and_inside_the_box() {
    let frame = MaskFrame::new(&Mapping::new(Fit::Letterbox, (8, 4), (16, 16)), (4, 4));
    // The frame is 2 lines of cells between one of padding above and below.
    assert_eq!((frame.factor, frame.axes[1].first, frame.axes[1].count, frame.axes[0].count), (1, 1, 2, 4));
    let p = [[9.0; 4], [-3.0, -1.0, 1.0, 3.0], [-3.0, -1.0, 1.0, 3.0], [9.0; 4]].concat();
    let job = |box_in_source| MaskJob { row: 0, box_in_source };
    let jobs = [job([0.0, 0.0, 8.0, 4.0]), job([0.5, 1.0, 6.5, 2.5]), job([3.0, 3.0, 3.0, 4.0])];
    let made = assemble(&spec(4, 4), &frame, &p, &[1.0], &jobs);
    assert_eq!(made[0], mask(0, 0, &["....####"; 4]));
    assert_eq!(made[1], mask(1, 1, &["...###"; 2]));
    assert_eq!(made[2], Mask::default());
}

#[test]
fn padding_that_ends_inside_a_cell_is_cut_off_from_refined_cells() {
    let frame = |source| MaskFrame::new(&Mapping::new(Fit::Letterbox, source, (640, 640)), (160, 160));
    let cut = |source| {
        let MaskFrame { factor, axes: [x, y] } = frame(source);
        (factor, [x.first, x.count, y.first, y.count])
    };
    assert_eq!(cut((1920, 1080)), (1, [0, 160, 35, 90]));
    assert_eq!(cut((810, 1080)), (1, [20, 120, 0, 160]));
    // 426 of 640 pixels from pixel 107 on.
    assert_eq!(cut((427, 640)), (4, [106, 427, 0, 640]));
    // 356 pixels from 142 on.
    assert_eq!(cut((640, 356)), (2, [0, 320, 71, 178]));
}

#[test]
fn a_frame_that_was_cropped_has_no_mask_where_the_model_did_not_look() {
    let mapping = Mapping::new(Fit::ResizeCrop(Resize::ShortSide(16)), (32, 16), (16, 16));
    let frame = MaskFrame::new(&mapping, (4, 4));
    let jobs = [MaskJob { row: 0, box_in_source: [0.0, 0.0, 32.0, 16.0] }];
    let made = assemble(&spec(4, 4), &frame, &[1.0; 16], &[1.0], &jobs);
    assert_eq!((made[0].left, made[0].width, made[0].height, made[0].area()), (8, 16, 16, 256));
    let top_left = MaskFrame::new(&Mapping::new(Fit::LetterboxTopLeft, (8, 4), (16, 16)), (4, 4));
    assert_eq!((top_left.axes[1].first, top_left.axes[1].count), (0, 2));
    let stretch = MaskFrame::new(&Mapping::new(Fit::Stretch, (8, 4), (16, 16)), (4, 4));
    assert_eq!((stretch.axes[0].count, stretch.axes[1].count), (4, 4));
    // A warp of 2 to 1 is a letterbox whose pixels count from their middles.
    let warp = MaskFrame::new(&Mapping::new(Fit::Warp, (8, 4), (16, 16)), (4, 4));
    assert_eq!((warp.axes[1].origin, warp.axes[1].step, warp.axes[1].seen), (1.0, 0.5, [0, 4]));
}

#[test]
fn half_precision_and_rows_of_cells_give_the_same_mask() {
    let spec = spec(4, 4);
    let frame = MaskFrame::new(&Mapping::new(Fit::Stretch, (40, 24), (16, 16)), (4, 4));
    let p: Vec<f32> = (0..16).map(|i| ((i * 7) % 16) as f32 - 7.5).collect();
    let jobs = [MaskJob { row: 0, box_in_source: [1.0, 1.0, 39.0, 23.0] }];
    let expected = assemble(&spec, &frame, &p, &[0.5], &jobs);
    assert!(expected[0].area() > 100);
    let halves: Vec<u8> = p.iter().flat_map(|&n| half::f16::from_f32(n).to_ne_bytes()).collect();
    let coefficients = half::f16::from_f32(0.5).to_ne_bytes();
    let outputs =
        [TensorRef::new(DType::F16, &[16], &halves).unwrap(), TensorRef::new(DType::F16, &[1], &coefficients).unwrap()];
    let mut out = vec![mask(7, 7, &["####"]); 3];
    MaskAssembler::new().run(&spec, &frame, &outputs, &jobs, &mut out);
    assert_eq!(out, expected);
    // The same numbers twice, cell by cell.
    let twice: Vec<f32> = p.iter().flat_map(|&n| [n, n]).collect();
    let by_cell = MaskSpec {
        planes: Values::rows(0, 16, 2),
        parts: MaskParts::Prototypes { channels: 2, coefficients: Values::rows(1, 1, 2) },
        ..spec
    };
    assert_eq!(assemble(&by_cell, &frame, &twice, &[0.25, 0.25], &jobs), expected);
}

#[test]
fn a_spec_beyond_its_outputs_is_refused() {
    let spec = spec(4, 4);
    assert_eq!(spec.check(), Ok(()));
    let wide = MaskSpec { width: 5, ..spec };
    let refusal = |spec: MaskSpec| spec.check().unwrap_err().to_string();
    let remedy = ": correct [head] in its model card";
    assert_eq!(refusal(wide), format!("the planes of masks lie beyond the 16 numbers of output 0{remedy}"));
    let prototypes =
        |channels, coefficients| MaskSpec { parts: MaskParts::Prototypes { channels, coefficients }, ..spec };
    let coefficients = Values::rows(1, 1, 1);
    assert_eq!(
        refusal(prototypes(0, coefficients)),
        format!("masks cannot be made of 0 planes of 4 x 4 cells{remedy}")
    );
    let beyond = prototypes(1, coefficients.from_column(1));
    assert_eq!(refusal(beyond), format!("mask coefficients lie beyond the 1 numbers of output 1{remedy}"));
    assert!(spec.has_row(0) && !spec.has_row(1));
    let own = |count| MaskSpec { parts: MaskParts::OwnPlane { count, threshold: 0.0 }, ..spec };
    assert_eq!(own(1).check(), Ok(()));
    assert_eq!(refusal(own(2)), format!("the planes of masks lie beyond the 16 numbers of output 0{remedy}"));
    assert!(own(1).has_row(0) && !own(1).has_row(1));
}

#[test]
fn a_plane_of_ones_own_is_not_cut_by_the_box_and_ends_at_the_threshold() {
    let spec = MaskSpec {
        planes: Values::planes(0, 2, 16),
        height: 4,
        width: 4,
        parts: MaskParts::OwnPlane { count: 2, threshold: 0.5 },
    };
    let frame = MaskFrame::new(&Mapping::new(Fit::Letterbox, (8, 4), (16, 16)), (4, 4));
    // What is above and below the frame's two lines is padding.
    let second = [[1.0; 4], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [1.0; 4]].concat();
    let planes = [vec![0.2; 16], second].concat();
    let jobs = [0, 1, 2].map(|row| MaskJob { row, box_in_source: [1.0, 1.0, 2.0, 2.0] });
    let made = assemble(&spec, &frame, &planes, &[], &jobs);
    assert_eq!(made[0], Mask::default());
    // Column 5.5 is halfway between cells 2 and 3, where the number is 0.5 or so: 0.25, 0.75 at the pixels beside it.
    assert_eq!(made[1], mask(0, 0, &["......##"; 4]));
    assert_eq!(made[2], Mask::default());
}

#[test]
fn masks_beyond_64_mib_are_empty_and_counted() {
    let spec = spec(4, 4);
    let (planes, one) = ([1.0_f32; 16].map(f32::to_ne_bytes).concat(), 1.0_f32.to_ne_bytes());
    let outputs = [
        TensorRef::new(DType::F32, &[1, 1, 4, 4], &planes).unwrap(),
        TensorRef::new(DType::F32, &[1, 1, 1], &one).unwrap(),
    ];
    // A mask of the whole frame has 8 MiB.
    let frame = MaskFrame::new(&Mapping::new(Fit::Stretch, (8192, 8192), (16, 16)), (4, 4));
    let jobs = [MaskJob { row: 0, box_in_source: [0.0, 0.0, 8192.0, 8192.0] }; 9];
    let mut out = Vec::new();
    assert_eq!(MaskAssembler::new().run(&spec, &frame, &outputs, &jobs, &mut out), 1);
    assert_eq!((out.len(), out[7].area(), out[8].area()), (9, 8192 * 8192, 0));
}

#[test]
fn the_overlap_of_masks_counts_pixels_of_the_frame() {
    let (a, b) = (mask(0, 0, &["####", "####"]), mask(2, 1, &["####", "####"]));
    assert_eq!((a.iou(&b), b.iou(&a), a.iou(&a)), (2.0 / 14.0, 2.0 / 14.0, 1.0));
    assert_eq!((a.iou(&Mask::default()), Mask::default().iou(&Mask::default())), (0.0, 0.0));
    let long = "#".repeat(70);
    let (a, b) = (mask(5, 5, &[&long]), mask(40, 5, &[&long]));
    assert_eq!(a.iou(&b), 35.0 / 105.0);
}

#[test]
fn a_cropped_mask_is_the_same_in_less_memory() {
    let rows: Vec<String> =
        (0..4).map(|row| ".".repeat(33) + if row == 2 { "##" } else { ".." } + &".".repeat(70)).collect();
    let whole = mask(3, 5, &rows.iter().map(String::as_str).collect::<Vec<_>>());
    let cropped = whole.cropped();
    assert_eq!((cropped.left, cropped.top, cropped.width, cropped.height, cropped.words.len()), (35, 7, 32, 1, 1));
    assert_eq!((cropped.area(), cropped.iou(&whole)), (2, 1.0));
    assert_eq!(mask(3, 5, &["...", "..."]).cropped(), Mask::default());
    assert_eq!(mask(0, 0, &["#".repeat(40).as_str()]).cropped().width, 40);
}

#[test]
fn a_contour_runs_along_the_edges_of_pixels() {
    assert_eq!(rings(&mask(0, 0, &["#"]), 1.0), [[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]);
    let ring = mask(10, 20, &["###", "#.#", "###"]);
    let outer = vec![[13.0, 20.0], [13.0, 23.0], [10.0, 23.0], [10.0, 20.0]];
    assert_eq!(rings(&ring, 0.0)[0], outer);
    assert_eq!(rings(&ring, 0.0).len(), 2);
    // Corners touch, so these are two.
    assert_eq!(rings(&mask(0, 0, &["#.", ".#"]), 0.0).len(), 2);
    assert!(rings(&Mask::default(), 0.0).is_empty());
}

#[test]
fn a_slope_becomes_a_line() {
    let lines: Vec<String> = (1..=60).map(|i| "#".repeat(i) + &".".repeat(60 - i)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let triangle = mask(0, 0, &lines);
    let simple = rings(&triangle, 1.0);
    assert_eq!(rings(&triangle, 0.0)[0].len(), 122);
    assert!(simple[0].len() <= 7, "{simple:?}");
    assert_eq!(filled(simple.iter().map(Vec::as_slice), &triangle), triangle);
}

#[test]
fn a_mask_of_noise_has_no_more_points_than_the_limit() {
    let mut noise = Mask { left: 0, top: 0, width: 1024, height: 512, words: vec![0; 32 * 512] };
    let mut state = 1_u32;
    for word in &mut noise.words {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *word = state ^ state >> 15;
    }
    let points: usize = rings(&noise, 0.0).iter().map(Vec::len).sum();
    assert!(points <= MAX_POINTS, "{points}");
    noise.words.fill(0x5555_5555);
    let stripes: usize = rings(&noise, 0.0).iter().map(Vec::len).sum();
    assert_eq!(stripes, 4 * 512);
}

#[test]
fn a_mask_with_more_edges_than_asked_for_is_not_counted_to_its_end() {
    assert_eq!((mask(0, 0, &["#"]).edges_within(4), Mask::default().edges_within(0)), (Some(4), Some(0)));
    let ring = mask(10, 20, &["###", "#.#", "###"]);
    assert_eq!((ring.edges_within(16), ring.edges_within(15)), (Some(16), None));
    // Within a word, between words, and from row to row.
    let wide = "#".repeat(70);
    assert_eq!(mask(0, 0, &[&wide, &wide]).edges_within(u64::MAX), Some(144));
}

#[test]
fn runs_are_written_as_pycocotools_does() {
    // pycocotools.mask.encode(numpy.asfortranarray(...))["counts"]
    assert_eq!(rle_encode(&mask(0, 0, &["#"]), 1, 1), "01");
    assert_eq!(rle_encode(&Mask::default(), 3, 2), "6");
    assert_eq!(rle_encode(&mask(1, 1, &["#"]), 3, 3), "414");
    assert_eq!(rle_encode(&Mask::default(), 1920, 1080), "PPYo1");
}

#[test]
fn runs_that_do_not_fill_the_frame_are_refused() {
    assert_eq!(rle_decode("6", 3, 2).unwrap().area(), 0);
    assert_eq!(rle_decode("5", 3, 2), Err(RleError::Size { width: 3, height: 2 }));
    assert_eq!(rle_decode("7", 3, 2), Err(RleError::Size { width: 3, height: 2 }));
    assert_eq!(rle_decode("1 5", 3, 2), Err(RleError::Character(1)));
    assert_eq!(rle_decode("6P", 3, 2), Err(RleError::Number(1)));
    assert_eq!(rle_decode("6PPPPPPPP0", 3, 2), Err(RleError::Number(1)));
    assert_eq!(rle_decode("O", 3, 2), Err(RleError::Negative(0)));
    assert!(rle_decode("é", 3, 2).is_err() && rle_decode("", 3, 2).is_err());
    assert_eq!(rle_decode("", 0, 2).unwrap().area(), 0);
}

/// Any mask of up to 80 x 50 pixels, of noise or of few lines.
fn masks() -> impl Strategy<Value = Mask> {
    (0..50_u32, 0..50_u32, 1..80_u32, 1..50_u32, 0..4_u32).prop_flat_map(|(left, top, width, height, density)| {
        let words = width.div_ceil(32) as usize * height as usize;
        prop::collection::vec(any::<(u32, u32)>(), words).prop_map(move |pairs| {
            let mut mask = Mask { left, top, width, height, words: Vec::new() };
            let per_row = mask.words_per_row();
            for (i, (a, b)) in pairs.into_iter().enumerate() {
                let word = [a, a & b, a | b, !0][density as usize];
                let beyond = if i % per_row == per_row - 1 && width % 32 != 0 { !0 >> (32 - width % 32) } else { !0 };
                mask.words.push(word & beyond);
            }
            mask
        })
    })
}

/// Numbers as broken models give them.
fn wild() -> impl Strategy<Value = f32> {
    prop_oneof![
        -50.0..100.0_f32,
        any::<f32>(),
        prop::sample::select(vec![0.0, -0.0, 1e30, -1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 65536.0]),
    ]
}

proptest! {
    #[test]
    fn polygons_fill_exactly_their_mask(mask in masks()) {
        let rings = rings(&mask, 0.0);
        prop_assert_eq!(filled(rings.iter().map(Vec::as_slice), &mask), mask.clone());
        // Every side is along an axis, so its length is the number of its edges.
        let side = |ring: &[[f32; 2]], i: usize| {
            let ([x1, y1], [x2, y2]) = (ring[i], ring[(i + 1) % ring.len()]);
            ((x2 - x1).abs() + (y2 - y1).abs()) as u64
        };
        let edges: u64 = rings.iter().flat_map(|ring| (0..ring.len()).map(move |i| side(ring, i))).sum();
        prop_assert_eq!(mask.edges_within(edges), Some(edges));
        prop_assert_eq!(edges.checked_sub(1).and_then(|fewer| mask.edges_within(fewer)), None);
        // No point is on a line with its neighbours.
        for ring in &rings {
            for i in 0..ring.len() {
                let [a, b, c] = [0, 1, 2].map(|k| ring[(i + k) % ring.len()]);
                prop_assert!((a[0] == b[0]) != (b[0] == c[0]));
            }
        }
    }

    #[test]
    fn simplified_polygons_fill_nearly_their_mask(mask in masks(), tolerance in 0.0..100.0_f32) {
        let rings = rings(&mask, tolerance);
        let back = filled(rings.iter().map(Vec::as_slice), &mask);
        prop_assert!(mask.area() == 0 || back.iou(&mask) >= 0.98, "{} of {}", back.iou(&mask), mask.area());
    }

    #[test]
    fn runs_there_and_back_are_the_same_mask(mask in masks(), right in 0..40_u32, below in 0..40_u32) {
        let (width, height) = (mask.left + mask.width + right, mask.top + mask.height + below);
        let back = rle_decode(&rle_encode(&mask, width, height), width, height).unwrap();
        prop_assert_eq!(back.area(), mask.area());
        prop_assert!(mask.area() == 0 || back.iou(&mask) == 1.0);
    }

    #[test]
    fn a_frame_smaller_than_the_mask_cuts_it_off(mask in masks(), width in 0..100_u32, height in 0..80_u32) {
        let back = rle_decode(&rle_encode(&mask, width, height), width, height).unwrap();
        prop_assert!(back.area() <= mask.area());
    }

    #[test]
    fn no_string_of_runs_panics(text in "[0-o]{0,40}", any in ".*", width in 0..70_u32, height in 0..70_u32) {
        for text in [text, any] {
            let _ = rle_decode(&text, width, height);
        }
    }

    #[test]
    fn no_numbers_panic_or_fill_more_than_the_frame(
        p in prop::collection::vec(wild(), 24), c in prop::collection::vec(wild(), 4),
        boxes in prop::collection::vec((any::<u8>(), wild(), wild(), wild(), wild()), 0..5),
        fit in prop::sample::select(vec![
            Fit::Letterbox, Fit::LetterboxTopLeft, Fit::Stretch, Fit::Crop { fraction: 0.5 }, Fit::Warp, Fit::WarpStretch,
            Fit::ResizeCrop(Resize::ShortSide(200)),
        ]),
        source in (1..90_u32, 1..90_u32), input in (1..70_u32, 1..70_u32),
    ) {
        let spec = MaskSpec { planes: Values::planes(0, 2, 12), height: 3, width: 4, parts: MaskParts::Prototypes { channels: 2, coefficients: Values::rows(1, 2, 2) } };
        let frame = MaskFrame::new(&Mapping::new(fit, source, input), (4, 3));
        let jobs: Vec<MaskJob> = boxes
            .into_iter()
            .map(|(row, a, b, c, d)| MaskJob { row: u32::from(row) % 3, box_in_source: [a, b, c, d] })
            .collect();
        for mask in assemble(&spec, &frame, &p, &c, &jobs) {
            prop_assert!(mask.left + mask.width <= source.0 && mask.top + mask.height <= source.1);
            prop_assert_eq!(mask.words.len(), mask.words_per_row() * mask.height as usize);
            prop_assert!(mask.area() <= u64::from(mask.width) * u64::from(mask.height));
            let mut polygons = Polygons::new();
            polygons.trace(&mask, 1.0);
        }
        // An output that is missing or too short has no masks.
        prop_assert!(assemble(&spec, &frame, &p[..23], &c, &jobs).iter().all(|mask| mask.width == 0));
    }
}
