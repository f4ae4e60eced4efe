//! Measures the cost of a backend: time to load and to run, memory, and the difference of its outputs from another backend's.
//!
//! `cargo run --release -p visiond-engine --example backends -- MODEL [onnxruntime|rten] [THREADS] [RUNS]`
//!
//! Loads one backend per process, so that the memory is only its own; without a backend, loads and compares both.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Instant;

use visiond_engine::engine::{Backend, Engine, EngineOptions, Session};

fn main() {
    // SAFETY: this comes first in the program; there is no other thread.
    unsafe { visiond_engine::onnx::silence_telemetry() };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |index: usize| arguments.get(index).map(String::as_str);
    let model = Path::new(text(0).expect("usage: backends MODEL [onnxruntime|rten] [THREADS] [RUNS]"));
    let threads = text(2).map_or(1, |n| n.parse().expect("threads"));
    let runs = text(3).map_or(50, |n| n.parse().expect("runs"));
    match text(1) {
        Some("onnxruntime") => measure(model, Backend::OnnxRuntime, threads, runs),
        Some("rten") => measure(model, Backend::Rten, threads, runs),
        Some(other) => panic!("no backend `{other}`"),
        None => compare(model, threads),
    }
}

fn open(model: &Path, backend: Backend, threads: usize) -> (Engine, Session) {
    let options = EngineOptions { backend: Some(backend), threads, ..EngineOptions::default() };
    let engine = Engine::load(model, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut session = engine.session().unwrap();
    for index in 0..session.inputs().len() {
        // Noise in -1..1, the same for every backend (xorshift).
        let mut state = 0x9e37_79b9_u32;
        for bytes in session.input_mut(index).bytes().chunks_exact_mut(4) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            bytes.copy_from_slice(&((state >> 8) as f32 / 8_388_608.0 - 1.0).to_ne_bytes());
        }
    }
    (engine, session)
}

fn measure(model: &Path, backend: Backend, threads: usize, runs: usize) {
    let before = resident_mb("VmRSS");
    let start = Instant::now();
    let (engine, mut session) = open(model, backend, threads);
    let loaded = start.elapsed();
    session.run().unwrap();
    let first = start.elapsed();
    println!("{}, {threads} thread(s)", engine.backend_description());
    println!("  load {:.0} ms, load and first run {:.0} ms", loaded.as_secs_f64() * 1e3, first.as_secs_f64() * 1e3);
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            session.run().unwrap();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("  run median {:.2} ms, p90 {:.2} ms, least {:.2} ms", times[runs / 2], times[runs * 9 / 10], times[0]);
    let (now, peak) = (resident_mb("VmRSS"), resident_mb("VmHWM"));
    println!("  resident {now:.1} MB, {before:.1} MB of it before loading; at most {peak:.1} MB");
}

fn compare(model: &Path, threads: usize) {
    let outputs = [Backend::OnnxRuntime, Backend::Rten].map(|backend| {
        let (_, mut session) = open(model, backend, threads);
        session.run().unwrap();
        let read = |index| session.output(index).unwrap().to_f32().into_owned();
        (0..session.outputs().len()).map(read).collect::<Vec<_>>()
    });
    for (index, (a, b)) in outputs[0].iter().zip(&outputs[1]).enumerate() {
        let largest = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let range = a.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        println!("output {index}: {} numbers up to {range:.3}, largest difference {largest:.2e}", a.len());
    }
}

/// A line of /proc/self/status, in MB.
fn resident_mb(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    found.unwrap().trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1000.0
}
