//! The JSON in the documents matches the schemas.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use visiond_system::testing::strict_schema;
use visiond_tests::root;

/// Documents with JSON that no schema describes, each with the reason.
const WITHOUT_SCHEMA: [(&str, &str); 1] =
    [("docs/selftest.md", "the report has no schema: the table below the example has its fields")];

fn json_file(path: &str) -> Value {
    serde_json::from_slice(&std::fs::read(root().join(path)).unwrap()).unwrap()
}

fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            documents(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

/// The values in the fenced blocks of JSON of a document; a block may have several.
fn examples(document: &str) -> Vec<Value> {
    let blocks = document.split("\n```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default());
    let values = |block| serde_json::Deserializer::from_str(block).into_iter().collect::<Result<Vec<Value>, _>>();
    blocks.flat_map(|block| values(block).unwrap_or_else(|error| panic!("{error} in {block}"))).collect()
}

/// Asserts that `value` matches the schema that its `schema` names, and has no other member.
pub fn assert_valid(value: &Value) {
    let errors = errors(value);
    assert!(errors.is_empty(), "{errors:?} in {value}");
}

fn strict(schema: &str) -> Value {
    serde_json::from_str(&strict_schema(&std::fs::read_to_string(root().join(schema)).unwrap())).unwrap()
}

/// The errors of `value` against the schema that its `schema` names, otherwise against the closest response of the API.
pub fn errors(value: &Value) -> Vec<String> {
    let api = json_file("docs/openapi.json");
    let responses = api["components"]["schemas"].as_object().unwrap();
    let schemas: Vec<Value> = match value["schema"].as_str() {
        Some("visiond/1") => vec![strict("docs/message.schema.json")],
        Some("visiond-event/1") => vec![strict("docs/event.schema.json")],
        Some("visiond-state/1") => vec![strict("docs/state.schema.json")],
        Some(other) => return vec![format!("{other} has no schema")],
        None => responses
            .iter()
            .filter_map(|(name, response)| {
                let known: Vec<_> = response["properties"].as_object()?.keys().collect();
                // The API may get more members, so its document allows them; an example must have none.
                Some(json!({
                    "$ref": format!("#/components/schemas/{name}"),
                    "components": api["components"],
                    "propertyNames": { "enum": known }
                }))
            })
            .collect(),
    };
    let errors = schemas.iter().map(|schema| {
        let validator = jsonschema::draft202012::new(schema).unwrap();
        validator.iter_errors(value).map(|error| format!("{error} at {}", error.instance_path())).collect::<Vec<_>>()
    });
    errors.min_by_key(Vec::len).unwrap()
}

#[test]
fn json_in_the_documents_matches_its_schema() {
    let mut files = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    documents(&root().join("docs"), &mut files);
    documents(&root().join("config"), &mut files);
    let mut kinds = Vec::new();
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let without = WITHOUT_SCHEMA.iter().any(|(document, _)| *document == name);
        for example in examples(&std::fs::read_to_string(&file).unwrap()) {
            let errors = errors(&example);
            assert_eq!(errors.is_empty(), !without, "{name}: {errors:?} in {example}");
            kinds.push(example["schema"].as_str().map(str::to_owned));
        }
    }
    for kind in [Some("visiond/1".to_owned()), Some("visiond-state/1".to_owned()), None] {
        assert!(kinds.contains(&kind), "{kind:?} is not among {kinds:?}");
    }
}
