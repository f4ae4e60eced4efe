//! The reports of comparisons, as tables and as JSON.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use visiond_config::diagnostics::count;
use visiond_engine::compare::{Agreement, ClassAgreement, MatchLimits, TensorDifference, ValueDifference, Worst};
use visiond_engine::detector::Detector;
use visiond_system::logging::escape;

use super::comparison::{ComparedModel, Comparison};
use super::reference::{CategoryIds, Form};
use super::reference_comparison::ReferenceComparison;
use super::track_comparison::TrackAgreement;
use crate::text_table::TextTable;
use crate::value_parsers::fraction;

/// The limits within which two models, or a model and a reference, agree.
#[derive(Debug, Clone, Copy, Serialize, clap::Args)]
pub struct AgreementLimits {
    /// Compare detections with at least this score on one of the sides, 0 to 1 [default: the first model's card]
    #[arg(short, long, value_name = "SCORE", value_parser = fraction)]
    pub score_threshold: Option<f64>,

    /// Allow matched boxes to overlap with this IoU or more
    #[arg(long, alias = "iou", value_name = "IOU", default_value_t = 0.98, value_parser = fraction, help_heading = "Allowed")]
    pub min_iou: f64,

    /// Require this similarity (OKS) of the keypoints of matched boxes [default: shown, not required]
    #[arg(long, value_name = "OKS", value_parser = fraction, help_heading = "Allowed")]
    pub min_oks: Option<f64>,

    /// Allow scores of matched boxes to differ by this much [default: 0.02; with --reference 0.01]
    #[arg(long, alias = "score-error", value_name = "SCORE", value_parser = fraction, help_heading = "Allowed")]
    pub max_score_difference: Option<f64>,

    /// Allow this share of detections, 0 to 1, to exceed the limits or to be found on one side only
    ///
    /// The default is not 0, because rounding may decide which of two boxes with nearly the same score NMS removes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.002, value_parser = fraction, help_heading = "Allowed")]
    pub max_outside: f64,

    /// Require this cosine similarity of each raw output and embedding [default: 0.99 for embeddings, otherwise shown]
    #[arg(long, value_name = "COSINE", value_parser = fraction, help_heading = "Allowed", conflicts_with = "reference")]
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

/// The differences of one whole-frame value.
#[derive(Debug, Serialize)]
struct FrameValueDifference {
    /// The attribute's name, `embedding` or `depth`.
    name: String,
    frames: u64,
    /// Number of frames in which it exceeds the limits, has a different label, or comes from one model only.
    outside: u64,
    other_labels: u64,
    one_sided: u64,
    /// Absolute for scores; relative for numbers and depths.
    max_difference: Option<WorstPicture>,
    min_cosine: Option<WorstPicture>,
    outside_picture: Option<String>,
}

/// The worst value, and where it occurred.
#[derive(Debug, Serialize)]
struct WorstPicture {
    value: f64,
    picture: String,
}

/// The differences of one class, or of all classes.
#[derive(Debug, Serialize)]
struct ClassDifference {
    #[serde(skip_serializing_if = "Option::is_none")]
    class_id: Option<u32>,
    label: String,
    matched: u64,
    /// Number of matched detections whose boxes, keypoints or scores differ by more than the limits.
    outside: u64,
    missing: u64,
    extra: u64,
    min_iou: Option<WorstPicture>,
    mean_iou: Option<f64>,
    max_score_difference: Option<WorstPicture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_mask_iou: Option<WorstPicture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keypoint_distance: Option<WorstPicture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_oks: Option<WorstPicture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_oks: Option<f64>,
    /// The first picture with a missing or extra detection.
    unmatched_picture: Option<String>,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub struct ComparisonReport {
    visiond: &'static str,
    /// Whether everything is within the limits.
    pub agree: bool,
    /// Whether no limit is exceeded only because neither model detects anything.
    #[serde(skip)]
    pub shows_nothing: bool,
    /// The values that exceed the limits, or why agreement is not proven, as sentences.
    reasons: Vec<String>,
    first: ComparedModel,
    second: ComparedModel,
    pictures: usize,
    limits: AgreementLimits,
    outputs: Vec<OutputDifference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<FrameValueDifference>,
    detections: ClassDifference,
    classes: Vec<ClassDifference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracks: Option<TrackAgreement>,
}

/// Rounds to six decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

impl ComparisonReport {
    /// Makes the report of a comparison.
    pub fn new(comparison: &Comparison, limits: AgreementLimits) -> Self {
        let picture = |index: usize| comparison.pictures[index].clone();
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
        let (detections, classes) = class_differences(agreement, &first.detector, &comparison.pictures);
        let outputs: Vec<_> = comparison.tensors.iter().map(output).collect();
        let sides = ["are missing in the second model", "are only in the second model"];
        let mut reasons = Vec::from_iter(outside(&agreement.all, &limits, sides));
        reasons.extend(outputs.iter().flat_map(|output| output_reasons(output, &limits)));
        let (values, outside) = comparison.values.counts();
        let share = outside as f64 / values.max(1) as f64;
        if share > limits.max_outside {
            let allowed = limits.max_outside;
            reasons.push(format!(
                "of {values} values of whole frames {outside} differ by more than the limits, have another label or are given by \
                 one model only: {share:.4} of all, the limit is {allowed}"
            ));
        }
        let worst = |worst: Option<Worst>| {
            worst.map(|worst| WorstPicture { value: rounded(worst.value), picture: picture(worst.picture) })
        };
        let frame_value = |value: &ValueDifference| FrameValueDifference {
            name: value.name.clone(),
            frames: value.frames,
            outside: value.outside,
            other_labels: value.other_labels,
            one_sided: value.one_sided,
            max_difference: worst(value.max_difference),
            min_cosine: worst(value.min_cosine),
            outside_picture: value.outside_picture.map(picture),
        };
        let shows_nothing = reasons.is_empty() && agreement.all.things() == 0 && values == 0;
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
            values: comparison.values.values.iter().map(frame_value).collect(),
            detections,
            classes,
            tracks: comparison.tracks.agreement().map(|tracks| TrackAgreement { same: rounded(tracks.same), ..tracks }),
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

        let head = ["RAW OUTPUT", ">RANGE", ">MAX ABS", ">MEAN ABS", ">RMS", ">COSINE", "WORST PICTURE"];
        let mut table = TextTable::new(&head);
        for o in &self.outputs {
            let range = o.min.zip(o.max).map_or_else(String::new, |(min, max)| format!("{min:.4} to {max:.4}"));
            let [max, mean, rms] = [o.max_abs, o.mean_abs, o.rms].map(short);
            let worst = o.worst_picture.as_deref().unwrap_or("-").to_owned();
            table.push([o.name.clone(), range, max, mean, rms, format!("{:.6}", o.cosine), worst]);
        }
        out += &table.text();

        if self.values.is_empty() {
            out += &class_table(&self.classes, &self.detections);
        } else {
            out += &value_table(&self.values);
        }
        if let Some(TrackAgreement { first, second, same }) = self.tracks {
            let first = count(first, "track");
            let _ = writeln!(
                out,
                "{first} by the first model, {second} by the second, the same for {same:.4} of the detections"
            );
        }
        out += &verdict("the models", self.agree, self.shows_nothing, &self.reasons);
        out
    }
}

/// The reference that a model is compared with.
#[derive(Debug, Serialize)]
struct ReferenceFile {
    file: PathBuf,
    form: Form,
    /// How the category ids of COCO results were mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    category_ids: Option<CategoryIds>,
    /// Number of its detections whose score reaches the threshold.
    detections: usize,
}

/// How many of all detections match within these limits.
#[derive(Debug, Serialize)]
struct ShareWithin {
    min_iou: f64,
    max_score_difference: f64,
    within: u64,
    of: u64,
    share: f64,
}

/// The report of a comparison with a reference.
#[derive(Debug, Serialize)]
pub struct ReferenceReport {
    visiond: &'static str,
    /// Whether the detections are within the limits.
    pub agree: bool,
    /// Whether no limit is exceeded only because neither side detects anything.
    #[serde(skip)]
    pub shows_nothing: bool,
    /// The limits that are exceeded and the likely causes, or why agreement is not proven, as sentences.
    reasons: Vec<String>,
    reference: ReferenceFile,
    model: ComparedModel,
    pictures: usize,
    limits: AgreementLimits,
    within: Vec<ShareWithin>,
    detections: ClassDifference,
    classes: Vec<ClassDifference>,
}

impl ReferenceReport {
    /// Makes the report of a comparison.
    pub fn new(comparison: &ReferenceComparison, limits: AgreementLimits) -> Self {
        let ReferenceComparison { runner, reference, agreements, pictures, .. } = comparison;
        let threshold = limits.score_threshold.unwrap_or_default();
        let (detections, classes) = class_differences(&agreements[0].1, &runner.detector, pictures);
        let all = &agreements[0].1.all;
        let mut reasons = Vec::from_iter(outside(all, &limits, ["are only in the reference", "are only visiond's"]));
        if !reasons.is_empty() {
            reasons.extend(comparison.likely_causes());
        }
        let shows_nothing = reasons.is_empty() && all.things() == 0;
        if shows_nothing {
            reasons.push(format!(
                "neither visiond nor the reference has a score of {threshold} or more on these pictures"
            ));
        }
        let share = |(limits, agreement): &(MatchLimits, Agreement)| {
            let (within, of) = (agreement.all.matched - agreement.all.outside, agreement.all.things());
            ShareWithin {
                min_iou: limits.min_iou,
                max_score_difference: limits.max_score_difference,
                within,
                of,
                share: rounded(1.0 - agreement.all.outside_share()),
            }
        };
        Self {
            visiond: env!("CARGO_PKG_VERSION"),
            agree: reasons.is_empty(),
            shows_nothing,
            reasons,
            reference: ReferenceFile {
                file: reference.file.clone(),
                form: reference.form,
                category_ids: (reference.form == Form::Coco).then_some(reference.category_ids),
                detections: comparison.counted,
            },
            model: runner.model.clone(),
            pictures: pictures.len(),
            limits,
            within: agreements.iter().map(share).collect(),
            detections,
            classes,
        }
    }

    /// Returns the tables as text.
    pub fn text(&self) -> String {
        let ReferenceFile { file, form, category_ids, detections } = &self.reference;
        let ids = category_ids.map_or_else(String::new, |ids| format!(", category ids {ids}"));
        let threshold = self.limits.score_threshold.unwrap_or_default();
        let mut out = format!(
            "reference  {}: {form}{ids}\nmodel      {} on {}\n{}, {} of the reference with a score of {threshold} or more\n",
            escape(&file.display().to_string()),
            escape(&self.model.file.display().to_string()),
            self.model.backend,
            count(self.pictures, "picture"),
            count(*detections, "detection"),
        );
        out += &class_table(&self.classes, &self.detections);
        let mut table = TextTable::new(&["WITHIN", ">DETECTIONS", ">SHARE"]);
        for ShareWithin { min_iou, max_score_difference, within, of, share } in &self.within {
            let limits = format!("IoU {min_iou}, score {max_score_difference}");
            table.push([limits, format!("{within} of {of}"), format!("{share:.4}")]);
        }
        // Writing into a String cannot fail, here and below.
        let _ = write!(out, "\n{}", table.text());
        let worst = |what: &str, worst: &Option<WorstPicture>| {
            worst.as_ref().map(|worst| format!("worst {what} {:.4} ({})", worst.value, worst.picture))
        };
        let (iou, score) = (&self.detections.min_iou, &self.detections.max_score_difference);
        let worst: Vec<_> = [worst("IoU", iou), worst("score difference", score)].into_iter().flatten().collect();
        if !worst.is_empty() {
            let _ = write!(out, "\n{}\n", worst.join(", "));
        }
        out += &verdict("the detections", self.agree, self.shows_nothing, &self.reasons);
        out
    }
}

/// Returns the differences of all classes together and of each.
fn class_differences(
    agreement: &Agreement,
    detector: &Detector,
    pictures: &[String],
) -> (ClassDifference, Vec<ClassDifference>) {
    let picture = |index: usize| pictures[index].clone();
    let worst =
        |worst: Option<Worst>| worst.map(|w| WorstPicture { value: rounded(w.value), picture: picture(w.picture) });
    let difference = |class_id: Option<u32>, label: String, class: &ClassAgreement| ClassDifference {
        class_id,
        label,
        matched: class.matched,
        outside: class.outside,
        missing: class.missing,
        extra: class.extra,
        min_iou: worst(class.min_iou),
        mean_iou: class.mean_iou().map(rounded),
        max_score_difference: worst(class.max_score_difference),
        min_mask_iou: worst(class.min_mask_iou),
        max_keypoint_distance: worst(class.max_keypoint_distance),
        min_oks: worst(class.min_oks),
        mean_oks: class.mean_oks().map(rounded),
        unmatched_picture: class.unmatched_picture.map(picture),
    };
    let classes = agreement.classes.iter();
    let classes = classes.map(|(&id, found)| difference(Some(id), detector.label(id).to_string(), found));
    (difference(None, "all".to_owned(), &agreement.all), classes.collect())
}

/// Returns a table with a row for each value of whole frames.
fn value_table(values: &[FrameValueDifference]) -> String {
    let numbers = [">FRAMES", ">OUTSIDE", ">OTHER LABEL", ">ONE SIDED", ">MAX DIFFERENCE", ">MIN COSINE"];
    let mut table = TextTable::new(&[&["VALUE"][..], &numbers, &["WORST PICTURE"]].concat());
    for v in values {
        let number = |worst: &Option<WorstPicture>| {
            worst.as_ref().map_or_else(|| "-".to_owned(), |worst| format!("{:.4}", worst.value))
        };
        let counts = [v.frames, v.outside, v.other_labels, v.one_sided].map(|count| count.to_string());
        let worst = v.max_difference.as_ref().or(v.min_cosine.as_ref()).map(|worst| worst.picture.as_str());
        let worst = v.outside_picture.as_deref().or(worst).unwrap_or("-").to_owned();
        let numbers = [number(&v.max_difference), number(&v.min_cosine), worst];
        table.push([escape(&v.name).to_string()].into_iter().chain(counts).chain(numbers));
    }
    format!("\n{}", table.text())
}

/// Returns a table with a row for each class and one for all.
fn class_table(classes: &[ClassDifference], all: &ClassDifference) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.4}"));
    let counts = [">MATCHED", ">OUTSIDE", ">MISSING", ">EXTRA"];
    let numbers = [">MIN IOU", ">MEAN IOU", ">MAX SCORE"];
    let mut table = TextTable::new(&[&["CLASS"][..], &counts, &numbers, &["WORST PICTURE"]].concat());
    for c in classes.iter().chain([all]) {
        let [iou, score] = [&c.min_iou, &c.max_score_difference].map(Option::as_ref);
        let counts = [c.matched, c.outside, c.missing, c.extra].map(|count| count.to_string());
        let numbers = [iou.map(|w| w.value), c.mean_iou, score.map(|w| w.value)].map(number);
        let worst = c.unmatched_picture.as_deref().or(iou.or(score).map(|w| w.picture.as_str())).unwrap_or("-");
        let label = [c.label.clone()].into_iter();
        table.push(label.chain(counts).chain(numbers).chain([worst.to_owned()]));
    }
    let mut out = format!("\n{}", table.text());
    if let Some(worst) = &all.min_mask_iou {
        let _ = writeln!(out, "masks overlap with an IoU of at least {:.4} ({})", worst.value, worst.picture);
    }
    if let Some(worst) = &all.max_keypoint_distance {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "keypoints at most {:.2} pixels apart ({})", worst.value, worst.picture);
    }
    if let (Some(worst), Some(mean)) = (&all.min_oks, all.mean_oks) {
        let _ = writeln!(
            out,
            "keypoints with an OKS of {:.4} at least ({}), {mean:.4} on average",
            worst.value, worst.picture
        );
    }
    out
}

/// Returns whether `what` agrees, and why not.
fn verdict(what: &str, agree: bool, shows_nothing: bool, reasons: &[String]) -> String {
    let verdict = match (agree, shows_nothing) {
        (true, _) => format!("{what} agree"),
        (false, true) => "agreement is not shown:".to_owned(),
        (false, false) => format!("{what} do not agree:"),
    };
    reasons.iter().fold(format!("\n{verdict}\n"), |out, reason| out + "  " + reason + "\n")
}

/// Formats a small number briefly.
fn short(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.2e}") }
}

/// Returns why the detections do not agree. `sides` describes the detections on one side only.
fn outside(all: &ClassAgreement, limits: &AgreementLimits, sides: [&str; 2]) -> Option<String> {
    let share = all.outside_share();
    if share <= limits.max_outside {
        return None;
    }
    let value = |worst: Option<Worst>| worst.map_or_else(|| "-".to_owned(), |w| format!("{:.4}", w.value));
    let mut exceed = format!(
        "exceed IoU {} or score difference {} (worst IoU {}, worst score difference {})",
        limits.min_iou,
        limits.max_score_difference.unwrap_or_default(),
        value(all.min_iou),
        value(all.max_score_difference)
    );
    if let Some(least) = limits.min_oks {
        exceed += &format!(" or OKS {least} (worst {})", value(all.min_oks));
    }
    let parts = [(all.outside, exceed.as_str()), (all.missing, sides[0]), (all.extra, sides[1])];
    let parts = parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}"));
    let parts: Vec<_> = parts.collect();
    let (parts, things, allowed) = (parts.join(", "), all.things(), limits.max_outside);
    Some(format!("of {things} detections {parts}: {share:.4} of all, the limit is {allowed}"))
}

/// Returns why a raw output does not agree.
fn output_reasons(output: &OutputDifference, limits: &AgreementLimits) -> Vec<String> {
    let mut reasons = Vec::new();
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
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AgreementLimits = AgreementLimits {
        score_threshold: None,
        min_iou: 0.98,
        min_oks: None,
        max_score_difference: Some(0.02),
        max_outside: 0.1,
        min_cosine: Some(0.99),
    };

    fn worst(value: f64) -> Option<WorstPicture> {
        Some(WorstPicture { value, picture: format!("{value}.jpg") })
    }

    fn class(label: &str) -> ClassDifference {
        ClassDifference {
            class_id: None,
            label: label.to_owned(),
            matched: 8,
            outside: 2,
            missing: 1,
            extra: 3,
            min_iou: worst(0.5),
            mean_iou: Some(0.75),
            max_score_difference: worst(0.25),
            min_mask_iou: None,
            max_keypoint_distance: None,
            min_oks: None,
            mean_oks: None,
            unmatched_picture: None,
        }
    }

    /// The lines of a table, with one space between words.
    fn lines(text: &str) -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_class_has_its_counts_its_worst_values_and_the_picture_to_look_at() {
        let bare = ClassDifference { min_iou: None, mean_iou: None, max_score_difference: None, ..class("dog") };
        let all = ClassDifference {
            min_mask_iou: worst(0.625),
            max_keypoint_distance: worst(1.5),
            min_oks: worst(0.9),
            mean_oks: Some(0.95),
            unmatched_picture: Some("lost.jpg".to_owned()),
            ..class("all")
        };
        assert_eq!(
            lines(&class_table(&[class("person"), bare], &all))[1..],
            [
                "CLASS MATCHED OUTSIDE MISSING EXTRA MIN IOU MEAN IOU MAX SCORE WORST PICTURE",
                "person 8 2 1 3 0.5000 0.7500 0.2500 0.5.jpg",
                "dog 8 2 1 3 - - - -",
                "all 8 2 1 3 0.5000 0.7500 0.2500 lost.jpg",
                "masks overlap with an IoU of at least 0.6250 (0.625.jpg)",
                "keypoints at most 1.50 pixels apart (1.5.jpg)",
                "keypoints with an OKS of 0.9000 at least (0.9.jpg), 0.9500 on average",
            ]
        );
    }

    #[test]
    fn a_value_of_whole_frames_has_a_row() {
        let value = |max_difference, min_cosine, outside: Option<&str>| FrameValueDifference {
            name: "age".to_owned(),
            frames: 5,
            outside: 1,
            other_labels: 2,
            one_sided: 3,
            max_difference,
            min_cosine,
            outside_picture: outside.map(str::to_owned),
        };
        let table = value_table(&[
            value(worst(0.5), None, Some("out.jpg")),
            value(worst(0.5), worst(0.25), None),
            value(None, worst(0.25), None),
            value(None, None, None),
        ]);
        assert_eq!(
            lines(&table)[2..],
            [
                "age 5 1 2 3 0.5000 - out.jpg",
                "age 5 1 2 3 0.5000 0.2500 0.5.jpg",
                "age 5 1 2 3 - 0.2500 0.25.jpg",
                "age 5 1 2 3 - - -",
            ]
        );
    }

    #[test]
    fn the_verdict_has_its_reasons() {
        let reasons = ["too few".to_owned(), "too many".to_owned()];
        assert_eq!(verdict("the models", true, false, &[]), "\nthe models agree\n");
        assert_eq!(verdict("the models", false, true, &reasons[..1]), "\nagreement is not shown:\n  too few\n");
        let not = verdict("the detections", false, false, &reasons);
        assert_eq!(not, "\nthe detections do not agree:\n  too few\n  too many\n");
        assert_eq!((short(0.0), short(0.001_234)), ("0".to_owned(), "1.23e-3".to_owned()));
    }

    #[test]
    fn more_outside_the_limits_than_allowed_is_a_reason() {
        let sides = ["are the first's", "are the second's"];
        let agreement = |outside, missing, extra| {
            let mut agreement = ClassAgreement::default();
            (agreement.matched, agreement.outside) = (10, outside);
            (agreement.missing, agreement.extra) = (missing, extra);
            agreement.min_iou = Some(Worst { value: 0.5, picture: 0 });
            agreement
        };
        assert_eq!(outside(&agreement(1, 0, 0), &LIMITS, sides), None, "the limit is allowed");
        assert_eq!(
            outside(&agreement(0, 2, 3), &LIMITS, sides).as_deref(),
            Some("of 15 detections 2 are the first's, 3 are the second's: 0.3333 of all, the limit is 0.1")
        );
        let strict = AgreementLimits { min_oks: Some(0.9), ..LIMITS };
        assert_eq!(
            outside(&agreement(2, 0, 0), &strict, sides).as_deref(),
            Some(
                "of 10 detections 2 exceed IoU 0.98 or score difference 0.02 (worst IoU 0.5000, worst score difference -) or \
                 OKS 0.9 (worst -): 0.2000 of all, the limit is 0.1"
            )
        );
    }

    #[test]
    fn an_output_that_is_not_finite_or_points_elsewhere_is_a_reason() {
        let output = |cosine, not_finite| OutputDifference {
            name: "boxes".to_owned(),
            shape: vec![1],
            min: None,
            max: None,
            max_abs: 0.0,
            mean_abs: 0.0,
            rms: 0.0,
            cosine,
            not_finite,
            worst_picture: None,
        };
        assert!(output_reasons(&output(0.99, 0), &LIMITS).is_empty());
        assert!(output_reasons(&output(0.5, 0), &AgreementLimits { min_cosine: None, ..LIMITS }).is_empty());
        let reasons = output_reasons(&output(0.98, 7), &LIMITS);
        assert!(reasons[0].starts_with("output boxes has 7 values that are infinite or NaN"), "{reasons:?}");
        assert_eq!(reasons[1..], ["output boxes has a cosine of 0.980000, the limit is 0.99"]);
    }
}
