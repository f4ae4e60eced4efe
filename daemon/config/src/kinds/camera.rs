//! V4L2 camera names for the key `device`, control values, whose type only the camera knows, grey levels, and crops.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use toml::de::DeValue;
use visiond_kernels::color::GreyLevels;
use visiond_kernels::frame::MAX_SIDE;
use visiond_kernels::privacy::Fill;
use visiond_kernels::view::Crop;

use super::text::resolve_without_home;
use super::{Refusal, bracketed, filled, inline, integer, list, quote, real, value, whole};
use crate::schema::{Context, Item, KeyKind};

/// Name of a V4L2 camera.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraName {
    /// A device node, or a link to one.
    Node(PathBuf),
    /// USB ids.
    Usb {
        /// Vendor id.
        vendor: u16,
        /// Product id.
        product: u16,
        /// Serial number, if the device has one.
        serial: Option<String>,
    },
    /// Card name that the driver reports.
    Card(String),
}

impl fmt::Display for CameraName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(path) => path.display().fmt(f),
            Self::Usb { vendor, product, serial: None } => write!(f, "{vendor:04x}:{product:04x}"),
            Self::Usb { vendor, product, serial: Some(serial) } => write!(f, "{vendor:04x}:{product:04x}:{serial}"),
            Self::Card(card) => card.fmt(f),
        }
    }
}

impl Default for CameraName {
    fn default() -> Self {
        Self::Node(PathBuf::new())
    }
}

impl FromStr for CameraName {
    // A sentence, because clap and the errors of a file only show it.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("not {DESCRIPTION}"));
        }
        if text.starts_with('/') || text.starts_with("./") || text.starts_with("../") {
            return Ok(Self::Node(PathBuf::from(text)));
        }
        if let Some(node) = meant_node(text) {
            return Err(format!("not the full path of a node: write {node}"));
        }
        Ok(usb(text).unwrap_or_else(|| Self::Card(text.to_owned())))
    }
}

const DESCRIPTION: &str =
    "a camera: \"/dev/...\", USB ids such as \"046d:0825\" or \"046d:0825:SERIAL\", or the card's name";

/// Parses `046d:0825` or `046d:0825:SERIAL`.
fn usb(text: &str) -> Option<CameraName> {
    let id = |text: &str| {
        (text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u16::from_str_radix(text, 16).ok())
            .flatten()
    };
    let mut parts = text.splitn(3, ':');
    let (vendor, product) = (id(parts.next()?)?, id(parts.next()?)?);
    let serial = match parts.next() {
        Some("") => return None,
        serial => serial.map(str::to_owned),
    };
    Some(CameraName::Usb { vendor, product, serial })
}

/// Returns the node that `video0` or `dev/video0` probably means.
fn meant_node(text: &str) -> Option<String> {
    let number = text.strip_prefix("video").filter(|rest| !rest.is_empty());
    if number.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(format!("/dev/{text}"));
    }
    text.starts_with("dev/").then(|| format!("/{text}"))
}

/// Returns the kind of camera names. A relative path starts at the folder of the file.
pub fn camera() -> KeyKind<CameraName> {
    let text = |name: &CameraName| match name {
        // Without `./` it would be read as a card name.
        CameraName::Node(path) if path.is_relative() && !path.starts_with(".") && !path.starts_with("..") => {
            quote(&format!("./{name}"))
        }
        _ => quote(&name.to_string()),
    };
    value(DESCRIPTION, text, |item, context| {
        let text = filled(item)?;
        let path = resolve_without_home(context.base, text)?;
        let name = text.parse().map_err(|error| Refusal::Sentence(format!("is {error}")))?;
        Ok(if let CameraName::Node(_) = name { CameraName::Node(path) } else { name })
    })
}

/// Returns the kind of the grey samples that become black and white, as a list of two.
pub fn levels() -> KeyKind<GreyLevels> {
    let KeyKind { read, .. } = list(whole(0..=u16::MAX));
    let text = |levels: &GreyLevels| format!("{:?}", levels.ends());
    value("[low, high], each a whole number from 0 to 65535", text, move |item, context| {
        let given = item.get_ref().as_array().ok_or("")?.len();
        if given != 2 {
            return Err(Refusal::Sentence(format!("must be two numbers, [low, high], not {given}")));
        }
        let ends = read(item, context).ok_or(Refusal::Reported)?;
        let [low, high] = ends[..] else { return Err(Refusal::Reported) };
        GreyLevels::new(low, high)
            .ok_or_else(|| Refusal::Sentence(format!("must be [low, high] with low below high, not [{low}, {high}]")))
    })
}

/// Returns the kind of a polygon's corners. [`Polygon`](visiond_kernels::polygon::Polygon) has the further rules.
pub fn points() -> KeyKind<Vec<[f64; 2]>> {
    let KeyKind { shape, read, write } =
        list(pair("[x, y], two numbers from 0 to 16384", real(0.0..=f64::from(MAX_SIDE))));
    let read = move |item: &Item<'_>, context: &mut Context<'_>| match flat_numbers(item) {
        Some(numbers) => {
            // Enough of a long list to show its form.
            let pairs: Vec<_> = numbers.chunks_exact(2).map(|pair| bracketed(pair.iter().cloned())).collect();
            let more = if pairs.len() > 4 { ", ..." } else { "" };
            let shown = pairs[..pairs.len().min(4)].join(", ");
            context.wrong(item, &format!("must be a list of points, each [x, y]: write [{shown}{more}]"));
            None
        }
        None => read(item, context),
    };
    KeyKind { shape, read: Box::new(read), write }
}

/// Returns the numbers of points that are one text or one list, as other programs write them; `None` for anything else.
fn flat_numbers(item: &Item<'_>) -> Option<Vec<String>> {
    let split = |text: &str| -> Vec<String> {
        text.split([',', ';', ' ']).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let numbers_of = |item: &Item<'_>| match item.get_ref() {
        DeValue::String(text) => Some(split(text)),
        DeValue::Integer(number) => Some(vec![number.to_string()]),
        DeValue::Float(number) => Some(vec![number.to_string()]),
        _ => None,
    };
    let numbers = match item.get_ref() {
        DeValue::String(text) => split(text),
        DeValue::Array(items) => items.iter().map(numbers_of).collect::<Option<Vec<_>>>()?.concat(),
        _ => return None,
    };
    let are_numbers = numbers.iter().all(|number| number.parse::<f64>().is_ok_and(|number| number >= 0.0));
    (numbers.len() >= 4 && numbers.len().is_multiple_of(2) && are_numbers).then_some(numbers)
}

/// Returns the kind of lists of places on the ground.
pub fn metres() -> KeyKind<Vec<[f64; 2]>> {
    list(pair("[x, y], two numbers from -10000 to 10000", real(-1e4..=1e4)))
}

/// Returns the kind of the size of a frame.
pub fn frame_size() -> KeyKind<[u32; 2]> {
    pair("[width, height], two whole numbers from 1 to 16384", whole(1..=MAX_SIDE))
}

/// Returns the kind of what masked pixels become.
pub fn fill() -> KeyKind<Fill> {
    let KeyKind { read, .. } = list(whole(0..=u8::MAX));
    let text = |fill: &Fill| match fill {
        Fill::Color([0, 0, 0]) => quote("black"),
        Fill::Color(rgb) => format!("{rgb:?}"),
        Fill::Mosaic => quote("mosaic"),
    };
    value("\"black\", \"mosaic\" or a colour, [red, green, blue] from 0 to 255", text, move |item, context| match item
        .get_ref()
    {
        DeValue::String(text) if text == "black" => Ok(Fill::Color([0; 3])),
        DeValue::String(text) if text == "mosaic" => Ok(Fill::Mosaic),
        DeValue::Array(given) if given.len() == 3 => {
            let rgb = read(item, context).and_then(|rgb| <[u8; 3]>::try_from(rgb).ok());
            rgb.map(Fill::Color).ok_or(Refusal::Reported)
        }
        _ => Err("".into()),
    })
}

/// Returns the kind of lists of two values of `kind`.
fn pair<T: 'static>(description: &str, kind: KeyKind<T>) -> KeyKind<[T; 2]> {
    let KeyKind { read, write, .. } = kind;
    let text = move |both: &[T; 2]| bracketed(both.iter().map(|one| inline(write(one))));
    value(description, text, move |item, context| {
        let items = item.get_ref().as_array().ok_or("")?;
        let [first, second] = items.iter().as_slice() else { return Err("".into()) };
        let both = [read(first, context), read(second, context)];
        let [Some(first), Some(second)] = both else { return Err(Refusal::Reported) };
        Ok([first, second])
    })
}

/// Returns the kind of parts of a frame: pixels, or fractions if a number has a decimal point.
pub fn crop() -> KeyKind<Crop> {
    let description = "[x, y, width, height], all pixels or all fractions with a decimal point";
    value(description, Crop::to_string, |item, _| {
        let items = item.get_ref().as_array().ok_or("")?;
        let mut numbers = [0.0; 4];
        if items.len() != numbers.len() {
            let given = items.len();
            return Err(Refusal::Sentence(format!("must be four numbers, [x, y, width, height], not {given}")));
        }
        let mut is_fraction = false;
        for (number, item) in numbers.iter_mut().zip(items.iter()) {
            let found = match item.get_ref() {
                DeValue::Integer(whole) => integer(whole).map(|whole| whole as f64),
                DeValue::Float(real) => {
                    is_fraction = true;
                    real.as_str().parse().ok()
                }
                _ => None,
            };
            *number = found.filter(|found: &f64| found.is_finite()).ok_or("")?;
        }
        let [x, y, width, height] = numbers;
        let refuse = |sentence: &str| Err(Refusal::Sentence(sentence.to_owned()));
        if numbers.iter().any(|&number| number < 0.0) {
            return refuse("must have no negative number");
        }
        if width == 0.0 || height == 0.0 {
            return refuse("is empty: width and height must be above 0");
        }
        let (most, ends) = (if is_fraction { 1.0 } else { f64::from(MAX_SIDE) }, [x + width, y + height]);
        // 0.7 + 0.3 may be a little above 1.
        if ends.iter().any(|&end| end > most + 1e-9) {
            return refuse(if is_fraction {
                "reaches beyond the frame: with a decimal point, all numbers are fractions, and x + width and y + height must be \
                 at most 1"
            } else {
                "reaches beyond the largest frame, which has 16384 pixels a side"
            });
        }
        if is_fraction {
            return Ok(Crop::Fractions(numbers));
        }
        if ends.iter().any(|&end| end <= 1.0) {
            return refuse("is one pixel wide or high: write fractions with a decimal point, such as 1.0");
        }
        Ok(Crop::Pixels(numbers.map(|number| number as u32)))
    })
}

/// Value of a camera control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlValue {
    /// On or off; `true` presses a button.
    Flag(bool),
    /// A number, the number of a menu item, or bits.
    Number(i64),
    /// Text, or the text of a menu item.
    Text(String),
}

impl ControlValue {
    /// Parses a value from a command line: true, 0x10, -3, otherwise text. A quoted number is text.
    pub fn parse(text: &str) -> Self {
        let hex = text.strip_prefix("0x").and_then(|digits| i64::from_str_radix(digits, 16).ok());
        match (text, hex.or_else(|| text.parse().ok())) {
            ("true", _) => Self::Flag(true),
            ("false", _) => Self::Flag(false),
            (_, Some(number)) => Self::Number(number),
            _ => {
                let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                Self::Text(inner.unwrap_or(text).to_owned())
            }
        }
    }
}

impl fmt::Display for ControlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(&quote(text)),
        }
    }
}

/// Returns the kind of control values.
pub fn control() -> KeyKind<ControlValue> {
    value("true, false, a whole number or a string", ControlValue::to_string, |item, _| match item.get_ref() {
        DeValue::Boolean(flag) => Ok(ControlValue::Flag(*flag)),
        DeValue::Integer(number) => {
            let number = integer(number).and_then(|number| i64::try_from(number).ok());
            Ok(ControlValue::Number(number.ok_or("")?))
        }
        // V4L2 ends text with a NUL.
        DeValue::String(text) if !text.contains('\0') => Ok(ControlValue::Text(text.to_string())),
        _ => Err("".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_name_a_camera_reads_as_what_it_is() {
        let usb = |serial: Option<&str>| CameraName::Usb {
            vendor: 0x046d,
            product: 0x0825,
            serial: serial.map(str::to_owned),
        };
        for (text, expected) in [
            ("/dev/video0", CameraName::Node("/dev/video0".into())),
            (
                "/dev/v4l/by-path/pci-0:1.0-video-index0",
                CameraName::Node("/dev/v4l/by-path/pci-0:1.0-video-index0".into()),
            ),
            ("046d:0825", usb(None)),
            ("046D:0825", usb(None)),
            ("046d:0825:A:1", usb(Some("A:1"))),
            ("HD Pro Webcam C920", CameraName::Card("HD Pro Webcam C920".into())),
            ("vi-output, imx219 9-0010", CameraName::Card("vi-output, imx219 9-0010".into())),
            ("046d:82", CameraName::Card("046d:82".into())),
        ] {
            assert_eq!(text.parse::<CameraName>(), Ok(expected.clone()));
            assert_eq!(expected.to_string().parse(), Ok(expected));
        }
        assert_eq!("video0".parse::<CameraName>(), Err("not the full path of a node: write /dev/video0".to_owned()));
        assert!("".parse::<CameraName>().is_err());
    }

    #[test]
    fn a_command_lines_word_is_what_it_looks_like() {
        assert_eq!(ControlValue::parse("true"), ControlValue::Flag(true));
        assert_eq!(ControlValue::parse("-3"), ControlValue::Number(-3));
        assert_eq!(ControlValue::parse("0x1f"), ControlValue::Number(31));
        assert_eq!(ControlValue::parse("Manual Mode"), ControlValue::Text("Manual Mode".to_owned()));
        assert_eq!(ControlValue::parse("\"42\""), ControlValue::Text("42".to_owned()));
    }
}
