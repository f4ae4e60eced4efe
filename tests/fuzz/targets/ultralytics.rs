//! The metadata of Ultralytics' exports: lines of `key=value`, the first line with the shapes of the outputs.
//!
//! The card that it makes fits the outputs, which a head is built for.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use visiond_engine::engine::{Dim, TensorInfo};
use visiond_engine::heads;
use visiond_engine::ultralytics::card;
use visiond_kernels::tensor::DType;

/// Reads `1x84x8400 1x300x6`; anything but a number is a dimension that is not fixed.
fn outputs(line: &str) -> Vec<TensorInfo> {
    let dim = |text: &str| text.parse().map_or_else(|_| Dim::Dynamic(text.to_owned()), Dim::Fixed);
    let shape = |text: &str| text.split('x').map(dim).collect();
    let output = |text: &str| TensorInfo { name: "output".to_owned(), dtype: DType::F32, shape: Some(shape(text)) };
    line.split(' ').map(output).collect()
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (first, rest) = text.split_once('\n').unwrap_or(("", text));
    let outputs = outputs(first);
    let pairs = rest.lines().filter_map(|line| line.split_once('='));
    let metadata: BTreeMap<_, _> = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let side = Dim::Dynamic(String::new());
    let shape = Some(vec![Dim::Fixed(1), Dim::Fixed(3), side.clone(), side]);
    let input = TensorInfo { name: "images".to_owned(), dtype: DType::F32, shape };
    match card(&metadata, &[input], &outputs) {
        None => {}
        Some(Err(error)) => assert!(!error.to_string().is_empty()),
        Some(Ok(card)) => {
            assert!((1..=100_000).contains(&card.classes.len()));
            let size = card.input.size.unwrap_or((640, 640));
            let _ = heads::build(&card.head, &outputs, size, card.classes.len());
        }
    }
});
