//! Finds and reads the card of a model.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use visiond_kernels::placement::{Fit, Placement, Resize, Rounding, Step, WayBack};
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};

use super::class_name::{MAX_NAME_CHARS, is_too_long};
use super::error::{CardError, CardPlaces};
use super::keypoints::{KeypointCard, MAX_LINES, MAX_POINTS};
use super::preprocess::Way;
use super::sections::{self, CardSection, CardSource, number_in};
use super::{Card, ExtraInput, InputCard, head, numpy_file, presets};
use crate::backend::{TensorInfo, one_line, read_small_text};
use crate::heads::{HeadSpec, ModelFacts, guess_heads, recognise};
use crate::onnx::file::OnnxFile;

/// The sides that a model's input may have, in pixels.
const SIDES: (u32, u32) = (1, 16_384);

/// The limit of an f32.
const ANY: f64 = f32::MAX as f64;

impl Card {
    /// Reads the card in `text`, which comes from `origin`. The error lists all problems.
    pub fn from_toml(text: &str, origin: &Path) -> Result<Self, CardError> {
        parse(text, origin).map(|(card, _)| card)
    }

    /// Reads the card in a file.
    pub fn read(path: &Path) -> Result<Self, CardError> {
        Self::from_toml(&text_of(path)?, path)
    }

    /// Finds the card of a model: `explicit`, otherwise the TOML file beside it with the same stem, otherwise its Ultralytics
    /// metadata.
    ///
    /// Unless the card says otherwise, models that take bytes get bytes.
    pub fn for_model(
        model: &Path,
        explicit: Option<&Path>,
        metadata: &BTreeMap<String, String>,
        inputs: &[TensorInfo],
        outputs: &[TensorInfo],
    ) -> Result<Self, CardError> {
        let beside = model.with_extension("toml");
        let path = explicit.or_else(|| beside.exists().then_some(beside.as_path()));
        let (card, given) = match path {
            Some(path) => parse(&text_of(path)?, path)?,
            None => (without_card(model, &beside, metadata, inputs, outputs)?, Given::default()),
        };
        Ok(card.for_inputs(given, inputs))
    }

    /// Reads the card in `text` as [`Self::for_model`] would read it beside a model with these inputs.
    pub fn proposed(text: &str, origin: &Path, inputs: &[TensorInfo]) -> Result<Self, CardError> {
        parse(text, origin).map(|(card, given)| card.for_inputs(given, inputs))
    }

    /// Feeds bytes to a model that takes bytes, unless the card says otherwise.
    fn for_inputs(self, given: Given, inputs: &[TensorInfo]) -> Self {
        let mut card = self;
        let is_picture = |input: &&TensorInfo| match &card.input.name {
            Some(name) => input.name == *name,
            None => !card.extra_inputs.contains_key(&input.name),
        };
        let picture = inputs.iter().find(is_picture);
        if picture.is_some_and(|input| input.dtype.is_integer()) {
            let InputCard { scale, mean, std, .. } = &mut card.input;
            set(scale, (!given.scale).then_some(1.0));
            set(mean, (!given.mean).then_some([0.0; 3]));
            set(std, (!given.std).then_some([1.0; 3]));
        }
        card
    }
}

/// Which of these keys a card sets.
#[derive(Clone, Copy, Default)]
struct Given {
    scale: bool,
    mean: bool,
    std: bool,
}

fn text_of(path: &Path) -> Result<String, CardError> {
    read_small_text(path).map_err(|error| CardError::Read(path.to_owned(), error))
}

fn without_card(
    model: &Path,
    beside: &Path,
    metadata: &BTreeMap<String, String>,
    inputs: &[TensorInfo],
    outputs: &[TensorInfo],
) -> Result<Card, CardError> {
    let (model, beside) = (model.to_owned(), beside.to_owned());
    match crate::ultralytics::card(metadata, inputs, outputs) {
        Some(Ok(card)) => Ok(Card { origin: format!("{}, {}", model.display(), card.origin), ..card }),
        Some(Err(error)) => Err(CardError::Metadata { model, beside, error }),
        None => {
            // Only the graph shows how the outputs were computed, and not every backend keeps it.
            let tails = OnnxFile::read(&model).map(|file| file.tails).unwrap_or_default();
            let facts = ModelFacts { inputs, outputs, metadata, tails: &tails };
            let guess = guess_heads(facts).into_iter().next();
            let export = recognise(facts).filter(|export| guess.is_none() || !export.is_hint());
            if guess.is_none() {
                let listed = outputs.iter().map(|info| format!("`{info}`")).collect::<Vec<_>>().join(", ");
                let remedy = export.map_or_else(|| general_remedy(outputs).to_owned(), |export| export.sentence());
                return Err(CardError::NoHead { model, outputs: listed, remedy });
            }
            let about = export.map(|export| format!("{}. ", capitalised(&export.sentence()))).unwrap_or_default();
            Err(CardError::Missing { model, beside, about })
        }
    }
}

/// Returns the remedy for outputs that no head reads. Rows of six or seven numbers may be finished, in an order that only their
/// exporter knows.
fn general_remedy(outputs: &[TensorInfo]) -> &'static str {
    let width = |output: &TensorInfo| output.shape.as_ref().and_then(|dims| dims.last()?.fixed());
    match outputs {
        [output] if matches!(width(output), Some(6 | 7)) => {
            "if its rows are finished detections, write `family = \"yolo-nms\"` and the order of their numbers as `columns` under \
             [head] (`visiond inspect` tries the known orders on a picture); otherwise export the model in one of the forms of \
             docs/models.md"
        }
        _ => "export the model in one of the forms of docs/models.md",
    }
}

/// Returns a clause with a capital first letter.
fn capitalised(clause: &str) -> String {
    let mut chars = clause.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Reads the card, and returns its keys about pixel normalisation.
fn parse(text: &str, origin: &Path) -> Result<(Card, Given), CardError> {
    let source = CardSource::new(origin, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            source.wrong(at, format!("this is not TOML: {}", error.message().replace('\n', ", ")));
        }
        return Err(CardError::Invalid(source.into_problems()));
    }
    let mut top = CardSection::new(&source, "the card", Some(document.get_ref()));
    let name = top.text("name").map(str::to_owned);
    if name.as_deref().is_some_and(is_too_long) {
        top.wrong_at("name", format!("`name` has more than {MAX_NAME_CHARS} characters: shorten it"));
    }
    let head = head::read(top.section("head"));
    let found_head = head.is_some();
    // Report problems elsewhere even if the head is unknown; its defaults do not matter then.
    let mut card = Card::with_head(head.unwrap_or(HeadSpec::Yolov5 { keypoints: None, masks: 0 }));
    let stem = || origin.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    card.name = name.or_else(stem).unwrap_or_else(|| "model".to_owned());
    card.origin = origin.display().to_string();
    card.places = CardPlaces::of(origin, text, document.get_ref());
    let given = read_input(top.section("input"), &mut card.input, card.head.is_oriented());
    card.extra_inputs = read_extra_inputs(&source, top.section("extra_inputs"));
    let mut detect = top.section("detect");
    for (key, threshold) in [("score_threshold", &mut card.score_threshold), ("iou_threshold", &mut card.iou_threshold)]
    {
        set(threshold, detect.number(key, 0.0, 1.0).map(|n| n as f32));
    }
    set(&mut card.max_detections, detect.whole("max_detections", 1, 100_000).map(|n| n as usize));
    set(&mut card.class_agnostic, detect.flag("class_agnostic"));
    detect.finish();
    let names = read_classes(&source, top.section("classes"));
    set(&mut card.classes, (!names.is_empty()).then_some(names));
    card.keypoints = read_keypoints(top.section("keypoints"));
    top.finish();
    let problems = source.into_problems();
    if found_head && problems.is_empty() { Ok((card, given)) } else { Err(CardError::Invalid(problems)) }
}

/// Replaces a default by the card's value.
fn set<T>(default: &mut T, read: Option<T>) {
    if let Some(read) = read {
        *default = read;
    }
}

/// Reads `1 / 255`.
fn fraction(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/')?;
    let value = above.trim().parse::<f64>().ok()? / below.trim().parse::<f64>().ok()?;
    value.is_finite().then_some(value)
}

/// Reads three numbers, or one for all channels.
fn channels(section: &mut CardSection<'_>, key: &'static str) -> Option<[f32; 3]> {
    const WANTED: &str = "a list of three numbers, or one number for all channels";
    let value = section.value(key)?;
    if let Some(number) = number_in(value.get_ref()) {
        return Some([number as f32; 3]);
    }
    let numbers = section.list(key, WANTED, |_, element| number_in(element.get_ref()).map(|n| n as f32));
    match numbers.as_deref() {
        Some(&[one]) => Some([one; 3]),
        Some(&[a, b, c]) => Some([a, b, c]),
        _ => {
            if value.get_ref().is_array() {
                section.wrong_at(key, format!("`{key}` is not {WANTED}"));
            }
            None
        }
    }
}

/// Reads `[input]` over its defaults, and returns its keys about pixel normalisation.
fn read_input(mut section: CardSection<'_>, input: &mut InputCard, oriented: bool) -> Given {
    set(input, section.choice("preprocess", &Way::ALL).map(Way::input));
    input.name = section.text("name").map(str::to_owned);
    input.size = read_size(&mut section);
    read_placement(&mut section, input);
    if oriented && stretches(input.placement.fit) {
        let key = ["fit", "preprocess"].into_iter().find(|key| section.value(key).is_some()).unwrap_or("resize");
        let text = "oriented boxes lose their right angles in a stretched picture: write `fit = \"letterbox\"`";
        section.wrong_at(key, text);
    }
    set(&mut input.pad, section.number("pad", 0.0, 255.0).map(|n| n as f32));
    let orders = [("rgb", ChannelOrder::Rgb), ("bgr", ChannelOrder::Bgr), ("grey", ChannelOrder::Grey)];
    set(&mut input.order, section.choice("order", &orders));
    input.layout = section.choice("layout", &[("nchw", TensorLayout::Nchw), ("nhwc", TensorLayout::Nhwc)]);
    let scale = match section.value("scale").and_then(|value| value.get_ref().as_str()) {
        Some(text) => {
            let value = fraction(text);
            if value.is_none() {
                section.wrong_at("scale", format!("`scale` is {text:?}: write a number or a fraction like \"1/255\""));
            }
            value
        }
        None => section.number("scale", -ANY, ANY),
    };
    if scale.is_some_and(|scale| scale as f32 == 0.0) {
        section.wrong_at("scale", "`scale` multiplies, so 0 makes every image black: use 1 to leave values unchanged");
    }
    set(&mut input.scale, scale.map(|n| n as f32));
    let (mean, std) = (channels(&mut section, "mean"), channels(&mut section, "std"));
    let given = Given { scale: scale.is_some(), mean: mean.is_some(), std: std.is_some() };
    set(&mut input.mean, mean);
    set(&mut input.std, std);
    if input.std.contains(&0.0) {
        section.wrong_at("std", "`std` divides, so it cannot be 0: use 1 to leave values unchanged");
    }
    section.finish();
    given
}

/// Whether the two axes may have different scales.
fn stretches(fit: Fit) -> bool {
    match fit {
        Fit::Stretch | Fit::WarpStretch | Fit::ResizeCrop(Resize::Stretch(..)) => true,
        Fit::Letterbox | Fit::LetterboxTopLeft | Fit::Crop { .. } | Fit::ResizeCrop(_) | Fit::Warp => false,
    }
}

/// Reads how frames are placed and sampled.
fn read_placement(section: &mut CardSection<'_>, input: &mut InputCard) {
    let placement = &mut input.placement;
    let cut = match placement.fit {
        Fit::ResizeCrop(_) => placement.fit,
        _ => Fit::ResizeCrop(Resize::Fraction(1.0)),
    };
    let fits = [
        ("letterbox", Fit::Letterbox),
        ("letterbox-top-left", Fit::LetterboxTopLeft),
        ("stretch", Fit::Stretch),
        ("crop", Fit::Crop { fraction: 1.0 }),
        ("resize-crop", cut),
        ("warp", Fit::Warp),
        ("warp-stretch", Fit::WarpStretch),
    ];
    set(&mut placement.fit, section.choice("fit", &fits));
    match (&mut placement.fit, section.number("crop_fraction", 0.01, 1.0)) {
        (Fit::Crop { fraction }, Some(part)) => *fraction = part,
        (Fit::ResizeCrop(resize), Some(part)) => *resize = Resize::Fraction(part),
        (_, Some(_)) => {
            let text = "`crop_fraction` applies to `fit = \"resize-crop\"` and `\"crop\"` only: set that, or remove it";
            section.wrong_at("crop_fraction", text);
        }
        (_, None) => {}
    }
    let side = section.value("resize").is_some_and(|value| value.get_ref().is_integer());
    let resize = read_sides(section, "resize", "the shorter side, as in 256, or width and height, as in [256, 256]");
    match (&mut placement.fit, resize) {
        (Fit::ResizeCrop(_), Some(_)) if section.value("crop_fraction").is_some() => {
            section.wrong_at("resize", "`resize` and `crop_fraction` both give the size before the crop: keep one");
        }
        (Fit::ResizeCrop(resize), Some((width, height))) => {
            *resize = if side { Resize::ShortSide(width) } else { Resize::Stretch(width, height) };
        }
        (_, Some(_)) => {
            section.wrong_at("resize", "`resize` applies to `fit = \"resize-crop\"` only: set that, or remove it");
        }
        (_, None) => {}
    }
    let roundings = [
        ("half-even", Rounding::HalfEven),
        ("half-up", Rounding::HalfUp),
        ("down", Rounding::Down),
        ("up", Rounding::Up),
    ];
    set(&mut placement.rounding, section.choice("rounding", &roundings));
    set(&mut placement.step, section.choice("step", &[("size", Step::Size), ("ratio", Step::Ratio)]));
    let ways_back = [
        ("axes", WayBack::Axes),
        ("ratio", WayBack::Ratio),
        ("ratio-from-middle", WayBack::RatioFromMiddle),
        ("ratio-from-rounded-middle", WayBack::RatioFromRoundedMiddle),
        ("height", WayBack::Height),
    ];
    set(&mut placement.way_back, section.choice("way_back", &ways_back));
    set(&mut placement.pad_first, section.flag("pad_first"));
    refuse_void_keys(section, input.placement);
    read_sampling(section, input);
}

/// Reports the card's keys that have no effect together with the others. Values from `preprocess` or the family do not count.
fn refuse_void_keys(section: &mut CardSection<'_>, placement: Placement) {
    let letterbox = matches!(placement.fit, Fit::Letterbox | Fit::LetterboxTopLeft);
    let from_fraction = matches!(placement.fit, Fit::ResizeCrop(Resize::Fraction(_)));
    let has_bars = letterbox || placement.fit == Fit::Warp;
    let pads_first = letterbox && placement.pad_first;
    let from_middle = matches!(placement.way_back, WayBack::RatioFromMiddle | WayBack::RatioFromRoundedMiddle);
    const LETTERBOX: &str = "applies to letterboxes only: set `fit`, or remove it";
    const FIRST: &str = "has no effect with `pad_first = true`, which resizes by no ratio: remove one of the two";
    let void = [
        ("step", !letterbox, LETTERBOX),
        ("way_back", !letterbox, LETTERBOX),
        ("pad_first", !letterbox, LETTERBOX),
        (
            "rounding",
            !letterbox && !from_fraction,
            "applies to letterboxes and to `crop_fraction` with `fit = \"resize-crop\"` only: remove it, or set one of them",
        ),
        (
            "pad",
            !has_bars,
            "applies to letterboxes and to `fit = \"warp\"` only, others leave no bars: set `fit`, or remove it",
        ),
        ("rounding", pads_first, FIRST),
        ("step", pads_first, FIRST),
        ("way_back", pads_first, FIRST),
        (
            "way_back",
            from_middle && placement.fit == Fit::LetterboxTopLeft && !pads_first,
            "from the middle applies to `fit = \"letterbox\"` only, as the picture begins at the corner: write \"ratio\", or \
             remove it",
        ),
    ];
    for (key, is_void, why) in void {
        if is_void && section.value(key).is_some() {
            section.wrong_at(key, format!("`{key}` {why}"));
        }
    }
}

/// Reads how pixels are sampled. A fit that warps has its own samplings.
fn read_sampling(section: &mut CardSection<'_>, input: &mut InputCard) {
    let warps = input.placement.fit.warps();
    match section.choice("sampling", &Sampling::ALL) {
        Some(sampling) if warps && !sampling.can_warp() => section.wrong_at(
            "sampling",
            "this `sampling` cannot warp: write \"opencv-warp\", \"opencv-warp-affine\", \"opencv\" or \"exact\", or \
             another `fit`",
        ),
        Some(sampling) if !warps && sampling.only_warps() => {
            section.wrong_at("sampling", "this `sampling` only warps: write `fit = \"warp\"`, or another `sampling`");
        }
        Some(sampling) => input.sampling = sampling,
        None if warps && !input.sampling.can_warp() => input.sampling = Sampling::OpencvWarp,
        None if !warps && input.sampling.only_warps() => input.sampling = Sampling::Opencv,
        None => {}
    }
}

fn read_size(section: &mut CardSection<'_>) -> Option<(u32, u32)> {
    read_sides(section, "size", "width and height, as in [640, 480], or one number for both")
}

/// Reads width and height, or one number for both.
fn read_sides(section: &mut CardSection<'_>, key: &'static str, wanted: &str) -> Option<(u32, u32)> {
    let (least, most) = SIDES;
    let value = section.value(key)?;
    if value.get_ref().is_integer() {
        return section.whole(key, least, most).map(|side| (side, side));
    }
    match section.wholes(key, least, most, wanted)?[..] {
        [width, height] => Some((width, height)),
        _ => {
            section.wrong_at(key, format!("`{key}` must be {wanted}"));
            None
        }
    }
}

fn read_extra_inputs(source: &CardSource<'_>, section: CardSection<'_>) -> BTreeMap<String, ExtraInput> {
    const WANTED: &str = "a list of numbers, \"input-size\" (width, height), \"input-size-hw\" (height, width) or a file of \
                          NumPy beside the card, as in \"prompts.npy\"";
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let mut inputs = BTreeMap::new();
    for (name, value) in section.entries() {
        let read = match value.get_ref() {
            DeValue::Array(values) => {
                values.iter().map(|value| number_in(value.get_ref())).collect::<Option<_>>().map(ExtraInput::Values)
            }
            DeValue::String(text) if text == "input-size" => Some(ExtraInput::InputSize),
            DeValue::String(text) if text == "input-size-hw" => Some(ExtraInput::InputSizeHw),
            DeValue::String(file) if file.ends_with(".npy") => match numpy_file::read(folder, file) {
                Ok(array) => Some(ExtraInput::Array(array)),
                Err(error) => {
                    let file = one_line(file);
                    source.wrong(value.span(), format!("cannot read the extra input `{name}` from {file}: {error}"));
                    continue;
                }
            },
            other => number_in(other).map(|number| ExtraInput::Values(vec![number])),
        };
        match read {
            Some(input) => drop(inputs.insert(name.to_owned(), input)),
            None => source.wrong(value.span(), format!("the extra input `{name}` must be {WANTED}")),
        }
    }
    inputs
}

fn read_classes(source: &CardSource<'_>, mut section: CardSection<'_>) -> Vec<String> {
    let names = section.texts("names", "a list of texts");
    let file = section.text("file");
    let preset = section.text("preset");
    if usize::from(names.is_some()) + usize::from(file.is_some()) + usize::from(preset.is_some()) > 1 {
        let key = if preset.is_some() { "preset" } else { "file" };
        section.wrong_at(key, "the classes are given more than once: keep one of `names`, `file` and `preset`");
    }
    let mut classes = names.unwrap_or_default();
    if let Some(file) = file {
        let path = source.path.parent().unwrap_or(Path::new("")).join(file);
        match read_small_text(&path) {
            Ok(text) => classes = text.trim_end().lines().map(|line| line.trim().to_owned()).collect(),
            Err(error) => section.wrong_at("file", format!("cannot read {}: {error}; correct `file`", path.display())),
        }
    }
    if let Some(preset) = preset {
        match presets::names(preset) {
            Some(names) => classes = names,
            None => {
                let hint = sections::suggestion(preset, &presets::PRESETS);
                section.wrong_at("preset", format!("`preset` cannot be `{preset}`: {hint}"));
            }
        }
    }
    if let Some(class) = classes.iter().position(|name| is_too_long(name)) {
        let key = if file.is_some() { "file" } else { "names" };
        section
            .wrong_at(key, format!("the name of class {class} has more than {MAX_NAME_CHARS} characters: shorten it"));
    }
    section.finish();
    classes
}

/// Reads `[keypoints]`. [`KeypointCard::settle`] checks everything that depends on the number of points.
fn read_keypoints(mut section: CardSection<'_>) -> KeypointCard {
    let names = section.texts("names", "a list of texts");
    if let Some(index) = names.iter().flatten().position(|name| is_too_long(name)) {
        let message = format!("the name of point {index} has more than {MAX_NAME_CHARS} characters: shorten it");
        section.wrong_at("names", message);
    }
    const PAIRS: &str = "a list of pairs of points, as in [[0, 1], [1, 2]]";
    let skeleton = section.list("skeleton", PAIRS, |section, element| {
        let pair = section.wholes_in("skeleton", element, 0, MAX_POINTS - 1, PAIRS)?;
        let pair = <[u32; 2]>::try_from(pair).ok().filter(|[a, b]| a != b);
        if pair.is_none() {
            section.wrong_value(element, "each line of `skeleton` connects two points, as in [0, 1]");
        }
        pair
    });
    if skeleton.as_ref().is_some_and(|lines| lines.len() > MAX_LINES) {
        section.wrong_at("skeleton", format!("`skeleton` has more than {MAX_LINES} lines: remove some"));
    }
    section.finish();
    KeypointCard { names, skeleton }
}
