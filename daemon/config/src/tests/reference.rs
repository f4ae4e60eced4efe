//! The tables of `docs/configuration.md`, generated from the declarations in [`types`](crate::types).
//!
//! The test below compares the file with the output of [`tables`], or writes it:
//! `VISIOND_REGENERATE=1 cargo test -p visiond-config`.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::annotated::tests::{assert_stored, in_repository};
use crate::schema::{Key, Presence, Shape, Variant, join};
use crate::settings::ALLOWED;
use crate::tables::{Section, TYPE_DOC};
use crate::types::Config;

/// Returns the tables of the reference, in Markdown.
fn tables() -> String {
    Config::keys().iter().map(|key| chapter(key, "", 2)).collect::<String>().trim_end().to_owned() + "\n"
}

/// Returns a table of the file under a heading of `level`.
fn chapter(key: &Key, parent: &str, level: usize) -> String {
    let path = join(parent, key.name);
    let marks = "#".repeat(level);
    let heading = |title: &str, doc: &str| format!("{marks} {title}\n\n{}\n\n", cell(doc));
    match &key.shape {
        Shape::Table(keys) => heading(&format!("`[{path}]`"), &key.doc) + &rows(keys, &path, level),
        Shape::Tables(keys) => heading(&format!("`[[{path}]]`"), &key.doc) + &rows(keys, &path, level),
        Shape::UnionTable(variants) => heading(&format!("`[{path}]`"), &key.doc) + &types(variants, &path, level),
        Shape::Union(variants) => types(variants, parent, level - 1),
        Shape::Value(_) => String::new(),
    }
}

/// Returns the values of a table, then the chapters of its tables.
fn rows(keys: &[Key], path: &str, level: usize) -> String {
    let mut out = String::from("| Key | Value | Default | Description |\n|---|---|---|---|\n");
    for key in keys {
        match &key.shape {
            Shape::Value(kind) => {
                let absence = match &key.presence {
                    Presence::Default(value) => format!("`{value}`"),
                    Presence::Required(_) => "required".to_owned(),
                    Presence::Optional(_) | Presence::Parts => "-".to_owned(),
                };
                out += &format!("| `{}` | {} | {} | {} |\n", key.name, cell(kind), cell(&absence), cell(&key.doc));
            }
            Shape::Union(variants) => {
                let names: Vec<_> = variants.iter().map(|variant| format!("\"{}\"", variant.name)).collect();
                out += &format!("| `type` | one of {} | required | {TYPE_DOC} |\n", names.join(", "));
            }
            _ => {}
        }
    }
    out.push('\n');
    out + &keys.iter().map(|key| chapter(key, path, level + 1)).collect::<String>()
}

fn types(variants: &[Variant], path: &str, level: usize) -> String {
    let marks = "#".repeat(level + 1);
    let mut out = String::new();
    for variant in variants {
        out += &format!("{marks} `{path}` with `type = \"{}\"`\n\n{}\n\n", variant.name, cell(&variant.doc));
        if !variant.keys.is_empty() {
            out += &rows(&variant.keys, path, level + 1);
        }
    }
    out
}

/// Returns what settings of bundles may set.
fn settings() -> String {
    let mut out = String::from(
        "\n## What a bundle may set\n\nThe keys that [settings of a bundle](fleet.md#settings) may have. Tables with a `name` have it as well, to say which \
         one is meant.\n\n| Table | Keys |\n|---|---|\n",
    );
    for (table, keys) in ALLOWED {
        let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        out += &format!("| `{table}` | {} |\n", keys.join(", "));
    }
    out
}

/// Escapes the bars in `text`, which would end a cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn the_reference_ends_with_the_tables() {
    const MARK: &str = "<!-- From here on printed from the declarations; do not edit. -->\n";
    let stored = fs::read_to_string(in_repository("docs/configuration.md")).unwrap();
    let (prose, _) = stored.split_once(MARK).unwrap();
    assert_stored("docs/configuration.md", &format!("{prose}{MARK}\n{}{}", tables(), settings()));
}
