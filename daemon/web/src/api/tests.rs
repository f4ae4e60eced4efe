#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path as FilePath;

use serde_json::json;
use visiond_message::status::{BundleStatus, RolloutStatus};

use super::*;

/// The sources of this folder that are no tests.
fn sources() -> String {
    let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|ext| ext == "rs"));
    sources.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn every_route_is_in_the_document_and_back() {
    let sources = sources();
    let routes = sources.split(".route(").skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
    let routes: BTreeSet<_> = routes.filter_map(|rest| rest.split('"').next()).collect();
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let documented: BTreeSet<_> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(routes, documented);
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn check(value: &Value, document: &Value) {
        if let Some(to) = value.get("$ref").and_then(Value::as_str) {
            assert!(document.pointer(to.strip_prefix('#').unwrap()).is_some(), "{to}");
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| check(item, document)),
            Value::Object(members) => members.values().for_each(|member| check(member, document)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    check(&document, &document);
}

#[test]
fn messages_are_in_the_document_as_their_schema_says() {
    let pascal_case =
        |name: &str| -> String { name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect() };
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut text = include_str!("../../../../docs/message.schema.json").to_owned();
    let schema: Value = serde_json::from_str(&text).unwrap();
    for name in schema["$defs"].as_object().unwrap().keys() {
        text = text.replace(&format!("\"#/$defs/{name}\""), &format!("\"#/components/schemas/{}\"", pascal_case(name)));
    }
    let mut message: Value = serde_json::from_str(&text).unwrap();
    let members = message.as_object_mut().unwrap();
    members.retain(|name, _| !["$schema", "$id"].contains(&name.as_str()));
    let parts = members.remove("$defs").unwrap();
    assert_eq!(document["components"]["schemas"]["Message"], message);
    for (name, part) in parts.as_object().unwrap() {
        assert_eq!(document["components"]["schemas"][pascal_case(name)], *part, "{name}");
    }
}

/// Checks `value` as the document's schema of that name.
fn assert_fits(name: &str, value: &Value) {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let root = json!({ "$ref": format!("#/components/schemas/{name}"), "components": document["components"] });
    let validator = jsonschema::draft202012::new(&root).unwrap();
    let errors: Vec<_> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let documented = &document["components"]["schemas"][name]["properties"];
    for member in value.as_object().unwrap().keys() {
        assert!(documented.get(member).is_some(), "{name}.{member} is not in docs/openapi.json");
    }
}

#[test]
fn every_response_matches_openapi_json() {
    let mut status = serde_json::to_value(StatusReport::default()).unwrap();
    for time in ["at", "started_at"] {
        status[time] = "2026-01-31T12:00:00Z".into();
    }
    assert_fits("Status", &status);
    let mut camera = serde_json::to_value(CameraStatus::default()).unwrap();
    camera["phase"] = "streaming".into();
    assert_fits("Camera", &camera);
    let preview = crate::status::preview_facts(visiond_live::PreviewStatus::default());
    let with_preview = CameraStatus { preview: Some(preview), ..CameraStatus::default() };
    camera["preview"] = serde_json::to_value(with_preview).unwrap()["preview"].clone();
    assert_fits("Camera", &camera);
    let crossed_to = [("shop".to_owned(), 4)].into();
    let rule = visiond_message::status::RuleStatus { crossed_to, inside: Some(1), ..Default::default() };
    let rule = serde_json::to_value(rule).unwrap();
    assert_fits("Rule", &rule);
    camera["rules"] = vec![rule].into();
    assert_fits("Camera", &camera);
    let mut model = serde_json::to_value(visiond_message::status::ModelStatus::default()).unwrap();
    assert_fits("Model", &model);
    let rollout = RolloutStatus {
        source: "https://example.org/street".to_owned(),
        step: "fetching".to_owned(),
        version: Some(8),
        newest: Some(8),
        since: Some("2026-01-31T12:00:00Z".to_owned()),
        percent: Some(40),
        reason: Some("it timed out".to_owned()),
    };
    let bundle = BundleStatus {
        name: "street".to_owned(),
        version: 7,
        since: Some("2026-01-31T12:00:00Z".to_owned()),
        signed_by: Some("0123456789ABCDEF".to_owned()),
        rollout: Some(rollout),
    };
    model["bundle"] = serde_json::to_value(&bundle).unwrap();
    assert_fits("Model", &model);
    model["bundle"] = serde_json::to_value(BundleStatus { version: 1, ..BundleStatus::default() }).unwrap();
    assert_fits("Model", &model);
    assert_fits("Sink", &serde_json::to_value(visiond_message::status::SinkCounts::default()).unwrap());
    assert_fits("Http", &status["http"]);
    assert_fits("Process", &status["process"]);
    assert_fits("Stage", &serde_json::to_value(visiond_message::status::StageFacts::default()).unwrap());
}

#[test]
fn events_are_documented_with_their_totals() {
    let key = RuleKey { camera: "gate".into(), rule: "door".into(), kind: "line".into(), to: Some("shop".into()) };
    let totals = RuleTotals::new((key, EventTotals { begun: 3, inside: None }));
    let totals = serde_json::to_value(totals).unwrap();
    assert_eq!(totals, json!({ "camera": "gate", "rule": "door", "kind": "line", "to": "shop", "begun": 3 }));
    let event = json!({
        "schema": "visiond-event/1", "id": "1", "event": "e1", "camera": "gate", "rule": "door", "kind": "line", "phase": "moment",
        "at": "2026-01-31T12:00:00Z", "since": "2026-01-31T12:00:00Z", "sequence": 1
    });
    assert_fits("Events", &json!({ "events": [event], "totals": [totals] }));
}
