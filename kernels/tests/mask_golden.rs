//! Masks as numpy and pycocotools make them: tests/golden/masks.py.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use visiond_kernels::filter::Values;
use visiond_kernels::mask::{
    Mask, MaskAssembler, MaskFrame, MaskJob, MaskParts, MaskSpec, Polygons, rle_decode, rle_encode,
};
use visiond_kernels::placement::{Fit, Mapping};
use visiond_kernels::tensor::{DType, TensorRef};

/// Returns prototypes and coefficients: `model` of the script.
fn model(seed: u32, channels: usize, width: usize, height: usize) -> [Vec<u8>; 2] {
    let mut state = seed;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize
    };
    let (mut prototypes, mut coefficients) = (Vec::new(), Vec::new());
    for _ in 0..channels {
        let (a, b, c) = (number() % 7, number() % 7, number() % 256);
        for y in 0..height {
            for x in 0..width {
                let t = (a * x + b * y + c) % 256;
                let slope = if t < 128 { t } else { 255 - t };
                prototypes.extend(((slope as f32 - 63.5) / 64.0).to_ne_bytes());
            }
        }
        coefficients.extend(((number() % 129) as f32 / 64.0 - 1.0).to_ne_bytes());
    }
    [prototypes, coefficients]
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Fills rings by the even-odd rule at the middles of a mask's pixels.
fn filled(polygons: &Polygons, like: &Mask) -> Mask {
    let mut out = like.clone();
    out.words.fill(0);
    let per_row = out.words_per_row();
    for y in 0..out.height {
        let middle = f64::from(out.top + y) + 0.5;
        let mut crossings = Vec::new();
        for ring in polygons.rings() {
            let mut a = ring[ring.len() - 1].map(f64::from);
            for b in ring {
                let b = b.map(f64::from);
                if (a[1] <= middle) != (b[1] <= middle) {
                    crossings.push(a[0] + (middle - a[1]) / (b[1] - a[1]) * (b[0] - a[0]));
                }
                a = b;
            }
        }
        crossings.sort_by(f64::total_cmp);
        for pair in crossings.chunks_exact(2) {
            let [from, to] = [pair[0], pair[1]].map(|x| (x - f64::from(out.left) - 0.5).ceil().max(0.0) as u32);
            for x in from..to.min(out.width) {
                out.words[y as usize * per_row + x as usize / 32] |= 1 << (x % 32);
            }
        }
    }
    out
}

/// Reads the script's cases; `VISIOND_MASK_CASES` names another file of them.
///
/// Writes the polygons for the script's own comparison.
#[test]
fn masks_and_their_runs_are_those_of_numpy_and_pycocotools() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/masks.txt");
    let file = std::env::var_os("VISIOND_MASK_CASES").map_or(golden, PathBuf::from);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (mut assembler, mut masks, mut polygons) = (MaskAssembler::new(), Vec::new(), Polygons::new());
    let mut written = String::new();
    let (mut cases, mut least) = (0, 1.0_f64);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let n = |index: usize| fields[index].parse::<u32>().unwrap();
        let fit = match fields[0] {
            "letterbox" => Fit::Letterbox,
            "top-left" => Fit::LetterboxTopLeft,
            _ => Fit::Stretch,
        };
        let (source, channels) = ((n(1), n(2)), n(7) as usize);
        let (width, height) = (n(5) as usize, n(6) as usize);
        let bytes = model(n(8), channels, width, height);
        let spec = MaskSpec {
            planes: Values::planes(0, channels, width * height),
            height,
            width,
            parts: MaskParts::Prototypes { channels, coefficients: Values::rows(1, 1, channels) },
        };
        let (shape, one) = ([channels, height, width], [channels]);
        let outputs = [
            TensorRef::new(DType::F32, &shape, &bytes[0]).unwrap(),
            TensorRef::new(DType::F32, &one, &bytes[1]).unwrap(),
        ];
        let edges: Vec<f32> = fields[9].split(',').map(|edge| edge.parse().unwrap()).collect();
        let job = MaskJob { row: 0, box_in_source: edges.try_into().unwrap() };
        let frame = MaskFrame::new(&Mapping::new(fit, source, (n(3), n(4))), (width, height));
        assembler.run(&spec, &frame, &outputs, &[job], &mut masks);
        let mask = &masks[0];
        assert_eq!(mask.area(), u64::from(n(10)), "{line}: {frame:?}");
        let runs = rle_encode(mask, source.0, source.1);
        assert_eq!(format!("{:016x}", fnv(&runs)), fields[11], "{line}");
        if fields[12] != "-" {
            assert_eq!(runs, fields[12], "{line}");
        }
        let back = rle_decode(&runs, source.0, source.1).unwrap();
        assert_eq!(back.area(), mask.area());
        polygons.trace(mask, 1.0);
        let iou = filled(&polygons, mask).iou(mask);
        assert!(mask.area() == 0 || iou >= 0.98, "{iou}: {line}");
        least = if mask.area() == 0 { least } else { least.min(iou) };
        write!(written, "{}x{} {runs}", source.0, source.1).unwrap();
        for ring in polygons.rings() {
            let numbers: Vec<String> = ring.iter().flatten().map(f32::to_string).collect();
            write!(written, " {}", numbers.join(",")).unwrap();
        }
        written.push('\n');
        cases += 1;
    }
    assert!(cases >= 60, "{cases}");
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("mask_polygons.txt"), written).unwrap();
    println!("{cases} masks, polygons of at least {least:.4}");
}
