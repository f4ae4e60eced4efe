//! Finds and reads the card of a model.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};
use visiond_kernels::tensor::DType;

use super::error::CardError;
use super::sections::{self, CardSection, CardSource, number_in};
use super::{Card, ExtraInput, InputCard, head, presets};
use crate::backend::TensorInfo;
use crate::heads::{HeadSpec, guess_heads};

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

    /// Finds the card of a model: `explicit`, else the TOML file beside it with the same stem, else its Ultralytics metadata.
    ///
    /// Unless the card says otherwise, models that take bytes get bytes (`scale = 1`).
    pub fn for_model(
        model: &Path,
        explicit: Option<&Path>,
        metadata: &BTreeMap<String, String>,
        inputs: &[TensorInfo],
        outputs: &[TensorInfo],
    ) -> Result<Self, CardError> {
        let beside = model.with_extension("toml");
        let path = explicit.or_else(|| beside.exists().then_some(beside.as_path()));
        let (mut card, scaled) = match path {
            Some(path) => parse(&text_of(path)?, path)?,
            None => (without_card(model, &beside, metadata, inputs, outputs)?, false),
        };
        let is_picture = |input: &&TensorInfo| match &card.input.name {
            Some(name) => input.name == *name,
            None => !card.extra_inputs.contains_key(&input.name),
        };
        let picture = inputs.iter().find(is_picture);
        if !scaled && picture.is_some_and(|input| matches!(input.dtype, DType::U8 | DType::I8)) {
            card.input.scale = 1.0;
        }
        Ok(card)
    }
}

fn text_of(path: &Path) -> Result<String, CardError> {
    std::fs::read_to_string(path).map_err(|error| CardError::Read(path.to_owned(), error))
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
        Some(Ok(card)) => Ok(card),
        Some(Err(error)) => Err(CardError::Metadata { model, beside, error }),
        None => {
            let (example_is, example) = match guess_heads(outputs, inputs, metadata).into_iter().next() {
                Some(guess) => ("for example, guessed from its outputs", guess.card),
                None => {
                    let example = "[head]\nfamily = \"yolov8\"\n\n[classes]\nfile = \"names.txt\"  # one a line\n";
                    ("for example (no head fits its outputs)", example.to_owned())
                }
            };
            Err(CardError::Missing { model, beside, example_is, example })
        }
    }
}

/// Reads the card, and returns whether it sets `scale`.
fn parse(text: &str, origin: &Path) -> Result<(Card, bool), CardError> {
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
    let head = head::read(top.section("head"));
    let found_head = head.is_some();
    // Report problems elsewhere even if the head is unknown; its defaults do not matter then.
    let mut card = Card::with_head(head.unwrap_or(HeadSpec::Yolov5 { masks: 0 }));
    let stem = || origin.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    card.name = name.or_else(stem).unwrap_or_else(|| "model".to_owned());
    card.origin = origin.display().to_string();
    let scaled = read_input(top.section("input"), &mut card.input);
    card.extra_inputs = read_extra_inputs(&source, top.section("extra_inputs"));
    let mut detect = top.section("detect");
    for (key, threshold) in [("score_threshold", &mut card.score_threshold), ("iou_threshold", &mut card.iou_threshold)]
    {
        set(threshold, detect.number(key, 0.0, 1.0).map(|n| n as f32));
    }
    set(&mut card.max_detections, detect.whole("max_detections", 1, 100_000).map(|n| n as usize));
    set(&mut card.class_agnostic, detect.flag("class_agnostic"));
    detect.finish();
    card.classes = read_classes(&source, top.section("classes"));
    top.finish();
    let problems = source.into_problems();
    if found_head && problems.is_empty() { Ok((card, scaled)) } else { Err(CardError::Invalid(problems)) }
}

/// Replaces a default by what the card says.
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

/// Reads `[input]` over its defaults, and returns whether it sets `scale`.
fn read_input(mut section: CardSection<'_>, input: &mut InputCard) -> bool {
    input.name = section.text("name").map(str::to_owned);
    input.size = read_size(&mut section);
    let fits = [
        ("letterbox", Fit::Letterbox),
        ("letterbox-top-left", Fit::LetterboxTopLeft),
        ("stretch", Fit::Stretch),
        ("crop", Fit::Crop { fraction: 1.0 }),
    ];
    set(&mut input.fit, section.choice("fit", &fits));
    match (&mut input.fit, section.number("crop_fraction", 0.01, 1.0)) {
        (Fit::Crop { fraction }, Some(part)) => *fraction = part,
        (_, Some(_)) => section
            .wrong_at("crop_fraction", "`crop_fraction` applies to `fit = \"crop\"` only: set that, or remove it"),
        (_, None) => {}
    }
    set(&mut input.pad, section.number("pad", 0.0, 255.0).map(|n| n as f32));
    let orders = [("rgb", ChannelOrder::Rgb), ("bgr", ChannelOrder::Bgr), ("grey", ChannelOrder::Grey)];
    set(&mut input.order, section.choice("order", &orders));
    input.layout = section.choice("layout", &[("nchw", TensorLayout::Nchw), ("nhwc", TensorLayout::Nhwc)]);
    let samplings = [("opencv", Sampling::Opencv), ("exact", Sampling::Exact)];
    set(&mut input.sampling, section.choice("sampling", &samplings));
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
    set(&mut input.scale, scale.map(|n| n as f32));
    set(&mut input.mean, channels(&mut section, "mean"));
    set(&mut input.std, channels(&mut section, "std"));
    if input.std.contains(&0.0) {
        section.wrong_at("std", "`std` divides, so it cannot be 0: use 1 to leave values unchanged");
    }
    section.finish();
    scale.is_some()
}

fn read_size(section: &mut CardSection<'_>) -> Option<(u32, u32)> {
    let (least, most) = SIDES;
    let value = section.value("size")?;
    if value.get_ref().is_integer() {
        return section.whole("size", least, most).map(|side| (side, side));
    }
    match section.wholes("size", least, most, "width and height, as in [640, 480], or one number for both")?[..] {
        [width, height] => Some((width, height)),
        _ => {
            section.wrong_at("size", "`size` must be width and height, as in [640, 480], or one number for both");
            None
        }
    }
}

fn read_extra_inputs(source: &CardSource<'_>, section: CardSection<'_>) -> BTreeMap<String, ExtraInput> {
    const WANTED: &str = "a list of numbers, \"input-size\" (width, height) or \"input-size-hw\" (height, width)";
    let read = |value: &DeValue<'_>| match value {
        DeValue::Array(values) => {
            values.iter().map(|value| number_in(value.get_ref())).collect::<Option<_>>().map(ExtraInput::Values)
        }
        DeValue::String(text) if text == "input-size" => Some(ExtraInput::InputSize),
        DeValue::String(text) if text == "input-size-hw" => Some(ExtraInput::InputSizeHw),
        other => number_in(other).map(|number| ExtraInput::Values(vec![number])),
    };
    let mut inputs = BTreeMap::new();
    for (name, value) in section.entries() {
        match read(value.get_ref()) {
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
        match std::fs::read_to_string(&path) {
            Ok(text) => classes = text.trim_end().lines().map(|line| line.trim().to_owned()).collect(),
            Err(error) => section.wrong_at("file", format!("cannot read {}: {error}", path.display())),
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
    section.finish();
    classes
}
