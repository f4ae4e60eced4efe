//! The report of a comparison, as tables and as JSON.

use std::fmt::Write;

use serde::Serialize;
use visiond_engine::compare::{ClassAgreement, TensorDifference, Worst};
use visiond_system::logging::escape;

use super::comparison::{ComparedModel, Comparison};
use crate::text_table::TextTable;
use crate::value_parsers::fraction;

/// The limits within which two models agree.
#[derive(Debug, Clone, Copy, Serialize, clap::Args)]
pub struct AgreementLimits {
    /// Compare detections with at least this score in one of the models, 0 to 1 [default: the reference's card]
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    pub score_threshold: Option<f64>,

    /// Allow matched boxes to overlap with this IoU or more
    #[arg(long, value_name = "IOU", default_value_t = 0.98, value_parser = fraction, help_heading = "Allowed")]
    pub min_iou: f64,

    /// Allow scores of matched boxes to differ by this much
    #[arg(long, value_name = "SCORE", default_value_t = 0.02, value_parser = fraction, help_heading = "Allowed")]
    pub max_score_difference: f64,

    /// Allow this share of detections to differ by more, or to be found by only one model, 0 to 1
    ///
    /// The default is not 0, because rounding may decide which of two boxes with nearly the same score NMS removes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.002, value_parser = fraction, help_heading = "Allowed")]
    pub max_outside: f64,

    /// Require this cosine similarity of each raw output [default: shown, not required]
    #[arg(long, value_name = "COSINE", value_parser = fraction, help_heading = "Allowed")]
    pub min_cosine: Option<f64>,
}

/// The difference of a raw output.
#[derive(Debug, Serialize)]
struct OutputDifference {
    name: String,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    max_abs: f64,
    mean_abs: f64,
    rms: f64,
    cosine: f64,
    not_finite: u64,
    worst_picture: Option<String>,
}

/// The worst value, and where it occurred.
#[derive(Debug, Serialize)]
struct WorstPicture {
    value: f64,
    picture: String,
}

/// The differences of one class, or of all.
#[derive(Debug, Serialize)]
struct ClassDifference {
    #[serde(skip_serializing_if = "Option::is_none")]
    class_id: Option<u32>,
    label: String,
    matched: u64,
    /// Number of matched detections whose boxes or scores differ by more than the limits.
    outside: u64,
    missing: u64,
    extra: u64,
    min_iou: Option<WorstPicture>,
    mean_iou: Option<f64>,
    max_score_difference: Option<WorstPicture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keypoint_distance: Option<WorstPicture>,
    /// The first picture with a missing or extra detection.
    unmatched_picture: Option<String>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct ComparisonReport {
    visiond: &'static str,
    /// Whether everything is within the limits.
    pub agree: bool,
    /// Whether no limit is exceeded only because neither model detects anything.
    #[serde(skip)]
    pub shows_nothing: bool,
    /// The values that exceed the limits, or why agreement is not shown, as sentences.
    reasons: Vec<String>,
    first: ComparedModel,
    second: ComparedModel,
    pictures: usize,
    limits: AgreementLimits,
    outputs: Vec<OutputDifference>,
    detections: ClassDifference,
    classes: Vec<ClassDifference>,
}

/// Rounds to six decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl ComparisonReport {
    /// Makes the report of a comparison.
    pub fn new(comparison: &Comparison, limits: AgreementLimits) -> Self {
        let picture = |index: usize| comparison.pictures[index].clone();
        let worst =
            |worst: Option<Worst>| worst.map(|w| WorstPicture { value: rounded(w.value), picture: picture(w.picture) });
        let class = |class_id: Option<u32>, label: String, class: &ClassAgreement| ClassDifference {
            class_id,
            label,
            matched: class.matched,
            outside: class.outside,
            missing: class.missing,
            extra: class.extra,
            min_iou: worst(class.min_iou),
            mean_iou: class.mean_iou().map(rounded),
            max_score_difference: worst(class.max_score_difference),
            max_keypoint_distance: worst(class.max_keypoint_distance),
            unmatched_picture: class.unmatched_picture.map(picture),
        };
        let output = |difference: &TensorDifference| OutputDifference {
            name: difference.name.clone(),
            shape: difference.shape.clone(),
            min: difference.range.map(|(min, _)| min),
            max: difference.range.map(|(_, max)| max),
            max_abs: difference.max_abs,
            mean_abs: difference.mean_abs(),
            rms: difference.rms(),
            cosine: difference.cosine(),
            not_finite: difference.not_finite,
            worst_picture: difference.worst_picture.map(picture),
        };
        let [first, second] = &comparison.runners;
        let agreement = &comparison.agreement;
        let label = |id: u32| first.detector.label(id).to_string();
        let outputs: Vec<_> = comparison.tensors.iter().map(output).collect();
        let mut reasons = reasons(&agreement.all, &outputs, &limits);
        let shows_nothing = reasons.is_empty() && agreement.all.things() == 0;
        if shows_nothing {
            let threshold = limits.score_threshold.unwrap_or_default();
            reasons
                .push(format!("neither model detects anything with a score of {threshold} or more on these pictures"));
        }
        Self {
            visiond: env!("CARGO_PKG_VERSION"),
            agree: reasons.is_empty(),
            shows_nothing,
            reasons,
            first: first.model.clone(),
            second: second.model.clone(),
            pictures: comparison.pictures.len(),
            limits,
            outputs,
            detections: class(None, "all".to_owned(), &agreement.all),
            classes: agreement.classes.iter().map(|(&id, found)| class(Some(id), label(id), found)).collect(),
        }
    }

    /// Returns the tables as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (name, model) in [("first", &self.first), ("second", &self.second)] {
            // Writing into a String cannot fail, here and below.
            let _ = writeln!(out, "{name:8}{} on {}", escape(&model.file.display().to_string()), model.backend);
        }
        let threshold = self.limits.score_threshold.unwrap_or_default();
        let _ = writeln!(out, "{} pictures, detections with a score of {threshold} or more\n", self.pictures);

        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.4}"));
        let head = ["RAW OUTPUT", ">RANGE", ">MAX ABS", ">MEAN ABS", ">RMS", ">COSINE", "WORST PICTURE"];
        let mut table = TextTable::new(&head);
        for o in &self.outputs {
            let range = o.min.zip(o.max).map_or_else(String::new, |(min, max)| format!("{min:.4} to {max:.4}"));
            let [max, mean, rms] = [o.max_abs, o.mean_abs, o.rms].map(short);
            let worst = o.worst_picture.as_deref().unwrap_or("-").to_owned();
            table.push([o.name.clone(), range, max, mean, rms, format!("{:.6}", o.cosine), worst]);
        }
        out += &table.text();

        let counts = [">MATCHED", ">OUTSIDE", ">MISSING", ">EXTRA"];
        let numbers = [">MIN IOU", ">MEAN IOU", ">MAX SCORE"];
        let mut table = TextTable::new(&[&["CLASS"][..], &counts, &numbers, &["WORST PICTURE"]].concat());
        for c in self.classes.iter().chain([&self.detections]) {
            let [iou, score] = [&c.min_iou, &c.max_score_difference].map(Option::as_ref);
            let counts = [c.matched, c.outside, c.missing, c.extra].map(|count| count.to_string());
            let numbers = [iou.map(|w| w.value), c.mean_iou, score.map(|w| w.value)].map(number);
            let worst = c.unmatched_picture.as_deref().or(iou.or(score).map(|w| w.picture.as_str())).unwrap_or("-");
            let label = [c.label.clone()].into_iter();
            table.push(label.chain(counts).chain(numbers).chain([worst.to_owned()]));
        }
        let _ = write!(out, "\n{}", table.text());
        if let Some(worst) = &self.detections.max_keypoint_distance {
            let _ = writeln!(out, "keypoints at most {:.2} pixels apart ({})", worst.value, worst.picture);
        }
        let verdict = match (self.agree, self.shows_nothing) {
            (true, _) => "the models agree",
            (false, true) => "agreement is not shown:",
            (false, false) => "the models do not agree:",
        };
        let _ = writeln!(out, "\n{verdict}");
        for reason in &self.reasons {
            let _ = writeln!(out, "  {reason}");
        }
        out
    }
}

/// Formats a small number briefly.
fn short(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") }
}

/// Returns why the models do not agree.
fn reasons(all: &ClassAgreement, outputs: &[OutputDifference], limits: &AgreementLimits) -> Vec<String> {
    let mut reasons = Vec::new();
    let share = all.outside_share();
    if share > limits.max_outside {
        let value = |worst: Option<Worst>| worst.map_or_else(|| "-".to_owned(), |w| format!("{:.4}", w.value));
        let exceed = format!(
            "exceed IoU {} or score difference {} (worst IoU {}, worst score difference {})",
            limits.min_iou,
            limits.max_score_difference,
            value(all.min_iou),
            value(all.max_score_difference)
        );
        let parts = [
            (all.outside, exceed.as_str()),
            (all.missing, "are missing in the second model"),
            (all.extra, "are only in the second model"),
        ];
        let parts = parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}"));
        let parts: Vec<_> = parts.collect();
        let (parts, things, allowed) = (parts.join(", "), all.things(), limits.max_outside);
        reasons.push(format!("of {things} detections {parts}: {share:.4} of all, the limit is {allowed}"));
    }
    for output in outputs {
        if output.not_finite > 0 {
            reasons.push(format!(
                "output {} has {} values that are infinite or NaN in one of the models: its precision is too low there",
                escape(&output.name),
                output.not_finite
            ));
        }
        if let Some(least) = limits.min_cosine.filter(|least| output.cosine < *least) {
            let (name, cosine) = (escape(&output.name), output.cosine);
            reasons.push(format!("output {name} has a cosine of {cosine:.6}, the limit is {least}"));
        }
    }
    reasons
}
