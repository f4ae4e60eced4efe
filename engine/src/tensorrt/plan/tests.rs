#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use super::*;

fn ftrt(major: u8, minor: u8, patch: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"ftrt");
    bytes[24..28].copy_from_slice(&[major, minor, patch, 1]);
    bytes
}

fn vtrt(size: u64, gpus: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"vtrt");
    bytes[16..24].copy_from_slice(&size.to_le_bytes());
    bytes[24..28].copy_from_slice(&[1, 6, 1, 120]);
    bytes[32..40].copy_from_slice(&gpus.to_le_bytes());
    bytes
}

fn wrapped(json: &str, plan: &[u8]) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes(), plan].concat()
}

#[test]
fn every_kind_of_engine_tells_what_built_it() {
    let text = |bytes: &[u8]| PlanHeader::parse(bytes).map(|header| header.to_string());
    assert_eq!(text(&ftrt(10, 3, 0)).unwrap(), "TensorRT 10.3.0");
    assert_eq!(text(&ftrt(8, 6, 1)).unwrap(), "TensorRT 8.6.1");
    assert_eq!(text(&vtrt(64, 0)).unwrap(), "TensorRT for RTX 1.6.1");
    assert_eq!(text(b"ptrt\0\0\0\0\xe8\0\0\0").unwrap(), "TensorRT 8.5 or older (format 232)");
    assert_eq!(text(b"\x08\x08\x12\x07pytorch"), None);
    assert_eq!(text(b""), None);
}

#[test]
fn ultralytics_notes_are_read_and_the_engine_found_behind_them() {
    let json = r#"{"author": "Ultralytics", "names": {"0": "person"}, "stride": 32, "imgsz": [640, 480], "task": "detect",
                   "batch": 1, "args": {"nms": false}, "end2end": false}"#;
    let plan = Plan::parse(&wrapped(json, &ftrt(10, 3, 0))).unwrap();
    assert_eq!(plan.offset, 4 + json.len());
    assert_eq!(plan.header.to_string(), "TensorRT 10.3.0");
    assert_eq!(plan.metadata["imgsz"], "[640,480]");
    assert_eq!(plan.metadata["author"], "Ultralytics");
    let card = crate::ultralytics::card(&plan.metadata, &[], &[]);
    let card = card.unwrap();
    assert!(card.is_ok() || card.is_err_and(|error| !error.to_string().contains("damaged")));
}

#[test]
fn a_wrapping_that_lies_is_no_wrapping() {
    assert!(!is_plan(&[0xff; 64]));
    assert!(!is_plan(b"\x10\0\0\0{not json at all"));
    assert!(!is_plan(&wrapped("[1, 2]", &ftrt(10, 0, 0))));
    assert!(is_plan(&wrapped("{}", b"")));
    assert!(Plan::parse(&wrapped("{}", b"ftrt")).is_none());
}

#[test]
fn an_engine_that_is_cut_off_is_seen_without_tensorrt() {
    let path = Path::new("model.engine");
    let error = check_length(path, &vtrt(5000, 0)).unwrap_err().to_string();
    assert_eq!(
        error,
        "model.engine is truncated: 64 of 5000 bytes; copy it again, or build it with `visiond build model.onnx -o \
         model.engine`"
    );
    assert!(check_length(path, &vtrt(64, 0)).is_ok());
    assert!(check_length(path, b"vtrt\0\0").is_err());
    assert!(check_length(path, &wrapped("{}", &vtrt(64, 0))).is_ok());
    assert!(check_length(path, &wrapped("{}", &vtrt(65, 0))).is_err());
}

#[test]
fn the_gpus_of_an_engine_for_rtx_are_in_its_header() {
    let header = PlanHeader::parse(&vtrt(64, 0b000110)).unwrap();
    assert_eq!(header.gpus(), [(8, 0), (8, 6)]);
    assert_eq!((header.is_for((8, 6)), header.is_for((8, 9))), (Some(true), Some(false)));
    // A GPU that the mask has no bit for: refused, unless the engine was built for no GPU in particular.
    assert_eq!(header.is_for((9, 0)), Some(false));
    let portable = PlanHeader::parse(&vtrt(64, 0x7e)).unwrap();
    assert_eq!(
        (portable.is_for((9, 0)), portable.is_for((7, 5)), portable.is_for((8, 9))),
        (None, Some(false), Some(true))
    );
    // Engines whose headers do not say.
    assert_eq!(PlanHeader::parse(&vtrt(64, 0)).unwrap().is_for((8, 6)), None);
    assert_eq!(PlanHeader::parse(&ftrt(10, 3, 0)).unwrap().is_for((8, 6)), None);
}

#[test]
fn no_bytes_make_the_parser_fall_over() {
    let seeds = [ftrt(10, 3, 0), vtrt(64, 1), wrapped(r#"{"a": 1}"#, &ftrt(8, 6, 1))];
    for seed in seeds {
        for len in 0..seed.len() {
            let _ = Plan::parse(&seed[..len]);
            let _ = is_plan(&seed[..len]);
        }
        for index in 0..seed.len() {
            let mut bytes = seed.clone();
            bytes[index] ^= 0xff;
            let _ = Plan::parse(&bytes);
        }
    }
}
