//! Which crates end up in the binary, from `cargo metadata`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate whose code is in the binary.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    /// The name on crates.io.
    pub name: String,
    /// The locked version.
    pub version: String,
    /// The licence that it declares; empty: none.
    pub licence: String,
    /// Its authors, if it names them.
    pub authors: Vec<String>,
    /// Where its sources are published.
    pub repository: String,
    /// Its sources.
    pub folder: PathBuf,
    /// Whether it is part of this repository.
    pub ours: bool,
}

/// Every crate that is linked into `program` for `target`, without those used only by the build (build scripts, macros,
/// tests).
pub fn inside(program: &str, target: &str) -> Result<Vec<Crate>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    linked(&metadata, program)
}

fn linked(metadata: &Value, program: &str) -> Result<Vec<Crate>, String> {
    let by_id = |list: &Value| -> BTreeMap<String, Value> {
        let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().map(|entry| (text(&entry["id"]), entry.clone())).collect()
    };
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let root = packages.iter().find(|(_, package)| text(&package["name"]) == program).map(|(id, _)| id.clone());
    let mut open = vec![root.ok_or_else(|| format!("there is no package {program} here"))?];
    let mut found: BTreeMap<String, Crate> = BTreeMap::new();
    while let Some(id) = open.pop() {
        let package = packages.get(&id).ok_or_else(|| format!("cargo metadata does not describe {id}"))?;
        let is_macro =
            array(&package["targets"]).iter().any(|target| array(&target["kind"]).contains(&"proc-macro".into()));
        if is_macro || found.contains_key(&id) {
            continue;
        }
        found.insert(id.clone(), described(package));
        let node = nodes.get(&id).unwrap_or(&Value::Null);
        let is_linked = |dependency: &&Value| array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        open.extend(array(&node["deps"]).iter().filter(is_linked).map(|dependency| text(&dependency["pkg"])));
    }
    let mut crates: Vec<Crate> = found.into_values().collect();
    crates.sort();
    Ok(crates)
}

fn described(package: &Value) -> Crate {
    Crate {
        name: text(&package["name"]),
        version: text(&package["version"]),
        licence: text(&package["license"]),
        authors: array(&package["authors"]).iter().map(text).collect(),
        repository: text(&package["repository"]),
        folder: Path::new(&text(&package["manifest_path"])).parent().map(Path::to_owned).unwrap_or_default(),
        ours: package["source"].is_null(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_builds_is_not_inside() {
        let package = |name: &str, kind: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "authors": [], "manifest_path": "/x/Cargo.toml",
                   "targets": [{"kind": [kind]}], "source": null})
        };
        let metadata = json!({
            "packages": [package("app", "bin"), package("linked", "lib"), package("below", "lib"), package("builds", "lib"),
                         package("derive", "proc-macro"), package("tests", "lib")],
            "resolve": {"nodes": [
                {"id": "app", "deps": [
                    {"pkg": "linked", "dep_kinds": [{"kind": null}]},
                    {"pkg": "derive", "dep_kinds": [{"kind": null}]},
                    {"pkg": "builds", "dep_kinds": [{"kind": "build"}]},
                    {"pkg": "tests", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "linked", "deps": [{"pkg": "below", "dep_kinds": [{"kind": null}, {"kind": "build"}]}]},
                {"id": "below", "deps": []}, {"id": "builds", "deps": []}, {"id": "derive", "deps": []}, {"id": "tests", "deps": []}]}
        });
        let names: Vec<_> = linked(&metadata, "app").unwrap().into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["app", "below", "linked"]);
        assert!(linked(&metadata, "other").is_err());
    }
}
