//! Session descriptions (SDP, RFC 8866) as cameras write them. Only the parts needed for playing are read; errors in other
//! lines do not matter.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::codec::Codec;

/// The most streams to read from a description.
const MOST_STREAMS: usize = 64;

/// The most formats to read for a stream.
const MOST_FORMATS: usize = 32;

/// The most lines to read from a description.
const MOST_LINES: usize = 4096;

/// Some cameras leave out the padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// What a server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// The control URL of the session, if it has one: absolute, relative or `*`.
    pub control: Option<String>,
    /// In the server's order.
    pub streams: Vec<StreamDescription>,
}

/// A stream that a server offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StreamDescription {
    /// `video`, `audio`, `application` or the camera's own word, in lower case.
    pub media: String,
    /// Name of the encoding in lower case, such as `h264` or `pcma`; the payload type's number if it has no name.
    pub encoding: String,
    /// The payload type of its packets.
    pub payload_type: u8,
    /// Types of its other formats that the server names, such as retransmissions or error correction.
    pub other_types: Vec<u8>,
    /// Units of RTP's timestamps per second.
    pub rate_hz: u32,
    /// The control URL, absolute or relative. A stream without one uses the session's.
    pub control: Option<String>,
    /// Parameter sets without start codes, in the camera's order.
    pub sets: Vec<Vec<u8>>,
    /// Width and height in pixels of JPEG frames, if the description has them.
    pub size: Option<[u16; 2]>,
    /// Frames per second, if the description has them.
    pub announced_fps: Option<f32>,
    /// Whether packets are encrypted (SRTP).
    pub is_encrypted: bool,
    /// Whether H.265 units are not sent in decoding order, so each has a number (`sprop-max-don-diff`, RFC 7798).
    pub is_interleaved: bool,
}

impl Eq for StreamDescription {}

impl StreamDescription {
    /// Returns the codec, if it is supported.
    pub fn codec(&self) -> Option<Codec> {
        codec_of(&self.media, &self.encoding)
    }
}

/// Returns the codec of a medium's encoding, if it is supported.
fn codec_of(media: &str, encoding: &str) -> Option<Codec> {
    match (media, encoding) {
        ("video", "h264") => Some(Codec::H264),
        ("video", "h265" | "hevc") => Some(Codec::H265),
        ("video", "jpeg" | "mjpeg") => Some(Codec::Jpeg),
        _ => None,
    }
}

/// One `m=` line with the lines below it.
#[derive(Default)]
struct Media {
    kind: String,
    protocol: String,
    formats: Vec<u8>,
    /// Attributes with their format, if they have one.
    maps: Vec<(u8, String)>,
    parameters: Vec<(u8, String)>,
    control: Option<String>,
    size: Option<[u16; 2]>,
    announced_fps: Option<f32>,
}

impl Description {
    /// Reads a description. Invalid UTF-8 matters only in names.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (mut control, mut all) = (None, Vec::<Media>::new());
        for line in text.split(['\n', '\r']).take(MOST_LINES) {
            let line = line.trim_matches(|c: char| c == '\0' || c.is_whitespace());
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "m" if all.len() == MOST_STREAMS => break,
                "m" => all.push(Media::of(value)),
                "a" => match all.last_mut() {
                    Some(media) => media.attribute(value),
                    None => control = control.or_else(|| attribute(value, "control").map(str::to_owned)),
                },
                _ => {}
            }
        }
        Self { control, streams: all.into_iter().map(Media::stream).collect() }
    }
}

/// Returns the value of an attribute line if it has that name.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (found, value) = line.split_once(':')?;
    found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
}

/// Returns the format at the start of a value, and the rest: "96 H264/90000".
fn of_format(value: &str) -> Option<(u8, &str)> {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    Some((value[..digits].parse().ok()?, value[digits..].trim_start()))
}

impl Media {
    /// Reads "video 0 RTP/AVP 96 97".
    fn of(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let kind = words.next().unwrap_or_default().to_ascii_lowercase();
        let _port = words.next();
        let protocol = words.next().unwrap_or_default().to_ascii_uppercase();
        let formats =
            words.filter_map(|word| word.parse().ok()).filter(|format| *format < 128).take(MOST_FORMATS).collect();
        Self { kind, protocol, formats, ..Self::default() }
    }

    fn attribute(&mut self, line: &str) {
        // "2560,1440" or "2560-1440", with or without blanks.
        let size_of = |text: &str| {
            let mut sides = text.split(|c: char| !c.is_ascii_digit()).filter(|side| !side.is_empty());
            let mut next = || sides.next()?.parse::<u16>().ok().filter(|side| *side > 0);
            Some([next()?, next()?])
        };
        if let Some(url) = attribute(line, "control") {
            // The first one counts, as in ffmpeg; some cameras repeat it.
            self.control.get_or_insert(url.to_owned());
        } else if let Some(value) = attribute(line, "rtpmap") {
            self.maps.extend(of_format(value).map(|(format, rest)| (format, rest.to_owned())));
        } else if let Some(value) = attribute(line, "fmtp") {
            self.parameters.extend(of_format(value).map(|(format, rest)| (format, rest.to_owned())));
        } else if let Some(value) = attribute(line, "framerate").or_else(|| attribute(line, "x-framerate")) {
            self.announced_fps = value.parse().ok().filter(|fps| *fps > 0.0 && *fps <= 1000.0);
        } else if let Some(size) = attribute(line, "x-dimensions") {
            self.size = size_of(size);
        } else if let Some((_, size)) = attribute(line, "framesize").and_then(of_format) {
            self.size = size_of(size);
        }
    }

    fn stream(self) -> StreamDescription {
        let map = |format: u8| {
            let (_, map) = self.maps.iter().find(|(other, _)| *other == format)?;
            let mut parts = map.split('/');
            let encoding = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
            let rate = parts.next().and_then(|rate| rate.trim().parse().ok()).filter(|rate| *rate > 0);
            Some((format, encoding, rate))
        };
        // Assigned numbers of RFC 3551; H.264 and H.265 have none, and some cameras leave out their names.
        let assigned = |format: u8| match format {
            0 => Some((format, "pcmu".to_owned(), Some(8_000))),
            8 => Some((format, "pcma".to_owned(), Some(8_000))),
            26 => Some((format, "jpeg".to_owned(), None)),
            _ => None,
        };
        // Cameras list formats that they do not describe.
        let formats = || self.formats.iter().copied().chain(self.maps.iter().map(|(format, _)| *format));
        let unnamed = || formats().next().map(|format| (format, format.to_string(), None));
        // Each parameter name belongs to only one codec.
        let has = |format: u8, name: &str| {
            self.parameters.iter().any(|(other, text)| *other == format && text.to_ascii_lowercase().contains(name))
        };
        let by_parameters = |format: u8| {
            let names = [("sprop-parameter-sets", "h264"), ("sprop-sps", "h265"), ("sprop-vps", "h265")];
            let found = names.iter().find(|(name, _)| has(format, name));
            found.map(|(_, encoding)| (format, (*encoding).to_owned(), None))
        };
        // Retransmissions (rtx) and error correction (red, ulpfec) are formats of the same line, and may be listed first.
        let named = |format: u8| map(format).or_else(|| assigned(format)).or_else(|| by_parameters(format));
        let is_known = |(_, encoding, _): &(u8, String, Option<u32>)| codec_of(&self.kind, encoding).is_some();
        let known = formats().filter_map(named).find(is_known);
        let known = known.or_else(|| formats().find_map(map)).or_else(|| formats().find_map(assigned)).or_else(unnamed);
        let (payload_type, encoding, rate) = known.unwrap_or_default();
        let parameters = || self.parameters.iter().filter(|(format, _)| *format == payload_type).map(|(_, text)| text);
        let sets = parameters().flat_map(|text| parameter_sets(text)).collect();
        let named = parameters().flat_map(|text| text.split(';')).filter_map(|one| one.split_once('='));
        let mut distances = named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("sprop-max-don-diff"));
        let is_interleaved = distances.any(|(_, value)| value.trim().parse::<u32>().is_ok_and(|distance| distance > 0));
        let other_types = self.maps.iter().map(|(format, _)| *format).filter(|format| *format != payload_type);
        let other_types = other_types.take(MOST_FORMATS).collect();
        StreamDescription {
            media: self.kind,
            encoding,
            payload_type,
            other_types,
            rate_hz: rate.unwrap_or(90_000),
            control: self.control.filter(|url| !url.is_empty()),
            sets,
            size: self.size,
            announced_fps: self.announced_fps,
            is_encrypted: self.protocol.contains("SAVP"),
            is_interleaved,
        }
    }
}

/// Returns the parameter sets of `a=fmtp`: in base64, `sprop-parameter-sets=SPS,PPS` of H.264 (RFC 6184), and `sprop-vps`, `sprop-sps` and
/// `sprop-pps` of H.265 (RFC 7798). One that is not valid base64 is skipped.
fn parameter_sets(parameters: &str) -> Vec<Vec<u8>> {
    const NAMES: [&str; 4] = ["sprop-parameter-sets", "sprop-vps", "sprop-sps", "sprop-pps"];
    let named = parameters.split(';').filter_map(|one| one.split_once('='));
    let known = named.filter(|(name, _)| NAMES.iter().any(|known| name.trim().eq_ignore_ascii_case(known)));
    let texts = known.flat_map(|(_, sets)| sets.split(',')).map(|set| set.trim().trim_matches('"'));
    let decoded = texts.filter_map(|text| LENIENT.decode(text).ok());
    // Some cameras write start codes in front.
    let bare = decoded.map(|set| match set.as_slice() {
        [0, 0, 0, 1, rest @ ..] | [0, 0, 1, rest @ ..] => rest.to_vec(),
        _ => set,
    });
    bare.filter(|set| !set.is_empty()).collect()
}

#[cfg(test)]
mod tests;
