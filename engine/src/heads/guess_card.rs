//! The starting card for a guessed head: the facts that the file shows, and, as comments, those that it does not.

use visiond_kernels::preprocess::ChannelOrder;

use super::exports::{Export, YOLOV4};
use super::model_facts::{ModelFacts, likely_size, picture, picture_sides};
use super::spec::{FACE_POINTS, Family, GridStyle, HeadSpec, Keypoints};
use crate::backend::{Dim, dims_text};
use crate::card::Card;
use crate::onnx::OutputTail;
use crate::ultralytics::class_names;

/// A side below this is only the size that a convolutional network was exported with, not the size of its images.
const LEAST_SIDE: u32 = 64;

/// Whether a network's declared size comes only from its export: tiny, although its operators accept any size.
fn is_placeholder(spec: &HeadSpec, facts: ModelFacts<'_>) -> bool {
    let tiny = picture_sides(facts.inputs).iter().all(|side| side.is_some_and(|side| side < LEAST_SIDE));
    let free = |tail: &OutputTail| match spec.family() {
        Family::Heatmap => tail.known && !tail.fixed,
        // The cells of a grid that boxes are computed from are constants of one size.
        Family::Nanodet | Family::Yolox => tail.known && !tail.fixed && !tail.arithmetic,
        _ => false,
    };
    tiny && facts.outputs.iter().all(|output| facts.tails.get(&output.name).is_some_and(free))
}

/// Returns the size for a card if the model leaves it open or declares one that is too small to find anything. `usual` comes
/// from the metadata.
fn size_text(spec: &HeadSpec, facts: ModelFacts<'_>, usual: Option<(u32, u32)>) -> Option<String> {
    let sides = picture_sides(facts.inputs);
    let (width, height) = match usual {
        Some(usual) => (sides[0].unwrap_or(usual.0), sides[1].unwrap_or(usual.1)),
        None => likely_size(spec, facts.inputs),
    };
    let why = match sides {
        [Some(declared), Some(lines)] => {
            let (width, height) = spec.usual_size();
            let why = format!("the file declares {declared}x{lines}, which is only what it was exported with");
            return is_placeholder(spec, facts).then(|| format!("size = [{width}, {height}]  # width, height: {why}"));
        }
        [None, None] => "the model leaves them open",
        [None, Some(_)] => "the model leaves its width open",
        [Some(_), None] => "the model leaves its height open",
    };
    Some(format!("size = [{width}, {height}]  # width, height: {why}"))
}

/// Returns the parts of a card that the inputs need: the size if the model leaves it open, one channel, bytes.
fn input_text(spec: &HeadSpec, facts: ModelFacts<'_>, usual: Option<(u32, u32)>, export: Option<&Export>) -> String {
    let mut text = String::new();
    let inputs = facts.inputs;
    let Some(picture) = picture(inputs) else { return text };
    let mut lines: Vec<String> = size_text(spec, facts, usual).into_iter().collect();
    let known = export.map(|export| &export.input[..]).unwrap_or_default();
    if known.iter().any(|line| line.starts_with("size")) {
        lines.clear();
    }
    lines.extend_from_slice(known);
    let dims: Vec<Option<usize>> = picture.shape.iter().flatten().map(Dim::fixed).collect();
    let channels = dims.len().checked_sub(3).map(|first| [dims[first], dims[first + 2]]);
    if channels.is_some_and(|ends| ends.contains(&Some(1)) && !ends.contains(&Some(ChannelOrder::Rgb.channels()))) {
        lines.retain(|line| !line.starts_with("order"));
        lines.push("order = \"grey\"".to_owned());
    }
    let usual = Card::with_head(spec.clone()).input;
    if picture.dtype.is_integer() {
        // Integers are pixels from 0 to 255, regardless of the metadata.
        lines.retain(|line| !["scale", "mean", "std"].iter().any(|key| line.starts_with(key)));
    } else if known.is_empty() && facts.metadata.get("author").is_none_or(|author| author != "Ultralytics") {
        lines.insert(0, assumed(spec));
    }
    if picture.dtype.is_integer() && (usual.mean != [0.0; 3] || usual.std != [1.0; 3]) {
        lines.extend(["mean = 0  # the model takes pixels of 0 to 255".to_owned(), "std = 1".to_owned()]);
    }
    if !lines.is_empty() {
        text += &format!("[input]\n{}\n\n", lines.join("\n"));
    }
    let extra = inputs.iter().filter(|input| !std::ptr::eq(*input, picture)).map(|input| {
        let name = &input.name;
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let key = if plain { name.clone() } else { format!("{name:?}") };
        let numbers = input
            .shape
            .as_ref()
            .map_or(1, |dims| dims.iter().skip(1).filter_map(Dim::fixed).fold(1, usize::saturating_mul));
        let fill = match numbers {
            // The inputs of PaddleDetection and keras-yolo3.
            _ if name == "im_shape" || name == "image_shape" => "\"input-size-hw\"".to_owned(),
            2 if name == "scale_factor" => "[1, 1]".to_owned(),
            2 => "\"input-size\"  # width, height".to_owned(),
            count @ 0..=64 => format!("{:?}", vec![1; count.max(1)]),
            _ => {
                let file = if plain { name } else { "numbers" };
                format!("\"{file}.npy\"  # a file of NumPy beside the card: {}", dims_text(&input.shape))
            }
        };
        format!("{key} = {fill}\n")
    });
    let extra: String = extra.collect();
    if extra.is_empty() { text } else { format!("{text}[extra_inputs]\n{extra}\n") }
}

/// More names than a card lists; they belong in a file.
const MOST_NAMES: usize = 200;

/// Returns the class names of the metadata as a line of a card; `None` if TOML would need escapes for one.
fn names_text(names: &[String]) -> Option<String> {
    let is_plain = |name: &String| name.chars().all(|c| !c.is_control() && c != '"' && c != '\\');
    let names: Option<Vec<String>> = names.iter().map(|name| is_plain(name).then(|| format!("\"{name}\""))).collect();
    Some(format!("names = [{}]", names?.join(", ")))
}

/// Returns the head's default assumption about pixel scaling, as a comment: the file does not show how the training scaled images.
fn assumed(spec: &HeadSpec) -> String {
    let input = Card::with_head(spec.clone()).input;
    let white = 255.0 * input.scale;
    let channel = |mean: f32, std: f32| (-mean / std, (white - mean) / std);
    let ends: Vec<(f32, f32)> = input.mean.iter().zip(input.std).map(|(&mean, std)| channel(mean, std)).collect();
    let rounded = |number: f32| (100.0 * number).round() / 100.0 + 0.0;
    let range = match ends[..] {
        [first, ..] if ends.iter().all(|end| *end == first) => {
            format!("from {} to {}", rounded(first.0), rounded(first.1))
        }
        _ => format!("less a mean of {:?}, divided by {:?}", input.mean, input.std),
    };
    let order = match input.order {
        ChannelOrder::Rgb => "RGB",
        ChannelOrder::Bgr => "BGR",
        ChannelOrder::Grey => "grey",
    };
    let remedy = match spec.family() {
        // A classifier answers for any pixels.
        family if family == Family::Classifier || family.gives_values() => {
            "Nothing shows it if\n\
             # that is wrong: compare with the code that it was trained with, and try `scale = 1` (0 to 255),\n\
             # `order = \"bgr\"`, or a `preprocess` of docs/models.md, such as \"caffe\", \"timm\" or \"tensorflow\""
        }
        _ => {
            "If little or nothing is found, try\n\
             # `scale = 1` (0 to 255), `order = \"bgr\"`, or a `preprocess` of docs/models.md"
        }
    };
    format!("# Assumed, since the file does not say it: {order} {range}. {remedy}")
}

/// Whether a head detects only faces.
fn is_of_faces(spec: &HeadSpec) -> bool {
    matches!(spec, HeadSpec::Faces(_) | HeadSpec::Yolov5 { keypoints: Some(FACE_POINTS), .. })
}

/// Whether a head detects only people, or nearly so: MoveNet, poses, and one class with COCO's points.
fn is_of_people(spec: &HeadSpec) -> bool {
    const BODY: Keypoints = Keypoints { count: 17, scored: true };
    matches!(spec, HeadSpec::Movenet | HeadSpec::Pose | HeadSpec::YoloNms { keypoints: Some(BODY), .. })
}

/// Returns the comment beside a key of `[head]`.
fn option_comment(spec: &HeadSpec, key: &str) -> String {
    match spec {
        // YOLOv7 has the same layers.
        HeadSpec::Darknet(spec) if spec.style == GridStyle::Yolov5 && spec.anchors.len() == 9 && key == "anchors" => {
            format!("  # those of YOLOv5 and YOLOv7-tiny; of YOLOv7: {:?}", YOLOV4.as_flattened())
        }
        _ => String::new(),
    }
}

/// Returns a card to start from. `usual` is the size that the metadata names.
pub(super) fn card_text(
    spec: &HeadSpec,
    classes: Option<usize>,
    facts: ModelFacts<'_>,
    usual: Option<(u32, u32)>,
    export: Option<&Export>,
) -> String {
    let input = input_text(spec, facts, usual, export);
    let line = |(key, value): &(&str, String)| format!("{key} = {value}{}\n", option_comment(spec, key));
    let options: String = spec.options().iter().map(line).collect();
    // Only the number of names distinguishes scores from distances.
    let counted = spec.family() == Family::Nanodet && facts.outputs.len() > 1;
    let named = class_names(facts.metadata).filter(|names| classes.is_none_or(|classes| classes == names.len()));
    let named = named.filter(|names| names.len() <= MOST_NAMES).and_then(|names| names_text(&names));
    let classes = match classes {
        _ if named.is_some() && !spec.family().gives_values() => named.unwrap_or_default(),
        Some(n @ (80 | 91)) => format!("preset = \"coco{n}\"  # or names = [...], or file = \"names.txt\""),
        Some(1) if is_of_people(spec) => "names = [\"person\"]".to_owned(),
        Some(1) if spec.family() == Family::DbText => "names = [\"text\"]".to_owned(),
        Some(1) if is_of_faces(spec) => "names = [\"face\"]".to_owned(),
        Some(1) => "names = [\"object\"]  # the name of its one class".to_owned(),
        Some(n) if counted => {
            let names: Vec<String> = (0..n).map(|class| format!("\"class {class}\"")).collect();
            format!("names = [{}]  # the names of its {n} classes", names.join(", "))
        }
        Some(n) => format!("# names = [...]  # the names of its {n} classes; or file = \"names.txt\", one a line"),
        None => "# names = [...]  # the names of its classes; or file = \"names.txt\", one a line".to_owned(),
    };
    let head = format!("{input}[head]\nfamily = \"{}\"\n{options}", spec.family().name());
    // Values of the frame have no classes, or each has its own.
    if spec.family().gives_values() { head } else { format!("{head}\n[classes]\n{classes}\n") }
}
