//! Row "Exports": the layouts of other projects' exporters, each a tiny network, by TensorRT and on the CPU.
//!
//! Each is built by `visiond build` with the card that `visiond inspect` prints, if it needs one. `visiond detect` must find
//! the same objects in an image as with the built-in engine.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;

use serde_json::Value;
use visiond_tests::exports::{self, Layout, Wanted};

use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Exports";
/// The number of layouts that are tested at once: a build waits for the GPU as much as for the CPU.
const AT_ONCE: usize = 4;
/// Exporters whose files TensorRT's parser rejects: their classes are bytes.
const BYTES: [&str; 1] = ["Qualcomm AI Hub"];
/// The classes in the file of prompts: all objects of the layout.
const PROMPTS: [usize; 4] = [0, 1, 2, 3];
/// The allowed differences, in pixels and in scores: both compute in FP32.
const PIXELS: f64 = 0.1;
const SCORE: f64 = 1e-3;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    setup.device()?;
    let visiond = setup.visiond()?;
    let mut layouts = exports::layouts();
    layouts.extend(exports::poses());
    layouts.extend(exports::one_person());
    layouts.push(exports::prompted());
    layouts.retain(|layout| !matches!(layout.wanted, Wanted::Refused(_)));
    let (rest, seen) = (Mutex::new(layouts.iter()), Mutex::new(Vec::new()));
    let work = || -> Result<(), Failure> {
        let folder = tempfile::tempdir()?;
        while let Some(layout) = rest.lock().expect("nobody panics with it").next() {
            let outcome = compare(visiond, folder.path(), layout);
            seen.lock().expect("nobody panics with it").push((layout.name, outcome));
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(work));
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    let seen = seen.into_inner().expect("nobody panics with it");
    let (mut same, mut objects, mut all) = (0, 0, 0);
    for (name, outcome) in &seen {
        all += 1;
        match outcome {
            Ok(found) => (same, objects) = (same + 1, objects + found),
            Err(why) if BYTES.contains(name) => {
                all -= 1;
                report.figure(ROW, name, "TensorRT refuses UINT8", why, why.contains("UINT8"));
            }
            Err(why) => report.figure(ROW, name, "what the CPU finds", why, false),
        }
    }
    let wanted = format!("what the CPU finds, within {PIXELS} pixels and {SCORE}");
    report.figure(ROW, "layouts of exporters", wanted, format!("{same} of {all}, {objects} objects"), same == all);
    Ok(())
}

/// Returns how many objects both found.
fn compare(visiond: &Path, folder: &Path, layout: &Layout) -> Result<usize, String> {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).map_err(|error| format!("cannot write {name}: {error}"))
    };
    write("net.onnx", &layout.bytes)?;
    write("txt_feats.npy", &exports::prompts(&PROMPTS, false))?;
    write("picture.ppm", &[b"P6 512 512 255\n".as_slice(), &[90; 512 * 512 * 3]].concat())?;
    let _ = fs::remove_file(folder.join("net.toml"));
    if layout.wanted == Wanted::Card {
        let text = said(visiond, folder, &["inspect", "--json", "net.onnx"])?;
        let described: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        let card = described["heads"][0]["card"].as_str().ok_or("inspect proposes no card")?;
        let mut card = card.replace("size = [800, 800]", "size = [64, 64]");
        write("net.toml", card.as_bytes())?;
        while let Err(error) = detect(visiond, folder, "net.onnx") {
            card = exports::followed(&card, &error).ok_or(error)?;
            write("net.toml", card.as_bytes())?;
        }
    }
    let wanted = detect(visiond, folder, "net.onnx")?;
    said(visiond, folder, &["build", "--force", "net.onnx"])?;
    let found = detect(visiond, folder, "net.engine")?;
    if found.len() != wanted.len() || found.iter().zip(&wanted).any(|(found, wanted)| !is_near("", found, wanted)) {
        return Err(format!("{} instead of {}", Value::from(found), Value::from(wanted)));
    }
    Ok(found.len())
}

/// Whether two detections, or parts of them, are the same; numbers may differ a little.
fn is_near(key: &str, found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            let is =
                |(key, found): (&String, &Value)| wanted.get(key).is_some_and(|wanted| is_near(key, found, wanted));
            found.len() == wanted.len() && found.iter().all(is)
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| is_near(key, found, wanted))
        }
        (Value::Number(found), Value::Number(wanted)) => {
            let allowed = if key == "score" { SCORE } else { PIXELS };
            found.as_f64().zip(wanted.as_f64()).is_some_and(|(found, wanted)| (found - wanted).abs() <= allowed)
        }
        _ => found == wanted,
    }
}

fn detect(visiond: &Path, folder: &Path, model: &str) -> Result<Vec<Value>, String> {
    let text = said(visiond, folder, &["detect", "--json", "--backend", "rten", "--model", model, "picture.ppm"])?;
    let message: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    Ok(message["detections"].as_array().cloned().unwrap_or_default())
}

/// Returns a command's output; if it fails, its last line.
fn said(visiond: &Path, folder: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let command = || Command::new(visiond).args(args).current_dir(folder).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = command().map_err(|error| format!("cannot run visiond: {error}"))?;
    if status.success() {
        return Ok(stdout);
    }
    let error = String::from_utf8_lossy(&stderr);
    Err(format!("{} {status}: {}", args[0], error.trim().lines().last().unwrap_or_default()))
}
