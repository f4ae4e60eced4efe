//! The names of a model's keypoints, and the lines between them.

use crate::heads::{Family, HeadSpec};

/// The `[keypoints]` of a card. Missing parts follow from the model: [`KeypointCard::settle`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeypointCard {
    /// The name of each point, in the model's order.
    pub names: Option<Vec<String>>,
    /// The pairs of points that a line connects, counted from 0.
    pub skeleton: Option<Vec<[u32; 2]>>,
}

/// The names of a model's keypoints, which may be empty, and the lines between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettledKeypoints {
    pub(crate) names: Vec<String>,
    pub(crate) skeleton: Vec<[u32; 2]>,
}

/// The most points of a detection, the same as for `head.keypoints`.
pub(super) const MAX_POINTS: u32 = 1000;

/// The most lines of a skeleton: a mesh of [`MAX_POINTS`] points has three times as many edges at most.
pub(super) const MAX_LINES: usize = 3000;

/// COCO's keypoints: `categories[0].keypoints` of `person_keypoints_val2017.json`, with the person's own left and right.
const COCO_NAMES: [&str; 17] = [
    "nose",
    "left_eye",
    "right_eye",
    "left_ear",
    "right_ear",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hip",
    "right_hip",
    "left_knee",
    "right_knee",
    "left_ankle",
    "right_ankle",
];

/// COCO's lines: `categories[0].skeleton` of the same file, converted to count from 0.
const COCO_SKELETON: [[u32; 2]; 19] = [
    [15, 13],
    [13, 11],
    [16, 14],
    [14, 12],
    [11, 12],
    [5, 11],
    [6, 12],
    [5, 6],
    [5, 7],
    [6, 8],
    [7, 9],
    [8, 10],
    [1, 2],
    [0, 1],
    [0, 2],
    [1, 3],
    [2, 4],
    [3, 5],
    [4, 6],
];

/// The landmarks of faces in RetinaFace's annotations of WIDER FACE, with which CenterFace, YOLO-face, SCRFD and YuNet are
/// trained. The first is the eye on the left of the image, the person's right one, as in OpenCV's documentation of
/// `FaceDetectorYN`.
const FACE_NAMES: [&str; 5] = ["right_eye", "left_eye", "nose", "right_mouth", "left_mouth"];

/// The key points of MediaPipe's faces: `FaceKeyPoint` in `face_detection.py`.
const BLAZEFACE_NAMES: [&str; 6] = ["right_eye", "left_eye", "nose", "mouth", "right_ear", "left_ear"];

impl KeypointCard {
    /// Creates the keypoints from the names in a model's own metadata. Numbers do not count as names: Ultralytics writes them
    /// as placeholders.
    pub(crate) fn with_names(names: Vec<String>) -> Self {
        let numbered = names.iter().enumerate().all(|(index, name)| *name == index.to_string());
        Self { names: (!numbered).then_some(names), skeleton: None }
    }

    /// COCO's names, for a body of 17 points without names.
    pub(crate) fn coco() -> Self {
        Self { names: Some(COCO_NAMES.map(str::to_owned).into()), skeleton: None }
    }

    /// Returns names and lines for a head whose detections have `count` points, if known: the card's, otherwise the usual
    /// ones.
    ///
    /// # Errors
    /// The key that contradicts `count`, and why.
    pub(crate) fn settle(
        &self,
        head: &HeadSpec,
        classes: &[String],
        count: Option<usize>,
    ) -> Result<SettledKeypoints, (&'static str, String)> {
        let usual: &[&str] = match (head.family(), count) {
            (Family::Blazeface, Some(6)) => &BLAZEFACE_NAMES,
            (Family::Heatmap | Family::Faces, Some(5)) => &FACE_NAMES,
            (_, Some(5)) if matches!(classes, [one] if one == "face") => &FACE_NAMES,
            (_, Some(17)) if classes.len() <= 1 => &COCO_NAMES,
            _ => &[],
        };
        let names = self.names.clone().unwrap_or_else(|| usual.iter().map(|&name| name.to_owned()).collect());
        if let Some(count) = count.filter(|&count| self.names.is_some() && names.len() != count) {
            let points = if count == 0 { "no keypoints".to_owned() } else { format!("{count} keypoints") };
            let message = format!(
                "`names` has {} names, but the model's detections have {points}: write as many, or remove `names`",
                names.len()
            );
            return Err(("keypoints.names", message));
        }
        let is_coco = names == COCO_NAMES;
        let skeleton = self.skeleton.clone().unwrap_or_else(|| if is_coco { COCO_SKELETON.into() } else { Vec::new() });
        let most = count.unwrap_or(MAX_POINTS as usize);
        match skeleton.iter().find(|line| line.iter().any(|&point| point as usize >= most)) {
            Some([a, b]) => {
                let last = most.checked_sub(1).map_or("has none".to_owned(), |last| format!("ends with {last}"));
                let message = format!(
                    "the line [{a}, {b}] of `skeleton` needs a point that the model lacks, which {last}: correct it"
                );
                Err(("keypoints.skeleton", message))
            }
            None => Ok(SettledKeypoints { names, skeleton }),
        }
    }
}

/// Returns whether these are the names of COCO's keypoints, in COCO's order.
pub fn has_coco_keypoints<T: AsRef<str>>(names: &[T]) -> bool {
    names.iter().map(AsRef::as_ref).eq(COCO_NAMES)
}
