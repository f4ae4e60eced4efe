//! `--precision LAYER=fp32`: which layers the user means.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use super::error::PrecisionError;
use super::graph::OnnxNode;
use super::tensor::Half;
use crate::option_error::OptionError;

/// A precision for layers, by name or operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A pattern: `Conv_12`, `/model.22/*`, `type:Softmax`.
    pub layers: String,
    /// The type that they compute in.
    pub precision: LayerPrecision,
}

/// The type that a layer computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerPrecision {
    /// FP32.
    Full,
    /// The half-precision type of the whole model; an explicitly named type must match it.
    Half(Option<Half>),
}

/// Writes the rule in the form in which it is read.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = match self.precision {
            LayerPrecision::Full => "fp32",
            LayerPrecision::Half(None) => "half",
            LayerPrecision::Half(Some(half)) => half.name(),
        };
        write!(f, "{}={precision}", self.layers)
    }
}

impl FromStr for Rule {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let wrong = || {
            OptionError(format!(
                "`{text}` is not LAYER=fp32 or LAYER=half: name a layer (`/model.22/dfl/conv=fp32`), several \
                 (`/model.22/*=fp32`) or an operator (`type:Softmax=fp32`)"
            ))
        };
        let (layers, precision) = text.rsplit_once('=').ok_or_else(wrong)?;
        let precision = match precision.to_ascii_lowercase().as_str() {
            "fp32" => LayerPrecision::Full,
            "half" => LayerPrecision::Half(None),
            "fp16" => LayerPrecision::Half(Some(Half::F16)),
            "bf16" => LayerPrecision::Half(Some(Half::Bf16)),
            _ => return Err(wrong()),
        };
        if layers.is_empty() || layers == "type:" {
            return Err(wrong());
        }
        Ok(Self { layers: layers.to_owned(), precision })
    }
}

impl Rule {
    /// Whether the rule matches this node.
    pub(super) fn matches(&self, node: &OnnxNode<'_>) -> bool {
        match self.layers.strip_prefix("type:") {
            Some(operator) => matches_glob(operator, &node.op),
            // An unnamed node is matched by its outputs, as TensorRT itself names layers.
            None => matches_glob(&self.layers, node.label()) || node.outputs.contains(&self.layers),
        }
    }

    /// Returns the error for a rule that matches no node.
    pub(super) fn unknown(&self, nodes: &[OnnxNode<'_>]) -> PrecisionError {
        const SHOWN: usize = 3;
        let (word, prefix) = match self.layers.strip_prefix("type:") {
            Some(operator) => (operator, "type:"),
            None => (self.layers.as_str(), ""),
        };
        let name = |node: &OnnxNode<'_>| if prefix.is_empty() { node.label().to_owned() } else { node.op.clone() };
        let mut names: Vec<String> = nodes.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        let likeness = |name: &String| strsim::normalized_damerau_levenshtein(word, name);
        // Numbers from 0 to 1 are in the order of their bits.
        names.sort_by_cached_key(|name| Reverse(likeness(name).to_bits()));
        names.truncate(SHOWN);
        let near = names.iter().map(|name| format!("`{prefix}{name}`")).collect::<Vec<_>>().join(", ");
        PrecisionError::NoSuchLayer(self.layers.clone(), near)
    }
}

/// Matches `*` with any text and `?` with any character.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where to continue if the text after the last star does not match.
    let mut star = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            (p, t) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn stars_and_question_marks_stand_for_other_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("/model.22/*", "/model.22/dfl/conv/Conv", true),
            ("/model.22/*", "/model.2/conv", false),
            ("*Conv", "/a/ConvConv", true),
            ("*a*b", "xaxbx", false),
            ("Conv_?", "Conv_1", true),
            ("Conv_?", "Conv_", false),
        ] {
            assert_eq!(matches_glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_is_a_layer_and_a_precision() {
        let rule: Rule = "type:Softmax=fp32".parse().unwrap();
        assert_eq!(rule, Rule { layers: "type:Softmax".to_owned(), precision: LayerPrecision::Full });
        // Names may themselves contain the sign.
        assert_eq!("a=b=half".parse::<Rule>().unwrap().layers, "a=b");
        for wrong in ["", "x", "x=int8", "=fp32", "type:=fp32"] {
            assert!(wrong.parse::<Rule>().unwrap_err().to_string().contains("LAYER=fp32"), "{wrong}");
        }
    }
}
