//! The CUDA kernel, compiled for the processor, against the assembly in Rust: every bit is equal.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use libloading::Library;

use crate::filter::Values;
use crate::mask::launch::{MaskLaunch, Piece};
use crate::mask::*;
use crate::placement::{Fit, Mapping, Resize};
use crate::tensor::{DType, TensorRef};

fn library() -> &'static Mutex<Library> {
    static LIBRARY: OnceLock<Mutex<Library>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/host/mask.cpp");
        let file = std::env::temp_dir().join(format!("visiond-mask-{}.so", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        // As --fmad=false on the GPU.
        let options = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o"];
        let output = Command::new(&compiler).args(options).arg(&file).arg(source).output();
        let output = output.unwrap_or_else(|error| panic!("{compiler}: {error}: run tests/setup"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: just compiled of our own sources, which have no initialisers that do anything.
        let library = unsafe { Library::new(&file) }.unwrap();
        std::fs::remove_file(&file).unwrap();
        Mutex::new(library)
    })
}

/// The frames of a batch; the last is compared.
const FRAMES: usize = 2;

/// Outputs of [`FRAMES`] frames.
struct Outputs {
    dtype: DType,
    bytes: [Vec<u8>; 2],
}

impl Outputs {
    fn new(dtype: DType, spec: &MaskSpec, mut number: impl FnMut() -> f32) -> Self {
        let coefficients = match spec.parts {
            MaskParts::Prototypes { coefficients, .. } => coefficients.frame_len,
            MaskParts::OwnPlane { .. } => 0,
        };
        let bytes = [spec.planes.frame_len, coefficients].map(|len| {
            let each = (0..FRAMES * len).map(|_| number());
            match dtype {
                DType::F16 => each.flat_map(|n| half::f16::from_f32(n).to_ne_bytes()).collect::<Vec<u8>>(),
                DType::I8 => each.map(|n| (n * 100.0) as i8 as u8).collect(),
                _ => each.flat_map(f32::to_ne_bytes).collect(),
            }
        });
        Self { dtype, bytes }
    }

    fn on_cpu(&self, spec: &MaskSpec, frame: &MaskFrame, jobs: &[MaskJob]) -> Vec<Mask> {
        let each = [0, 1].map(|i| &self.bytes[i][self.bytes[i].len() / FRAMES * (FRAMES - 1)..]);
        let shapes = each.map(|bytes| [bytes.len() / self.dtype.size_bytes()]);
        let outputs = [0, 1].map(|i| TensorRef::new(self.dtype, &shapes[i], each[i]).unwrap());
        let mut out = Vec::new();
        MaskAssembler::new().run(spec, frame, &outputs, jobs, &mut out);
        out
    }

    /// Runs the kernel. Every read is checked to lie in its memory, and that every word is written once.
    fn on_kernel(&self, spec: &MaskSpec, frame: &MaskFrame, jobs: &[MaskJob], last_first: bool) -> Vec<Mask> {
        type Allow = unsafe extern "C" fn(u64, u64, *mut u8);
        type Run = unsafe extern "C" fn(*const std::ffi::c_void, u32, bool);
        let library = library().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut launch = MaskLaunch::new(spec).unwrap();
        assert_eq!(launch.set_jobs(frame, FRAMES - 1, jobs), 0);
        let pieces: Vec<Piece> = launch.pieces().to_vec();
        let mut words = vec![0xdead_beef_u32; launch.words()];
        let mut writes = vec![0_u8; 4 * words.len()];
        // Words, so that the bytes are aligned as a GPU's memory is.
        let aligned = [0, 1].map(|i| {
            let chunks = self.bytes[i].chunks(8);
            let word = |chunk: &[u8]| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            };
            chunks.map(word).collect::<Vec<u64>>()
        });
        launch.set_memory(pieces.as_ptr() as u64, words.as_mut_ptr() as u64);
        launch.set_outputs(aligned.iter().map(|words| (words.as_ptr() as u64, self.dtype)));
        // SAFETY: the functions have these signatures in cuda/host; what they are given outlives the calls, and is as long as
        // they are said to be; the lock keeps other threads out of the library.
        let faults = unsafe {
            assert_eq!(library.get::<unsafe extern "C" fn() -> u64>(b"argument_bytes\0").unwrap()(), 144);
            library.get::<unsafe extern "C" fn()>(b"forget_memory\0").unwrap()();
            let allow = library.get::<Allow>(b"allow\0").unwrap();
            for (words, bytes) in aligned.iter().zip(&self.bytes) {
                allow(words.as_ptr() as u64, bytes.len() as u64, std::ptr::null_mut());
            }
            allow(pieces.as_ptr() as u64, size_of_val(&pieces[..]) as u64, std::ptr::null_mut());
            allow(words.as_mut_ptr() as u64, writes.len() as u64, writes.as_mut_ptr());
            let run = library.get::<Run>(b"masks_on_host\0").unwrap();
            run(launch.argument(), pieces.len() as u32, last_first);
            library.get::<unsafe extern "C" fn() -> u64>(b"fault_count\0").unwrap()()
        };
        assert_eq!(faults, 0, "the kernel reads or writes outside its memory");
        assert!(writes.iter().all(|&count| count == 1), "the kernel does not write every word once");
        let mut out = Vec::new();
        launch.read(&words, &mut out);
        out
    }
}

/// Numbers between -1 and 1.
fn noise(mut state: u32) -> impl FnMut() -> f32 {
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    }
}

#[test]
fn the_kernel_makes_the_same_masks_as_the_cpu() {
    let fits = [
        (Fit::Letterbox, (1920, 1080), (640, 640), (160, 160), DType::F32),
        (Fit::Letterbox, (427, 640), (640, 640), (160, 160), DType::F16),
        (Fit::Letterbox, (640, 356), (640, 640), (160, 160), DType::F32),
        // More cells than fit into shared memory.
        (Fit::Letterbox, (150, 120), (640, 640), (160, 160), DType::F32),
        (Fit::Letterbox, (33, 17), (640, 640), (160, 160), DType::F16),
        (Fit::LetterboxTopLeft, (333, 251), (320, 320), (80, 80), DType::I8),
        (Fit::Stretch, (701, 203), (320, 256), (80, 64), DType::F32),
        (Fit::Crop { fraction: 0.7 }, (400, 300), (224, 224), (56, 56), DType::F32),
        (Fit::ResizeCrop(Resize::ShortSide(256)), (400, 300), (224, 224), (56, 56), DType::F32),
        (Fit::Warp, (400, 300), (224, 224), (56, 56), DType::F32),
    ];
    for (number, (fit, source, input, cells, dtype)) in fits.into_iter().enumerate() {
        let rows = 10;
        let channels = if number % 2 == 0 { 8 } else { 5 };
        let spec = MaskSpec {
            planes: Values::planes(0, channels, cells.0 * cells.1),
            height: cells.1,
            width: cells.0,
            parts: MaskParts::Prototypes {
                channels,
                coefficients: Values::planes(1, 4 + channels, rows).from_column(4),
            },
        };
        let mut numbers = noise(number as u32);
        let outputs = Outputs::new(dtype, &spec, &mut numbers);
        let frame = MaskFrame::new(&Mapping::new(fit, source, input), cells);
        // A corner of a large frame: every pixel is a thread that is simulated.
        let (width, height) = (source.0 as f32, source.1 as f32);
        let (wide, high) = (width.min(330.0), height.min(130.0));
        let mut jobs = vec![
            MaskJob { row: 0, box_in_source: [0.0, 0.0, wide, high] },
            MaskJob { row: 1, box_in_source: [width - 1.0, height - 1.0, width + 5.0, f32::INFINITY] },
            MaskJob { row: 2, box_in_source: [f32::NAN, 0.0, 5.0, 5.0] },
            MaskJob { row: 99, box_in_source: [0.0, 0.0, 5.0, 5.0] },
        ];
        for row in 3..rows as u32 {
            let [mut x1, mut y1, mut x2, mut y2] = [0; 4].map(|_| numbers() * 0.5 + 0.5);
            (x1, x2) = (x1 * (width - 1.0), (x1 * width + x2 * 100.0).min(width));
            (y1, y2) = (y1 * (height - 1.0), (y1 * height + y2 * 60.0).min(height));
            jobs.push(MaskJob { row, box_in_source: [x1, y1, x2, y2] });
        }
        let expected = outputs.on_cpu(&spec, &frame, &jobs);
        assert!(expected.iter().map(Mask::area).sum::<u64>() > 50, "{fit:?}: {frame:?}");
        for last_first in [false, true] {
            assert!(
                outputs.on_kernel(&spec, &frame, &jobs, last_first) == expected,
                "case {number}: {fit:?} of {source:?}"
            );
        }
    }
}

#[test]
fn the_kernel_makes_the_same_masks_of_planes_of_their_own() {
    let fits = [
        (Fit::Stretch, (201, 103), (432, 432), (108, 108), 0.0, DType::F32),
        (Fit::Letterbox, (150, 97), (64, 64), (16, 16), 0.5, DType::F16),
        (Fit::Letterbox, (97, 150), (320, 320), (320, 320), 0.5, DType::F32),
        (Fit::Crop { fraction: 0.7 }, (190, 120), (64, 64), (16, 16), 0.0, DType::F32),
    ];
    for (number, (fit, source, input, cells, threshold, dtype)) in fits.into_iter().enumerate() {
        let count = 6;
        let spec = MaskSpec {
            planes: Values::planes(0, count, cells.0 * cells.1),
            height: cells.1,
            width: cells.0,
            parts: MaskParts::OwnPlane { count, threshold },
        };
        // A disc on each plane, with a ragged edge, but for one plane that is empty and one that is not finite.
        let (mut noise, mut index) = (noise(number as u32), 0);
        let outputs = Outputs::new(dtype, &spec, || {
            let (plane, cell) = (index / (cells.0 * cells.1) % count, index % (cells.0 * cells.1));
            index += 1;
            let [x, y] = [cell % cells.0, cell / cells.0].map(|at| at as f32);
            let far = (x / cells.0 as f32 - 0.15 * plane as f32).hypot(y / cells.1 as f32 - 0.5);
            match plane {
                2 => -1.0,
                3 if noise() > 0.9 => f32::NAN,
                _ => 0.3 - far + 0.1 * noise() + threshold,
            }
        });
        let frame = MaskFrame::new(&Mapping::new(fit, source, input), cells);
        let jobs = [4, 0, 5, 2, 3, 1, 99].map(|row| MaskJob { row, box_in_source: [3.0, 3.0, 9.0, 9.0] });
        let expected = outputs.on_cpu(&spec, &frame, &jobs);
        assert!(expected[1].area() > 100 && expected[3].area() == 0 && expected[6].area() == 0, "{fit:?}");
        for last_first in [false, true] {
            let made = outputs.on_kernel(&spec, &frame, &jobs, last_first);
            assert!(made == expected, "case {number}: {fit:?} of {source:?}");
        }
    }
}

#[test]
fn masks_as_large_as_the_frame_are_made_in_parts() {
    let spec = MaskSpec {
        planes: Values::planes(0, 300, 16),
        height: 4,
        width: 4,
        parts: MaskParts::OwnPlane { count: 300, threshold: 0.0 },
    };
    let launch = MaskLaunch::new(&spec).unwrap();
    let of = |source| launch.most_at_once(&MaskFrame::new(&Mapping::new(Fit::Stretch, source, (16, 16)), (4, 4)));
    assert_eq!((of((1920, 1080)), of((3840, 2160)), of((16_384, 16_384))), (32, 8, 1));
    // The CPU holds the words that are left, so 300 small objects fit into a frame of 4K.
    let planes: Vec<u8> =
        (0..300 * 16).flat_map(|i| (if i % 16 == 5 { 1.0_f32 } else { -1.0 }).to_ne_bytes()).collect();
    let outputs = [TensorRef::new(DType::F32, &[1, 300, 4, 4], &planes).unwrap()];
    let frame = MaskFrame::new(&Mapping::new(Fit::Stretch, (3840, 2160), (16, 16)), (4, 4));
    let jobs: Vec<MaskJob> = (0..300).map(|row| MaskJob { row, box_in_source: [0.0; 4] }).collect();
    let mut out = Vec::new();
    assert_eq!(MaskAssembler::new().run(&spec, &frame, &outputs, &jobs, &mut out), 0);
    assert!(out.iter().all(|mask| mask.area() > 100_000));
}

#[test]
fn numbers_that_are_not_finite_are_the_same_on_both() {
    let spec = MaskSpec {
        planes: Values::planes(0, 3, 64),
        height: 8,
        width: 8,
        parts: MaskParts::Prototypes { channels: 3, coefficients: Values::rows(1, 2, 3) },
    };
    let mut numbers = noise(5);
    let wild = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0];
    let outputs = Outputs::new(DType::F32, &spec, || {
        let number = numbers();
        if number > 0.6 { wild[(number * 1e4) as usize % wild.len()] } else { number }
    });
    let frame = MaskFrame::new(&Mapping::new(Fit::Letterbox, (100, 70), (32, 32)), (8, 8));
    let jobs = [0, 1].map(|row| MaskJob { row, box_in_source: [-1e30, -5.0, 1e30, f32::INFINITY] });
    assert!(outputs.on_kernel(&spec, &frame, &jobs, false) == outputs.on_cpu(&spec, &frame, &jobs));
}

#[test]
fn masks_beyond_the_memory_stay_empty_and_are_counted() {
    let spec = MaskSpec {
        planes: Values::planes(0, 1, 16),
        height: 4,
        width: 4,
        parts: MaskParts::Prototypes { channels: 1, coefficients: Values::rows(1, 1, 1) },
    };
    let frame = MaskFrame::new(&Mapping::new(Fit::Stretch, (65_000, 65_000), (16, 16)), (4, 4));
    let large = MaskJob { row: 0, box_in_source: [0.0, 0.0, 8000.0, 65_000.0] };
    let mut launch = MaskLaunch::new(&spec).unwrap();
    assert_eq!(launch.set_jobs(&frame, 0, &[large, large]), 1);
    assert_eq!((launch.outputs(), launch.words()), (2, 250 * 65_000));
}
