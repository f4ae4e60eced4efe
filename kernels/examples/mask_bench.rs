//! How long masks take: one JSON line a case, times in milliseconds for 20 objects, the least and the median.
//!
//!     mask_bench [RUNS]
//!
//! The prototypes are those of YOLOv8-seg at 640 x 640: 32 channels of 160 x 160 cells.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use half::f16;
use visiond_kernels::filter::Values;
use visiond_kernels::mask::{Mask, MaskAssembler, MaskFrame, MaskJob, MaskParts, MaskSpec, Polygons, rle_encode};
use visiond_kernels::placement::{Fit, Mapping};
use visiond_kernels::tensor::{DType, TensorRef};

const OBJECTS: usize = 20;
const CHANNELS: usize = 32;
const SIDE: usize = 160;
const ROWS: usize = 8400;

/// Frame's width and height, box's width and height, type.
const CASES: &[([u32; 2], [u32; 2], DType)] = &[
    ([1920, 1080], [100, 200], DType::F32),
    ([1920, 1080], [300, 500], DType::F32),
    ([1920, 1080], [300, 500], DType::F16),
    ([1920, 1080], [1920, 1080], DType::F32),
    ([640, 640], [200, 200], DType::F32),
    ([1280, 720], [200, 300], DType::F32),
    ([427, 640], [200, 300], DType::F32),
    ([3840, 2160], [600, 1000], DType::F32),
];

fn bytes_of(numbers: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F16 => numbers.iter().flat_map(|&number| f16::from_f32(number).to_ne_bytes()).collect(),
        _ => numbers.iter().flat_map(|number| number.to_ne_bytes()).collect(),
    }
}

/// The least and the median, as text.
fn shown(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    format!("[{:.3},{:.3}]", times[0], times[times.len() / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    let runs = std::env::args().nth(1).map_or(Ok(50), |runs| runs.parse::<usize>())?.max(1);
    let spec = MaskSpec {
        planes: Values::planes(0, CHANNELS, SIDE * SIDE),
        height: SIDE,
        width: SIDE,
        parts: MaskParts::Prototypes { channels: CHANNELS, coefficients: Values::planes(1, CHANNELS, ROWS) },
    };
    // Waves of different lengths: blobs such as those of a model.
    let mut prototypes = Vec::new();
    for channel in 0..CHANNELS {
        for cell in 0..SIDE * SIDE {
            let (x, y) = ((cell % SIDE) as f32, (cell / SIDE) as f32);
            let k = channel as f32;
            prototypes.push((x * (0.02 + 0.005 * k) + k).sin() * (y * (0.03 + 0.004 * k) - k).cos());
        }
    }
    let coefficients: Vec<f32> = (0..CHANNELS * ROWS).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    for &([width, height], [box_width, box_height], dtype) in CASES {
        let frame = MaskFrame::new(&Mapping::new(Fit::Letterbox, (width, height), (640, 640)), (SIDE, SIDE));
        let bytes = [bytes_of(&prototypes, dtype), bytes_of(&coefficients, dtype)];
        let shapes = [[CHANNELS, SIDE, SIDE].as_slice(), [CHANNELS, ROWS].as_slice()];
        let outputs = [TensorRef::new(dtype, shapes[0], &bytes[0])?, TensorRef::new(dtype, shapes[1], &bytes[1])?];
        let jobs: Vec<MaskJob> = (0..OBJECTS)
            .map(|i| {
                let part = i as f32 / OBJECTS as f32;
                let (x, y) = ((width - box_width) as f32 * part, (height - box_height) as f32 * part);
                MaskJob { row: 37 * i as u32, box_in_source: [x, y, x + box_width as f32, y + box_height as f32] }
            })
            .collect();
        let (mut assembler, mut masks, mut polygons) = (MaskAssembler::new(), Vec::new(), Polygons::new());
        let [mut assembled, mut traced, mut encoded] = [const { Vec::new() }; 3];
        let (mut points, mut characters) = (0, 0);
        for _ in 0..runs {
            let began = Instant::now();
            assembler.run(&spec, &frame, black_box(&outputs), &jobs, &mut masks);
            assembled.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            points = 0;
            for mask in &masks {
                polygons.trace(mask, 1.0);
                points += polygons.rings().map(<[_]>::len).sum::<usize>();
            }
            traced.push(began.elapsed().as_secs_f64() * 1e3);
            let began = Instant::now();
            characters = masks.iter().map(|mask| rle_encode(mask, width, height).len()).sum();
            encoded.push(began.elapsed().as_secs_f64() * 1e3);
        }
        let area = masks.iter().map(Mask::area).sum::<u64>() / OBJECTS as u64;
        println!(
            r#"{{"frame":"{width}x{height}","box":"{box_width}x{box_height}","dtype":"{dtype}","area":{area},"masks_ms":{},"polygons_ms":{},"points":{points},"rle_ms":{},"characters":{characters}}}"#,
            shown(&mut assembled),
            shown(&mut traced),
            shown(&mut encoded),
        );
    }
    Ok(())
}
