//! The settings of a bundle: TOML that lies over the configuration file of each device that follows the bundle.
//!
//! Whoever has a key that signs bundles decides what settings say. So they may set only the keys of [`ALLOWED`]: none that names a
//! file, a program, an address or a login, none that uncovers what a privacy mask hides, and only of cameras and models that the
//! file has. Everything else is the device's.
//!
//! The merge: tables by their keys, tables with a `name` by that, and every other value as a whole. The settings win.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::SystemTime;

use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::diagnostics::Diagnostics;
use super::schema::{Item, Key, Shape, join};

/// The settings that are part of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenSettings {
    /// The name of their bundle.
    pub bundle: String,
    /// Its version.
    pub version: u64,
    /// The number of the key that signed it, if its signature can be read.
    pub signed_by: Option<String>,
    /// Since when it is the current version.
    pub since: Option<SystemTime>,
    /// What they set.
    pub table: Table,
}

impl TakenSettings {
    /// Returns what they set of a camera.
    fn camera(&self, name: &str) -> Option<&Table> {
        named(&self.table, "camera", name)
    }

    /// Whether they set something of this table of a camera; without a name, in any of them.
    #[must_use]
    pub fn sets(&self, camera: &str, table: &str, name: Option<&str>) -> bool {
        self.camera(camera).is_some_and(|camera| match name {
            Some(name) => named(camera, table, name).is_some(),
            None => camera.contains_key(table),
        })
    }
}

/// Returns the table of this name in a list of tables.
fn named<'t>(table: &'t Table, list: &str, name: &str) -> Option<&'t Table> {
    let tables = table.get(list)?.as_array()?.iter().filter_map(Value::as_table);
    tables.into_iter().find(|table| table.get(NAME).and_then(Value::as_str) == Some(name))
}

/// The key by which tables are merged.
const NAME: &str = "name";

/// The tables that settings only add.
const ADDED: &str = "camera.privacy";

/// The keys that settings may set, by their table. The `name` of a table says which one is meant. A new key of the configuration is
/// refused until it is added here.
pub const ALLOWED: [(&str, &[&str]); 22] = [
    ("log", &["level"]),
    ("status", &["log_interval"]),
    (
        "model",
        &[
            "score_threshold",
            "iou_threshold",
            "max_detections",
            "classes",
            "batch_wait",
            "priority",
            "masks",
            "mask_tolerance_pixels",
            "on_classes",
            "min_size",
            "margin",
            "square",
            "max_crops",
            "refresh",
        ],
    ),
    (
        "camera",
        &[
            "enabled",
            "score_threshold",
            "max_fps",
            "group",
            "group_timeout",
            "crop",
            "crop_frame_size",
            "rotate",
            "flip",
            "smooth",
        ],
    ),
    ("camera.models", &["max_fps", "every", "classes", "score_threshold", "min_size", "max_size", "crop"]),
    ("camera.models.tiles", &["size", "columns", "rows", "overlap"]),
    ("camera.annotate", &["every", "on_detection", "on_event"]),
    ("camera.clips", &["before", "after", "longest", "rules", "kinds"]),
    ("camera.track", &["unseen", "score", "classes"]),
    (ADDED, &["polygon", "frame_size", "fill"]),
    ("camera.ignore", &["polygon", "frame_size", "classes"]),
    ("camera.ground", &["points", "frame_size", "metres"]),
    (
        "camera.line",
        &[
            "enabled",
            "points",
            "frame_size",
            "sides",
            "classes",
            "min_score",
            "min_size",
            "max_size",
            "anchor",
            "settle",
            "hold",
            "only_while",
            "unless",
            "reset",
        ],
    ),
    ("camera.line.active", ACTIVE),
    (
        "camera.zone",
        &[
            "enabled",
            "polygon",
            "frame_size",
            "visits",
            "dwell",
            "loitering",
            "absence",
            "classes",
            "min_score",
            "min_size",
            "max_size",
            "anchor",
            "settle",
            "hold",
            "parked",
            "only_while",
            "unless",
            "reset",
        ],
    ),
    ("camera.zone.active", ACTIVE),
    ("camera.zone.occupancy", &["at_least", "at_most", "lasting"]),
    ("camera.zone.stopped", &["time", "distance"]),
    ("camera.zone.wrong_way", &["direction", "distance"]),
    ("camera.zone.speed", &["at_least_kmh", "at_most_kmh", "over"]),
    ("camera.zone.left_behind", BELONGING),
    ("camera.zone.taken_away", BELONGING),
];

const ACTIVE: &[&str] = &["days", "from", "to"];
const BELONGING: &[&str] = &["classes", "time", "distance", "owners", "near"];

/// Places in the frame, and the key that says in which unit they are: a place that settings set has the unit that they set.
const UNITS: [(&str, &str); 3] = [("points", "frame_size"), ("polygon", "frame_size"), ("crop", "crop_frame_size")];

/// Reports the keys that settings must not set. Keys that do not exist are for the reader to report.
pub(crate) fn check(table: &DeTable<'_>, path: &str, keys: &[Key], diagnostics: &mut Diagnostics) {
    for (key, item) in table {
        let Some(known) = keys.iter().find(|known| known.name == key.get_ref().as_ref()) else { continue };
        let inner = join(path, known.name);
        match &known.shape {
            Shape::Table(keys) | Shape::Tables(keys) if has_allowed(&inner) => match item.get_ref() {
                DeValue::Array(items) => {
                    for item in items.iter().filter(|item| has_name(keys) && name_of(item).is_none()) {
                        let message = format!("`{inner}` needs a `name`, which says which one is meant: add it");
                        diagnostics.error(item.span(), message);
                    }
                    let tables = items.iter().filter_map(|item| item.get_ref().as_table());
                    tables.for_each(|table| check(table, &inner, keys, diagnostics));
                }
                value => value.as_table().into_iter().for_each(|table| check(table, &inner, keys, diagnostics)),
            },
            Shape::Value(_) if is_allowed(path, known.name) || (known.name == NAME && has_allowed(path)) => {}
            _ => diagnostics.error(
                key.span(),
                format!(
                    "`{inner}` cannot come from a bundle: set it in the configuration file of the device; \
                     docs/configuration.md lists what a bundle may set"
                ),
            ),
        }
    }
}

/// Whether settings may set a key of this table.
fn is_allowed(table: &str, key: &str) -> bool {
    ALLOWED.iter().any(|(path, keys)| *path == table && keys.contains(&key))
}

/// Whether settings may set something in this table or below it.
fn has_allowed(table: &str) -> bool {
    let is_in = |path: &str| path.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    ALLOWED.iter().any(|(path, _)| is_in(path))
}

/// Lays the table `over` over `base`; both are at `path`, whose keys are `keys`. Reports what does not fit together.
pub(crate) fn merge<'i>(
    base: &mut DeTable<'i>,
    over: &DeTable<'i>,
    path: &str,
    keys: &[Key],
    diagnostics: &mut Diagnostics,
) {
    for (place, unit) in UNITS {
        if over.contains_key(place) && !over.contains_key(unit) {
            base.remove(unit);
        }
    }
    for (key, item) in over {
        let name = key.get_ref().as_ref();
        let inner = join(path, name);
        let shape = keys.iter().find(|known| known.name == name).map(|known| &known.shape);
        match shape {
            Some(Shape::Tables(keys)) if has_name(keys) || inner == ADDED => {
                let Some(items) = item.get_ref().as_array() else {
                    let message = format!("`{inner}` must be tables: write `[[{inner}]]` and the keys below");
                    diagnostics.error(item.span(), message);
                    continue;
                };
                let list = match base.get_mut(name) {
                    Some(list) => list,
                    None => {
                        base.insert(key.clone(), Spanned::new(item.span(), DeValue::Array(DeArray::new())));
                        let Some(list) = base.get_mut(name) else { continue };
                        list
                    }
                };
                // Otherwise the file has something else in its place, which its reader reports.
                if let DeValue::Array(list) = list.get_mut() {
                    if has_name(keys) {
                        merge_by_name(list, items, &inner, keys, diagnostics);
                    } else {
                        add(list, items);
                    }
                }
            }
            Some(Shape::Table(keys)) => match (base.get_mut(name).map(Spanned::get_mut), item.get_ref()) {
                (Some(DeValue::Table(base)), DeValue::Table(over)) => merge(base, over, &inner, keys, diagnostics),
                _ => drop(base.insert(key.clone(), item.clone())),
            },
            _ => drop(base.insert(key.clone(), item.clone())),
        }
    }
}

fn has_name(keys: &[Key]) -> bool {
    keys.iter().any(|key| key.name == NAME)
}

/// Returns the name of a table in a list, or the name that stands for one.
fn name_of<'a>(item: &'a Item<'_>) -> Option<&'a str> {
    match item.get_ref() {
        DeValue::Table(table) => table.get(NAME)?.get_ref().as_str(),
        value => value.as_str(),
    }
}

/// Merges tables by their names. Cameras and models must exist; the tables of a camera are added if they do not.
fn merge_by_name<'i>(
    base: &mut DeArray<'i>,
    over: &[Item<'i>],
    path: &str,
    keys: &[Key],
    diagnostics: &mut Diagnostics,
) {
    let must_exist = !path.contains('.');
    let mut seen = BTreeSet::new();
    for item in over {
        // `check` has reported one without.
        let Some(name) = name_of(item) else { continue };
        if !seen.insert(name) {
            diagnostics.error(item.span(), format!("`{path}` {name:?} is there twice: write its keys into one table"));
            continue;
        }
        match base.iter_mut().find(|base| name_of(base) == Some(name)) {
            None if must_exist => diagnostics.error(
                item.span(),
                format!(
                    "the configuration file has no {path} {name:?}, and a bundle changes only those that it has: correct \
                     the name, or add the {path} to the file"
                ),
            ),
            None => base.push(item.clone()),
            Some(base) => match (base.get_mut(), item.get_ref()) {
                (DeValue::Table(base), DeValue::Table(over)) => merge(base, over, path, keys, diagnostics),
                // A name in the file, which says no more than that.
                (_, DeValue::Table(_)) => *base = item.clone(),
                _ => {}
            },
        }
    }
}

/// Adds the items that are not in the list.
fn add<'i>(base: &mut DeArray<'i>, over: &[Item<'i>]) {
    for item in over {
        if !base.iter().any(|base| is_same(base.get_ref(), item.get_ref())) {
            base.push(item.clone());
        }
    }
}

/// Whether two values are written alike, wherever they are.
fn is_same(a: &DeValue<'_>, b: &DeValue<'_>) -> bool {
    match (a, b) {
        (DeValue::String(a), DeValue::String(b)) => a == b,
        (DeValue::Integer(a), DeValue::Integer(b)) => (a.as_str(), a.radix()) == (b.as_str(), b.radix()),
        (DeValue::Float(a), DeValue::Float(b)) => a.as_str() == b.as_str(),
        (DeValue::Boolean(a), DeValue::Boolean(b)) => a == b,
        (DeValue::Datetime(a), DeValue::Datetime(b)) => a == b,
        (DeValue::Array(a), DeValue::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_same(a.get_ref(), b.get_ref()))
        }
        (DeValue::Table(a), DeValue::Table(b)) => {
            let has = |(key, a): (&Spanned<Cow<'_, str>>, &Item<'_>)| {
                b.get(key.get_ref().as_ref()).is_some_and(|b| is_same(a.get_ref(), b.get_ref()))
            };
            a.len() == b.len() && a.iter().all(has)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
