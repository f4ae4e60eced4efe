//! ONNX files: reading, reshaping, guessing heads, rewriting to half precision. The backends see none of them here.
//!
//! A file that was reshaped declares the shapes that were asked for.

#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use visiond_engine::engine::TensorInfo;
use visiond_engine::heads::{ModelFacts, guess_heads};
use visiond_engine::onnx::file::OnnxFile;
use visiond_engine::onnx::{read_usable, reshaped};
use visiond_engine::ultralytics;
use visiond_engine_builder::precision::{Half, PrecisionOptions, rewrite};
use visiond_fuzz::InputFile;

thread_local!(static FILE: InputFile = InputFile::new());

/// Returns a shape that fits what an input declares.
fn shape(input: &TensorInfo) -> Vec<usize> {
    input.shape.as_ref().map_or_else(|| vec![1], |dims| dims.iter().map(|dim| dim.fixed().unwrap_or(2)).collect())
}

fn check(path: &Path, data: &[u8]) {
    match OnnxFile::read(path) {
        Err(error) => return drop(error.to_string()),
        Ok(read) => {
            let OnnxFile { inputs, outputs, metadata, tails, .. } = &read;
            drop(guess_heads(ModelFacts { inputs, outputs, metadata, tails }));
        }
    }
    let (read, bytes) = match read_usable(path) {
        Err(error) => return drop(error.to_string()),
        Ok(usable) => usable,
    };
    assert_eq!(bytes, data);
    if let Some(Ok(card)) = ultralytics::card(&read.metadata, &read.inputs, &read.outputs) {
        assert!(!card.classes.is_empty());
    }
    let options = PrecisionOptions { half: Half::F16, rules: Vec::new(), half_io: false };
    if let Ok(half) = rewrite(&bytes, Path::new("/nonexistent"), &options) {
        let rewritten = FILE.with(|file| OnnxFile::read(file.write(&half.bytes)));
        let names = |infos: &[TensorInfo]| infos.iter().map(|info| info.name.clone()).collect::<Vec<_>>();
        let rewritten = rewritten.unwrap_or_else(|error| panic!("rewritten, and then {error}"));
        assert_eq!(names(&rewritten.outputs), names(&read.outputs));
    }
    let shapes: BTreeMap<_, _> = read.inputs.iter().map(|input| (input.name.clone(), shape(input))).collect();
    if let Ok((again, _)) = reshaped(path, read, bytes, &shapes) {
        for input in again.inputs {
            let dims = input.shape.iter().flatten().map(|dim| dim.fixed());
            assert!(dims.eq(shapes[&input.name].iter().copied().map(Some)), "{input} is not {shapes:?}");
        }
    }
}

fuzz_target!(|data: &[u8]| FILE.with(|file| check(file.write(data), data)));
