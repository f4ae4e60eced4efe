//! The differences between two configurations: the changes that a reload has to make.
//!
//! Models and cameras are matched by name, sinks by their output; order does not matter. Only running parts count: enabled cameras,
//! models that such a camera names, and models on the detections of these.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::tables::Union;
use super::types::{
    CameraConfig, CameraModelConfig, Config, EngineConfig, EventsConfig, ModelConfig, SinkConfig, SinkTarget,
};

/// The effect of a reload on a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The part is new.
    Added,
    /// The part is gone.
    Removed,
    /// The part has different settings.
    Changed,
}

/// The differences between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigDiff {
    /// Changed tables that are compared as a whole.
    pub tables: Vec<&'static str>,
    /// The effect of the reload on models, by name.
    pub models: BTreeMap<String, Change>,
    /// The effect of the reload on cameras, by name; their images, tracks and ignored areas count separately.
    pub cameras: BTreeMap<String, Change>,
    /// The cameras that keep other detections of their models, by name, if they are not opened again.
    pub filters: BTreeMap<String, Change>,
    /// The effect of the reload on the images of cameras, by name.
    pub pictures: BTreeMap<String, Change>,
    /// The effect of the reload on the tracks of cameras, by name.
    pub tracks: BTreeMap<String, Change>,
    /// The effect of the reload on the ignored areas of cameras, by name.
    pub ignored: BTreeMap<String, Change>,
    /// The effect of the reload on sinks, by name.
    pub sinks: BTreeMap<String, Change>,
    /// Changes that need a restart, as sentences.
    pub restart_needed: Vec<String>,
}

/// One difference, as the API returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `model`, `camera`, `filters`, `pictures`, `tracks`, `ignore`, `sink` or `table`.
    pub part: Cow<'static, str>,
    /// Name of the part; for filters, images, tracks and ignored areas, of their camera.
    pub name: String,
    /// The effect of the reload on the part.
    pub change: Change,
}

impl ConfigDiff {
    /// Compares two configurations. The caller adds changes that the files do not show, such as a replaced model file.
    pub fn between(old: &Config, new: &Config) -> Self {
        // Without `..`, so that a new table does not compile until it is compared.
        // `[ffmpeg]` is part of each camera whose source uses it, and `[bundles]` of the path of each model that names a bundle.
        let Config {
            log,
            device,
            engine,
            buffers,
            ffmpeg: _,
            events,
            bundles: _,
            status,
            http,
            models: _,
            cameras: _,
            sinks: _,
        } = old;
        let mut changes = Self::default();
        // The settings that loading and running a model depends on: all but the limits of a trial.
        let EngineConfig { canary_timeout, load_timeout, load_memory_bytes, .. } = new.engine;
        let engine = EngineConfig { canary_timeout, load_timeout, load_memory_bytes, ..engine.clone() };
        let same_engine = engine == new.engine;
        let tables = [
            ("log", *log != new.log),
            ("engine", engine != old.engine),
            ("status", *status != new.status),
            ("http", *http != new.http),
        ];
        changes.tables.extend(tables.into_iter().filter(|(_, changed)| *changed).map(|(table, _)| table));
        if device.resolved() != new.device.resolved() {
            changes.restart_needed.push(format!(
                "[device] `name` changes to {} at the next start; until then it is {}",
                new.device.resolved(),
                device.resolved()
            ));
        }
        if events.folder() != new.events.folder() {
            let folder =
                |events: &EventsConfig| events.folder().map_or("none".into(), |path| path.display().to_string());
            let (old, new) = (folder(events), folder(&new.events));
            changes
                .restart_needed
                .push(format!("[events] `directory` changes to {new} at the next start; until then it is {old}"));
        }
        let name = |model: &&ModelConfig| model.name.clone();
        let (models_before, models_after) = (old.running_models(), new.running_models());
        let (models_before, models_after) = (models_before.iter().copied(), models_after.iter().copied());
        changes.models = compare(models_before, models_after, name, |a, b| same_engine && a == b);
        changes.spread_to_roots(old);
        changes.spread_to_roots(new);

        let same_buffers = *buffers == new.buffers;
        let (before, after) = (cameras(old), cameras(new));
        let name = |(camera, _): &&(&CameraConfig, _)| camera.name.clone();
        changes.cameras = compare(before.iter(), after.iter(), name, |(a, models_a), (b, models_b)| {
            let frames_of = |model: &CameraModelConfig| (model.name.clone(), model.max_fps, model.every);
            let same_models = models_a.iter().map(frames_of).eq(models_b.iter().map(frames_of));
            // Models on detections need more buffers.
            let same_count = old.cascades_of(a) == new.cascades_of(b);
            same_buffers
                && same_count
                && same_models
                && a.source == b.source
                && a.max_fps == b.max_fps
                && (a.group, a.group_timeout) == (b.group, b.group_timeout)
                && a.privacy == b.privacy
                // What goes into clips is decided when the source is opened.
                && a.clips == b.clips
                && a.view() == b.view()
        });
        changes.filters = compare(before.iter(), after.iter(), name, |(_, a), (_, b)| a == b);
        // A camera that is opened again applies its filters anew.
        changes.filters.retain(|camera, _| !changes.cameras.contains_key(camera));
        let drawn = |(camera, _): &&(&CameraConfig, _)| camera.annotate.is_some();
        let (drawn_before, drawn_after) = (before.iter().filter(drawn), after.iter().filter(drawn));
        changes.pictures = compare(drawn_before, drawn_after, name, |(a, _), (b, _)| a.annotate == b.annotate);
        let same_time_zone = device.time_zone == new.device.time_zone;
        let tracked = |(camera, _): &&(&CameraConfig, _)| camera.track.is_some();
        let (tracked_before, tracked_after) = (before.iter().filter(tracked), after.iter().filter(tracked));
        changes.tracks = compare(tracked_before, tracked_after, name, |(a, _), (b, _)| {
            let same_times = same_time_zone || !a.has_times();
            same_times
                && (&a.track, a.smooth, &a.ground, &a.line, &a.zone)
                    == (&b.track, b.smooth, &b.ground, &b.line, &b.zone)
        });
        let ignores = |(camera, _): &&(&CameraConfig, _)| !camera.ignore.is_empty();
        let (before, after) = (before.iter().filter(ignores), after.iter().filter(ignores));
        changes.ignored = compare(before, after, name, |(a, _), (b, _)| a.ignore == b.ignore);

        for sink in &new.sinks {
            match old.sinks.iter().find(|before| same_output(before, sink)) {
                Some(before) if before == sink => {}
                Some(_) => drop(changes.sinks.insert(sink.name.clone(), Change::Changed)),
                None => drop(changes.sinks.insert(sink.name.clone(), Change::Added)),
            }
        }
        let gone = |sink: &&SinkConfig| !new.sinks.iter().any(|after| same_output(after, sink));
        for sink in old.sinks.iter().filter(gone) {
            // A sink of the same name with a different output counts as changed.
            let change = if changes.sinks.contains_key(&sink.name) { Change::Changed } else { Change::Removed };
            changes.sinks.insert(sink.name.clone(), change);
        }
        changes
    }

    /// Marks the models on frames as changed whose cascade, in this configuration, has changes: a lane gets all of its models at once.
    pub fn spread_to_roots(&mut self, config: &Config) {
        for root in config.used_models() {
            if config.cascade_of(root).iter().any(|model| self.models.contains_key(&model.name)) {
                self.models.entry(root.name.clone()).or_insert(Change::Changed);
            }
        }
    }

    /// Returns every difference: models, cameras, their filters, pictures, tracks and ignored areas, sinks, tables.
    pub fn differences(&self) -> Vec<Difference> {
        let parts = [
            ("model", &self.models),
            ("camera", &self.cameras),
            ("filters", &self.filters),
            ("pictures", &self.pictures),
            ("tracks", &self.tracks),
            ("ignore", &self.ignored),
            ("sink", &self.sinks),
        ];
        let parts = parts.into_iter().flat_map(|(part, changes)| {
            changes.iter().map(move |(name, change)| Difference {
                part: part.into(),
                name: name.clone(),
                change: *change,
            })
        });
        // The pictures, tracks and ignored areas of an added or removed camera are part of it.
        let whole = |name: &str| matches!(self.cameras.get(name), Some(Change::Added | Change::Removed));
        let parts =
            parts.filter(|change| !(matches!(&*change.part, "pictures" | "tracks" | "ignore") && whole(&change.name)));
        let table =
            |table: &&str| Difference { part: "table".into(), name: (*table).to_owned(), change: Change::Changed };
        parts.chain(self.tables.iter().map(table)).collect()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, changed) = match &*self.part {
            "table" => return write!(f, "[{}] changed", self.name),
            "model" => ("model", "loaded again"),
            "camera" => ("camera", "opened again"),
            "filters" => ("filters of camera", "changed"),
            "pictures" => ("pictures of camera", "changed"),
            "tracks" => ("tracks of camera", "changed"),
            "ignore" => ("ignored areas of camera", "changed"),
            part => (part, "changed"),
        };
        let becomes = match self.change {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => changed,
        };
        write!(f, "{what} {} {becomes}", self.name)
    }
}

/// `model objects loaded again, camera door added, [log] changed`
impl fmt::Display for ConfigDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.differences().iter().map(Difference::to_string).collect();
        f.write_str(if parts.is_empty() { "nothing has changed" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}

/// Copies the settings that need a restart from `old`, the running configuration, to `new`.
pub fn keep_until_restart(old: &Config, new: &mut Config) {
    new.device.name = old.device.name.clone();
    new.events = old.events.clone();
}

/// Returns whether two sinks have the same output and the same spool. If so, the second continues where the first stopped.
pub fn same_output(a: &SinkConfig, b: &SinkConfig) -> bool {
    let spool = |sink: &SinkConfig| sink.durable.then(|| sink.spool());
    Union::name(&a.kind) == Union::name(&b.kind)
        && SinkTarget::of(&a.kind) == SinkTarget::of(&b.kind)
        && spool(a) == spool(b)
}

/// Returns the enabled cameras, each with its models.
fn cameras(config: &Config) -> Vec<(&CameraConfig, Vec<CameraModelConfig>)> {
    let enabled = config.cameras.iter().filter(|camera| camera.enabled);
    enabled.map(|camera| (camera, config.models_of(camera).map(|(_, model)| model).collect())).collect()
}

fn compare<'a, T: 'a>(
    old: impl Iterator<Item = &'a T>,
    new: impl Iterator<Item = &'a T> + Clone,
    name: impl Fn(&&T) -> String,
    same: impl Fn(&T, &T) -> bool,
) -> BTreeMap<String, Change> {
    let mut changes: BTreeMap<_, _> = new.clone().map(|part| (name(&part), Change::Added)).collect();
    for before in old {
        let name_before = name(&before);
        match new.clone().find(|part| name(part) == name_before) {
            None => drop(changes.insert(name_before, Change::Removed)),
            Some(after) if same(before, after) => drop(changes.remove(&name_before)),
            Some(_) => drop(changes.insert(name_before, Change::Changed)),
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;
    use crate::schema::Shape;
    use crate::tables::Section;

    const BASE: &str = r#"
        [[model]]
        name = "objects"
        path = "objects.onnx"
        [[model]]
        name = "faces"
        path = "faces.onnx"
        [[camera]]
        name = "door"
        model = "objects"
        source = { type = "pattern" }
        [[camera]]
        name = "yard"
        model = "objects"
        source = { type = "pattern", fps = 5.0 }
        annotate = { directory = "pictures", every = 30 }
        [[sink]]
        type = "file"
        path = "out.jsonl"
        [[sink]]
        type = "unix"
        path = "d.sock"
    "#;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("test.toml")).unwrap()
    }

    /// Describes a reload to `BASE` with `from` replaced by `to`.
    fn described(from: &str, to: &str) -> String {
        assert!(BASE.contains(from), "{from}");
        ConfigDiff::between(&config(BASE), &config(&BASE.replacen(from, to, 1))).to_string()
    }

    #[test]
    fn a_change_of_a_model_on_detections_changes_the_model_that_finds_them() {
        let with = |keys: &str| format!("{BASE}[[model]]\nname = \"plates\"\npath = \"plates.onnx\"\n{keys}\n");
        let between = |a: &str, b: &str| ConfigDiff::between(&config(a), &config(b)).to_string();
        let on_objects = with("on = \"objects\"");
        let cameras = "camera door opened again, camera yard opened again";
        assert_eq!(between(BASE, &on_objects), format!("model objects loaded again, model plates added, {cameras}"));
        assert_eq!(between(&on_objects, BASE), format!("model objects loaded again, model plates removed, {cameras}"));
        let wider = with("on = \"objects\"\nmargin = 0.5");
        assert_eq!(between(&on_objects, &wider), "model objects loaded again, model plates loaded again");
        // No camera uses faces.
        assert_eq!(between(BASE, &with("on = \"faces\"")), "nothing has changed");
    }

    #[test]
    fn the_same_file_is_no_change_and_neither_is_another_order() {
        let same = ConfigDiff::between(&config(BASE), &config(BASE));
        assert_eq!(same, ConfigDiff::default());
        assert_eq!(same.to_string(), "nothing has changed");
        let (head, sinks) = BASE.split_at(BASE.find("[[sink]]").unwrap());
        assert_eq!(ConfigDiff::between(&config(BASE), &config(&format!("{sinks}{head}"))), ConfigDiff::default());
    }

    #[test]
    fn each_part_is_listed_with_its_change() {
        assert_eq!(described("objects.onnx", "better.onnx"), "model objects loaded again");
        let first = "path = \"objects.onnx\"";
        assert_eq!(described(first, &format!("{first}\npriority = \"high\"")), "model objects loaded again");
        assert_eq!(described("fps = 5.0", "fps = 6.0"), "camera yard opened again");
        assert_eq!(described("name = \"yard\"", "name = \"yard\"\n        max_fps = 2"), "camera yard opened again");
        for key in ["rotate = 90", "flip = \"vertical\"", "crop = [0, 0, 64, 64]\n        crop_frame_size = [640, 480]"]
        {
            assert_eq!(
                described("name = \"yard\"", &format!("name = \"yard\"\n{key}")),
                "camera yard opened again",
                "{key}"
            );
        }
        assert_eq!(described("every = 30", "every = 40"), "pictures of camera yard changed");
        assert_eq!(described("annotate =", "# "), "pictures of camera yard removed");
        assert_eq!(described("name = \"yard\"", "name = \"yard\"\n        track = {}"), "tracks of camera yard added");
        for key in ["track.unseen = \"5 s\"", "track = { score = 0.5 }", "smooth = true"] {
            let tracked = BASE.replace("name = \"door\"", "name = \"door\"\ntrack.classes = []");
            let changed = if key.starts_with("track =") {
                tracked.replace("track.classes = []", key)
            } else {
                tracked.replace("track.classes = []", &format!("track.classes = []\n{key}"))
            };
            let changes = ConfigDiff::between(&config(&tracked), &config(&changed)).to_string();
            assert_eq!(changes, "tracks of camera door changed", "{key}");
        }
        let listed = |model: &str| BASE.replacen("model = \"objects\"", &format!("models = [\"objects\", {model}]"), 1);
        let between = |a: &str, b: &str| ConfigDiff::between(&config(a), &config(b)).to_string();
        assert_eq!(between(BASE, &listed("\"faces\"")), "model faces added, camera door opened again");
        assert_eq!(between(&listed("\"faces\""), BASE), "model faces removed, camera door opened again");
        let with = |setting: &str| listed(&format!("{{ name = \"faces\", {setting} }}"));
        for setting in ["classes = [\"face\"]", "score_threshold = 0.5", "min_size = 9", "max_size = 9"] {
            assert_eq!(between(&listed("\"faces\""), &with(setting)), "filters of camera door changed", "{setting}");
        }
        let grouped =
            |key: &str| listed("\"faces\"").replacen("name = \"door\"", &format!("name = \"door\"\n{key}"), 1);
        assert_eq!(between(&listed("\"faces\""), &grouped("group = true")), "camera door opened again");
        for setting in ["every = 2", "max_fps = 2"] {
            assert_eq!(between(&listed("\"faces\""), &with(setting)), "camera door opened again", "{setting}");
        }
        let masked = "name = \"yard\"\n        privacy = [{ polygon = [[0, 0], [1, 0], [1, 0.5]] }]";
        assert_eq!(described("name = \"yard\"", masked), "camera yard opened again");
        let (small, large) = (
            "ignore = [{ polygon = [[0, 0], [1, 0], [1, 0.5]] }]",
            "ignore = [{ polygon = [[0, 0], [1, 0], [1, 0.5]], classes = [\"car\"] }]",
        );
        let ignores = |area: &str| BASE.replace("name = \"yard\"", &format!("name = \"yard\"\n{area}"));
        for (before, after, effect) in [("", small, "added"), (small, large, "changed"), (large, "", "removed")] {
            let changes = ConfigDiff::between(&config(&ignores(before)), &config(&ignores(after))).to_string();
            assert_eq!(changes, format!("ignored areas of camera yard {effect}"));
        }
        assert_eq!(described("name = \"yard\"", "name = \"gate\""), "camera gate added, camera yard removed");
        assert_eq!(described("out.jsonl", "other.jsonl"), "sink file changed");
        assert_eq!(described("path = \"out.jsonl\"", "path = \"out.jsonl\"\nqueue = 9"), "sink file changed");
        assert_eq!(
            described("type = \"unix\"\n        path = \"d.sock\"", "type = \"stdout\""),
            "sink stdout added, sink unix removed"
        );
        let top = |table: &str| described("\n", &format!("\n{table}\n"));
        assert_eq!(top("[log]\nlevel = \"debug\"\n[status]\nlog_interval = \"2s\""), "[log] changed, [status] changed");
        assert_eq!(top("[engine]\nthreads = 2"), "model objects loaded again");
        for limit in ["canary_timeout = \"2s\"", "load_timeout = \"2s\"", "load_memory_bytes = \"1 GiB\""] {
            assert_eq!(top(&format!("[engine]\n{limit}")), "[engine] changed");
        }
        assert_eq!(top("[buffers]\ncount = 6"), "camera door opened again, camera yard opened again");
    }

    #[test]
    fn a_model_runs_only_where_a_camera_names_it_that_is_enabled() {
        assert_eq!(described("faces.onnx", "other.onnx"), "nothing has changed");
        let faces = "name = \"yard\"\n        model = \"faces\"";
        let moved = "model faces added, camera yard opened again";
        assert_eq!(described("name = \"yard\"\n        model = \"objects\"", faces), moved);
        let off = BASE.replace("name = \"yard\"", "name = \"yard\"\nenabled = false");
        let off = ConfigDiff::between(
            &config(BASE),
            &config(&off.replace("name = \"door\"", "name = \"door\"\nenabled = false")),
        );
        assert_eq!(off.models.get("objects"), Some(&Change::Removed));
        assert_eq!((off.cameras["door"], off.pictures["yard"]), (Change::Removed, Change::Removed));
    }

    /// Keys, each with two values.
    type TwoValues = &'static [(&'static str, &'static str, &'static str)];

    /// The keys of each type of sink.
    const SINKS: &[(&str, TwoValues)] = &[
        ("stdout", &[]),
        ("file", &[("path", "\"a\"", "\"b\""), ("rotate_bytes", "\"1 MiB\"", "\"2 MiB\""), ("rotate_keep", "1", "2")]),
        (
            "unix",
            &[
                ("path", "\"a\"", "\"b\""),
                ("mode", "\"0660\"", "\"0600\""),
                ("max_readers", "1", "2"),
                ("reader_buffer_bytes", "\"1 MiB\"", "\"2 MiB\""),
            ],
        ),
        (
            "mqtt",
            &[
                ("url", "\"mqtts://a\"", "\"mqtts://b\""),
                ("protocol", "\"5\"", "\"3.1.1\""),
                ("login", "\"a\"", "\"b\""),
                ("ca", "\"a\"", "\"b\""),
                ("certificate", "\"a\"", "\"b\""),
                ("key", "\"a\"", "\"b\""),
                ("client_id", "\"a\"", "\"b\""),
                ("keep_alive", "\"1s\"", "\"2s\""),
                ("topic_prefix", "\"a\"", "\"b\""),
                ("qos_detections", "1", "2"),
                ("retain", "false", "true"),
                ("message_expiry", "\"1s\"", "\"2s\""),
                ("state_interval", "\"1s\"", "\"2s\""),
                ("occupancy_hold", "\"1s\"", "\"2s\""),
                ("snapshot_interval", "\"1s\"", "\"2s\""),
                ("snapshot_overlay", "false", "true"),
                ("commands", "true", "false"),
                ("home_assistant", "true", "false"),
                ("discovery_prefix", "\"a\"", "\"b\""),
                ("count_labels", "[\"a\"]", "[\"b\"]"),
            ],
        ),
        (
            "nats",
            &[
                ("url", "[\"tls://a\"]", "[\"tls://a\", \"tls://b\"]"),
                ("login", "\"a\"", "\"b\""),
                ("credentials", "", "\"b\""),
                ("ca", "\"a\"", "\"b\""),
                ("certificate", "\"a\"", "\"b\""),
                ("key", "\"a\"", "\"b\""),
                ("stream", "\"a\"", "\"b\""),
                ("create_stream", "true", "false"),
                ("stream_max_age", "\"1h\"", "\"2h\""),
                ("stream_max_bytes", "\"1 MiB\"", "\"2 MiB\""),
                ("subject", "\"a.{camera}\"", "\"b.{camera}\""),
                ("ack_timeout", "\"1s\"", "\"2s\""),
            ],
        ),
    ];

    /// The keys that every type has.
    const EVERY_SINK: TwoValues = &[
        ("name", "\"a\"", "\"b\""),
        ("cameras", "[\"door\"]", "[\"yard\"]"),
        ("messages", "[\"frames\"]", "[\"events\"]"),
        ("only_detections", "false", "true"),
        ("queue", "1", "2"),
        ("queue_bytes", "\"1 MiB\"", "\"2 MiB\""),
        ("when_full", "\"drop_oldest\"", "\"drop_newest\""),
        ("max_rate", "1.0", "2.0"),
    ];

    /// The additional keys of a broker's sink.
    const EVERY_BROKER: TwoValues = &[
        ("durable", "true", "false"),
        ("spool_directory", "\"a\"", "\"b\""),
        ("spool_bytes", "\"1 MiB\"", "\"2 MiB\""),
        ("spool_sync", "\"1s\"", "\"2s\""),
    ];

    #[test]
    fn every_key_of_every_sink_is_a_change_and_those_of_its_output_make_another_output() {
        let output = ["path", "url", "topic_prefix", "subject", "durable", "spool_directory"];
        let cameras = BASE.split("[[sink]]").next().unwrap();
        let own = SinkConfig::keys();
        let Some(Shape::Union(variants)) =
            own.iter().map(|key| &key.shape).find(|shape| matches!(shape, Shape::Union(_)))
        else {
            panic!("a sink has types")
        };
        assert_eq!(
            SINKS.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            variants.iter().map(|v| v.name).collect::<Vec<_>>()
        );
        for ((type_name, keys), variant) in SINKS.iter().zip(variants) {
            let is_broker = matches!(*type_name, "mqtt" | "nats");
            let named = |keys: TwoValues| keys.iter().map(|key| key.0).collect::<Vec<_>>();
            assert_eq!(named(keys), variant.keys.iter().map(|key| key.name).collect::<Vec<_>>(), "{type_name}");
            let common = own.iter().filter(|key| !matches!(key.shape, Shape::Union(_))).map(|key| key.name);
            assert_eq!([named(EVERY_SINK), named(EVERY_BROKER)].concat(), common.collect::<Vec<_>>());
            let keys: Vec<_> =
                keys.iter().chain(EVERY_SINK).chain(EVERY_BROKER.iter().filter(|_| is_broker)).copied().collect();
            let with = |changed: Option<&str>| {
                let mut text = format!("{cameras}[[sink]]\ntype = \"{type_name}\"\n");
                for (key, first, other) in &keys {
                    let value = if changed == Some(key) { other } else { first };
                    // One excludes the other.
                    let absent = value.is_empty() || (*key == "login" && changed == Some("credentials"));
                    text += &if absent { String::new() } else { format!("{key} = {value}\n") };
                }
                config(&text)
            };
            let before = with(None);
            assert_eq!(ConfigDiff::between(&before, &with(None)), ConfigDiff::default());
            for (key, ..) in &keys {
                let after = with(Some(key));
                let changes = ConfigDiff::between(&before, &after);
                let name = after.sinks[0].name.clone();
                assert!(changes.sinks.contains_key(&name), "{type_name}: {key}: {changes}");
                let same = same_output(&before.sinks[0], &after.sinks[0]);
                assert_eq!(same, !output.contains(key), "{type_name}: {key}");
            }
        }
    }

    #[test]
    fn a_camera_without_a_model_uses_the_only_one() {
        let text =
            "[[model]]\nname = \"a\"\npath = \"a.onnx\"\n[[camera]]\nname = \"c\"\nsource = { type = \"pattern\" }\n";
        let named = text.replace("name = \"c\"", "name = \"c\"\nmodel = \"a\"");
        assert_eq!(ConfigDiff::between(&config(text), &config(&named)), ConfigDiff::default());
    }

    #[test]
    fn a_change_that_needs_a_restart_is_reported_until_then() {
        let old = config(BASE);
        let changed = format!("[device]\nname = \"gate\"\n[events]\ndirectory = \"/e\"\n{BASE}");
        let mut new = config(&changed);
        let needed = ConfigDiff::between(&old, &new).restart_needed;
        assert!(needed[0].starts_with("[device] `name` changes to gate at the next start"), "{needed:?}");
        assert!(needed[1].starts_with("[events] `directory` changes to /e at the next start"), "{needed:?}");
        let other = config(&changed);
        keep_until_restart(&old, &mut new);
        assert_eq!(ConfigDiff::between(&new, &other).restart_needed, needed);
        assert_eq!(ConfigDiff::between(&new, &old), ConfigDiff::default());
    }

    #[test]
    fn another_time_zone_applies_to_lines_and_zones_with_times() {
        for (zone, wanted) in
            [("name = \"z\"\nreset = \"00:00\"", "tracks of camera c changed"), ("name = \"z\"", "nothing has changed")]
        {
            let camera = format!(
                "{BASE}[[camera]]\nname = \"c\"\nmodel = \"objects\"\nsource.type = \"pattern\"\ntrack = {{}}\n[[camera.zone]]\n{zone}\n"
            );
            let old = config(&camera);
            let mut new = config(&format!("[device]\ntime_zone = \"UTC\"\n{camera}"));
            keep_until_restart(&old, &mut new);
            assert_eq!(ConfigDiff::between(&old, &new).to_string(), wanted);
        }
    }

    #[test]
    fn changes_that_the_files_do_not_show_are_listed_too() {
        let mut changes = ConfigDiff::between(&config(BASE), &config(BASE));
        changes.models.insert("objects".to_owned(), Change::Changed);
        changes.cameras.insert("door".to_owned(), Change::Changed);
        assert_eq!(changes.to_string(), "model objects loaded again, camera door opened again");
    }
}
