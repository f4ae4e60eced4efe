//! The headers of TensorRT engines, with Ultralytics' wrapping, and the JSON file beside an engine.
//!
//! The first bytes of a file, all of its bytes, and its path give the same decision whether it is an engine.

#![no_main]

use libfuzzer_sys::fuzz_target;
use visiond_engine::tensorrt::PlanFile;
use visiond_engine::tensorrt::plan::{Plan, PlanHeader, is_plan, is_plan_file};
use visiond_engine::tensorrt::sidecar::Sidecar;
use visiond_fuzz::InputFile;

thread_local!(static FILE: InputFile = InputFile::new());

fn check(data: &[u8]) {
    if let Some(plan) = Plan::parse(data) {
        assert!(is_plan(data) && plan.offset < data.len());
        assert_eq!(PlanHeader::parse(&data[plan.offset..]), Some(plan.header));
        let _ = (plan.header.to_string(), plan.header.gpus(), plan.header.is_for((8, 7)), plan.header.version());
    }
    FILE.with(|file| {
        let path = file.write(data);
        assert_eq!(is_plan_file(path), is_plan(data));
        match PlanFile::read(path) {
            Ok(Some(read)) => assert_eq!(Some(read.plan), Plan::parse(data)),
            Ok(None) => assert!(!is_plan(data)),
            Err(error) => drop(error.to_string()),
        }
    });
}

/// A sidecar is unchanged after it is written and read again.
fn check_sidecar(sidecar: &Sidecar) {
    let again = serde_json::from_value::<Sidecar>(sidecar.to_json());
    assert_eq!(again.ok().as_ref(), Some(sidecar));
}

fuzz_target!(|data: &[u8]| {
    check(data);
    if let Ok(sidecar) = serde_json::from_slice::<Sidecar>(data) {
        check_sidecar(&sidecar);
    }
});
