//! Model cards.
//!
//! The values of a card are finite and within their bounds, and each problem has a place and a text.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use visiond_engine::card::{Card, ExtraInput};
use visiond_engine::engine::TensorInfo;
use visiond_engine::heads;
use visiond_kernels::tensor::DType;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let card = match Card::from_toml(text, Path::new("net.toml")) {
        Ok(card) => card,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let input = &card.input;
    let numbers = [input.mean, input.std].concat().into_iter().chain([input.pad, input.scale]);
    assert!(numbers.into_iter().all(f32::is_finite), "{input:?}");
    assert!(!input.std.contains(&0.0), "{input:?}");
    for threshold in [card.score_threshold, card.iou_threshold] {
        assert!((0.0..=1.0).contains(&threshold), "{threshold}");
    }
    for (name, extra) in &card.extra_inputs {
        assert!(
            !matches!(extra, ExtraInput::Values(values) if values.iter().any(|value| !value.is_finite())),
            "{name}"
        );
    }
    let size = input.size.unwrap_or((64, 64));
    assert!(size.0 > 0 && size.1 > 0);
    let output = TensorInfo { name: "output".to_owned(), dtype: DType::F32, shape: None };
    // Unknown shapes fit nearly every head.
    if let Err(error) = heads::build(&card.head, &[output], size, card.classes.len()) {
        assert!(!error.to_string().is_empty());
    }
});
