//! Checks whether the numbers of a run fit the head: probabilities or logits, pixels or fractions, corners or sizes.
//!
//! A doubt is certain for any image: a model with a correct card never outputs such numbers. So each rule leaves a wide
//! margin, needs several numbers, and ignores numbers that are not finite or all equal, such as the zeros of unused rows.

use super::misfit::{FAMILY, Misfit};
use super::outputs::classes_text;
use super::spec::{Activation, BoxFormat, BoxUnit};

/// How far a probability may be beyond 0 to 1, after rounding in f16 or INT8.
const MARGIN: f32 = 0.05;

/// How many numbers prove that they are probabilities: among this many logits, at least one is negative or above 1.
const ENOUGH: usize = 20;

/// How many boxes prove their unit or format.
const ENOUGH_BOXES: usize = 8;

/// How many numbers in a row prove that their sum of 1 is no coincidence.
const ENOUGH_IN_ROW: usize = 5;

/// How many boxes that could all be corners prove that they are not centres and sizes.
const ENOUGH_CORNERS: usize = 20;

/// How far correctly read boxes may extend beyond the input, as a fraction of it.
pub(super) const BEYOND: f32 = 0.1;

/// A number beyond this is not a fraction of the input; a box within `SMALL` is not in pixels.
const LARGE: f32 = 4.0;
const SMALL: f32 = 1.5;

/// How far the sum of a softmax may be from 1, in f16.
const SUM_MARGIN: f32 = 3e-3;

/// A score that only a real detection has.
const SURE: f32 = 0.3;

/// The minimum and maximum of some numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    least: f32,
    most: f32,
    count: usize,
}

impl Numbers {
    pub(super) fn of<'n>(numbers: impl IntoIterator<Item = &'n f32>) -> Self {
        let none = Self { least: f32::INFINITY, most: f32::NEG_INFINITY, count: 0 };
        numbers.into_iter().filter(|number| number.is_finite()).fold(none, |all, &number| Self {
            least: all.least.min(number),
            most: all.most.max(number),
            count: all.count + 1,
        })
    }

    pub(super) fn most(&self) -> f32 {
        self.most
    }

    /// Whether some of them cannot be probabilities.
    fn are_beyond(&self) -> bool {
        self.count > 0 && (self.least < -MARGIN || self.most > 1.0 + MARGIN)
    }

    /// Whether they can hardly be logits: all are between 0 and 1, but not all equal.
    fn are_probabilities(&self) -> bool {
        self.count >= ENOUGH && self.least >= 0.0 && self.most <= 1.0 && self.least < self.most
    }

    fn range(&self) -> String {
        format!("from {:.2} to {:.2}", self.least, self.most)
    }
}

/// Returns a doubt about scores that must be probabilities.
pub(super) fn not_probabilities(scores: Numbers, key: &'static str, remedy: &str) -> Option<Misfit> {
    let problem = || format!("its scores are {}, which are logits and not probabilities", scores.range());
    scores.are_beyond().then(|| Misfit::at(key, problem(), remedy))
}

/// Returns a doubt about the angles of oriented boxes if a quarter of them exceed two turns, which no model in radians does.
pub(super) fn not_radians<'n>(angles: impl IntoIterator<Item = &'n f32>) -> Option<Misfit> {
    let (mut count, mut beyond) = (0_usize, 0_usize);
    for angle in angles.into_iter().filter(|angle| angle.is_finite()) {
        count += 1;
        beyond += usize::from(angle.abs() > 4.0 * std::f32::consts::PI);
    }
    (count >= ENOUGH_BOXES && 4 * beyond >= count).then(|| {
        let problem = "many of its angles are beyond two turns, so they are not in radians";
        Misfit::at(
            "head.oriented",
            problem,
            "remove `oriented` under [head], or export the model with angles in radians",
        )
    })
}

/// Returns a doubt about scores that must be logits.
pub(super) fn not_logits(scores: Numbers, key: &'static str, remedy: &str) -> Option<Misfit> {
    let problem = || format!("its scores are {}, which are already probabilities", scores.range());
    scores.are_probabilities().then(|| Misfit::at(key, problem(), remedy))
}

/// Returns a doubt about the activation of scores in rows of `width`.
pub(super) fn wrong_activation(scores: &[f32], width: usize, activation: Activation) -> Option<Misfit> {
    const KEY: &str = "head.activation";
    const NONE: &str = "write `activation = \"none\"` under [head]";
    let numbers = Numbers::of(scores);
    match activation {
        Activation::None => not_probabilities(
            numbers,
            KEY,
            "write `activation = \"sigmoid\"` or `activation = \"softmax\"` under [head]",
        ),
        Activation::Sigmoid | Activation::Softmax if are_softmaxes(scores, width) => {
            Some(Misfit::at(KEY, "its scores are already probabilities: those of each row add up to 1", NONE))
        }
        Activation::Sigmoid | Activation::Softmax => not_logits(numbers, KEY, NONE),
    }
}

/// Returns a doubt about the activation of a classifier's single row: its logits may all be between 0 and 1, so only their
/// sum reveals a softmax.
pub(super) fn wrong_activation_of_row(scores: &[f32], activation: Activation) -> Option<Misfit> {
    let is_certain =
        activation == Activation::None || scores.len() >= ENOUGH_IN_ROW && are_softmaxes(scores, scores.len());
    is_certain.then(|| wrong_activation(scores, scores.len(), activation))?
}

/// Whether every row of scores is the result of a softmax.
fn are_softmaxes(scores: &[f32], width: usize) -> bool {
    let is_one = |row: &[f32]| {
        row.iter().all(|score| (0.0..=1.0).contains(score)) && (row.iter().sum::<f32>() - 1.0).abs() < SUM_MARGIN
    };
    // A row of one number is 1 after any softmax.
    width > 1 && scores.len() >= width && scores.chunks_exact(width).all(is_one)
}

/// Whether a quarter of the used rows' boxes, and enough of them, are `odd`.
pub(super) fn are_many(boxes: &[[f32; 4]], odd: impl Fn(&[f32; 4]) -> bool) -> bool {
    let (mut count, mut wrong) = (0_usize, 0_usize);
    for numbers in used(boxes) {
        count += 1;
        wrong += usize::from(odd(numbers));
    }
    count >= ENOUGH_BOXES && 4 * wrong >= count
}

fn used(boxes: &[[f32; 4]]) -> impl Iterator<Item = &[f32; 4]> {
    boxes.iter().filter(|numbers| numbers.iter().all(|n| n.is_finite()) && numbers.iter().any(|n| *n != 0.0))
}

/// Returns a doubt about the unit of boxes.
pub(super) fn wrong_unit(boxes: &[[f32; 4]], unit: BoxUnit, key: &'static str) -> Option<Misfit> {
    match unit {
        BoxUnit::Normalized if are_many(boxes, |numbers| numbers.iter().any(|n| n.abs() > LARGE)) => {
            let most = Numbers::of(used(boxes).flatten()).most;
            let problem = format!("its boxes reach {most:.0}, which are pixels and not fractions of the input");
            Some(Misfit::at(key, problem, "write `unit = \"pixels\"` under [head]"))
        }
        BoxUnit::Pixels if used(boxes).count() >= ENOUGH_BOXES && used(boxes).flatten().all(|n| n.abs() <= SMALL) => {
            let problem = "its boxes all lie within 2 pixels, so they are fractions of the input";
            Some(Misfit::at(key, problem, "write `unit = \"normalized\"` under [head]"))
        }
        BoxUnit::Normalized | BoxUnit::Pixels => None,
    }
}

/// Returns a doubt about boxes that a YOLO's head reads as pixels but that are fractions, or belong to another family.
pub(super) fn no_pixels() -> Misfit {
    let remedy = "correct `family` under [head] (`visiond inspect` shows which heads fit), or export the model with boxes in pixels";
    Misfit::at(FAMILY, "its boxes all lie within 2 pixels, so they are not in pixels", remedy)
}

/// Returns a doubt about the meaning of the four numbers of boxes.
pub(super) fn wrong_format(
    boxes: &[[f32; 4]],
    format: BoxFormat,
    unit: BoxUnit,
    input_size: (u32, u32),
) -> Option<Misfit> {
    const KEY: &str = "head.format";
    let are_corners = matches!(format, BoxFormat::Xyxy | BoxFormat::Yxyx);
    if are_corners && are_many(boxes, |&[a, b, c, d]| c < a || d < b) {
        let problem = "many of its boxes end before they begin, so the last two numbers are sizes and not corners";
        return Some(Misfit::at(KEY, problem, "write `format = \"cxcywh\"` or `format = \"xywh\"` under [head]"));
    }
    if !are_corners && are_all_corners(boxes, format, unit, input_size) {
        let problem = "all of its boxes end after they begin, and many extend beyond the input, so they are corners and not sizes";
        return Some(Misfit::at(KEY, problem, "write `format = \"xyxy\"` or `format = \"yxyx\"` under [head]"));
    }
    (!are_corners && are_many(boxes, |&[_, _, w, h]| w < 0.0 || h < 0.0)).then(|| {
        let problem = "many of its boxes have a negative size, so they are undecoded offsets";
        Misfit::at(KEY, problem, "export the model with the decoding of its boxes")
    })
}

/// Whether boxes that are read as centre and size are really corners: all end after they begin, which is rare for sizes, and
/// if read as sizes a tenth of them extend beyond the input.
fn are_all_corners(boxes: &[[f32; 4]], format: BoxFormat, unit: BoxUnit, (width, height): (u32, u32)) -> bool {
    let (width, height) = match unit {
        BoxUnit::Normalized => (1.0, 1.0),
        BoxUnit::Pixels => (width as f32, height as f32),
    };
    // How much of the size lies before and after the first two numbers.
    let (before, behind) = if format == BoxFormat::Cxcywh { (0.5, 0.5) } else { (0.0, 1.0) };
    let is_out = |from: f32, size: f32, side: f32| {
        from - before * size < -BEYOND * side || from + behind * size > (1.0 + BEYOND) * side
    };
    let all = used(boxes).all(|&[a, b, c, d]| c > a && d > b);
    let out = used(boxes).filter(|&&[a, b, c, d]| is_out(a, c, width) || is_out(b, d, height)).count();
    let count = used(boxes).count();
    count >= ENOUGH_CORNERS && all && 10 * out >= count
}

/// Returns a doubt about the labels of certain detections, `(score, label)`: beyond the card's names, or 0 although labels
/// count from 1.
pub(super) fn wrong_labels(
    found: impl IntoIterator<Item = (f32, f32)>,
    first: u32,
    class_count: usize,
    score_threshold: f32,
) -> Option<Misfit> {
    let sure = found.into_iter().filter(|(score, _)| *score >= score_threshold.max(SURE)).map(|(_, label)| label);
    let labels: Vec<f32> = sure.filter(|label| label.is_finite()).collect();
    if labels.iter().any(|label| (label - label.round()).abs() > 0.25) {
        let problem = "the column of classes has numbers that are not whole";
        return Some(Misfit::at("head.family", problem, "correct `family` under [head]"));
    }
    if first > 0 && labels.iter().any(|label| label.round() == 0.0) {
        let problem = "a detection has the label 0, so labels count from 0";
        return Some(Misfit::at("head.background", problem, "remove `background` under [head]"));
    }
    let most = labels.iter().copied().fold(f32::NEG_INFINITY, f32::max).round() - first as f32;
    if class_count > 0 && most >= class_count as f32 && most < 1e6 {
        let problem = format!("a detection has the class {most:.0}, beyond the card's {}", classes_text(class_count));
        let remedy = format!("name at least {} under [classes], from class 0 on", classes_text(most as usize + 1));
        return Some(Misfit::at("classes", problem, remedy));
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn spread(least: f32, most: f32, count: usize) -> Vec<f32> {
        (0..count).map(|index| least + (most - least) * index as f32 / (count - 1) as f32).collect()
    }

    fn key(doubt: Option<Misfit>) -> &'static str {
        doubt.map_or("", |doubt| doubt.key)
    }

    #[test]
    fn scores_are_doubted_only_beyond_the_margin() {
        let doubted = |least, most| key(wrong_activation(&spread(least, most, 50), 5, Activation::None));
        assert_eq!(doubted(0.0, 1.0), "");
        // Rounded like f16 and INT8.
        assert_eq!(doubted(-0.04, 1.04), "");
        assert_eq!(doubted(-0.06, 1.0), "head.activation");
        assert_eq!(doubted(0.0, 1.06), "head.activation");
        let mut broken = spread(0.0, 1.0, 50);
        broken[7] = f32::NAN;
        broken[8] = f32::INFINITY;
        assert_eq!(key(wrong_activation(&broken, 5, Activation::None)), "");
    }

    #[test]
    fn logits_are_doubted_only_if_all_of_many_are_within_0_and_1() {
        let doubted = |numbers: &[f32]| key(wrong_activation(numbers, 1, Activation::Sigmoid));
        assert_eq!(doubted(&spread(0.0, 1.0, 20)), "head.activation");
        assert_eq!(doubted(&spread(0.0, 1.0, 19)), "");
        assert_eq!(doubted(&spread(-0.01, 1.0, 50)), "");
        assert_eq!(doubted(&spread(0.0, 1.01, 50)), "");
        // Only zeros, as from a model that finds nothing.
        assert_eq!(doubted(&[0.0; 50]), "");
    }

    #[test]
    fn rows_that_add_up_to_1_are_of_a_softmax() {
        let doubted = |numbers: &[f32]| key(wrong_activation(numbers, 2, Activation::Softmax));
        assert_eq!(doubted(&[0.25, 0.75, 1.0, 0.0]), "head.activation");
        assert_eq!(doubted(&[0.25, 0.75, 1.0, 0.1]), "");
        assert_eq!(doubted(&[1.25, -0.25]), "");
        assert_eq!(doubted(&[]), "");
        // One number a row.
        assert_eq!(key(wrong_activation(&[1.0], 1, Activation::Softmax)), "");
    }

    #[test]
    fn boxes_are_doubted_only_by_many() {
        let unit = |boxes: &[[f32; 4]], unit| key(wrong_unit(boxes, unit, "head.unit"));
        let (small, large) = ([0.1, 0.2, 0.4, 0.9], [10.0, 20.0, 40.0, 90.0]);
        assert_eq!(unit(&[small; 8], BoxUnit::Pixels), "head.unit");
        assert_eq!(unit(&[small; 7], BoxUnit::Pixels), "");
        assert_eq!(unit(&[[0.0; 4]; 100], BoxUnit::Pixels), "");
        assert_eq!(unit(&[large; 8], BoxUnit::Normalized), "head.unit");
        // A few that extend far beyond the frame.
        assert_eq!(
            unit(&[[small; 7], [small, small, small, small, small, large, small]].concat(), BoxUnit::Normalized),
            ""
        );
        assert_eq!(unit(&[[small; 4], [large; 4]].concat(), BoxUnit::Pixels), "");
        let format = |boxes: &[[f32; 4]], format| key(wrong_format(boxes, format, BoxUnit::Normalized, (640, 480)));
        let backwards = [0.5, 0.5, 0.1, 0.1];
        assert_eq!(format(&[backwards; 8], BoxFormat::Xyxy), "head.format");
        assert_eq!(format(&[backwards; 8], BoxFormat::Cxcywh), "");
        assert_eq!(format(&[small; 8], BoxFormat::Xyxy), "");
        // A box without an extent ends where it begins.
        assert_eq!(format(&[[0.5; 4]; 8], BoxFormat::Yxyx), "");
        assert_eq!(format(&[[0.5, 0.5, -0.1, 0.1]; 8], BoxFormat::Xywh), "head.format");
    }

    #[test]
    fn one_row_is_doubted_only_by_a_sum_of_several_numbers() {
        let doubted = |numbers: &[f32], activation| key(wrong_activation_of_row(numbers, activation));
        // Logits of two classes whose sum is 1; and cosines or ReLU outputs, none of which are negative.
        assert_eq!(doubted(&[0.37, 0.63], Activation::Softmax), "");
        assert_eq!(doubted(&spread(0.0, 0.9, 30), Activation::Softmax), "");
        assert_eq!(doubted(&spread(0.0, 0.9, 30), Activation::Sigmoid), "");
        assert_eq!(doubted(&[0.1, 0.2, 0.3, 0.3, 0.1], Activation::Softmax), "head.activation");
        assert_eq!(doubted(&spread(-1.0, 0.9, 30), Activation::None), "head.activation");
    }

    #[test]
    fn corners_that_are_read_with_sizes_are_doubted_only_if_all_could_be_corners_and_many_reach_out() {
        let all = |of: &dyn Fn(f32) -> [f32; 4]| -> Vec<[f32; 4]> { (0..40).map(|n| of(n as f32 / 40.0)).collect() };
        let format = |boxes: &[[f32; 4]], format, unit| key(wrong_format(boxes, format, unit, (320, 240)));
        let (fractions, pixels) = (BoxUnit::Normalized, BoxUnit::Pixels);
        let corners = all(&|n| [0.9 * n, 0.8 * n, 0.9 * n + 0.1, 0.8 * n + 0.2]);
        assert_eq!(format(&corners, BoxFormat::Cxcywh, fractions), "head.format");
        assert_eq!(format(&corners, BoxFormat::Xywh, fractions), "head.format");
        assert_eq!(format(&corners, BoxFormat::Xyxy, fractions), "");
        assert_eq!(format(&corners[..19], BoxFormat::Cxcywh, fractions), "");
        let in_pixels: Vec<_> =
            corners.iter().map(|[a, b, c, d]| [a * 320.0, b * 240.0, c * 320.0, d * 240.0]).collect();
        assert_eq!(format(&in_pixels, BoxFormat::Cxcywh, pixels), "head.format");
        // Large objects within the image, with small ones among them.
        assert_eq!(format(&all(&|n| [0.45, 0.45, 0.9 - 0.1 * n, 0.8]), BoxFormat::Cxcywh, fractions), "");
        assert_eq!(format(&all(&|n| [n, n, 0.1, 0.2]), BoxFormat::Cxcywh, fractions), "");
    }

    #[test]
    fn labels_are_doubted_only_of_sure_detections() {
        let doubted = |score, label, first, names| key(wrong_labels([(score, label)], first, names, 0.1));
        assert_eq!(doubted(0.9, 80.0, 0, 80), "classes");
        assert_eq!(doubted(0.29, 80.0, 0, 80), "");
        assert_eq!(doubted(0.9, 79.0, 0, 80), "");
        assert_eq!(doubted(0.9, 80.0, 1, 80), "");
        assert_eq!(doubted(0.9, 80.0, 0, 0), "");
        assert_eq!(doubted(0.9, 0.0, 1, 80), "head.background");
        assert_eq!(doubted(0.9, 0.0, 0, 80), "");
        assert_eq!(doubted(0.9, 3.5, 0, 80), "head.family");
        assert_eq!(doubted(0.9, f32::NAN, 0, 80), "");
    }
}
