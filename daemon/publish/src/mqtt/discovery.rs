//! Home Assistant's MQTT discovery: each camera is a device with entities.

use std::sync::Arc;

use serde_json::{Value, json};
use visiond_config::types::{MessageKind, MqttSinkConfig, SinkConfig};
use visiond_telemetry::metrics::ModelValues;
use visiond_telemetry::rules::RuleFacts;

use super::commands::{OFF, ON, PRESS};
use super::topics::{ENABLED, MIN_SCORE, RESET, SCORE_THRESHOLD, Topics};

/// The prefixes of entity names that depend on the model.
const SHARE: &str = "share_";
const ATTRIBUTE: &str = "attribute_";
/// The prefix of the entity names of a camera's further models.
const MODEL: &str = "model_";
/// Separates the names of a camera's models; a name has neither.
pub const MODELS_SEPARATOR: &str = ", ";

/// Makes the discovery messages of one device's cameras.
#[derive(Debug, Clone)]
pub struct Discovery {
    prefix: String,
    device: String,
    topics: Topics,
    labels: Vec<String>,
    snapshots: bool,
    /// Whether the sink sends events.
    events: bool,
}

impl Discovery {
    /// Creates the discovery of a sink; `None` if it is off.
    pub fn new(sink: &SinkConfig, config: &MqttSinkConfig, device: &str, topics: &Topics) -> Option<Self> {
        config.home_assistant.then(|| Self {
            prefix: config.discovery_prefix.clone(),
            device: device.to_owned(),
            topics: topics.clone(),
            labels: config.count_labels.clone(),
            snapshots: !config.snapshot_interval.is_zero(),
            events: sink.messages.contains(&MessageKind::Events),
        })
    }

    /// Returns the discovery messages of a camera, by topic; the broker retains them. `models` are the names of its models,
    /// separated by commas, `values` their outputs, and `rules` the lines and zones.
    ///
    /// The first model has the entities of a camera with one model, and each further one its own beside them.
    pub fn camera(
        &self,
        camera: &str,
        ids: Ids,
        models: &str,
        values: &[Arc<ModelValues>],
        rules: &[RuleFacts],
    ) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        let mut add = |component: &str, entity: &str, name: &str, more: Value| {
            all.push(self.entity((camera, ids, models), component, entity, name, more));
        };
        let state = self.topics.state(camera);
        let sensor = |icon: &str, template: &str| json!({ "icon": icon, "state_class": "measurement", "state_topic": state, "value_template": template });
        let occupancy = json!({
            "device_class": "occupancy",
            "state_topic": state,
            "value_template": "{{ 'ON' if value_json.occupied else 'OFF' }}",
        });
        add("binary_sensor", "occupancy", "Occupancy", occupancy);
        add("sensor", "detections", "Detections", sensor("mdi:counter", "{{ value_json.detections }}"));
        for label in &self.labels {
            // A JSON string is also a valid Jinja string.
            let template = format!("{{{{ value_json.counts.get({}, 0) }}}}", Value::from(label.as_str()));
            let entity = format!("count_{}", in_topic(label));
            add("sensor", &entity, &format!("Count of {label}"), sensor("mdi:counter", &template));
        }
        for label in self.labels.iter().filter(|_| values.first().is_some_and(|values| values.fractions)) {
            let share = share_of(label, "value_json", &sensor);
            add("sensor", &format!("{SHARE}{}", in_topic(label)), &format!("Share of {label}"), share);
        }
        for (name, is_number) in values.first().iter().flat_map(|values| &values.attributes) {
            let attribute = attribute_of(name, *is_number, "value_json", &state);
            add("sensor", &format!("{ATTRIBUTE}{}", in_topic(name)), name, attribute);
        }
        let mut fps = sensor("mdi:speedometer", "{{ value_json.fps }}");
        (fps["unit_of_measurement"], fps["entity_category"]) = ("fps".into(), "diagnostic".into());
        add("sensor", "fps", "Frame rate", fps);
        for (model, values) in models.split(MODELS_SEPARATOR).zip(values).skip(1) {
            let of = format!("(value_json.models | default({{}})).get({}, {{}})", Value::from(model));
            // Not the id of another model's entity, because entities do not begin with `_`.
            let id = |entity: &str| format!("{MODEL}{}_{entity}", model.replace('_', "__"));
            let template = format!("{{{{ {of}.detections | default(0) }}}}");
            add("sensor", &id("detections"), &format!("Detections by {model}"), sensor("mdi:counter", &template));
            let has = |label: &&String| values.labels.is_empty() || values.labels.iter().any(|its| **its == ***label);
            for label in self.labels.iter().filter(has) {
                let label_text = Value::from(label.as_str());
                let template = format!("{{{{ ({of}.counts | default({{}})).get({label_text}, 0) }}}}");
                let (entity, name) =
                    (id(&format!("count_{}", in_topic(label))), format!("Count of {label} by {model}"));
                add("sensor", &entity, &name, sensor("mdi:counter", &template));
                if values.fractions {
                    let entity = id(&format!("{SHARE}{}", in_topic(label)));
                    add("sensor", &entity, &format!("Share of {label} by {model}"), share_of(label, &of, &sensor));
                }
            }
            for (name, is_number) in &values.attributes {
                let entity = id(&format!("{ATTRIBUTE}{}", in_topic(name)));
                add("sensor", &entity, &format!("{name} by {model}"), attribute_of(name, *is_number, &of, &state));
            }
        }
        let mut last_zone = None;
        for RuleFacts { name, kind, sides } in rules {
            let id = |what: &str| rule_id(name, what);
            for side in sides.iter().flatten() {
                let mut crossings = sensor("mdi:boom-gate-arrow-up", &crossings_of(name, side));
                crossings["state_class"] = "total_increasing".into();
                add("sensor", &id(side), &format!("Crossings of {name} to {side}"), crossings);
            }
            if let Some(sides) = sides {
                if self.events {
                    let events = crossing_event(&self.topics.events(camera), name, sides);
                    add("event", &id("crossing"), &format!("Crossing of {name}"), events);
                }
                continue;
            }
            if last_zone.replace(name) != Some(name) {
                let mut occupancy = binary(&state, &inside(name));
                occupancy["device_class"] = "occupancy".into();
                add("binary_sensor", &id("occupied"), &format!("Occupancy of {name}"), occupancy);
                let count = format!("{{{{ {} }}}}", inside(name));
                add("sensor", &id("inside"), &format!("Objects in {name}"), sensor("mdi:counter", &count));
            }
            if let Some((english, icon)) = binary_of(kind) {
                let mut under_way = binary(&state, &under_way(name, kind));
                under_way["icon"] = icon.into();
                add("binary_sensor", &id(kind), &format!("{english} in {name}"), under_way);
            }
        }
        if self.snapshots {
            add("camera", "snapshot", "Snapshot", json!({ "topic": self.topics.snapshot(camera) }));
        }
        all
    }

    /// Returns the topic and the discovery message of the version of a model that is a bundle, which the state of `camera` has. It belongs
    /// to the machine, not to a camera, and only informs: visiond cannot install.
    pub fn bundle(&self, model: &str, camera: &str) -> (String, Value) {
        // Cameras' ids have a name between these slashes.
        let (device, id) = (&self.device, format!("visiond/{}//{model}", self.device));
        let topic = format!("{}/update/visiond_{device}/bundle_{}/config", self.prefix, in_topic(model));
        let entity = json!({
            "name": format!("Model {model}"),
            "unique_id": id,
            "availability": [{ "topic": self.topics.availability() }],
            "entity_category": "diagnostic",
            "icon": "mdi:package-variant-closed",
            "state_topic": self.topics.state(camera),
            "value_template": update_of(model),
            "device": {
                "identifiers": [format!("visiond/{device}")],
                "name": device,
                "manufacturer": "visiond",
                "model": "models of all cameras",
                "sw_version": env!("CARGO_PKG_VERSION"),
            },
            "origin": { "name": "visiond", "sw_version": env!("CARGO_PKG_VERSION") },
        });
        (topic, entity)
    }

    /// Returns the topic filter of this device's discovery messages.
    pub fn everywhere(&self) -> String {
        format!("{}/+/visiond_{}/+/config", self.prefix, self.device)
    }

    /// Whether a topic has the prefix of discovery.
    pub fn has(&self, topic: &str) -> bool {
        topic.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Whether a topic has the prefix of this camera's topics; cheaper than [`Self::camera`].
    pub fn may_be_of(&self, camera: &str, ids: Ids, topic: &str) -> bool {
        let below = topic.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('/')?.split_once('/'));
        let start = format!("visiond_{}/{}_", self.device, object(camera, ids));
        below.is_some_and(|(_, rest)| rest.starts_with(&start))
    }

    /// Whether another device and camera, or another entity, could have the same ids of the first form.
    pub fn is_ambiguous(&self, camera: &str) -> bool {
        self.device.contains('_') || camera.contains('_')
    }

    /// Whether this is a discovery message of the camera with ids of the first form.
    pub fn has_first_ids(&self, camera: &str, payload: &[u8]) -> bool {
        let Ok(entity) = serde_json::from_slice::<Value>(payload) else { return false };
        let id = self.device_id(camera, Ids::First);
        entity["device"]["identifiers"][0] == id && entity["availability"][0]["topic"] == self.topics.availability()
    }

    fn device_id(&self, camera: &str, ids: Ids) -> String {
        match ids {
            // Names have no slash.
            Ids::Distinct if self.is_ambiguous(camera) => format!("visiond/{}/{camera}", self.device),
            _ => format!("visiond_{}_{camera}", self.device),
        }
    }

    /// Returns the discovery messages of what commands change, by topic: the camera's settings and those of its lines and zones. They are
    /// available while visiond is online, also for a camera that is switched off.
    pub fn commands(&self, camera: &str, ids: Ids, models: &str, rules: &[String]) -> Vec<(String, Value)> {
        let state = self.topics.state(camera);
        let online = json!([{ "topic": self.topics.availability() }]);
        let mut all = Vec::new();
        let mut add = |component: &str, entity: &str, name: &str, icon: &str, command: String, more: Value| {
            let mut all_keys =
                json!({ "availability": online, "entity_category": "config", "icon": icon, "command_topic": command });
            merge(&mut all_keys, more);
            all.push(self.entity((camera, ids, models), component, entity, name, all_keys));
        };
        let switch = |is_on: String| {
            let template = format!("{{% set on = {is_on} %}}{{{{ none if on is none else 'ON' if on else 'OFF' }}}}");
            json!({ "state_topic": state, "value_template": template, "payload_on": ON, "payload_off": OFF })
        };
        let score = |score: String| {
            let template = format!("{{{{ {score} }}}}");
            json!({ "state_topic": state, "value_template": template, "min": 0, "max": 1, "step": 0.01, "mode": "box" })
        };
        let of_camera = |key: &str| format!("(value_json.settings | default({{}})).{key} | default(none)");
        let command = self.topics.command(camera, ENABLED);
        add("switch", "command_enabled", "Enabled", "mdi:cctv", command, switch(of_camera(ENABLED)));
        let command = self.topics.command(camera, SCORE_THRESHOLD);
        let threshold = score(of_camera(SCORE_THRESHOLD));
        add("number", "command_score_threshold", "Score threshold", "mdi:percent", command, threshold);
        for rule in rules {
            let of = |key: &str| {
                let settings = "(value_json.settings | default({})).rules | default({})";
                format!("(({settings}).get({}) or {{}}).{key} | default(none)", Value::from(rule.as_str()))
            };
            let id = |key: &str| format!("command--{}--{}", in_topic(rule), in_topic(key));
            let command = |key: &str| self.topics.rule_command(camera, rule, key);
            let name = format!("Enabled: {rule}");
            add("switch", &id(ENABLED), &name, "mdi:vector-polygon", command(ENABLED), switch(of(ENABLED)));
            let name = format!("Least score of {rule}");
            add("number", &id(MIN_SCORE), &name, "mdi:percent", command(MIN_SCORE), score(of(MIN_SCORE)));
            let name = format!("Reset totals of {rule}");
            add("button", &id(RESET), &name, "mdi:counter", command(RESET), json!({ "payload_press": PRESS }));
        }
        all
    }

    /// Returns the topic and the discovery message of an entity of a camera, whose names of models are separated by commas.
    fn entity(
        &self,
        (camera, ids, models): (&str, Ids, &str),
        component: &str,
        entity: &str,
        name: &str,
        more: Value,
    ) -> (String, Value) {
        let id = self.device_id(camera, ids);
        let topic =
            format!("{}/{component}/visiond_{}/{}_{entity}/config", self.prefix, self.device, object(camera, ids));
        let separator = if id.contains('/') { '/' } else { '_' };
        let mut all = json!({
            "name": name,
            "unique_id": format!("{id}{separator}{entity}"),
            "availability": [
                { "topic": self.topics.availability() },
                {
                    "topic": self.topics.state(camera),
                    "value_template": "{{ 'online' if value_json.phase == 'streaming' else 'offline' }}",
                },
            ],
            "availability_mode": "all",
            "device": {
                "identifiers": [id],
                "name": format!("{} {camera}", self.device),
                "manufacturer": "visiond",
                "model": format!("camera seen by {models}"),
                "sw_version": env!("CARGO_PKG_VERSION"),
            },
            "origin": { "name": "visiond", "sw_version": env!("CARGO_PKG_VERSION") },
        });
        merge(&mut all, more);
        (topic, all)
    }
}

/// Adds the members of `more`, which replace those of the same name.
fn merge(all: &mut Value, more: Value) {
    if let (Value::Object(all), Value::Object(more)) = (all, more) {
        all.extend(more);
    }
}

/// Returns the template of what Home Assistant shows about the bundle of a model; nothing, which leaves the entity as it is, if the state
/// has no bundle.
fn update_of(model: &str) -> String {
    let bundle = format!("(value_json.bundles | default({{}})).get({})", Value::from(model));
    format!(
        "{{% set bundle = {bundle} %}}{{% if bundle %}}{{% set rollout = bundle.rollout | default({{}}) %}}{{{{ {{\
         'installed_version': bundle.version | string, \
         'latest_version': (rollout.newest | default(bundle.version)) | string, \
         'title': bundle.name, \
         'release_summary': (rollout.reason | default(''))[:255], \
         'update_percentage': rollout.percent | default(none), \
         'in_progress': rollout.step | default('') in ['fetching', 'building', 'proving', 'comparing']\
         }} | to_json }}}}{{% endif %}}"
    )
}

/// Returns the sensor of the part of the frame that a class covers; `of` is the model's state in templates.
fn share_of(label: &str, of: &str, sensor: &impl Fn(&str, &str) -> Value) -> Value {
    let label_text = Value::from(label);
    let template = format!("{{{{ (({of}.fractions | default({{}})).get({label_text}, 0) * 100) | round(2) }}}}");
    let mut share = sensor("mdi:chart-pie", &template);
    share["unit_of_measurement"] = "%".into();
    share
}

/// Returns the id of an entity of a line or zone. Its parts are names, which have no `_` or `--` once they are encoded, and no other id of
/// an entity has `--` after its last `_`. So no two cameras and entities have the same id, whatever their names.
fn rule_id(name: &str, what: &str) -> String {
    format!("rule--{}--{}", in_topic(name), in_topic(what))
}

/// Returns the expression of the objects in a zone; `none`, which Home Assistant shows as unknown, before the first frame.
fn inside(zone: &str) -> String {
    format!("((value_json.zones | default({{}})).get({}) or {{}}).inside | default(none)", Value::from(zone))
}

/// Returns the expression of the events of this kind that are under way in a zone; `none` before the first frame.
fn under_way(zone: &str, kind: &str) -> String {
    let (zone, kind) = (Value::from(zone), Value::from(kind));
    let events = format!("((value_json.zones | default({{}})).get({zone}) or {{}}).events | default({{}})");
    format!("(({events}).get({kind}) or {{}}).under_way | default(none)")
}

/// Returns the template of the crossings of a line to a side; `none` before the first frame.
fn crossings_of(line: &str, side: &str) -> String {
    let (line, side) = (Value::from(line), Value::from(side));
    format!("{{{{ ((value_json.lines | default({{}})).get({line}) or {{}}).get({side}, none) }}}}")
}

/// Returns the binary sensor that is on while a number is more than 0.
fn binary(state: &str, number: &str) -> Value {
    let template = format!("{{% set n = {number} %}}{{{{ none if n is none else 'ON' if n > 0 else 'OFF' }}}}");
    json!({ "state_topic": state, "value_template": template })
}

/// Returns the name and icon of the binary sensor of a kind of event; `None` for visits, which the occupancy shows, and for moments.
fn binary_of(kind: &str) -> Option<(&str, &'static str)> {
    Some(match kind {
        "zone" | "taken_away" => return None,
        "dwell" => ("Dwell", "mdi:timer-sand"),
        "loitering" => ("Loitering", "mdi:clock-alert-outline"),
        "absence" => ("Absence", "mdi:account-off-outline"),
        "occupancy" => ("Number within limits", "mdi:account-group-outline"),
        "stopped" => ("Stopped", "mdi:hand-back-right-outline"),
        "wrong_way" => ("Wrong way", "mdi:sign-direction-remove"),
        "speed" => ("Speed", "mdi:speedometer"),
        "left_behind" => ("Left behind", "mdi:bag-suitcase"),
        kind => (kind, "mdi:motion-sensor"),
    })
}

/// Returns the event entity of a line's crossings. Its type is the side that was crossed to.
fn crossing_event(topic: &str, line: &str, sides: &[Arc<str>; 2]) -> Value {
    // Home Assistant ignores an empty payload.
    let template = format!(
        "{{% if value_json.kind == 'line' and value_json.rule == {} %}}{{{{ {{'event_type': value_json.to, 'at': value_json.at, \
         'label': value_json.label | default(none), 'track': value_json.track | default(none)}} | tojson }}}}{{% endif %}}",
        Value::from(line)
    );
    json!({
        "event_types": sides,
        "icon": "mdi:boom-gate-arrow-up",
        "state_topic": topic,
        "value_template": template,
    })
}

/// Returns the sensor of an attribute; `of` is the model's state in templates.
fn attribute_of(name: &str, is_number: bool, of: &str, state: &str) -> Value {
    let name_text = Value::from(name);
    // A state has 255 characters at most.
    let (if_missing, cut) = if is_number { ("none", "") } else { ("''", " | truncate(255, true, '...', 0)") };
    let template = format!("{{{{ ({of}.attributes | default({{}})).get({name_text}, {if_missing}){cut} }}}}");
    let mut attribute = json!({ "icon": "mdi:tag", "state_topic": state, "value_template": template });
    if is_number {
        attribute["state_class"] = "measurement".into();
    }
    attribute
}

/// The form of a camera's ids in Home Assistant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ids {
    /// Names joined by `_`. Device `gate` with camera `north_door` has the ids of device `gate_north` with camera `door`.
    First,
    /// The same if no name has a `_`; no two are equal.
    Distinct,
}

/// Returns the part of a discovery topic that names the camera; `_` and the entity follow, which does not begin with `_`.
fn object(camera: &str, ids: Ids) -> String {
    match ids {
        Ids::First => camera.to_owned(),
        // Camera `door_count` with the entity `fps` is not camera `door` with the entity `count_fps`.
        Ids::Distinct => camera.replace('_', "__"),
    }
}

/// Whether a discovery message comes from visiond, of any version.
pub fn is_ours(payload: &[u8]) -> bool {
    serde_json::from_slice::<Value>(payload).is_ok_and(|entity| entity["origin"]["name"] == "visiond")
}

/// Turns a label into a part of a topic, which may contain only letters, digits, - and _; different labels stay different.
fn in_topic(label: &str) -> String {
    let mut out = String::new();
    for c in label.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c),
            ' ' => out.push('_'),
            c => out.push_str(&format!("-{:x}", u32::from(c))),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bundle_is_an_update_of_the_machine_that_nobody_can_install() {
        let config = MqttSinkConfig { home_assistant: true, ..MqttSinkConfig::default() };
        let topics = Topics::new("visiond", "gate");
        let discovery = Discovery::new(&SinkConfig::default(), &config, "gate", &topics).unwrap();
        let (topic, entity) = discovery.bundle("north_cars", "door");
        assert_eq!(topic, "homeassistant/update/visiond_gate/bundle_north-5fcars/config");
        assert_eq!(entity["state_topic"], "visiond/gate/cameras/door/state");
        assert_eq!(entity["unique_id"], "visiond/gate//north_cars");
        assert_eq!(entity["device"]["identifiers"], json!(["visiond/gate"]));
        assert_eq!(entity["availability"], json!([{ "topic": "visiond/gate/availability" }]));
        assert_eq!(entity.get("command_topic"), None);
        let template = entity["value_template"].as_str().unwrap();
        let start = "{% set bundle = (value_json.bundles | default({})).get(\"north_cars\") %}{% if bundle %}";
        assert!(template.starts_with(start) && template.ends_with("} | to_json }}{% endif %}"), "{template}");
    }

    #[test]
    fn a_camera_is_a_device_with_its_entities() {
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: vec!["person".to_owned(), "traffic light".to_owned(), "a\"b".to_owned()],
            snapshot_interval: std::time::Duration::from_secs(5),
            ..MqttSinkConfig::default()
        };
        let topics = Topics::new("visiond", "gate");
        let discovery = Discovery::new(&SinkConfig::default(), &config, "gate", &topics).unwrap();
        let announced = discovery.camera("door", Ids::Distinct, "objects", &[], &[]);
        let topics: Vec<_> = announced.iter().map(|(topic, _)| topic.as_str()).collect();
        assert_eq!(
            topics,
            [
                "homeassistant/binary_sensor/visiond_gate/door_occupancy/config",
                "homeassistant/sensor/visiond_gate/door_detections/config",
                "homeassistant/sensor/visiond_gate/door_count_person/config",
                "homeassistant/sensor/visiond_gate/door_count_traffic_light/config",
                "homeassistant/sensor/visiond_gate/door_count_a-22b/config",
                "homeassistant/sensor/visiond_gate/door_fps/config",
                "homeassistant/camera/visiond_gate/door_snapshot/config",
            ]
        );
        assert_eq!(announced[4].1["value_template"], r#"{{ value_json.counts.get("a\"b", 0) }}"#);
        for (_, entity) in &announced {
            assert_eq!(entity["device"]["identifiers"], json!(["visiond_gate_door"]));
            assert_eq!(entity["availability"][0]["topic"], "visiond/gate/availability");
        }
        let attributes = [("age".into(), true), ("hair \"colour\"".into(), false)].into();
        let more = discovery.camera(
            "door",
            Ids::Distinct,
            "objects",
            &[Arc::new(ModelValues { attributes, fractions: true, ..ModelValues::default() })],
            &[],
        );
        let new: Vec<_> = more.iter().filter(|one| !announced.contains(one)).collect();
        let names = ["Share of person", "Share of traffic light", "Share of a\"b", "age", "hair \"colour\""];
        assert_eq!(new.iter().map(|(_, entity)| entity["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
        assert_eq!(new[3].0, "homeassistant/sensor/visiond_gate/door_attribute_age/config");
        assert_eq!((&new[3].1["state_class"], &new[4].1["state_class"]), (&"measurement".into(), &Value::Null));
        let template =
            r#"{{ (value_json.attributes | default({})).get("hair \"colour\"", '') | truncate(255, true, '...', 0) }}"#;
        assert_eq!(new[4].1["value_template"], template);
        let config = MqttSinkConfig { home_assistant: false, ..config };
        assert!(Discovery::new(&SinkConfig::default(), &config, "gate", &Topics::new("visiond", "gate")).is_none());
    }

    #[test]
    fn a_second_model_adds_entities_of_its_own_and_changes_no_id() {
        let labels = ["person", "plate"];
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: labels.map(str::to_owned).into(),
            ..MqttSinkConfig::default()
        };
        let discovery =
            Discovery::new(&SinkConfig::default(), &config, "gate", &Topics::new("visiond", "gate")).unwrap();
        let values = |labels: &[&str]| {
            let labels = labels.iter().map(|label| Arc::from(*label)).collect();
            Arc::new(ModelValues { labels, ..ModelValues::default() })
        };
        let (people, plates) = (values(&["person"]), values(&["plate"]));
        let ids = |models: &str, values: &[Arc<ModelValues>]| {
            let announced = discovery.camera("door", Ids::Distinct, models, values, &[]);
            announced.iter().map(|(_, entity)| entity["unique_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let one = ids("people", &[Arc::clone(&people)]);
        let two = ids("people, my_plates", &[people, Arc::clone(&plates)]);
        assert!(one.iter().all(|id| two.contains(id)), "{two:?}");
        let new: Vec<_> = two.iter().filter(|id| !one.contains(id)).collect();
        assert_eq!(
            new,
            ["visiond_gate_door_model_my__plates_detections", "visiond_gate_door_model_my__plates_count_plate"]
        );
        let announced = discovery.camera("door", Ids::Distinct, "people, plates", &[Arc::default(), plates], &[]);
        let count =
            announced.iter().find(|(topic, _)| topic.ends_with("/door_model_plates_count_plate/config")).unwrap();
        let template =
            r#"{{ ((value_json.models | default({})).get("plates", {}).counts | default({})).get("plate", 0) }}"#;
        assert_eq!(count.1["value_template"], template);
    }

    fn line(name: &str, sides: [&str; 2]) -> RuleFacts {
        RuleFacts { name: name.into(), kind: "line".into(), sides: Some(sides.map(Into::into)) }
    }

    fn zone(name: &str, kind: &str) -> RuleFacts {
        RuleFacts { name: name.into(), kind: kind.into(), sides: None }
    }

    #[test]
    fn lines_and_zones_have_entities_and_a_sink_without_events_has_no_event() {
        let config = MqttSinkConfig { home_assistant: true, ..MqttSinkConfig::default() };
        let rules = [line("door", ["street", "the_shop"]), zone("dock", "zone"), zone("dock", "dwell")];
        let announced = |sink: &SinkConfig| {
            let discovery = Discovery::new(sink, &config, "gate", &Topics::new("visiond", "gate")).unwrap();
            discovery.camera("cam", Ids::Distinct, "objects", &[], &rules)
        };
        let all = announced(&SinkConfig::default());
        let of = |topic: &str| {
            let topic = format!("homeassistant/{topic}/config");
            &all.iter().find(|(known, _)| *known == topic).unwrap_or_else(|| panic!("{topic} is not in {all:?}")).1
        };
        let shop = of("sensor/visiond_gate/cam_rule--door--the-5fshop");
        assert_eq!(
            (&shop["name"], &shop["state_class"]),
            (&"Crossings of door to the_shop".into(), &"total_increasing".into())
        );
        let template = r#"{{ ((value_json.lines | default({})).get("door") or {}).get("the_shop", none) }}"#;
        assert_eq!(shop["value_template"], template);
        let crossing = of("event/visiond_gate/cam_rule--door--crossing");
        assert_eq!(crossing["event_types"], json!(["street", "the_shop"]));
        assert_eq!(crossing["state_topic"], "visiond/gate/cameras/cam/events");
        let occupancy = of("binary_sensor/visiond_gate/cam_rule--dock--occupied");
        assert_eq!(
            (&occupancy["name"], &occupancy["device_class"]),
            (&"Occupancy of dock".into(), &"occupancy".into())
        );
        assert_eq!(of("sensor/visiond_gate/cam_rule--dock--inside")["state_class"], "measurement");
        let dwell = of("binary_sensor/visiond_gate/cam_rule--dock--dwell");
        assert_eq!(
            (&dwell["name"], &dwell["unique_id"]),
            (&"Dwell in dock".into(), &"visiond_gate_cam_rule--dock--dwell".into())
        );
        assert_eq!(all.iter().filter(|(topic, _)| topic.contains("rule--")).count(), 6, "each once: {all:?}");
        let frames = announced(&SinkConfig { messages: vec![MessageKind::Frames], ..SinkConfig::default() });
        assert_eq!(frames.len(), all.len() - 1);
        assert!(frames.iter().all(|(topic, _)| !topic.contains("/event/")));
    }

    #[test]
    fn commands_have_entities_that_are_there_while_visiond_is() {
        let config = MqttSinkConfig { home_assistant: true, commands: true, ..MqttSinkConfig::default() };
        let topics = Topics::new("visiond", "gate");
        let discovery = Discovery::new(&SinkConfig::default(), &config, "gate", &topics).unwrap();
        let all = discovery.commands("cam", Ids::Distinct, "objects", &["the_door".to_owned()]);
        let told: Vec<_> = all
            .iter()
            .map(|(topic, entity)| {
                let topic = topic.strip_prefix("homeassistant/").unwrap().strip_suffix("/config").unwrap();
                let command = entity["command_topic"].as_str().unwrap().strip_prefix("visiond/gate/cameras/").unwrap();
                format!("{topic} {command} {}", entity["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            told,
            [
                "switch/visiond_gate/cam_command_enabled cam/enabled/set Enabled",
                "number/visiond_gate/cam_command_score_threshold cam/score_threshold/set Score threshold",
                "switch/visiond_gate/cam_command--the-5fdoor--enabled cam/rules/the_door/enabled/set Enabled: the_door",
                "number/visiond_gate/cam_command--the-5fdoor--min-5fscore cam/rules/the_door/min_score/set Least score of the_door",
                "button/visiond_gate/cam_command--the-5fdoor--reset cam/rules/the_door/reset/set Reset totals of the_door",
            ]
        );
        for (_, entity) in &all {
            assert_eq!(entity["availability"], json!([{ "topic": "visiond/gate/availability" }]));
            assert_eq!(entity["device"]["identifiers"], json!(["visiond_gate_cam"]));
        }
        let template = "{% set on = (value_json.settings | default({})).enabled | default(none) %}\
                        {{ none if on is none else 'ON' if on else 'OFF' }}";
        assert_eq!(all[0].1["value_template"], template);
    }

    #[test]
    fn no_two_cameras_share_an_id_or_a_topic_unless_they_did_before() {
        let rules = [
            line("a", ["b", "b_to_c"]),
            line("a_b", ["rule--a--b", "c"]),
            line("a--b", ["fps", "x_fps"]),
            zone("count", "zone"),
            zone("count", "occupancy"),
            zone("b--count", "dwell"),
            zone("_", "wrong_way"),
        ];
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: vec!["fps".to_owned(), "_fps".to_owned()],
            ..MqttSinkConfig::default()
        };
        let announced = |device: &str, camera: &str, ids: Ids| {
            let discovery =
                Discovery::new(&SinkConfig::default(), &config, device, &Topics::new("visiond", device)).unwrap();
            discovery.camera(camera, ids, "objects", &[], &rules)
        };
        let cameras = [
            ("gate", "door"),
            ("gate", "door_"),
            ("gate", "door_count"),
            ("gate", "door__count"),
            ("gate", "north_door"),
            ("gate_north", "door"),
            ("gate_", "door"),
            ("gate", "_door"),
            ("gate-north", "door"),
            ("gate", "door_rule--a--b_rule--a"),
        ];
        let all: Vec<_> =
            cameras.iter().flat_map(|(device, camera)| announced(device, camera, Ids::Distinct)).collect();
        let distinct = |of: &dyn Fn(&(String, Value)) -> String| {
            all.iter().map(of).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(distinct(&|(topic, _)| topic.clone()), all.len());
        assert_eq!(distinct(&|(_, entity)| entity["unique_id"].to_string()), all.len());
        assert_eq!(distinct(&|(_, entity)| entity["device"]["identifiers"][0].to_string()), cameras.len());
        // Without `_` nothing changes.
        for (device, camera) in [("gate", "door"), ("gate-north", "door")] {
            assert_eq!(announced(device, camera, Ids::Distinct), announced(device, camera, Ids::First));
        }
        let first = announced("gate", "north_door", Ids::First);
        assert_eq!(first[0].0, "homeassistant/binary_sensor/visiond_gate/north_door_occupancy/config");
        assert_eq!(first[0].1["unique_id"], "visiond_gate_north_door_occupancy");
        assert_eq!(first[0].1["unique_id"], announced("gate_north", "door", Ids::First)[0].1["unique_id"]);
    }
}
