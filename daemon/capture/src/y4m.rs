//! Parses YUV4MPEG2: the header of the stream and of each frame.
//!
//! <https://wiki.multimedia.cx/index.php/YUV4MPEG2>: one line of text, `YUV4MPEG2 W640 H480 F30:1 Ip C420jpeg
//! XCOLORRANGE=FULL`, then for every frame `FRAME`, perhaps with parameters, a line feed, and the planes.

use visiond_kernels::color::ColorRange;
use visiond_kernels::frame::PixelFormat;

/// The longest header line that is read.
pub const MAX_LINE_BYTES: usize = 1024;

/// The start of every frame's line.
pub const FRAME_MAGIC: &[u8] = b"FRAME";

/// A stream's header.
#[derive(Debug, Clone, PartialEq)]
pub struct Y4mHeader {
    pub width: u32,
    pub height: u32,
    /// I420 or grey.
    pub format: PixelFormat,
    /// `XCOLORRANGE`. (`C420jpeg` describes the chroma siting, not the range.)
    pub range: Option<ColorRange>,
    /// Frames per second; `None` if the header has 0:0 or no rate.
    pub fps: Option<f64>,
}

/// A header that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Y4mError {
    #[error(
        "it does not begin with YUV4MPEG2: set `container = \"raw\"`, let the program write y4m, or, where it prints something \
         first, set `fd = 3` and have it write to descriptor 3"
    )]
    NotY4m,
    #[error("its YUV4MPEG2 header has no width and height: {0:?}")]
    NoSize(String),
    #[error("its frames are interlaced (I{0}): deinterlace before visiond reads them (ffmpeg: `-vf yadif`)")]
    Interlaced(char),
    #[error(
        "its chroma format is C{0}, only C420, C420jpeg, C420mpeg2, C420paldv and Cmono are read: convert it (ffmpeg: \
         `-pix_fmt yuv420p`; GStreamer: `video/x-raw,format=I420`)"
    )]
    Chroma(String),
}

impl Y4mHeader {
    /// Parses the first line, without its line feed.
    pub fn parse(line: &[u8]) -> Result<Self, Y4mError> {
        let text = String::from_utf8_lossy(line);
        let mut words = text.split(' ');
        if words.next() != Some("YUV4MPEG2") {
            return Err(Y4mError::NotY4m);
        }
        let (mut width, mut height) = (None, None);
        let (mut format, mut range, mut fps) = (PixelFormat::I420, None, None);
        for word in words.filter(|word| !word.is_empty()) {
            let mut rest = word.chars();
            let key = rest.next();
            let value = rest.as_str();
            match key {
                Some('W') => width = value.parse().ok().filter(|&n: &u32| n > 0),
                Some('H') => height = value.parse().ok().filter(|&n: &u32| n > 0),
                Some('F') => fps = ratio(value, ':'),
                Some('I') => {
                    if let Some(fields @ ('t' | 'b' | 'm')) = value.chars().next() {
                        return Err(Y4mError::Interlaced(fields));
                    }
                }
                Some('C') => format = chroma(value)?,
                Some('X') => match value {
                    "COLORRANGE=FULL" => range = Some(ColorRange::Full),
                    "COLORRANGE=LIMITED" => range = Some(ColorRange::Limited),
                    _ => {}
                },
                // A: pixel aspect ratio, which does not matter here, like all other parameters.
                _ => {}
            }
        }
        let (Some(width), Some(height)) = (width, height) else {
            return Err(Y4mError::NoSize(text.chars().take(120).collect()));
        };
        Ok(Self { width, height, format, range, fps })
    }
}

/// Returns the pixel format of a `C` parameter. The 420 variants differ in the chroma siting, by a quarter of a pixel at most.
fn chroma(value: &str) -> Result<PixelFormat, Y4mError> {
    match value {
        "420" | "420jpeg" | "420mpeg2" | "420paldv" => Ok(PixelFormat::I420),
        "mono" => Ok(PixelFormat::Grey),
        other => Err(Y4mError::Chroma(other.chars().take(20).collect())),
    }
}

/// Parses a rate such as 30000:1001; 0:0 is no rate.
pub fn ratio(text: &str, separator: char) -> Option<f64> {
    let (above, below) = text.split_once(separator)?;
    let rate = above.parse::<f64>().ok()? / below.parse::<f64>().ok()?;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_ffmpeg_and_gstreamer_write_is_read() {
        let header =
            Y4mHeader::parse(b"YUV4MPEG2 W768 H576 F10:1 Ip A0:0 C420jpeg XYSCSS=420JPEG XCOLORRANGE=FULL").unwrap();
        assert_eq!((header.width, header.height, header.format), (768, 576, PixelFormat::I420));
        assert_eq!((header.range, header.fps), (Some(ColorRange::Full), Some(10.0)));
        let header = Y4mHeader::parse(b"YUV4MPEG2 W5 H3 I? F0:0").unwrap();
        assert_eq!((header.format, header.range, header.fps), (PixelFormat::I420, None, None));
        assert_eq!(Y4mHeader::parse(b"YUV4MPEG2 W5 H3 Cmono").unwrap().format, PixelFormat::Grey);
    }

    #[test]
    fn a_rate_is_a_positive_fraction() {
        for (text, rate) in [
            ("30000:1001", Some(30_000.0 / 1001.0)),
            ("25:1", Some(25.0)),
            ("1:4", Some(0.25)),
            ("0:0", None),
            ("25:0", None),
            ("0:1", None),
            ("-25:1", None),
            ("25", None),
            ("x:1", None),
        ] {
            assert_eq!(ratio(text, ':'), rate, "{text}");
        }
        assert_eq!(ratio("30/1", '/'), Some(30.0));
    }

    #[test]
    fn what_cannot_be_read_says_what_to_do() {
        let error = |line: &str| Y4mHeader::parse(line.as_bytes()).unwrap_err().to_string();
        assert!(error("YUV4MPEG2 W4 H4 C444").contains("-pix_fmt yuv420p"));
        assert!(error("YUV4MPEG2 W4 H4 C420p10").contains("C420p10"));
        assert!(error("YUV4MPEG2 W4 H4 It").contains("yadif"));
        assert!(error("YUV4MPEG2 W4").contains("no width and height"));
        assert!(error("YUV4MPEG2 W0 H4").contains("no width and height"));
        assert!(error("RIFF").contains("container = \"raw\""));
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_it_panic(line in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = Y4mHeader::parse(&line);
            let _ = Y4mHeader::parse(&[b"YUV4MPEG2 ".as_slice(), &line].concat());
        }
    }
}
