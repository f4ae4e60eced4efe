//! Reads the inspector's JSON about each layer.
//!
//! The wording differs between TensorRT versions, and without detailed profiling verbosity there are only names: missing
//! facts are left out.

use serde_json::Value;

/// A layer of an engine; several layers of the model may be fused into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerFacts {
    /// Its name; names of fused layers are joined.
    pub name: String,
    /// Its kind: "CaskConvolution", "Reformat".
    pub kind: Option<String>,
    /// The type that it computes in or returns: "FP16".
    pub precision: Option<String>,
    /// The kernel that was chosen.
    pub tactic: Option<String>,
}

/// Returns the layers in the output of [`TrtEngine::information`](super::TrtEngine::information); none if it is not such JSON.
pub fn layers(information: &str) -> Vec<LayerFacts> {
    let Ok(value) = serde_json::from_str::<Value>(information) else { return Vec::new() };
    value["Layers"].as_array().map(|layers| layers.iter().map(layer).collect()).unwrap_or_default()
}

fn layer(value: &Value) -> LayerFacts {
    if let Some(name) = value.as_str() {
        return LayerFacts { name: name.to_owned(), ..LayerFacts::default() };
    }
    let text = |key: &str| match &value[key] {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let of_tensor = |list: &str| {
        let tensor = &value[list][0];
        let words =
            ["Datatype", "DataType", "Format/Datatype", "Format"].iter().filter_map(|key| tensor[*key].as_str());
        words.filter_map(precision).next()
    };
    let own = || text("Precision").map(|word| precision(&word).map_or(word, str::to_owned));
    LayerFacts {
        name: text("Name").unwrap_or_default(),
        kind: text("LayerType"),
        precision: own().or_else(|| of_tensor("Outputs").or_else(|| of_tensor("Inputs")).map(str::to_owned)),
        tactic: text("TacticName").or_else(|| text("TacticValue")).filter(|tactic| tactic != "0x0000000000000000"),
    }
}

/// Returns the element type in TensorRT's words for a format: "Channel major FP16 format where channel % 8 == 0".
fn precision(words: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 16] = [
        ("bf16", "BF16"),
        ("bfloat16", "BF16"),
        ("fp16", "FP16"),
        ("half", "FP16"),
        ("float16", "FP16"),
        ("fp8", "FP8"),
        ("fp4", "FP4"),
        ("uint8", "UINT8"),
        ("int8", "INT8"),
        ("int4", "INT4"),
        ("int64", "INT64"),
        ("int32", "INT32"),
        ("bool", "BOOL"),
        ("fp32", "FP32"),
        ("float32", "FP32"),
        ("float", "FP32"),
    ];
    let words = words.to_ascii_lowercase();
    NAMES.iter().find(|(word, _)| words.contains(word)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detailed_layers_have_kind_precision_and_tactic() {
        let text = r#"{"Layers": [{"Name": "conv1 + relu", "LayerType": "CaskConvolution",
            "Inputs": [{"Name": "a", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Row major linear FP32"}],
            "Outputs": [{"Name": "b", "Dimensions": [1, 8, 4, 4], "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
            "TacticName": "sm80_xmma_fprop", "TacticValue": "0x0000000000000001"},
            {"Name": "shuffle", "LayerType": "NoOp", "Outputs": [{"Datatype": "Half"}], "TacticValue": "0x0000000000000000"}],
            "Bindings": ["a", "b"]}"#;
        let found = layers(text);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found[0],
            LayerFacts {
                name: "conv1 + relu".to_owned(),
                kind: some("CaskConvolution"),
                precision: some("FP16"),
                tactic: some("sm80_xmma_fprop")
            }
        );
        assert_eq!((found[1].precision.as_deref(), found[1].tactic.as_deref()), (Some("FP16"), None));
    }

    #[test]
    fn names_alone_and_nonsense_are_taken_as_they_are() {
        assert_eq!(layers(r#"{"Layers": ["conv1 + relu"], "Bindings": []}"#)[0].name, "conv1 + relu");
        assert_eq!(layers("not json"), []);
        assert_eq!(layers("{}"), []);
    }
}
