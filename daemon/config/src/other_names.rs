//! Keys that are looked for in another table than theirs, or by the name that another program has for them.

const BOTH: &[&str] = &["camera.line", "camera.zone"];
const ACTIVE: &[&str] = &["camera.line.active", "camera.zone.active"];
const LINE: &[&str] = &["camera.line"];
const ZONE: &[&str] = &["camera.zone"];
const SPEED: &[&str] = &["camera.zone.speed"];
const SINK: &[&str] = &["sink"];
const OCCUPANCY: &[&str] = &["camera.zone.occupancy"];
const STAYS: &[&str] = &["camera.zone.stopped", "camera.zone.left_behind", "camera.zone.taken_away"];

const ADD_ZONE: &str = "write `[[camera.zone]]` below the `[[camera]]` that it belongs to";
const ADD_LINE: &str = "write `[[camera.line]]` below the `[[camera]]` that it belongs to";
const ADD_TRACK: &str = "write `[camera.track]` below the `[[camera]]` that it belongs to";

/// Tables, keys that they do not have, and the remedy. A key is here in lower case with `_`; one with `*` stands for all that begin like
/// this.
const OTHER_NAMES: &[(&[&str], &[&str], &str)] = &[
    (&["camera.track"], &["smooth"], "`smooth` belongs in `[[camera]]`, above its tables"),
    (&[""], &["zone"], ADD_ZONE),
    (&[""], &["line"], ADD_LINE),
    (&[""], &["track"], ADD_TRACK),
    (
        &[""],
        &["source", "ground", "clips", "annotate", "privacy", "ignore"],
        "a camera has it: write `camera.` before its name, below the `[[camera]]` that it belongs to",
    ),
    (&["", "camera"], &["zones", "roi*", "region", "regions", "area", "areas", "overcrowding*"], ADD_ZONE),
    (&["", "camera"], &["lines", "line_crossing*", "tripwire", "tripwires"], ADD_LINE),
    (&["", "camera"], &["tracker", "tracking"], ADD_TRACK),
    (
        &[""],
        &["mqtt", "nats", "broker", "output", "outputs"],
        "an output is a table `[[sink]]`: write `type = \"mqtt\"` and `url = \"mqtt://BROKER\"` into it",
    ),
    (&[""], &["cameras"], "write a table `[[camera]]` for each camera, with its `name`"),
    (
        &[""],
        &["models", "detector", "detectors"],
        "write a table `[[model]]` for each model, with its `name` and `path`",
    ),
    (
        &["", "camera"],
        &["record", "recording", "recordings", "review", "alerts"],
        "write `[camera.clips]` for videos of events",
    ),
    (
        &["", "camera"],
        &["snapshot", "snapshots"],
        "write `[camera.annotate]` with `on_event = true` for images of events; the page and HTTP show the newest frame",
    ),
    (
        &["", "camera"],
        &["objects", "labels"],
        "write `classes` into the model: `models = [{ name = \"MODEL\", classes = [\"person\"] }]`",
    ),
    (
        &["camera"],
        &["mask", "masks", "privacy_mask*", "motion_mask"],
        "write `[[camera.privacy]]` to blank an area, `[[camera.ignore]]` to drop detections in one",
    ),
    (&["", "camera"], &["motion"], "remove it: models see all frames, and `max_fps` of a camera says how many"),
    (
        &["camera"],
        &["url", "uri", "path", "device", "inputs", "stream*", "rtsp*"],
        "it belongs in `[camera.source]`, below this table",
    ),
    (
        &["camera"],
        &["fps", "framerate", "frame_rate", "detect"],
        "write `max_fps`, the most frames a second that models see",
    ),
    (&["camera.clips"], &["path", "folder", "dir"], "write `directory`"),
    (&["camera.clips"], &["pre*", "pre_capture"], "write `before`: `before = \"5 s\"`"),
    (&["camera.clips"], &["post*", "padding"], "write `after`: `after = \"5 s\"`"),
    (&["camera.clips"], &["retain*", "days", "expire*"], "write `keep`, a number of clips, or `max_bytes`"),
    (
        SINK,
        &["host", "hostname", "server", "address", "broker", "port"],
        "write `url` with both: `url = \"mqtt://broker.example.org:1883\"`; NATS has `urls`",
    ),
    (
        SINK,
        &["user", "username", "password", "auth"],
        "write `login`, the name of a credential or the path of a file with `user:password`",
    ),
    (SINK, &["topic", "topics", "base_topic"], "write `topic_prefix`, with which all topics begin; NATS has `subject`"),
    // Lines and zones.
    (
        BOTH,
        &["objects", "object", "label", "labels", "class", "class_id", "class_ids", "class_names"],
        "write `classes`, the labels of objects: `classes = [\"person\"]`",
    ),
    (
        BOTH,
        &["confidence", "conf", "min_confidence", "confidence_threshold", "score", "score_threshold", "threshold"],
        "write `min_score`, from 0 to 1",
    ),
    (
        BOTH,
        &["min_area", "max_area", "min_width", "max_width", "min_height", "max_height"],
        "write `min_size` or `max_size`, pixels of the longer side of the box",
    ),
    (BOTH, &["filter", "filters"], "write `classes`, `min_score`, `min_size` and `max_size` in this table"),
    (
        BOTH,
        &["inertia", "minimum_crossing_threshold", "crossing_threshold", "debounce", "min_frames"],
        "write `settle`, a time instead of a number of frames: `settle = \"0.2 s\"`",
    ),
    (
        BOTH,
        &["timeout", "max_age", "max_disappeared", "lost_track_buffer", "track_buffer"],
        "write `hold`, how long an object may be unseen: `hold = \"1 s\"`",
    ),
    (
        BOTH,
        &["triggering_anchor", "triggering_anchors", "trigger_point", "position"],
        "write `anchor`, the point of the box that counts: `anchor = \"bottom\"`",
    ),
    (
        BOTH,
        &["required_zones"],
        "write `only_while = [\"ZONE\"]` to report only while an object is in another zone; `rules` of `[camera.clips]` chooses \
         what has clips",
    ),
    (BOTH, &["requires", "depends_on", "condition", "conditions"], "write `only_while` or `unless`"),
    (
        BOTH,
        &["schedule", "schedules", "time", "times", "hours", "days", "weekdays"],
        "write `active = [{ days = [\"sat\", \"sun\"], from = \"22:00\", to = \"06:00\" }]`",
    ),
    (
        BOTH,
        &[
            "resolution",
            "image_size",
            "width",
            "height",
            "config_width",
            "config_height",
            "frame_width",
            "frame_height",
        ],
        "write `frame_size = [WIDTH, HEIGHT]`, the frame of which the points are pixels",
    ),
    (BOTH, &["id", "title", "friendly_name", "display_name"], "write `name`"),
    (BOTH, &["disable", "disabled"], "write `enabled = false`"),
    // Zones.
    (
        ZONE,
        &["coordinates", "coords", "points", "corners", "vertices", "region", "area", "roi*"],
        "write `polygon`, the corners in order: `polygon = [[0.1, 0.5], [0.9, 0.5], [0.9, 0.9]]`",
    ),
    (ZONE, &["line*", "sides", "tripwire"], "a line is a table of its own: write `[[camera.line]]`"),
    (
        ZONE,
        &["loitering_time", "dwell_time", "time_in_zone", "duration", "min_duration", "min_time"],
        "write `dwell`, the time of one visit, or `loitering`, the time of all visits: `dwell = \"30 s\"`",
    ),
    (
        ZONE,
        &["speed_*", "max_speed*", "min_speed*", "overspeed*", "velocity"],
        "write `speed = { at_least_kmh = 30 }` for objects that are as fast or faster, or `at_most_kmh` for slower ones; it needs \
         `[camera.ground]`",
    ),
    (
        ZONE,
        &["distances", "ground", "homography", "calibration", "metres", "meters"],
        "write `[camera.ground]`, one table for all zones of the camera",
    ),
    (
        ZONE,
        &[
            "overcrowding*",
            "crowding",
            "object_threshold",
            "time_threshold",
            "count",
            "min_count",
            "max_count",
            "min_objects",
            "max_objects",
            "capacity",
        ],
        "write `occupancy = { at_least = 3, lasting = \"2 s\" }`",
    ),
    (
        ZONE,
        &["direction*", "heading"],
        "write `wrong_way = { direction = [[0.5, 0.9], [0.5, 0.1]] }`, the right direction",
    ),
    (ZONE, &["stationary*", "stop", "stop_time", "idle"], "write `stopped = { time = \"10 s\" }`"),
    (ZONE, &["abandoned*", "unattended*"], "write `left_behind = { classes = [\"suitcase\"] }`"),
    (ZONE, &["removed*", "stolen*"], "write `taken_away = { classes = [\"suitcase\"] }`"),
    (ZONE, &["empty", "vacant"], "write `absence = \"10 min\"`"),
    // Lines.
    (
        LINE,
        &["coordinates", "coords", "start", "end", "line_start", "line_end", "line_crossing*", "polygon"],
        "write `points`, from one end to the other: `points = [[0.2, 0.6], [0.8, 0.6]]`",
    ),
    (
        LINE,
        &["direction*", "in", "out", "left", "right"],
        "write `sides`, names of the left and the right one: `sides = [\"street\", \"shop\"]`; each crossing says to which it went",
    ),
    (LINE, &["extended"], "remove it, a line ends at its points"),
    (
        LINE,
        &[
            "visits",
            "dwell",
            "loitering",
            "absence",
            "occupancy",
            "stopped",
            "wrong_way",
            "speed",
            "left_behind",
            "taken_away",
            "parked",
            "roi*",
        ],
        "a line reports only crossings: write it in a `[[camera.zone]]`",
    ),
    // Tables of a zone.
    (
        SPEED,
        &["at_least", "at_least_m*", "at_least_kph", "min*", "above", "faster_than"],
        "write `at_least_kmh`, in km/h; 1 m/s is 3.6 km/h",
    ),
    (
        SPEED,
        &["at_most", "at_most_m*", "at_most_kph", "below", "slower_than"],
        "write `at_most_kmh`, in km/h; 1 m/s is 3.6 km/h",
    ),
    (
        SPEED,
        &["max*", "limit*", "threshold*", "kmh", "unit"],
        "write `at_least_kmh` to report this speed and higher ones, `at_most_kmh` this one and lower ones, in km/h",
    ),
    (OCCUPANCY, &["min*", "object_threshold", "threshold", "more_than"], "write `at_least`"),
    (
        OCCUPANCY,
        &["max*", "count", "limit", "less_than"],
        "write `at_least` to report this number and higher ones, `at_most` this one and lower ones",
    ),
    (OCCUPANCY, &["time", "time_threshold", "duration", "settle", "for"], "write `lasting`: `lasting = \"2 s\"`"),
    (STAYS, &["duration", "min_time", "lasting", "after", "for"], "write `time`: `time = \"30 s\"`"),
    (STAYS, &["radius", "pixels", "tolerance"], "write `distance`, in pixels"),
    (
        &["camera.zone.wrong_way"],
        &["points", "from", "to", "angle", "heading"],
        "write `direction`, from one point to another: `direction = [[0.5, 0.9], [0.5, 0.1]]`",
    ),
    (ACTIVE, &["start*", "begin*", "since", "after"], "write `from`: `from = \"22:00\"`"),
    (ACTIVE, &["end*", "stop*", "until", "till", "before"], "write `to`: `to = \"06:00\"`"),
    (ACTIVE, &["weekday", "weekdays", "dow"], "write `days`: `days = [\"sat\", \"sun\"]`"),
    (ACTIVE, &["time", "times", "hours"], "write `from` and `to`: `from = \"22:00\", to = \"06:00\"`"),
    (ACTIVE, &["time_zone", "timezone", "tz"], "`time_zone` belongs in `[device]`"),
    (&["camera.ground"], &["source", "image_points", "coordinates", "polygon"], "write `points`, in the frame"),
    (&["camera.ground"], &["target", "world_points", "distances"], "write `metres`, on the ground"),
];

/// Returns what to write in `table`, whose path is empty for the file itself, in place of the unknown key `name`.
pub fn remedy(table: &str, name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_").to_ascii_lowercase();
    let is_it = |known: &&str| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == **known,
    };
    let entry = OTHER_NAMES.iter().find(|(tables, names, _)| tables.contains(&table) && names.iter().any(is_it));
    entry.map(|(.., remedy)| *remedy)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::schema::{Key, Shape, join};
    use crate::tables::Section;
    use crate::types::Config;

    /// The path of each table below `path`, with the names of its keys.
    fn tables(path: &str, keys: &[Key], found: &mut Vec<(String, Vec<&'static str>)>) {
        found.push((path.to_owned(), keys.iter().map(|key| key.name).collect()));
        for key in keys {
            if let Shape::Table(keys) | Shape::Tables(keys) = &key.shape {
                tables(&join(path, key.name), keys, found);
            }
        }
    }

    #[test]
    fn no_key_of_a_table_is_among_its_other_names() {
        let mut found = Vec::new();
        tables("", &Config::keys(), &mut found);
        for table in OTHER_NAMES.iter().flat_map(|(tables, ..)| *tables) {
            let (_, keys) = found.iter().find(|(path, _)| path == table).unwrap();
            let other: Vec<_> = keys.iter().filter(|key| remedy(table, key).is_some()).collect();
            assert!(other.is_empty(), "{table}: {other:?}");
        }
    }
}
