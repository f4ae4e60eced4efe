//! Finds and reads the card of a model.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use visiond_kernels::letterbox::Fit;
use visiond_kernels::preprocess::{ChannelOrder, Sampling, TensorLayout};
use visiond_kernels::tensor::DType;

use super::error::CardError;
use super::model_card::{Card, ExtraInput, InputCard};
use super::sections::{self, Section, Source, number_in};
use super::{head, presets};
use crate::backend::TensorInfo;
use crate::heads::spec::FamilyDefaults;
use crate::heads::{Family, HeadSpec, guess_heads};

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
    std::fs::read_to_string(path).map_err(|error| CardError::Read { path: path.to_owned(), error })
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
    let source = Source::new(origin, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        for error in errors {
            let at = error.span().unwrap_or(0..0);
            source.wrong(at, format!("this is not TOML: {}", error.message().replace('\n', ", ")));
        }
        return Err(CardError::Invalid(source.into_problems()));
    }
    let mut top = Section::new(&source, "the card", Some(document.get_ref()));
    let name = top.text("name").map(str::to_owned);
    let head = head::read(top.section("head"));
    // Report problems elsewhere even if the head is unknown; its defaults do not matter then.
    let defaults = head.as_ref().map_or(Family::Yolov8, HeadSpec::family).defaults();
    let (input, scaled) = read_input(top.section("input"), &defaults);
    let extra_inputs = read_extra_inputs(&source, top.section("extra_inputs"));
    let mut detect = top.section("detect");
    let threshold =
        |section: &mut Section<'_>, key, default| section.number(key, 0.0, 1.0).map_or(default, |n| n as f32);
    let score_threshold = threshold(&mut detect, "score_threshold", defaults.score_threshold);
    let iou_threshold = threshold(&mut detect, "iou_threshold", defaults.iou_threshold);
    let most = detect.whole("max_detections", 1, 100_000);
    let class_agnostic = detect.flag("class_agnostic").unwrap_or(false);
    detect.finish();
    let classes = read_classes(&source, top.section("classes"));
    top.finish();
    let problems = source.into_problems();
    match head {
        Some(head) if problems.is_empty() => {
            let stem = || origin.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let card = Card {
                name: name.or_else(stem).unwrap_or_else(|| "model".to_owned()),
                origin: origin.display().to_string(),
                input,
                extra_inputs,
                head,
                classes,
                score_threshold,
                iou_threshold,
                max_detections: most.map_or(defaults.max_detections, |n| n as usize),
                class_agnostic,
            };
            Ok((card, scaled))
        }
        _ => Err(CardError::Invalid(problems)),
    }
}

/// Reads `1 / 255`.
fn fraction(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/')?;
    let value = above.trim().parse::<f64>().ok()? / below.trim().parse::<f64>().ok()?;
    value.is_finite().then_some(value)
}

/// Reads three numbers, or one for all channels.
fn channels(section: &mut Section<'_>, key: &'static str, default: [f32; 3]) -> [f32; 3] {
    const WANTED: &str = "a list of three numbers, or one number for all channels";
    let Some(value) = section.value(key) else { return default };
    if let Some(number) = number_in(value.get_ref()) {
        return [number as f32; 3];
    }
    let numbers = section.list(key, WANTED, |_, element| number_in(element.get_ref()).map(|n| n as f32));
    let is_list = value.get_ref().is_array();
    match numbers.as_deref() {
        Some(&[one]) => [one; 3],
        Some(&[a, b, c]) => [a, b, c],
        _ if is_list => {
            section.wrong_at(key, format!("`{key}` is not {WANTED}"));
            default
        }
        _ => default,
    }
}

fn read_input(mut section: Section<'_>, defaults: &FamilyDefaults) -> (InputCard, bool) {
    let name = section.text("name").map(str::to_owned);
    let size = read_size(&mut section);
    let fits = [
        ("letterbox", Fit::Letterbox),
        ("letterbox-top-left", Fit::LetterboxTopLeft),
        ("stretch", Fit::Stretch),
        ("crop", Fit::Crop { fraction: 1.0 }),
    ];
    let mut fit = section.choice("fit", &fits).unwrap_or(defaults.fit);
    let part = section.number("crop_fraction", 0.01, 1.0);
    match (&mut fit, part) {
        (Fit::Crop { fraction }, Some(part)) => *fraction = part,
        (_, Some(_)) => section.wrong_at("crop_fraction", "`crop_fraction` applies to `fit = \"crop\"` only"),
        (_, None) => {}
    }
    let pad = section.number("pad", 0.0, 255.0).map_or(defaults.pad, |n| n as f32);
    let orders = [("rgb", ChannelOrder::Rgb), ("bgr", ChannelOrder::Bgr), ("grey", ChannelOrder::Grey)];
    let order = section.choice("order", &orders).unwrap_or(defaults.order);
    let layout = section.choice("layout", &[("nchw", TensorLayout::Nchw), ("nhwc", TensorLayout::Nhwc)]);
    let samplings = [("opencv", Sampling::Opencv), ("exact", Sampling::Exact)];
    let sampling = section.choice("sampling", &samplings).unwrap_or_default();
    let scale = match section.value("scale").and_then(|value| value.get_ref().as_str()) {
        Some(text) => {
            let value = fraction(text);
            if value.is_none() {
                section.wrong_at("scale", format!("`scale` is {text:?}, not a number or a fraction like \"1/255\""));
            }
            value
        }
        None => section.number("scale", -ANY, ANY),
    };
    let mean = channels(&mut section, "mean", defaults.mean);
    let std = channels(&mut section, "std", defaults.std);
    if std.contains(&0.0) {
        section.wrong_at("std", "`std` divides, so it cannot be 0");
    }
    section.finish();
    let scaled = scale.is_some();
    let scale = scale.map_or(defaults.scale, |n| n as f32);
    (InputCard { name, size, fit, sampling, pad, order, layout, scale, mean, std }, scaled)
}

fn read_size(section: &mut Section<'_>) -> Option<(u32, u32)> {
    let (least, most) = SIDES;
    let value = section.value("size")?;
    if value.get_ref().is_integer() {
        return section.whole("size", least, most).map(|side| (side, side));
    }
    match section.wholes("size", least, most, "width and height, as in [640, 480], or one number for both")?[..] {
        [width, height] => Some((width, height)),
        _ => {
            section.wrong_at("size", "`size` is width and height, as in [640, 480], or one number for both");
            None
        }
    }
}

fn read_extra_inputs(source: &Source<'_>, section: Section<'_>) -> BTreeMap<String, ExtraInput> {
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

fn read_classes(source: &Source<'_>, mut section: Section<'_>) -> Vec<String> {
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
