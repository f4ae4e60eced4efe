//! The report of a comparison, as tables and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use visiond_engine::compare::{ClassAgreement, TensorDifference, Worst};
use visiond_system::logging::escape;

use super::comparison::Comparison;
use super::model::ModelRunner;

/// The limits within which two models agree.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Limits {
    /// Minimum score of compared detections.
    pub score_threshold: f64,
    /// Minimum IoU of matched boxes.
    pub min_iou: f64,
    /// Maximum difference of matched scores.
    pub max_score_difference: f64,
    /// Maximum share of detections outside of these limits or in one model only.
    pub max_outside: f64,
    /// Minimum cosine similarity of each raw output, if required.
    pub min_cosine: Option<f64>,
}

/// A model.
#[derive(Debug, Serialize)]
struct ModelFacts {
    file: PathBuf,
    sha256: String,
    backend: String,
}

/// The difference of a raw output.
#[derive(Debug, Serialize)]
struct TensorFacts {
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
struct WorstFacts {
    value: f64,
    picture: String,
}

/// The differences of one class, or of all.
#[derive(Debug, Serialize)]
struct ClassFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    class_id: Option<u32>,
    label: String,
    matched: u64,
    /// Number of matched detections whose boxes or scores differ by more than the limits.
    outside: u64,
    missing: u64,
    extra: u64,
    min_iou: Option<WorstFacts>,
    mean_iou: Option<f64>,
    max_score_difference: Option<WorstFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keypoint_distance: Option<WorstFacts>,
    /// The first picture with a missing or extra detection.
    unmatched_picture: Option<String>,
}

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    visiond: &'static str,
    /// Whether everything is within the limits.
    pub agree: bool,
    /// What exceeds the limits, as sentences.
    reasons: Vec<String>,
    first: ModelFacts,
    second: ModelFacts,
    pictures: usize,
    limits: Limits,
    outputs: Vec<TensorFacts>,
    detections: ClassFacts,
    classes: Vec<ClassFacts>,
}

/// Rounds to six decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl Report {
    /// Makes the report of a comparison.
    pub fn new(comparison: &Comparison, limits: Limits) -> Self {
        let picture = |index: usize| comparison.pictures[index].clone();
        let worst =
            |worst: Option<Worst>| worst.map(|w| WorstFacts { value: rounded(w.value), picture: picture(w.picture) });
        let class = |class_id: Option<u32>, label: String, facts: &ClassAgreement| ClassFacts {
            class_id,
            label,
            matched: facts.matched,
            outside: facts.outside,
            missing: facts.missing,
            extra: facts.extra,
            min_iou: worst(facts.min_iou),
            mean_iou: facts.mean_iou().map(rounded),
            max_score_difference: worst(facts.max_score_difference),
            max_keypoint_distance: worst(facts.max_keypoint_distance),
            unmatched_picture: facts.unmatched_picture.map(picture),
        };
        let tensor = |difference: &TensorDifference| TensorFacts {
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
        let network = |runner: &ModelRunner| ModelFacts {
            file: runner.path.clone(),
            sha256: runner.sha256.clone(),
            backend: runner.backend.clone(),
        };
        let [first, second] = &comparison.runners;
        let agreement = &comparison.agreement;
        let label = |id: u32| first.detector.label(id).to_string();
        let outputs: Vec<_> = comparison.tensors.iter().map(tensor).collect();
        let reasons = reasons(&agreement.all, &outputs, &limits);
        Self {
            visiond: env!("CARGO_PKG_VERSION"),
            agree: reasons.is_empty(),
            reasons,
            first: network(first),
            second: network(second),
            pictures: comparison.pictures.len(),
            limits,
            outputs,
            detections: class(None, "all".to_owned(), &agreement.all),
            classes: agreement.classes.iter().map(|(&id, facts)| class(Some(id), label(id), facts)).collect(),
        }
    }

    /// Returns the number of compared detections.
    pub fn detection_count(&self) -> u64 {
        self.detections.matched + self.detections.missing + self.detections.extra
    }

    /// Returns the tables as text.
    pub fn text(&self) -> String {
        // Writing into a String cannot fail, here and below.
        let mut out = String::new();
        for (name, network) in [("first", &self.first), ("second", &self.second)] {
            let file = escape(&network.file.display().to_string());
            let _ = writeln!(out, "{name:8}{file} on {}", network.backend);
        }
        let threshold = self.limits.score_threshold;
        let _ = writeln!(out, "{} pictures, detections with a score of {threshold} or more\n", self.pictures);

        let names = self.outputs.iter().map(|o| o.name.chars().count()).max().unwrap_or(0).clamp(10, 40);
        let _ = writeln!(
            out,
            "{:names$} {:>22} {:>10} {:>10} {:>10} {:>10}  WORST PICTURE",
            "RAW OUTPUT", "RANGE", "MAX ABS", "MEAN ABS", "RMS", "COSINE"
        );
        for o in &self.outputs {
            let range = o.min.zip(o.max).map_or_else(String::new, |(min, max)| format!("{min:.4} to {max:.4}"));
            let row = format!(
                "{:names$} {range:>22} {:>10} {:>10} {:>10} {:>10.6}  {}",
                escape(&o.name),
                short(o.max_abs),
                short(o.mean_abs),
                short(o.rms),
                o.cosine,
                o.worst_picture.as_deref().unwrap_or("-")
            );
            let _ = writeln!(out, "{}", row.trim_end());
        }

        let labels = self.classes.iter().map(|c| c.label.chars().count()).max().unwrap_or(0).clamp(5, 30);
        let _ = writeln!(
            out,
            "\n{:labels$} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}  WORST PICTURE",
            "CLASS", "MATCHED", "OUTSIDE", "MISSING", "EXTRA", "MIN IOU", "MEAN IOU", "MAX SCORE"
        );
        for c in self.classes.iter().chain([&self.detections]) {
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.4}"));
            let worst_score = c.max_score_difference.as_ref();
            let worst = c.unmatched_picture.as_deref();
            let worst = worst.or(c.min_iou.as_ref().or(worst_score).map(|w| w.picture.as_str()));
            let row = format!(
                "{:labels$} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}  {}",
                escape(&c.label),
                c.matched,
                c.outside,
                c.missing,
                c.extra,
                number(c.min_iou.as_ref().map(|w| w.value)),
                number(c.mean_iou),
                number(worst_score.map(|w| w.value)),
                worst.unwrap_or("-")
            );
            let _ = writeln!(out, "{}", row.trim_end());
        }
        if let Some(worst) = &self.detections.max_keypoint_distance {
            let _ = writeln!(out, "keypoints at most {:.2} pixels apart ({})", worst.value, worst.picture);
        }
        let _ = writeln!(out, "\n{}", if self.agree { "the models agree" } else { "the models do not agree:" });
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
fn reasons(all: &ClassAgreement, outputs: &[TensorFacts], limits: &Limits) -> Vec<String> {
    let mut reasons = Vec::new();
    let share = all.outside_share();
    if share > limits.max_outside {
        let mut parts = Vec::new();
        if all.outside > 0 {
            let value = |worst: Option<Worst>| worst.map_or_else(|| "-".to_owned(), |w| format!("{:.4}", w.value));
            let (iou, score) = (value(all.min_iou), value(all.max_score_difference));
            let (least, most) = (limits.min_iou, limits.max_score_difference);
            parts.push(format!(
                "{} exceed IoU {least} or score difference {most} (worst IoU {iou}, worst score difference {score})",
                all.outside
            ));
        }
        if all.missing > 0 {
            parts.push(format!("{} are missing in the second model", all.missing));
        }
        if all.extra > 0 {
            parts.push(format!("{} are only in the second model", all.extra));
        }
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
