//! The possible parts of a row: the box, the scores and the rest of a YOLO, or the scores and distances of NanoDet.

use crate::onnx::{OutputTail, Part, PartKind};

/// The parts of an output's rows, derived from the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowParts {
    /// Unknown: there is no graph, as in an engine, or its operators do not show the parts.
    Hidden,
    /// Four numbers of a box, then sigmoid scores, then others.
    BoxFirst {
        /// Whether the box comes straight from a layer.
        raw: bool,
        /// Whether a size of the box is exp(x).
        exp: bool,
        /// Whether the box comes straight from a sigmoid, so that it is in fractions of the input.
        fractions: bool,
        /// Whether the first score was computed separately from the others, like objectness.
        objectness: bool,
        /// The number of scores.
        scores: usize,
        /// The numbers after them.
        rest: usize,
        /// Whether the rest comes straight from a layer, like mask coefficients.
        rest_raw: bool,
        /// Whether some of the rest went through a sigmoid, like the scores of keypoints.
        rest_scored: bool,
    },
    /// Scores, then numbers straight from a layer.
    ScoresFirst {
        /// The number of scores.
        scores: usize,
        /// The numbers after them.
        rest: usize,
        /// Whether the scores are logits.
        logits: bool,
    },
    /// All numbers come straight from one layer.
    Raw,
    /// Not a YOLO: a softmax or sigmoid over the whole row, for example.
    Other,
}

impl RowParts {
    /// Returns the parts of an output's rows of `width` numbers, as far as the graph shows them.
    pub(super) fn of(tail: &OutputTail, width: Option<usize>) -> Self {
        match width.and_then(|width| tail.parts.get(&width)) {
            Some(parts) => Self::read(parts),
            None => Self::Hidden,
        }
    }

    fn read(parts: &[Part]) -> Self {
        use PartKind::{Computed, Constant, Raw, Sigmoid, Softmax, Unknown};
        let width = |parts: &[Part]| parts.iter().map(|part| part.width).sum::<usize>();
        if let [part] = parts {
            return match part.kind {
                Raw => Self::Raw,
                // The parts were joined before the first visible join.
                Computed | Unknown | Constant => Self::Hidden,
                Sigmoid | Softmax => Self::Other,
            };
        }
        // Scores and distances.
        if let [scores @ .., distances] = parts
            && distances.kind == Raw
            && scores.iter().all(|part| part.kind == Sigmoid)
        {
            return Self::ScoresFirst { scores: width(scores), rest: distances.width, logits: false };
        }
        if let [scores, distances] = parts
            && [scores.kind, distances.kind] == [Raw; 2]
        {
            return Self::ScoresFirst { scores: scores.width, rest: distances.width, logits: true };
        }
        let Some(box_parts) = (1..parts.len()).find(|&count| width(&parts[..count]) == 4) else { return Self::Other };
        let (sides, others) = parts.split_at(box_parts);
        if sides.iter().any(|part| matches!(part.kind, Softmax | Constant)) {
            return Self::Other;
        }
        let raw = sides.iter().all(|part| part.kind == Raw);
        // YOLOv6 writes an objectness of 1.
        let constant = others.first().is_some_and(|part| part.kind == Constant && part.width == 1);
        let is_score = |(index, part): (usize, &Part)| part.kind == Sigmoid || (index == 0 && constant);
        let score_parts = others.iter().enumerate().take_while(|(index, part)| is_score((*index, part))).count();
        let (scores, rest) = others.split_at(score_parts);
        if scores.is_empty() {
            return Self::Other;
        }
        Self::BoxFirst {
            raw,
            exp: sides.iter().any(|part| part.exp),
            fractions: sides.iter().all(|part| part.kind == Sigmoid),
            objectness: scores.len() > 1 && scores[0].width == 1,
            scores: width(scores),
            rest: width(rest),
            rest_raw: rest.iter().all(|part| part.kind == Raw),
            rest_scored: rest.iter().any(|part| part.sigmoid),
        }
    }

    /// Whether rows may be a decoded box, one score per class, and `masks` or keypoints: YOLOv8.
    pub(super) fn may_be_yolov8(self) -> bool {
        matches!(self, Self::Hidden | Self::BoxFirst { raw: false, fractions: false, objectness: false, .. })
    }

    /// Whether rows may be a decoded box, objectness and scores: YOLOv5.
    pub(super) fn may_be_yolov5(self, masks: usize) -> bool {
        match self {
            Self::Hidden => true,
            Self::BoxFirst { raw: false, fractions: false, scores, rest, rest_raw, rest_scored, .. } => {
                // YOLOv5-face has five points between objectness and the one class; pose models have points with scores.
                let is_face = scores == 1 && rest == 11 && rest_scored;
                let is_pose = scores > 1 && rest > 0 && rest.is_multiple_of(3) && rest_scored && !rest_raw;
                is_face || is_pose || scores > 1 && (rest == 0 || rest_raw && rest == masks)
            }
            _ => false,
        }
    }

    /// Returns whether the boxes of YOLOX are decoded, if rows may be YOLOX's.
    pub(super) fn yolox_decoded(self, tail: &OutputTail) -> Option<bool> {
        match self {
            // A decoded box of centre and size involves exp(x); any other arithmetic belongs to another family.
            Self::Hidden if tail.known => (tail.exp || !tail.arithmetic).then_some(tail.exp),
            Self::Hidden => Some(tail.exp),
            Self::BoxFirst { raw, exp, rest: 0, .. } if raw || exp => Some(!raw),
            _ => None,
        }
    }

    /// Whether rows may be a decoded box and one score per class, and nothing else: Ultralytics' DETR.
    pub(super) fn may_be_detr(self, tail: &OutputTail) -> bool {
        match self {
            Self::Hidden => !tail.seen || tail.sigmoid && tail.joined,
            Self::BoxFirst { raw: false, objectness: false, rest: 0, .. } => true,
            _ => false,
        }
    }

    /// Whether rows may be box, score and class that the graph chose.
    pub(super) fn may_be_chosen(self, tail: &OutputTail) -> bool {
        let scored = !tail.seen || tail.sigmoid || tail.softmax || tail.chosen;
        // A class number is not a sigmoid: two sigmoids are the scores of two classes.
        scored && (tail.chosen || !matches!(self, Self::Other | Self::Raw | Self::BoxFirst { scores: 2, .. }))
    }

    /// Whether rows may be scores and distances: NanoDet.
    pub(super) fn may_be_nanodet(self, distances: usize) -> bool {
        match self {
            Self::Hidden | Self::Raw => true,
            Self::ScoresFirst { rest, .. } => rest == distances,
            _ => false,
        }
    }
}
