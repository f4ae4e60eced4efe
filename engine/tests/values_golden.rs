//! Attributes, embeddings and depth compared with numpy's results for the same outputs: tests/golden/values.json, made by
//! values.py.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use half::f16;
use serde_json::Value;
use visiond_engine::card::Card;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads::{self, Decoded, FrameValues, HeadInput, NamedOutput, Reading};
use visiond_kernels::placement::Mapping;
use visiond_kernels::tensor::{DType, TensorRef};

struct Output {
    info: TensorInfo,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn output(output: &Value) -> Output {
    let shape: Vec<usize> = output["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
    // Values that JSON cannot represent are text.
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap()) as f32;
    let numbers = output["data"].as_array().unwrap().iter().map(number);
    let (dtype, bytes): (DType, Vec<u8>) = match output["dtype"].as_str().unwrap() {
        "f32" => (DType::F32, numbers.flat_map(f32::to_ne_bytes).collect()),
        "f16" => (DType::F16, numbers.map(f16::from_f32).flat_map(f16::to_ne_bytes).collect()),
        other => panic!("{other}"),
    };
    let declared = shape.iter().map(|&n| Dim::Fixed(n)).collect();
    let name = output["name"].as_str().unwrap().to_owned();
    Output { info: TensorInfo { name, dtype, shape: Some(declared) }, shape, bytes }
}

fn pair(value: &Value) -> (u32, u32) {
    let side = |index: usize| value[index].as_u64().unwrap() as u32;
    (side(0), side(1))
}

/// Reads the values in a case's outputs.
fn read(case: &Value) -> FrameValues {
    let card = Card::from_toml(case["card"].as_str().unwrap(), Path::new("golden.toml"));
    let card = card.unwrap_or_else(|error| panic!("{}: {error}", case["name"]));
    let outputs: Vec<Output> = case["outputs"].as_array().unwrap().iter().map(output).collect();
    let infos: Vec<TensorInfo> = outputs.iter().map(|output| output.info.clone()).collect();
    let input_size = pair(&case["size"]);
    let mut head = heads::build(&card.head, &infos, input_size, 0).unwrap_or_else(|error| panic!("{error}"));
    let named: Vec<NamedOutput<'_>> = outputs
        .iter()
        .map(|o| NamedOutput { name: &o.info.name, tensor: TensorRef::new(o.info.dtype, &o.shape, &o.bytes).unwrap() })
        .collect();
    let source = &case["source"];
    let mapping = (!source.is_null()).then(|| Mapping::new(card.input.placement, pair(source), input_size));
    let input = HeadInput { outputs: &named, input_size, score_threshold: card.score_threshold, mapping };
    head.check_numbers(&input).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Decoded::default();
    head.decode(&input, &mut out).unwrap();
    out.values
}

fn assert_close(case: &Value, found: f32, wanted: &Value) {
    let wanted = wanted.as_f64().unwrap();
    let difference = (f64::from(found) - wanted).abs();
    assert!(difference <= 1e-5 * wanted.abs().max(1.0), "{}: {found} instead of {wanted}", case["name"]);
}

fn assert_label(case: &Value, found: &heads::ScoredLabel, wanted: &Value) {
    assert_eq!(*found.label, *wanted["label"].as_str().unwrap(), "{}", case["name"]);
    assert_close(case, found.score, &wanted["score"]);
}

#[test]
fn values_of_the_frame_are_those_of_numpy() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/values.json");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() >= 11);
    for case in &cases {
        let name = &case["name"];
        let found = read(case);
        let empty = Vec::new();
        let wanted = case["attributes"].as_array().unwrap_or(&empty);
        assert_eq!(found.attributes.len(), wanted.len(), "{name}");
        for (attribute, wanted) in found.attributes.iter().zip(wanted) {
            assert_eq!(*attribute.name, *wanted[0].as_str().unwrap(), "{name}");
            match &attribute.reading {
                Reading::Label(one) => assert_label(case, one, &wanted[1]),
                Reading::Labels(all) => {
                    let labels = wanted[1]["labels"].as_array().unwrap();
                    assert_eq!(all.len(), labels.len(), "{name}");
                    all.iter().zip(labels).for_each(|(one, wanted)| assert_label(case, one, wanted));
                }
                Reading::Number(number) => assert_close(case, *number, &wanted[1]["value"]),
            }
        }
        let embedding = case["embedding"].as_str().map(base64_bytes).unwrap_or_default();
        assert_eq!(found.embedding_as_f16(), embedding, "{name}");
        let depth = &case["depth"];
        assert_eq!(found.depth.columns as u64, depth["columns"].as_u64().unwrap_or(0), "{name}");
        assert_eq!(found.depth.rows as u64, depth["rows"].as_u64().unwrap_or(0), "{name}");
        for (cells, key) in [(&found.depth.nearest, "nearest"), (&found.depth.median, "median")] {
            let wanted = depth[key].as_array().unwrap_or(&empty);
            assert_eq!(cells.len(), wanted.len(), "{name}");
            for (index, (found, wanted)) in cells.iter().zip(wanted).enumerate() {
                assert_eq!(found.is_none(), wanted.is_null(), "{name}: cell {index} of {key}");
                found.iter().for_each(|&found| assert_close(case, found, wanted));
            }
        }
    }
}

/// Decodes base64.
fn base64_bytes(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|&c| c != b'=').map(digit).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let word = four.iter().fold(0_u32, |word, &digit| word << 6 | u32::from(digit)) << (6 * (4 - four.len()));
        word.to_be_bytes()[1..four.len()].to_vec()
    });
    bytes.collect()
}
