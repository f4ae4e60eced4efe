//! Which models can run on the detections of which, and what they give them.

use visiond_engine::detector::Detector;
use visiond_engine::heads::{Family, HeadSpec};
use visiond_pipeline::cascade::CropOutput;

/// What a model takes and gives in a cascade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CascadeRole {
    name: String,
    family: Family,
    has_keypoints: bool,
    /// The names of its attributes.
    attributes: Vec<String>,
}

/// Why a model cannot run on the detections of another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model {model}: {problem}")]
pub struct CascadeError {
    /// The model on the detections.
    pub model: String,
    problem: String,
}

impl CascadeRole {
    /// Returns the role of a model with this head and detector.
    pub fn of(name: &str, head: &HeadSpec, detector: &Detector) -> Self {
        let attributes = match head {
            HeadSpec::Attributes(attributes) => attributes.iter().map(|one| one.name.clone()).collect(),
            HeadSpec::Classifier { .. } => vec![name.to_owned()],
            _ => Vec::new(),
        };
        let (family, has_keypoints) = (head.family(), detector.has_keypoints());
        Self { name: name.to_owned(), family, has_keypoints, attributes }
    }

    /// Whether the model finds objects, which have boxes.
    pub fn finds_objects(&self) -> bool {
        let of_the_frame = [Family::Semantic, Family::Classifier, Family::Attributes, Family::Embedding, Family::Depth];
        !of_the_frame.contains(&self.family)
    }

    /// Returns what the model gives a detection on whose crop it runs; `None` if a detection has no place for it.
    pub fn output(&self) -> Option<CropOutput> {
        match self.family {
            Family::Classifier => Some(CropOutput::Label),
            Family::Attributes | Family::Embedding => Some(CropOutput::Values),
            Family::Pose | Family::Movenet => Some(CropOutput::Keypoints),
            Family::Semantic | Family::Depth => None,
            _ => Some(CropOutput::Detections),
        }
    }

    /// Returns the parts of a detection that the model gives, as they are called in a sentence. No two models may give the same.
    fn gives(&self) -> Vec<String> {
        let mut parts: Vec<_> = self.attributes.iter().map(|name| format!("the attribute \"{name}\"")).collect();
        parts.extend((self.family == Family::Embedding).then(|| "an embedding".to_owned()));
        parts.extend((self.output() == Some(CropOutput::Keypoints)).then(|| KEYPOINTS.to_owned()));
        parts
    }
}

const KEYPOINTS: &str = "keypoints";

/// Checks that `model` can run on the detections of `on`, beside `others`. Returns what it gives them.
///
/// # Errors
/// `on` finds no objects, or a detection has no place for the results.
pub fn check(on: &CascadeRole, others: &[CascadeRole], model: &CascadeRole) -> Result<CropOutput, CascadeError> {
    let refuse = |problem| CascadeError { model: model.name.clone(), problem };
    let name = &on.name;
    if !on.finds_objects() {
        return Err(refuse(format!(
            "cannot run on the detections of model {name}, which finds no objects: name a detector as `on`"
        )));
    }
    let Some(output) = model.output() else {
        let what = if model.family == Family::Depth { "depth" } else { "a class for each pixel" };
        return Err(refuse(format!(
            "cannot run on detections, because it gives {what}, and only a frame can have that: remove `on`"
        )));
    };
    for part in model.gives() {
        let with_keypoints = Some(on).filter(|on| on.has_keypoints && part == KEYPOINTS);
        if let Some(other) = others.iter().find(|other| other.gives().contains(&part)).or(with_keypoints) {
            let other = &other.name;
            return Err(refuse(format!(
                "cannot give the detections of model {name} {part}, because model {other} does: remove one of them, or rename one \
                 attribute"
            )));
        }
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn role(name: &str, family: Family, attributes: &[&str]) -> CascadeRole {
        let attributes = attributes.iter().map(|&name| name.to_owned()).collect();
        CascadeRole { name: name.to_owned(), family, has_keypoints: family == Family::Pose, attributes }
    }

    #[test]
    fn models_on_detections_give_each_part_once_and_run_on_boxes_only() {
        let cars = role("cars", Family::Yolov8, &[]);
        let people = CascadeRole { has_keypoints: true, ..role("people", Family::Yolov8, &[]) };
        let color = role("color", Family::Classifier, &["color"]);
        let look = role("look", Family::Attributes, &["color", "age"]);
        let plates = role("plates", Family::Yolov8, &[]);
        let [faces, reid] = ["faces", "reid"].map(|name| role(name, Family::Embedding, &[]));
        let pose = role("pose", Family::Pose, &[]);
        let depth = role("depth", Family::Depth, &[]);
        let check = |on, others: &[&CascadeRole], model| {
            let others: Vec<_> = others.iter().copied().cloned().collect();
            super::check(on, &others, model).map_err(|error| error.to_string())
        };
        assert_eq!(check(&cars, &[], &color), Ok(CropOutput::Label));
        assert_eq!(check(&cars, &[&color], &reid), Ok(CropOutput::Values));
        assert_eq!(check(&cars, &[&color, &reid], &pose), Ok(CropOutput::Keypoints));
        assert_eq!(check(&cars, &[&plates], &plates), Ok(CropOutput::Detections));
        for (on, other, model, words) in [
            (&color, &color, &plates, "plates: cannot run on the detections of model color, which finds no objects"),
            (
                &cars,
                &color,
                &look,
                "look: cannot give the detections of model cars the attribute \"color\", because model color",
            ),
            (
                &cars,
                &faces,
                &reid,
                "reid: cannot give the detections of model cars an embedding, because model faces does",
            ),
            (
                &people,
                &color,
                &pose,
                "pose: cannot give the detections of model people keypoints, because model people does",
            ),
            (&cars, &color, &depth, "depth: cannot run on detections, because it gives depth"),
        ] {
            let error = check(on, &[other], model).unwrap_err();
            assert!(error.starts_with("model ") && error.contains(words), "{error}");
        }
    }
}
