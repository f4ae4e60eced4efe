//! A model's results for a frame as a whole: attributes, an embedding, depth.

use std::sync::Arc;

use half::f16;

/// The values of one frame. Empty, without memory, unless the model's head outputs such values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FrameValues {
    /// The attributes in the order of the card, without those that have no finite number.
    pub attributes: Vec<AttributeValue>,
    /// The embedding; empty if there is none. Every number is finite as f16.
    pub embedding: Vec<f32>,
    /// Depths by cell; empty unless the head is `depth`.
    pub depth: DepthGrid,
}

/// One attribute of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeValue {
    /// Its name in the card.
    pub name: Arc<str>,
    /// Its value.
    pub reading: Reading,
}

/// The value of an attribute. All numbers are finite.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// The best label.
    Label(ScoredLabel),
    /// Every label that passes the threshold, best first; may be none.
    Labels(Vec<ScoredLabel>),
    /// The output after the card's scale and offset.
    Number(f32),
}

/// A label and its score.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredLabel {
    /// A name from the attribute's list in the card.
    pub label: Arc<str>,
    /// The confidence, 0 to 1.
    pub score: f32,
}

/// Depth as a grid over the frame, row by row. Empty if the model outputs none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DepthGrid {
    /// The number of columns; 0 if there is no depth.
    pub columns: usize,
    /// The number of rows.
    pub rows: usize,
    /// The nearest depth of each cell; `None` for a cell without a finite number.
    pub nearest: Vec<Option<f32>>,
    /// The median depth of each cell; `None` as above.
    pub median: Vec<Option<f32>>,
}

impl FrameValues {
    /// No values.
    pub const NONE: Self = Self { attributes: Vec::new(), embedding: Vec::new(), depth: DepthGrid::NONE };

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty() && self.embedding.is_empty() && self.depth.is_empty()
    }

    /// Returns the embedding as little-endian f16.
    pub fn embedding_as_f16(&self) -> Vec<u8> {
        self.embedding.iter().flat_map(|&number| f16::from_f32(number).to_le_bytes()).collect()
    }

    /// Removes all values but keeps the memory.
    pub(super) fn clear(&mut self) {
        self.attributes.clear();
        self.embedding.clear();
        self.depth.clear();
    }
}

impl DepthGrid {
    const NONE: Self = Self { columns: 0, rows: 0, nearest: Vec::new(), median: Vec::new() };

    /// Whether there is no depth.
    pub fn is_empty(&self) -> bool {
        self.columns == 0
    }

    pub(super) fn clear(&mut self) {
        (self.columns, self.rows) = (0, 0);
        self.nearest.clear();
        self.median.clear();
    }
}
