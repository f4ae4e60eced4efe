//! Values of the whole frame in a message: attributes, an embedding, depth.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

/// The attributes of a frame by name, in the order of the card.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttributesMessage(pub Vec<(Arc<str>, AttributeMessage)>);

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum AttributeMessage {
    /// The best label and its score.
    Label(LabelMessage),
    /// Every label that passes the threshold, best first.
    Labels {
        /// The labels.
        labels: Vec<LabelMessage>,
    },
    /// A number.
    Number {
        /// Its value.
        value: f32,
    },
}

/// The value of an attribute, without scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PlainAttribute {
    /// A number.
    Number(f32),
    /// The label, or all labels with commas between.
    Text(String),
}

impl From<&AttributeMessage> for PlainAttribute {
    fn from(attribute: &AttributeMessage) -> Self {
        match attribute {
            AttributeMessage::Number { value } => Self::Number(*value),
            labels => Self::Text(labels.text()),
        }
    }
}

/// A label with its score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabelMessage {
    /// The label.
    pub label: Arc<str>,
    /// Score from 0 to 1.
    pub score: f32,
}

/// An embedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EmbeddingMessage {
    /// Number of its numbers.
    pub length: usize,
    /// The numbers as 16-bit floats, little endian, in base64.
    pub f16: String,
}

/// Depth as a grid over the frame.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DepthMessage {
    /// Number of columns.
    pub columns: usize,
    /// Number of rows.
    pub rows: usize,
    /// The nearest depth in each cell, row by row; `None` for a cell without depth.
    pub nearest: Vec<Option<f32>>,
    /// The median depth of each cell.
    pub median: Vec<Option<f32>>,
}

/// The approximate bytes of a number as JSON.
pub(crate) const NUMBER_BYTES: usize = 6;

impl EmbeddingMessage {
    pub(crate) fn about_bytes(&self) -> usize {
        self.f16.len() + 40
    }
}

impl DepthMessage {
    pub(crate) fn about_bytes(&self) -> usize {
        (self.nearest.len() + self.median.len()) * NUMBER_BYTES + 60
    }
}

impl Serialize for AttributesMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, attribute)| (name, attribute)))
    }
}

impl AttributesMessage {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AttributeMessage {
    /// Returns the value as text for people, without scores.
    pub fn text(&self) -> String {
        match self {
            Self::Label(one) => one.label.to_string(),
            Self::Labels { labels } if labels.is_empty() => "none".to_owned(),
            Self::Labels { labels } => labels.iter().map(|one| &*one.label).collect::<Vec<_>>().join(", "),
            Self::Number { value } => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_reads_as_its_label_its_labels_or_its_number() {
        let label = |label: &str| LabelMessage { label: label.into(), score: 0.5 };
        for (attribute, text) in [
            (AttributeMessage::Label(label("dark")), "dark"),
            (AttributeMessage::Labels { labels: vec![] }, "none"),
            (AttributeMessage::Labels { labels: vec![label("hat"), label("bag")] }, "hat, bag"),
            (AttributeMessage::Number { value: 31.5 }, "31.5"),
        ] {
            assert_eq!(attribute.text(), text);
            let plain = match attribute {
                AttributeMessage::Number { value } => PlainAttribute::Number(value),
                _ => PlainAttribute::Text(text.to_owned()),
            };
            assert_eq!(PlainAttribute::from(&attribute), plain);
        }
    }
}
