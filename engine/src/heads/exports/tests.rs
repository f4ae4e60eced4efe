//! The exporter of a model, and its card: each rule of `exports.rs`, and models that differ from it in one property.

use std::collections::BTreeMap;

use visiond_kernels::tensor::DType;

use crate::backend::{Dim, TensorInfo};
use crate::heads::exports::recognise;
use crate::heads::guess::guess_heads;
use crate::heads::guess::tests::row;
use crate::heads::model_facts::ModelFacts;
use crate::onnx::{OutputTail, PartKind};

/// Models, and under each the result of `inspect`.
const EXPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/heads/exports.txt");

/// Reads `NAME:1,3,?,640`: f32 unless `=TYPE` follows, after an operator that is unknown unless `~OPERATOR` follows.
fn tensor(text: &str) -> (TensorInfo, OutputTail) {
    let (text, operator) = text.split_once('~').unwrap_or((text, ""));
    let (text, dtype) = text.split_once('=').unwrap_or((text, "f32"));
    let (name, dims) = text.rsplit_once(':').unwrap();
    let dims = dims.split(',').filter(|dim| !dim.is_empty());
    let dim = |dim: &str| dim.parse().map_or_else(|_| Dim::Dynamic(dim.replace('?', "")), Dim::Fixed);
    let shape: Vec<Dim> = dims.map(dim).collect();
    let dtype = match dtype {
        "f32" => DType::F32,
        "u8" => DType::U8,
        "i32" => DType::I32,
        "i64" => DType::I64,
        other => panic!("{other}"),
    };
    let width = shape.last().and_then(Dim::fixed).unwrap_or(0);
    let tail = match operator {
        "" => OutputTail::default(),
        "raw" => row(&[(width, PartKind::Raw)]),
        "sigmoid" => row(&[(width, PartKind::Sigmoid)]),
        "softmax" => row(&[(width, PartKind::Softmax)]),
        "computed" => row(&[(width, PartKind::Computed)]),
        other => panic!("{other}"),
    };
    (TensorInfo { name: name.to_owned(), dtype, shape: Some(shape) }, tail)
}

/// Returns the detected exporter of a model: `INPUT... -> OUTPUT... {KEY=VALUE; ...}`.
fn answer(model: &str) -> String {
    let (model, metadata) = model.split_once(" {").unwrap_or((model, ""));
    let notes = metadata.trim_end_matches('}').split("; ").filter_map(|note| note.split_once('='));
    let metadata: BTreeMap<String, String> = notes.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let (inputs, outputs) = model.split_once(" -> ").unwrap();
    let inputs: Vec<TensorInfo> = inputs.split_whitespace().map(|text| tensor(text).0).collect();
    let (outputs, tails): (Vec<TensorInfo>, Vec<OutputTail>) = outputs.split_whitespace().map(tensor).unzip();
    let tails = outputs.iter().map(|output| output.name.clone()).zip(tails).collect();
    let facts = ModelFacts { inputs: &inputs, outputs: &outputs, metadata: &metadata, tails: &tails };
    let mut text = String::new();
    if let Some(export) = recognise(facts) {
        let kind = match (export.is_hint(), export.is_refused()) {
            (true, _) => ", if no head reads it",
            (_, true) => ", which no head reads",
            _ => "",
        };
        text += &format!("  export of {}{kind}\n", export.exporter);
    }
    for guess in guess_heads(facts) {
        let (input, rest) = guess.card.split_once("[head]\n").unwrap();
        let (options, names) = rest.split_once("\n[classes]\n").unwrap_or((rest, ""));
        let line = |text: &str| {
            let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
            lines.map(|line| line.split("  #").next().unwrap()).collect::<Vec<_>>().join(", ")
        };
        let names = line(names);
        let classes = guess.class_count.map_or("any number of".to_owned(), |count| count.to_string());
        let names = if names.is_empty() { names } else { format!(", {names}") };
        let tied = if guess.tied { ", tied" } else { "" };
        let input = line(input);
        let input = if input.is_empty() { input } else { format!("; input: {input}") };
        text += &format!("  {}: {classes} classes{names}{tied}{input}\n", line(options));
    }
    text
}

#[test]
fn every_export_is_named_with_its_card_and_what_differs_from_it_is_not() {
    let mut wanted = std::fs::read_to_string(EXPORTS).unwrap();
    let mut found = String::new();
    for line in wanted.lines().filter(|line| !line.starts_with("  ")) {
        found += &format!("{line}\n");
        if line.contains(" -> ") && !line.starts_with('#') {
            found += &answer(line);
        }
    }
    if std::env::var_os("VISIOND_REGENERATE").is_some() {
        std::fs::write(EXPORTS, &found).unwrap();
        wanted.clone_from(&found);
    }
    for (number, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(
            found,
            wanted,
            "line {} of exports.txt; after a change that means it, VISIOND_REGENERATE=1",
            number + 1
        );
    }
    assert_eq!(found.lines().count(), wanted.lines().count());
}
