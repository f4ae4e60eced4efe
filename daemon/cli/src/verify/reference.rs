//! A reference for `visiond verify --reference`: another program's detections in the pictures, as JSON.
//!
//! One JSON array, or one object per line, in one of three formats: COCO results, messages of visiond, or scores of a classifier.
//! The file may come from anywhere. Its size is limited, numbers and names are checked, and each error has its location.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use visiond_engine::card::{coco_class, has_coco_classes};
use visiond_engine::detector::{Detection, Keypoint};
use visiond_kernels::frame::MAX_SIDE;
use visiond_kernels::mask::{Mask, rle_decode};
use visiond_kernels::oriented::OrientedBox;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;

/// The size limit of a reference. COCO's 5000 validation pictures with 300 boxes each take 200 MB.
const MAX_BYTES: u64 = 256 << 20;

/// The limit for a file's masks: one bit for each pixel of the rectangle around each mask.
const MAX_MASK_BYTES: usize = 1 << 30;

/// The largest coordinate of a box.
const MAX_COORDINATE: f64 = 1e6;

/// How the category ids of COCO results map to classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CategoryIds {
    /// COCO's if the model has COCO's 80 classes and the ids cannot be anything else, otherwise from 0
    Auto,
    /// The model's class numbers, from 0
    #[value(name = "from-0")]
    #[serde(rename = "from-0")]
    From0,
    /// The model's class numbers plus 1
    #[value(name = "from-1")]
    #[serde(rename = "from-1")]
    From1,
    /// COCO's 1 to 90 for a model with its 80 classes
    Coco,
}

impl CategoryIds {
    /// Returns the class of a category id.
    fn class(self, id: u32) -> Option<u32> {
        match self {
            Self::Auto | Self::From0 => Some(id),
            Self::From1 => id.checked_sub(1),
            Self::Coco => coco_class(id),
        }
    }

    /// Returns the numbering, other than this one, that maps most of these category ids to the paired class, for a model with these
    /// classes.
    pub fn better(self, pairs: &BTreeMap<(u32, u32), u64>, labels: &[impl AsRef<str>]) -> Option<Self> {
        let equal = |ids: Self| {
            let fits = pairs.iter().filter(|((id, class), _)| ids.class(*id) == Some(*class));
            fits.map(|(_, count)| *count).sum::<u64>()
        };
        let has_coco = has_coco_classes(labels);
        let is_other = |ids: &Self| *ids != self && (*ids != Self::Coco || has_coco);
        let others = [Self::From0, Self::From1, Self::Coco].into_iter().filter(is_other);
        others.max_by_key(|ids| equal(*ids)).filter(|ids| equal(*ids) * 2 > pairs.values().sum())
    }
}

impl fmt::Display for CategoryIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::From0 => "from-0",
            Self::From1 => "from-1",
            Self::Coco => "coco",
        })
    }
}

/// The format of an entry of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// A box in COCO's result format.
    Coco,
    /// A message `visiond/1`.
    Messages,
    /// The scores of a picture's classes.
    Scores,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coco => "COCO results",
            Self::Messages => "messages of visiond",
            Self::Scores => "scores of classes",
        })
    }
}

/// The reference's data on a picture, best first.
#[derive(Debug, Default)]
pub struct ReferencePicture {
    pub detections: Vec<Detection>,
    /// The category id of each detection, as in the file.
    pub ids: Vec<u32>,
}

/// A parsed reference.
#[derive(Debug)]
pub struct Reference {
    pub file: PathBuf,
    pub form: Form,
    /// How category ids are mapped: never [`CategoryIds::Auto`].
    pub category_ids: CategoryIds,
    /// Whether it has boxes, not only scores.
    pub has_boxes: bool,
    /// One for each of the requested pictures.
    pub pictures: Vec<ReferencePicture>,
}

impl Reference {
    /// Reads the reference of `pictures` for a model with the classes `labels`, which may be empty.
    ///
    /// # Errors
    /// With [`Exit::Input`] and the place in the file.
    pub fn read(
        file: &Path,
        pictures: &[PathBuf],
        labels: &[impl AsRef<str>],
        ids: CategoryIds,
    ) -> Result<Self, ExitError> {
        let refuse = |error: ReferenceError| ExitError::new(Exit::Input, error.message(file));
        let text = read_file(file).map_err(|reason| refuse(ReferenceError { place: String::new(), reason }))?;
        let labels: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
        parse(&text, pictures, &labels, ids).map(|parsed| Self { file: file.to_owned(), ..parsed }).map_err(refuse)
    }

    /// Returns whether it has no detections.
    pub fn is_empty(&self) -> bool {
        self.pictures.iter().all(|picture| picture.detections.is_empty())
    }
}

/// Why a reference cannot be used.
#[derive(Debug)]
struct ReferenceError {
    /// `, line 3`, or empty.
    place: String,
    reason: String,
}

impl ReferenceError {
    fn message(&self, file: &Path) -> String {
        format!("cannot use the reference {}{}: {}", escape(&file.display().to_string()), self.place, self.reason)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {} MiB: leave out boxes with low scores, or split it", MAX_BYTES >> 20));
    }
    Ok(bytes)
}

/// An object of the file: the keys of all formats.
#[derive(Deserialize)]
#[serde(expecting = "an object like {\"image_id\": ..., \"category_id\": ..., \"bbox\": ..., \"score\": ...}")]
struct Entry {
    image_id: Option<PictureId>,
    category_id: Option<u32>,
    bbox: Option<[f64; 4]>,
    /// COCO's x, y and visibility of each point; some programs put a score in place of the visibility.
    keypoints: Option<Vec<f64>>,
    /// COCO's run lengths; polygons are not compared.
    segmentation: Option<serde_json::Value>,
    score: Option<f64>,

    schema: Option<String>,
    frame: Option<MessageFrame>,
    detections: Option<Vec<MessageDetection>>,

    image: Option<PictureId>,
    scores: Option<Scores>,

    /// Keys of COCO annotations, which are not results.
    annotations: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct MessageFrame {
    file: Option<String>,
}

#[derive(Deserialize)]
struct MessageDetection {
    class_id: u32,
    score: f64,
    #[serde(rename = "box")]
    bounds: Option<MessageBox>,
    oriented: Option<MessageOriented>,
    #[serde(default)]
    keypoints: Vec<MessageKeypoint>,
    mask: Option<MessageMask>,
}

#[derive(Deserialize)]
struct MessageMask {
    rle: Option<RunLengths>,
}

/// A mask as pycocotools encodes it.
#[derive(Deserialize)]
struct RunLengths {
    /// Height and width.
    size: [u32; 2],
    counts: String,
}

#[derive(Deserialize)]
struct MessageBox {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

#[derive(Deserialize)]
struct MessageOriented {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    angle: f32,
}

#[derive(Deserialize)]
struct MessageKeypoint {
    x: f32,
    y: f32,
    score: Option<f32>,
}

/// A picture: its path, name or stem; or its number.
enum PictureId {
    Name(String),
    Number(u64),
}

impl<'de> Deserialize<'de> for PictureId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(name) => Ok(Self::Name(name)),
            serde_json::Value::Number(number) if number.is_u64() => {
                Ok(Self::Number(number.as_u64().unwrap_or_default()))
            }
            _ => Err(D::Error::custom("a picture must be a file's name or a whole number")),
        }
    }
}

/// The score of each class, by number or by label.
enum Scores {
    ByNumber(Vec<f64>),
    ByLabel(BTreeMap<String, f64>),
}

impl<'de> Deserialize<'de> for Scores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let scores = if value.is_array() {
            serde_json::from_value(value).map(Self::ByNumber)
        } else {
            serde_json::from_value(value).map(Self::ByLabel)
        };
        scores.map_err(|_| D::Error::custom("`scores` must be a list of numbers, or an object of labels and numbers"))
    }
}

/// A detection of the file, and its location.
struct Placed {
    place: String,
    picture: usize,
    detection: Detection,
}

/// Reads one entry after another.
struct EntryReader<'a> {
    names: PictureNames<'a>,
    labels: &'a [&'a str],
    form: Option<Form>,
    placed: Vec<Placed>,
    /// The pictures for which a message or scores were read.
    seen: Vec<bool>,
    /// The size of all masks.
    mask_bytes: usize,
}

fn parse(text: &[u8], pictures: &[PathBuf], labels: &[&str], ids: CategoryIds) -> Result<Reference, ReferenceError> {
    // Some editors put a byte-order mark at the start of a UTF-8 file.
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let at_all = |reason: &str| ReferenceError { place: String::new(), reason: reason.to_owned() };
    let seen = vec![false; pictures.len()];
    let mut reader =
        EntryReader { names: PictureNames::new(pictures), labels, form: None, placed: Vec::new(), seen, mask_bytes: 0 };
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Err(at_all("it is empty: write the detections to it, one object a line")),
        Some(b'[') => reader.read_array(text)?,
        Some(_) => reader.read_lines(text)?,
    }
    let EntryReader { form, placed, .. } = reader;
    // An empty array: results without any detection.
    let form = form.unwrap_or(Form::Coco);
    let category_ids = if form == Form::Coco { numbering(&placed, labels, ids)? } else { CategoryIds::From0 };
    let boxes = || placed.iter().filter_map(|placed| placed.detection.box_in_source);
    if boxes().next().is_some() && boxes().all(|[_, _, right, bottom]| right <= 1.0 && bottom <= 1.0) {
        return Err(at_all(
            "all its boxes lie within the first pixel: give them in pixels of the picture, not as shares of its size",
        ));
    }
    let has_boxes = form == Form::Coco || boxes().next().is_some();
    let mut found: Vec<Vec<(Detection, u32)>> = pictures.iter().map(|_| Vec::new()).collect();
    for Placed { place, picture, mut detection } in placed {
        let id = detection.class_id;
        let class = category_ids.class(id).filter(|class| labels.is_empty() || (*class as usize) < labels.len());
        detection.class_id = class.ok_or_else(|| out_of_range(place, id, category_ids, form, labels.len()))?;
        found[picture].push((detection, id));
    }
    let best_first = |mut found: Vec<(Detection, u32)>| {
        found.sort_by(|(a, _), (b, _)| b.score.total_cmp(&a.score));
        let (detections, ids) = found.into_iter().unzip();
        ReferencePicture { detections, ids }
    };
    let pictures = found.into_iter().map(best_first).collect();
    Ok(Reference { file: PathBuf::new(), form, category_ids, has_boxes, pictures })
}

/// Returns how to map the category ids.
fn numbering(placed: &[Placed], labels: &[&str], ids: CategoryIds) -> Result<CategoryIds, ReferenceError> {
    let has_coco = has_coco_classes(labels);
    match ids {
        CategoryIds::Coco if !has_coco => Err(ReferenceError {
            place: String::new(),
            reason: "its category ids are COCO's by --category-ids coco, but the model's classes are not COCO's 80: leave that out"
                .to_owned(),
        }),
        CategoryIds::Auto => {
            let is_coco = |placed: &Placed| coco_class(placed.detection.class_id).is_some();
            let is_no_class = |placed: &Placed| placed.detection.class_id as usize >= labels.len();
            let coco = has_coco && placed.iter().all(is_coco) && placed.iter().any(is_no_class);
            Ok(if coco { CategoryIds::Coco } else { CategoryIds::From0 })
        }
        chosen => Ok(chosen),
    }
}

fn out_of_range(place: String, id: u32, ids: CategoryIds, form: Form, classes: usize) -> ReferenceError {
    let (first, last) = match ids {
        CategoryIds::Auto | CategoryIds::From0 => (0, classes.saturating_sub(1)),
        CategoryIds::From1 => (1, classes),
        CategoryIds::Coco => (1, 90),
    };
    let reason = match (form, ids) {
        (Form::Coco, CategoryIds::Coco) => format!("category {id} is not one of COCO's 80, numbered {first} to {last}"),
        (Form::Coco, _) => format!(
            "category {id} is not one of the model's {classes} classes, numbered {first} to {last}: say how the file counts \
             them with --category-ids"
        ),
        _ => format!("class {id} is not one of the model's {classes} classes, numbered {first} to {last}"),
    };
    ReferenceError { place, reason }
}

impl EntryReader<'_> {
    fn read_lines(&mut self, text: &[u8]) -> Result<(), ReferenceError> {
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let place = format!(", line {}", number + 1);
            let entry = serde_json::from_slice(line)
                .map_err(|error| ReferenceError { place: place.clone(), reason: words(&error, line) });
            self.add(&place, entry?).map_err(|reason| ReferenceError { place, reason })?;
        }
        Ok(())
    }

    fn read_array(&mut self, text: &[u8]) -> Result<(), ReferenceError> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let mut failed = None;
        let seed = EntryArray { reader: self, failed: &mut failed };
        let read = seed.deserialize(&mut deserializer).and_then(|()| deserializer.end());
        read.map_err(|error| {
            failed.unwrap_or_else(|| ReferenceError {
                place: format!(", line {}", error.line()),
                reason: words(
                    &error,
                    text.split(|&byte| byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default(),
                ),
            })
        })
    }

    /// Adds the detections of an entry.
    fn add(&mut self, place: &str, entry: Entry) -> Result<(), String> {
        let form = form_of(&entry)?;
        if let Some(before) = self.form.replace(form).filter(|before| *before != form) {
            return Err(format!(
                "it belongs to {form}, the entries before it to {before}: keep them in separate files"
            ));
        }
        match form {
            Form::Coco => {
                let lacks =
                    |key: &str| format!("it lacks `{key}`: COCO results have image_id, category_id, bbox and score");
                let picture = self.names.find(&entry.image_id.ok_or_else(|| lacks("image_id"))?)?;
                let class_id = entry.category_id.ok_or_else(|| lacks("category_id"))?;
                let [x, y, width, height] = entry.bbox.ok_or_else(|| lacks("bbox"))?;
                let score = score(entry.score.ok_or_else(|| lacks("score"))?)?;
                let box_in_source = Some(corners(x, y, width, height)?);
                let keypoints = keypoints(entry.keypoints.as_deref().unwrap_or_default())?;
                let runs = entry.segmentation.and_then(|runs| serde_json::from_value(runs).ok());
                let mask = self.mask(runs)?;
                let detection = Detection { class_id, score, box_in_source, keypoints, mask, ..Detection::default() };
                self.place(place, picture, detection);
            }
            Form::Messages => {
                let schema = entry.schema.unwrap_or_default();
                if schema != "visiond/1" {
                    return Err(format!("its schema is `{}`, not `visiond/1`", escape(&schema)));
                }
                let file = entry.frame.and_then(|frame| frame.file);
                let file =
                    file.ok_or("it lacks `frame.file`, so its picture is unknown: use `visiond detect --json`")?;
                let picture = self.first_of(&PictureId::Name(file))?;
                for found in entry.detections.ok_or("it lacks `detections`")? {
                    let bounds = found.bounds.map(|b| corners(b.x, b.y, b.width, b.height)).transpose()?;
                    let oriented = found.oriented.map(turned).transpose()?;
                    let keypoint = |k: &MessageKeypoint| Keypoint { x: k.x, y: k.y, score: k.score };
                    let detection = Detection {
                        class_id: found.class_id,
                        score: score(found.score)?,
                        box_in_source: bounds,
                        oriented,
                        keypoints: found.keypoints.iter().map(keypoint).collect(),
                        mask: self.mask(found.mask.and_then(|mask| mask.rle))?,
                        ..Detection::default()
                    };
                    self.place(place, picture, detection);
                }
            }
            Form::Scores => {
                let picture = self.first_of(&entry.image.ok_or("it lacks `image`, the name of the picture")?)?;
                let scores: Vec<(u32, f64)> = match entry.scores.ok_or("it lacks `scores`")? {
                    Scores::ByNumber(scores) if !self.labels.is_empty() && scores.len() != self.labels.len() => {
                        return Err(format!(
                            "`scores` has {} numbers, but the model has {} classes: write one for each class",
                            scores.len(),
                            self.labels.len()
                        ));
                    }
                    Scores::ByNumber(scores) => (0..).zip(scores).collect(),
                    Scores::ByLabel(scores) => {
                        let class = |(label, score): (String, f64)| Ok((self.class_of_label(&label)?, score));
                        scores.into_iter().map(class).collect::<Result<_, String>>()?
                    }
                };
                for (class_id, of_class) in scores {
                    let score = score(of_class)?;
                    self.place(
                        place,
                        picture,
                        Detection { class_id, score, box_in_source: None, ..Detection::default() },
                    );
                }
            }
        }
        Ok(())
    }

    /// Reads a mask.
    fn mask(&mut self, runs: Option<RunLengths>) -> Result<Option<Mask>, String> {
        let Some(RunLengths { size: [height, width], counts }) = runs else { return Ok(None) };
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(format!(
                "its mask is of {width} x {height} pixels: give `size` the height and width of the picture"
            ));
        }
        let mask = rle_decode(&counts, width, height).map_err(|error| error.to_string())?.cropped();
        self.mask_bytes += size_of_val(&*mask.words);
        if self.mask_bytes > MAX_MASK_BYTES {
            let most = MAX_MASK_BYTES >> 20;
            return Err(format!(
                "the masks take more than {most} MiB of memory: leave out low scores, or split the file"
            ));
        }
        Ok(Some(mask))
    }

    fn place(&mut self, place: &str, picture: usize, detection: Detection) {
        self.placed.push(Placed { place: place.to_owned(), picture, detection });
    }

    /// Returns the picture of an entry that holds all detections of a picture.
    fn first_of(&mut self, id: &PictureId) -> Result<usize, String> {
        let picture = self.names.find(id)?;
        if std::mem::replace(&mut self.seen[picture], true) {
            let name = escape(&self.names.pictures[picture].display().to_string());
            return Err(format!("it is the second about {name}: keep one"));
        }
        Ok(picture)
    }

    fn class_of_label(&self, label: &str) -> Result<u32, String> {
        let number = self.labels.iter().position(|known| *known == label).and_then(|class| u32::try_from(class).ok());
        let number = number.or_else(|| label.parse().ok());
        number.ok_or_else(|| format!("`{}` is not one of the model's classes: see `visiond inspect`", escape(label)))
    }
}

/// Returns the format of an entry by its keys.
fn form_of(entry: &Entry) -> Result<Form, String> {
    if entry.annotations.is_some() {
        return Err(
            "it has COCO's annotations, not results: give the list that was saved for `COCO.loadRes`".to_owned()
        );
    }
    if entry.schema.is_some() || entry.detections.is_some() {
        Ok(Form::Messages)
    } else if entry.scores.is_some() {
        Ok(Form::Scores)
    } else if entry.image_id.is_some() || entry.category_id.is_some() || entry.bbox.is_some() {
        Ok(Form::Coco)
    } else {
        Err("it has neither the keys of COCO results (image_id, category_id, bbox, score), nor those of visiond's messages \
             (schema, frame, detections), nor image and scores"
            .to_owned())
    }
}

/// Reads the entries of an array one by one, without storing them.
struct EntryArray<'a, 'b> {
    reader: &'a mut EntryReader<'b>,
    failed: &'a mut Option<ReferenceError>,
}

impl<'de> DeserializeSeed<'de> for EntryArray<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EntryArray<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut number = 0_u64;
        while let Some(entry) = entries.next_element()? {
            number += 1;
            let place = format!(", entry {number}");
            if let Err(reason) = self.reader.add(&place, entry) {
                *self.failed = Some(ReferenceError { place, reason });
                return Err(A::Error::custom("an entry is wrong"));
            }
        }
        Ok(())
    }
}

/// Returns the text of an error in a line, with its column. Python's `json` writes numbers that are not valid JSON.
fn words(error: &serde_json::Error, line: &[u8]) -> String {
    let text = error.to_string();
    let words = escape(text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words));
    let column = error.column();
    let near = &line[column.saturating_sub(2).min(line.len())..line.len().min(column + 9)];
    let has = |word: &str| near.windows(word.len()).any(|bytes| bytes == word.as_bytes());
    if has("NaN") || has("Infinity") {
        return format!("column {column} has NaN or Infinity, which JSON does not have: leave such boxes out");
    }
    let not_json = if error.is_data() { "" } else { "this is not JSON: " };
    format!("{not_json}{words}, column {column}")
}

fn score(score: f64) -> Result<f32, String> {
    if (0.0..=1.0).contains(&score) { Ok(score as f32) } else { Err(format!("the score {score} is not from 0 to 1")) }
}

/// Returns the corners of a box in pixels.
fn corners(x: f64, y: f64, width: f64, height: f64) -> Result<[f32; 4], String> {
    let is_sane =
        [x, y, width, height].iter().all(|number| number.abs() <= MAX_COORDINATE) && width >= 0.0 && height >= 0.0;
    if is_sane {
        Ok([x as f32, y as f32, (x + width) as f32, (y + height) as f32])
    } else {
        Err(format!("{x}, {y}, {width}, {height} is no box: give x, y, width and height in pixels of the picture"))
    }
}

/// Returns the points of COCO's `keypoints`.
fn keypoints(numbers: &[f64]) -> Result<Vec<Keypoint>, String> {
    let (points, rest) = numbers.as_chunks::<3>();
    if !rest.is_empty() || numbers.iter().any(|number| number.abs() > MAX_COORDINATE) {
        return Err("`keypoints` must be x, y and score of each point, in pixels of the picture".to_owned());
    }
    let point = |&[x, y, score]: &[f64; 3]| Keypoint { x: x as f32, y: y as f32, score: Some(score as f32) };
    Ok(points.iter().map(point).collect())
}

/// Returns an oriented box.
fn turned(found: MessageOriented) -> Result<OrientedBox, String> {
    let MessageOriented { x, y, width, height, angle } = found;
    // The limits of a box apply.
    corners(x, y, width, height)?;
    Ok(OrientedBox { center: [x as f32, y as f32], size: [width as f32, height as f32], angle })
}

/// Finds pictures by the names that a reference may use.
struct PictureNames<'a> {
    pictures: &'a [PathBuf],
    /// The pictures of each path, file name and stem.
    by_path: HashMap<String, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
    by_stem: HashMap<String, Vec<usize>>,
    /// The pictures with numeric stems, as in COCO: `000000000139.jpg`.
    by_number: HashMap<u64, Vec<usize>>,
}

impl<'a> PictureNames<'a> {
    fn new(pictures: &'a [PathBuf]) -> Self {
        let (mut by_path, mut by_name, mut by_stem, mut by_number) =
            (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        let text = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        for (index, path) in pictures.iter().enumerate() {
            let stem = text(path.file_stem());
            if let Ok(number) = stem.parse() {
                by_number.entry(number).or_insert_with(Vec::new).push(index);
            }
            for (map, key) in [
                (&mut by_path, path.to_string_lossy().into_owned()),
                (&mut by_name, text(path.file_name())),
                (&mut by_stem, stem),
            ] {
                map.entry(key).or_insert_with(Vec::new).push(index);
            }
        }
        Self { pictures, by_path, by_name, by_stem, by_number }
    }

    /// Returns the index of a picture.
    fn find(&self, id: &PictureId) -> Result<usize, String> {
        let (found, shown) = match id {
            PictureId::Name(name) => {
                let file_name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
                let found = self.by_path.get(name).or_else(|| self.by_name.get(&*file_name));
                (found.or_else(|| self.by_stem.get(&*file_name)), escape(name))
            }
            PictureId::Number(number) if self.by_number.is_empty() => {
                let index = usize::try_from(*number).ok().filter(|index| *index < self.pictures.len());
                let count = self.pictures.len();
                return index.ok_or_else(|| {
                    format!(
                        "there is no picture {number}: give a name, or a number below {count}, the place in the order given"
                    )
                });
            }
            PictureId::Number(number) => (self.by_number.get(number), number.to_string()),
        };
        match found.map(Vec::as_slice) {
            Some(&[index]) => Ok(index),
            Some([first, second, ..]) => {
                let name = |index: &usize| escape(&self.pictures[*index].display().to_string());
                Err(format!("the picture {shown} may be {} or {}: give one of them", name(first), name(second)))
            }
            _ => Err(format!(
                "the picture {shown} is not among those given: name it on the command line, or leave it out"
            )),
        }
    }
}

#[cfg(test)]
mod tests;
