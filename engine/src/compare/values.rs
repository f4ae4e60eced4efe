//! Compares the whole-frame values of two models: attributes, embeddings, depth.

use super::detections::Worst;
use crate::heads::{DepthGrid, FrameValues, Reading, ScoredLabel};

/// The part of a depth grid's greatest number below which differences are relative to that part: for a distance of almost 0, a
/// relative difference means nothing.
const SMALLEST_DEPTH: f64 = 0.05;

/// Limits of the values of two models.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueLimits {
    /// The score from which one of several labels counts.
    pub score_threshold: f64,
    /// The greatest difference of scores, and the greatest relative difference of numbers and depths.
    pub max_difference: f64,
    /// The minimum cosine of embeddings.
    pub min_cosine: f64,
}

/// How far two models agree on one value of the frame, such as an attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueDifference {
    /// The attribute's name, `embedding` or `depth`.
    pub name: String,
    /// Frames for which at least one model outputs it.
    pub frames: u64,
    /// Frames in which it exceeds the limits, has a different label, or comes from one model only.
    pub outside: u64,
    /// Frames with a different label.
    pub other_labels: u64,
    /// Frames, or cells of depth, for which only one model outputs it.
    pub one_sided: u64,
    /// The greatest difference of scores, or relative difference of numbers and depths.
    pub max_difference: Option<Worst>,
    /// The minimum cosine of embeddings.
    pub min_cosine: Option<Worst>,
    /// The first frame outside the limits.
    pub outside_picture: Option<usize>,
}

/// How far two models agree on the values of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueAgreement {
    limits: ValueLimits,
    /// Each value that a model output, in order of appearance.
    pub values: Vec<ValueDifference>,
}

/// The differences in one frame.
#[derive(Default)]
struct InFrame {
    difference: Option<f64>,
    cosine: Option<f64>,
    other_label: bool,
    one_sided: u64,
}

impl ValueAgreement {
    /// Makes an empty comparison.
    pub fn within(limits: ValueLimits) -> Self {
        Self { limits, values: Vec::new() }
    }

    /// Adds the values of one image.
    pub fn add(&mut self, picture: usize, a: &FrameValues, b: &FrameValues) {
        let (first, second) = (&a.attributes, &b.attributes);
        for attribute in first {
            let other = second.iter().find(|other| other.name == attribute.name);
            let found = match other {
                Some(other) => self.readings(&attribute.reading, &other.reading),
                None => InFrame { one_sided: 1, ..InFrame::default() },
            };
            self.count(picture, &attribute.name, &found);
        }
        for attribute in second.iter().filter(|other| first.iter().all(|one| one.name != other.name)) {
            self.count(picture, &attribute.name, &InFrame { one_sided: 1, ..InFrame::default() });
        }
        let embeddings = [&a.embedding, &b.embedding];
        if embeddings.iter().any(|embedding| !embedding.is_empty()) {
            let cosine = cosine(&a.embedding, &b.embedding);
            self.count(
                picture,
                "embedding",
                &InFrame { cosine, one_sided: u64::from(cosine.is_none()), ..InFrame::default() },
            );
        }
        if !a.depth.is_empty() || !b.depth.is_empty() {
            self.count(picture, "depth", &depths(&a.depth, &b.depth));
        }
    }

    /// Returns how many values of frames were compared, and how many of them are outside the limits.
    pub fn counts(&self) -> (u64, u64) {
        self.values.iter().fold((0, 0), |(all, outside), value| (all + value.frames, outside + value.outside))
    }

    fn readings(&self, a: &Reading, b: &Reading) -> InFrame {
        match (a, b) {
            (Reading::Label(a), Reading::Label(b)) => {
                let difference = Some(f64::from((a.score - b.score).abs()));
                InFrame { difference, other_label: a.label != b.label, ..InFrame::default() }
            }
            (Reading::Labels(a), Reading::Labels(b)) => self.labels(a, b),
            (&Reading::Number(a), &Reading::Number(b)) => {
                let (a, b) = (f64::from(a), f64::from(b));
                let most = a.abs().max(b.abs());
                let difference = Some(if most > 0.0 { (a - b).abs() / most } else { 0.0 });
                InFrame { difference, ..InFrame::default() }
            }
            // The cards differ.
            _ => InFrame { other_label: true, ..InFrame::default() },
        }
    }

    /// Compares the labels that pass the threshold in one of the models.
    fn labels(&self, a: &[ScoredLabel], b: &[ScoredLabel]) -> InFrame {
        let mut found = InFrame::default();
        for (one, other) in [(a, b), (b, a)] {
            for scored in one.iter().filter(|scored| f64::from(scored.score) >= self.limits.score_threshold) {
                match other.iter().find(|other| other.label == scored.label) {
                    Some(other) => {
                        let difference = f64::from((scored.score - other.score).abs());
                        found.difference = Some(found.difference.map_or(difference, |most| most.max(difference)));
                    }
                    None => found.other_label = true,
                }
            }
        }
        found
    }

    fn count(&mut self, picture: usize, name: &str, found: &InFrame) {
        let ValueLimits { max_difference, min_cosine, .. } = self.limits;
        let index = self.values.iter().position(|value| value.name == name).unwrap_or(self.values.len());
        if index == self.values.len() {
            self.values.push(ValueDifference {
                name: name.to_owned(),
                frames: 0,
                outside: 0,
                other_labels: 0,
                one_sided: 0,
                max_difference: None,
                min_cosine: None,
                outside_picture: None,
            });
        }
        let value = &mut self.values[index];
        let InFrame { difference, cosine, other_label, one_sided } = *found;
        let is_outside = other_label
            || one_sided > 0
            || difference.is_some_and(|difference| difference > max_difference)
            || cosine.is_some_and(|cosine| cosine < min_cosine);
        value.frames += 1;
        value.other_labels += u64::from(other_label);
        value.one_sided += one_sided;
        if let Some(difference) = difference {
            Worst::keep(&mut value.max_difference, difference, picture, |new, worst| new > worst);
        }
        if let Some(cosine) = cosine {
            Worst::keep(&mut value.min_cosine, cosine, picture, |new, worst| new < worst);
        }
        if is_outside {
            value.outside += 1;
            value.outside_picture.get_or_insert(picture);
        }
    }
}

/// Returns the cosine of two embeddings; `None` if their lengths differ or one of them is zero.
fn cosine(a: &[f32], b: &[f32]) -> Option<f64> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    (a.len() == b.len() && lengths > 0.0).then(|| dot(a, b) / lengths)
}

/// Compares the nearest and the median depth of each cell.
fn depths(a: &DepthGrid, b: &DepthGrid) -> InFrame {
    if (a.columns, a.rows) != (b.columns, b.rows) {
        return InFrame { one_sided: 1, ..InFrame::default() };
    }
    let pairs = || a.nearest.iter().zip(&b.nearest).chain(a.median.iter().zip(&b.median));
    let size = |depth: f32| f64::from(depth.abs());
    let greatest = pairs().flat_map(|(a, b)| a.iter().chain(b)).map(|&depth| size(depth)).fold(0.0, f64::max);
    let mut found = InFrame::default();
    for (a, b) in pairs() {
        match (a, b) {
            (&Some(a), &Some(b)) => {
                let reference = size(a).max(size(b)).max(SMALLEST_DEPTH * greatest);
                let difference = (f64::from(a) - f64::from(b)).abs();
                let relative = if reference > 0.0 { difference / reference } else { 0.0 };
                found.difference = Some(found.difference.map_or(relative, |most: f64| most.max(relative)));
            }
            (None, None) => {}
            _ => found.one_sided += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::AttributeValue;

    const LIMITS: ValueLimits = ValueLimits { score_threshold: 0.5, max_difference: 0.02, min_cosine: 0.99 };

    fn compared(a: &FrameValues, b: &FrameValues) -> Vec<ValueDifference> {
        let mut agreement = ValueAgreement::within(LIMITS);
        agreement.add(0, a, a);
        agreement.add(1, a, b);
        agreement.values
    }

    fn label(label: &str, score: f32) -> ScoredLabel {
        ScoredLabel { label: label.into(), score }
    }

    fn attribute(reading: Reading) -> FrameValues {
        FrameValues { attributes: vec![AttributeValue { name: "a".into(), reading }], ..FrameValues::default() }
    }

    /// Outside, other labels, one-sided, and the greatest difference in hundredths.
    fn differs(a: &FrameValues, b: &FrameValues) -> (u64, u64, u64, Option<i32>) {
        let values = compared(a, b);
        assert_eq!((values.len(), values[0].frames), (1, 2));
        let ValueDifference { outside, other_labels, one_sided, max_difference, .. } = &values[0];
        (*outside, *other_labels, *one_sided, max_difference.map(|worst| (worst.value * 100.0).round() as i32))
    }

    #[test]
    fn attributes_differ_by_label_score_and_relative_number() {
        let gender = |name, score| attribute(Reading::Label(label(name, score)));
        assert_eq!(differs(&gender("f", 0.9), &gender("f", 0.89)), (0, 0, 0, Some(1)));
        assert_eq!(differs(&gender("f", 0.9), &gender("f", 0.8)), (1, 0, 0, Some(10)));
        assert_eq!(differs(&gender("f", 0.51), &gender("m", 0.5)), (1, 1, 0, Some(1)));
        let age = |age| attribute(Reading::Number(age));
        assert_eq!(differs(&age(50.0), &age(49.5)), (0, 0, 0, Some(1)));
        assert_eq!(differs(&age(-50.0), &age(-40.0)), (1, 0, 0, Some(20)));
        assert_eq!(differs(&age(0.0), &age(0.0)), (0, 0, 0, Some(0)));
        let tags = |tags: &[(&str, f32)]| {
            attribute(Reading::Labels(tags.iter().map(|(name, score)| label(name, *score)).collect()))
        };
        // A label that falls just below the threshold in one model is a difference of scores.
        assert_eq!(
            differs(&tags(&[("hat", 0.9), ("bag", 0.505)]), &tags(&[("hat", 0.9), ("bag", 0.495)])),
            (0, 0, 0, Some(1))
        );
        assert_eq!(differs(&tags(&[("hat", 0.9)]), &tags(&[("hat", 0.9), ("bag", 0.6)])), (1, 1, 0, Some(0)));
        assert_eq!(differs(&tags(&[("hat", 0.9)]), &tags(&[("hat", 0.9), ("bag", 0.4)])), (0, 0, 0, Some(0)));
        assert_eq!(differs(&gender("f", 0.9), &FrameValues::default()), (1, 0, 1, Some(0)));
        let mut agreement = ValueAgreement::within(LIMITS);
        agreement.add(0, &FrameValues::default(), &gender("f", 0.9));
        assert_eq!((agreement.counts(), agreement.values[0].one_sided), ((1, 1), 1));
    }

    #[test]
    fn embeddings_differ_by_their_cosine() {
        let embedding = |numbers: &[f32]| FrameValues { embedding: numbers.to_vec(), ..FrameValues::default() };
        let found = |a: &[f32], b: &[f32]| {
            let value = &compared(&embedding(a), &embedding(b))[0];
            (value.outside, value.one_sided, value.min_cosine.map(|worst| (worst.value * 1e3).round() as i32))
        };
        assert_eq!(found(&[1.0, 0.0], &[2.0, 0.0]), (0, 0, Some(1000)));
        assert_eq!(found(&[1.0, 0.0], &[1.0, 1.0]), (1, 0, Some(707)));
        assert_eq!(found(&[1.0, 0.0], &[]), (1, 1, Some(1000)));
        assert_eq!(found(&[1.0, 0.0], &[1.0, 0.0, 0.0]), (1, 1, Some(1000)));
    }

    #[test]
    fn depths_differ_relative_to_themselves_and_to_the_greatest_if_they_are_small() {
        let depth = |cells: &[Option<f32>]| FrameValues {
            depth: DepthGrid { columns: cells.len(), rows: 1, nearest: cells.to_vec(), median: cells.to_vec() },
            ..FrameValues::default()
        };
        let found = |a: &[Option<f32>], b: &[Option<f32>]| differs(&depth(a), &depth(b));
        assert_eq!(found(&[Some(20.0), Some(0.5)], &[Some(20.0), Some(1.0)]), (1, 0, 0, Some(50)));
        assert_eq!(found(&[Some(20.0), Some(0.01)], &[Some(20.0), Some(0.02)]), (0, 0, 0, Some(1)));
        // Two lists of cells.
        assert_eq!(found(&[Some(1.0), None], &[Some(1.0), Some(1.0)]), (1, 0, 2, Some(0)));
        assert_eq!(found(&[Some(0.0), None], &[Some(0.0), None]), (0, 0, 0, Some(0)));
        assert_eq!(found(&[Some(1.0)], &[Some(1.0), Some(1.0)]), (1, 0, 1, Some(0)));
    }
}
