//! Prints the licences of everything in visiond's package, as its `copyright` file; fails on unknown ones.
//!
//! `cargo run --package visiond-licences -- aarch64-unknown-linux-gnu`, at the root of the repository.

mod crates;
mod expression;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

/// Contents that are not crates: name, licence, origin, text.
const PARTS: &[(&str, &str, &str, &str)] = &[
    ("Rust's standard library", "MIT OR Apache-2.0", "The Rust Project Contributors, linked in", "LICENSE-APACHE"),
    (
        "LLVM's compiler-rt and libunwind",
        "Apache-2.0 WITH LLVM-exception",
        "linked in by the compiler",
        "LICENSE-APACHE",
    ),
    ("libjpeg-turbo", "IJG AND BSD-3-Clause AND Zlib", "in turbojpeg-sys, whose texts have its own", ""),
    (
        "labels.ttf",
        "Bitstream Vera, public domain",
        "DejaVu Sans Bold, in the program",
        "daemon/annotate/assets/labels.LICENSE",
    ),
    ("nanodet-g-416.onnx", "Apache-2.0", "RangiLyu and others, the sample network", "config/models/LICENSE-nanodet"),
];

const INTRODUCTION: &str = "\
visiond, the vision daemon, is under the MIT License or the Apache License 2.0, as you like.

This package has other people's work inside. What it is, under which licence, and whose text below goes with it:
";

fn main() -> ExitCode {
    let Some(target) = std::env::args().nth(1) else {
        eprintln!(
            "licences: name the target, as in `cargo run --package visiond-licences -- aarch64-unknown-linux-gnu`"
        );
        return ExitCode::from(2);
    };
    let printed =
        report(&target).and_then(|text| io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string()));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("licences: {message}");
            ExitCode::FAILURE
        }
    }
}

fn report(target: &str) -> Result<String, String> {
    let apache = read("LICENSE-APACHE")?;
    let mut table = String::new();
    // A text's number, by the text; the first ones are ours.
    let mut numbered: BTreeMap<String, usize> = BTreeMap::new();
    let mut in_order: Vec<String> = Vec::new();
    let mut number = |text: &str| -> usize {
        let text = text.trim_end().to_owned() + "\n";
        *numbered.entry(text).or_insert_with_key(|text| {
            in_order.push(text.clone());
            in_order.len()
        })
    };
    let ours = [number(&read("LICENSE-MIT")?), number(&apache)];
    table += &row("visiond", "MIT OR Apache-2.0", "this program", &ours);
    for (name, licence, origin, file) in PARTS {
        let numbers: Vec<usize> = if file.is_empty() { Vec::new() } else { vec![number(&read(file)?)] };
        table += &row(name, licence, origin, &numbers);
    }
    let mut unknown = Vec::new();
    for krate in crates::inside("visiond", target)?.into_iter().filter(|krate| !krate.ours) {
        let name = format!("{} {}", krate.name, krate.version);
        if !expression::is_known(&krate.licence) {
            unknown.push(format!("{name} ({})", if krate.licence.is_empty() { "none named" } else { &krate.licence }));
            continue;
        }
        let numbers: Vec<usize> = texts::of(&krate, &apache)?.iter().map(|text| number(text)).collect();
        table += &row(&name, &krate.licence, &krate.repository, &numbers);
    }
    if !unknown.is_empty() {
        return Err(format!(
            "unknown licence of {}: read it, then add it to KNOWN in tests/licences/src/expression.rs if a binary may \
             carry it, else do without the crate",
            unknown.join(", ")
        ));
    }
    let texts = in_order
        .iter()
        .enumerate()
        .map(|(index, text)| format!("\n{:=^100}\n\n{text}", format!(" text {} ", index + 1)));
    Ok(format!("{INTRODUCTION}\n{table}{}", texts.collect::<String>()))
}

fn row(name: &str, licence: &str, origin: &str, texts: &[usize]) -> String {
    let numbers: Vec<_> = texts.iter().map(ToString::to_string).collect();
    let note = if numbers.is_empty() { String::new() } else { format!("; text {}", numbers.join(", ")) };
    let origin = if origin.is_empty() { String::new() } else { format!("; {origin}") };
    format!("  {name}: {licence}{origin}{note}\n")
}

fn read(file: &str) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{file}: {error}: run it at the root of the repository"))
}
