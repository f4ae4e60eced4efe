//! The annotated configuration file, generated from the declarations in [`types`](super::types).
//!
//! `config/visiond.toml` equals the output of [`text`], which a test checks. To write it after a change:
//! `VISIOND_REGENERATE=1 cargo test -p visiond-config`.

use super::schema::{Key, Presence, Shape, Variant};
use super::tables::{Section, TYPE_DOC};
use super::types::Config;

/// Columns of the annotated file.
const COLUMNS: usize = 110;

const HEADER: &str = "\
# visiond configuration: every key with its default and description.
#
# Lines that begin with # and a space are comments. Lines that begin with # alone are keys: remove the # to set
# them. They show the default, or an example if there is none. `visiond check FILE` reports every error in a
# file, `visiond check --effective FILE` prints the values that apply.
#
# Durations and sizes have units: \"250 ms\", \"1m30s\", \"64 MiB\". Relative paths start at the folder of this
# file.
";

/// Returns the file with every key, as `visiond check --print-default-config` prints it.
pub fn text() -> String {
    let mut out = String::from(HEADER);
    for key in Config::keys() {
        out += &format!("\n\n{}", comment(&key.doc));
        match &key.shape {
            Shape::Table(keys) => out += &format!("[{}]\n{}", key.name, settings(keys, "")),
            Shape::Tables(keys) => out += &format!("#[[{0}]]\n{1}", key.name, settings(keys, key.name)),
            Shape::Value(_) | Shape::UnionTable(_) | Shape::Union(_) => {}
        }
        if let Shape::Tables(keys) = &key.shape {
            out += &further_types(key.name, keys);
        }
    }
    out
}

/// Returns every key of the table at `path`: values first, then its tables, as TOML requires; only the first `type` of several.
fn settings(keys: &[Key], path: &str) -> String {
    let (mut values, mut tables) = (String::new(), String::new());
    for key in keys {
        let inner = format!("{path}.{}", key.name);
        let header = format!("\n{}#[{inner}]\n", comment(&key.doc));
        match &key.shape {
            Shape::Value(kind) => values += &setting(key, kind),
            Shape::Table(keys) => tables += &(header + &settings(keys, &inner)),
            Shape::UnionTable(variants) => tables += &(header + &first_type(variants)),
            Shape::Union(variants) => values += &first_type(variants),
            Shape::Tables(keys) => {
                tables += &format!("\n{}#[[{inner}]]\n{}", comment(&key.doc), settings(keys, &inner));
            }
        }
    }
    values + &tables
}

fn first_type(variants: &[Variant]) -> String {
    let types: Vec<_> = variants.iter().map(|v| format!("\"{}\": {}", v.name, v.doc)).collect();
    let first = variants.first().map(typed).unwrap_or_default();
    format!("\n{}{}{first}", comment(TYPE_DOC), types.iter().map(|line| comment(line)).collect::<String>())
}

fn typed(variant: &Variant) -> String {
    format!("#type = \"{}\"\n{}", variant.name, settings(&variant.keys, ""))
}

/// Returns one more table for every `type` but the first, with the keys of that type only.
fn further_types(name: &str, keys: &[Key]) -> String {
    let mut out = String::new();
    for key in keys {
        // A union in a table of its own leaves the outer table without its required name; a flattened one does not.
        let (variants, inner) = match &key.shape {
            Shape::UnionTable(variants) => (variants, Some(key.name)),
            Shape::Union(variants) => (variants, None),
            _ => continue,
        };
        for variant in variants.iter().skip(1) {
            out += &format!("\n\n{}#[[{name}]]\n", comment(&variant.doc));
            if let Some(inner) = inner {
                out += &format!("#name = \"{}\"\n#[{name}.{inner}]\n", variant.name);
            }
            out += &typed(variant);
        }
    }
    out
}

fn setting(key: &Key, kind: &str) -> String {
    let (absence, value) = match &key.presence {
        Presence::Default(value) => ("default", value.as_str()),
        Presence::Required(example) => ("required, example", example.as_str()),
        Presence::Optional(example) => ("optional, example", example.as_str()),
        Presence::Parts => ("", ""),
    };
    format!("\n{}{}#{} = {value}\n", comment(&key.doc), comment(&format!("{}; {absence}:", capital(kind))), key.name)
}

/// Returns `text` as comment lines.
fn comment(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out += &(line + "\n");
            line = String::from("#");
        }
        line.push(' ');
        line += word;
    }
    out + &line + "\n"
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    pub(crate) fn in_repository(file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
    }

    /// Compares with the stored text, or stores it when `VISIOND_REGENERATE` asks for that.
    pub(crate) fn assert_stored(file: &str, expected: &str) {
        let path = in_repository(file);
        if std::env::var_os("VISIOND_REGENERATE").is_some() {
            fs::write(&path, expected).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap();
        assert!(stored == expected, "{file} is not what the declarations say: run VISIOND_REGENERATE=1 cargo test");
    }

    #[test]
    fn the_annotated_file_is_stored() {
        assert_stored("config/visiond.toml", &text());
    }

    #[test]
    fn the_annotated_file_is_the_default_configuration() {
        let config = Config::parse(&text(), Path::new("visiond.toml")).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn every_key_can_be_uncommented() {
        // `levels` requires another `format` than the example's and no `color_range`; a camera's certificate requires another
        // URL; the corners of a polygon and the crop are fractions. A camera with `models` has no `model`, and the only model is a file
        // and runs on frames; a `group_timeout` requires a group; tiles have a size, or columns and rows.
        let others = [
            "on = ",
            "bundle = ",
            "min_size = 32",
            "refresh ",
            "model = \"objects\"",
            "group_timeout ",
            "columns ",
            "rows ",
            "frame_size ",
            "crop_frame_size ",
            "levels ",
            "fingerprint ",
            "ca = \"/etc/visiond/camera.pem\"",
        ];
        let is_key = |rest: &&str| !rest.starts_with(' ') && !others.iter().any(|other| rest.starts_with(other));
        let key = |line: &str| line.strip_prefix('#').filter(is_key).map(str::to_owned);
        let text: Vec<_> = super::text().lines().map(|line| key(line).unwrap_or_else(|| line.to_owned())).collect();
        let config = match Config::parse(&text.join("\n"), Path::new("visiond.toml")) {
            Ok(config) => config,
            Err(errors) => panic!("{errors}"),
        };
        assert_eq!((config.models.len(), config.cameras.len(), config.sinks.len()), (1, 8, 5));
        assert_eq!(config.log, Config::default().log);
        assert_eq!(config.status, Config::default().status);
    }

    #[test]
    fn every_example_is_right() {
        let mut seen = Vec::new();
        for entry in fs::read_dir(in_repository("config/examples")).unwrap() {
            let path = entry.unwrap().path();
            let config = match Config::load(&path) {
                Ok(config) => config,
                Err(errors) => panic!("{errors}"),
            };
            assert!(!config.cameras.is_empty() && !config.sinks.is_empty(), "{}", path.display());
            for model in &config.models {
                // Engines are built on the device that runs them.
                let is_engine = model.path.extension().is_some_and(|extension| extension == "engine");
                assert!(is_engine || model.path.exists(), "{}: {} is not there", path.display(), model.path.display());
            }
            seen.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        seen.sort();
        let all = [
            "cascade",
            "folder",
            "gstreamer-csi",
            "home-assistant",
            "http-cameras",
            "http",
            "jetson-engine",
            "mqtt",
            "nats",
            "privacy",
            "rtsp",
            "several-models",
            "tiles",
            "two-cameras",
            "usb-camera",
            "zones",
        ];
        assert_eq!(seen, all.map(|name| format!("{name}.toml")));
    }
}
