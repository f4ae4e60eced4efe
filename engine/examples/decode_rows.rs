//! Measures the cost of decoding the rows of a model with NMS inside, including the check of every row.
//!
//! `cargo run --release -p visiond-engine --example decode_rows -- [ROWS] [USED]`
//!
//! Prints the median and the least time of a frame, in nanoseconds: `[1, ROWS, 6]` (default 300), of which `USED` (default 20)
//! pass the threshold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use visiond_engine::card::Card;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::{Decoded, HeadInput, NamedOutput, build};
use visiond_kernels::tensor::{DType, TensorRef};

/// Frames per sample, so that reading the clock is negligible.
const FRAMES: u32 = 1000;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let (rows, used) = (arguments.next().unwrap_or(300), arguments.next().unwrap_or(20));
    let names: Vec<String> = (0..80).map(|class| format!("\"c{class}\"")).collect();
    let text = format!("[head]\nfamily = \"yolo-nms\"\n[classes]\nnames = [{}]\n", names.join(", "));
    let card = Card::from_toml(&text, Path::new("rows.toml")).unwrap();
    let shape = [1, rows, 6];
    let row = |row: usize| [100.0, 120.0, 220.0, 260.0, if row < used { 0.9 } else { 0.01 }, (row % 80) as f32];
    let bytes: Vec<u8> = (0..rows).flat_map(row).flat_map(f32::to_ne_bytes).collect();
    let declared = shape.iter().map(|&size| Dim::Fixed(size)).collect();
    let info = TensorInfo { name: "output0".to_owned(), dtype: DType::F32, shape: Some(declared) };
    let outputs = [NamedOutput { name: &info.name, tensor: TensorRef::new(DType::F32, &shape, &bytes).unwrap() }];
    let input = HeadInput { outputs: &outputs, input_size: (640, 640), score_threshold: 0.25, mapping: None };
    let mut head = build(&card.head, std::slice::from_ref(&info), (640, 640), 80).unwrap();
    let mut out = Decoded::default();
    let mut samples: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..FRAMES {
                head.decode(black_box(&input), &mut out).unwrap();
                black_box(&out);
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(FRAMES)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    println!("{rows} rows, {} candidates: {:.0} ns, at best {:.0} ns", out.candidates.len(), samples[100], samples[0]);
}
