//! What privacy masks cost: `cargo run --release -p visiond-kernels --example privacy_bench` prints the median time of a 1080p frame.

use std::time::Instant;

use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::polygon::Polygon;
use visiond_kernels::privacy::{Fill, MaskPlan, PrivacyMask};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A tenth, a quarter and all of the frame; slanted, so that each row has another span.
    let areas = [
        ("a tenth", vec![[0.0, 0.0], [0.35, 0.0], [0.25, 0.33], [0.0, 0.33]]),
        ("a quarter", vec![[0.0, 0.0], [0.55, 0.0], [0.45, 0.5], [0.0, 0.5]]),
        ("all", vec![[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]),
    ];
    for format in [PixelFormat::Nv12, PixelFormat::Yuyv, PixelFormat::Bgr] {
        let layout = FrameLayout::packed(format, 1920, 1080, ColorDescription::default())?;
        // Frames of a camera's pool, so that none is in the processor's inner caches.
        let mut frames = vec![vec![90; layout.size_bytes()]; 8];
        for (area, corners) in &areas {
            for (what, fill) in [("black", Fill::Color([0; 3])), ("mosaic", Fill::Mosaic)] {
                let start = Instant::now();
                let mask = PrivacyMask { polygon: Polygon::new(corners, None)?, fill };
                let mut plan = MaskPlan::new(&[mask], &layout);
                let planned = start.elapsed();
                let mut times = Vec::new();
                for i in 0..400 {
                    let start = Instant::now();
                    plan.apply(&mut frames[i % 8]);
                    times.push(start.elapsed());
                }
                times.sort();
                println!("{format} {what} on {area}: {:?} a frame; planned once in {planned:?}", times[200]);
            }
        }
    }
    Ok(())
}
