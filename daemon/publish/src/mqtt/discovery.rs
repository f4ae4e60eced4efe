//! Home Assistant's MQTT discovery: each camera is a device with entities.

use std::sync::Arc;

use serde_json::{Value, json};
use visiond_config::types::MqttSinkConfig;
use visiond_telemetry::metrics::ModelValues;

use super::topics::Topics;

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
}

impl Discovery {
    /// Creates the discovery of a sink; `None` if it is off.
    pub fn new(config: &MqttSinkConfig, device: &str, topics: &Topics) -> Option<Self> {
        config.home_assistant.then(|| Self {
            prefix: config.discovery_prefix.clone(),
            device: device.to_owned(),
            topics: topics.clone(),
            labels: config.count_labels.clone(),
            snapshots: !config.snapshot_interval.is_zero(),
        })
    }

    /// Returns the discovery messages of a camera, by topic; the broker retains them. `models` are the names of its models,
    /// separated by commas, and `values` their outputs.
    ///
    /// The first model has the entities of a camera with one model, and each further one its own beside them.
    pub fn camera(&self, camera: &str, ids: Ids, models: &str, values: &[Arc<ModelValues>]) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        let (device_id, object) = (self.device_id(camera, ids), object(camera, ids));
        let mut add = |component: &str, entity: &str, name: &str, more: Value| {
            let topic = format!("{}/{component}/visiond_{}/{object}_{entity}/config", self.prefix, self.device);
            all.push((topic, self.entity(camera, &device_id, models, entity, name, more)));
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
        if self.snapshots {
            add("camera", "snapshot", "Snapshot", json!({ "topic": self.topics.snapshot(camera) }));
        }
        all
    }

    /// Returns the topic filter of this device's discovery messages.
    pub fn everywhere(&self) -> String {
        format!("{}/+/visiond_{}/+/config", self.prefix, self.device)
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

    fn entity(&self, camera: &str, id: &str, models: &str, entity: &str, name: &str, more: Value) -> Value {
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
        if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
            all.extend(more);
        }
        all
    }
}

/// Returns the sensor of the part of the frame that a class covers; `of` is the model's state in templates.
fn share_of(label: &str, of: &str, sensor: &impl Fn(&str, &str) -> Value) -> Value {
    let label_text = Value::from(label);
    let template = format!("{{{{ (({of}.fractions | default({{}})).get({label_text}, 0) * 100) | round(2) }}}}");
    let mut share = sensor("mdi:chart-pie", &template);
    share["unit_of_measurement"] = "%".into();
    share
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
    fn a_camera_is_a_device_with_its_entities() {
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: vec!["person".to_owned(), "traffic light".to_owned(), "a\"b".to_owned()],
            snapshot_interval: std::time::Duration::from_secs(5),
            ..MqttSinkConfig::default()
        };
        let topics = Topics::new("visiond", "gate");
        let discovery = Discovery::new(&config, "gate", &topics).unwrap();
        let announced = discovery.camera("door", Ids::Distinct, "objects", &[]);
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
        assert!(Discovery::new(&config, "gate", &Topics::new("visiond", "gate")).is_none());
    }

    #[test]
    fn a_second_model_adds_entities_of_its_own_and_changes_no_id() {
        let labels = ["person", "plate"];
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: labels.map(str::to_owned).into(),
            ..MqttSinkConfig::default()
        };
        let discovery = Discovery::new(&config, "gate", &Topics::new("visiond", "gate")).unwrap();
        let values = |labels: &[&str]| {
            let labels = labels.iter().map(|label| Arc::from(*label)).collect();
            Arc::new(ModelValues { labels, ..ModelValues::default() })
        };
        let (people, plates) = (values(&["person"]), values(&["plate"]));
        let ids = |models: &str, values: &[Arc<ModelValues>]| {
            let announced = discovery.camera("door", Ids::Distinct, models, values);
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
        let announced = discovery.camera("door", Ids::Distinct, "people, plates", &[Arc::default(), plates]);
        let count =
            announced.iter().find(|(topic, _)| topic.ends_with("/door_model_plates_count_plate/config")).unwrap();
        let template =
            r#"{{ ((value_json.models | default({})).get("plates", {}).counts | default({})).get("plate", 0) }}"#;
        assert_eq!(count.1["value_template"], template);
    }

    #[test]
    fn no_two_cameras_share_an_id_or_a_topic_unless_they_did_before() {
        let config = MqttSinkConfig {
            home_assistant: true,
            count_labels: vec!["fps".to_owned(), "_fps".to_owned()],
            ..MqttSinkConfig::default()
        };
        let announced = |device: &str, camera: &str, ids: Ids| {
            let discovery = Discovery::new(&config, device, &Topics::new("visiond", device)).unwrap();
            discovery.camera(camera, ids, "objects", &[])
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
