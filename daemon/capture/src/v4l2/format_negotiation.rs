//! Chooses and sets a camera's format, size and rate.

use std::io;

use v4l::v4l_sys as sys;
use visiond_config::types::{CameraFormat, ControlValue, V4l2Config};
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{BayerDepth, FrameLayout, PixelFormat};

use super::color;
use super::controls::{self, FrameRateControl};
use super::device::{Node, PixFormat};
use super::errors::refused;
use super::formats::{self, RATE_TOLERANCE, is_fast_enough};
use super::fourcc::{self, FourCc};
use super::planes::{Planes, PlanesError};
use super::quirks::Quirk;
use super::sensor_modes;
use crate::source::SourceError;

/// The data that the camera sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameData {
    /// Raw pixels in these planes.
    Raw(Planes),
    /// JPEG, which is decoded into this layout.
    Jpeg(FrameLayout),
}

/// The format that the driver has accepted.
#[derive(Debug)]
pub struct NegotiatedFormat {
    /// The data that the camera sends.
    pub data: FrameData,
    /// The format as the driver describes it.
    pub pix: PixFormat,
    /// visiond's name of the format.
    pub format: CameraFormat,
    /// Frames per second, if the driver says.
    pub fps: Option<f64>,
}

/// The format to request from a camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatRequest {
    /// The driver's name of the format.
    pub fourcc: FourCc,
    /// visiond's name of the format.
    pub format: CameraFormat,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// Chooses the format to request from `node`, from the configuration and what the node supports. Changes nothing.
pub fn choose(node: &Node, config: &V4l2Config) -> Result<FormatRequest, SourceError> {
    let failed = |what: &str, error: &io::Error| refused(node, what, error);
    let offered = formats::pixel_formats(node).map_err(|error| failed("list its formats (ENUM_FMT)", &error))?;
    let offered: Vec<_> = offered.into_iter().map(|(fourcc, _)| fourcc).collect();
    let current = node.format().map_err(|error| failed("return its format (G_FMT)", &error))?;
    let candidates = fourcc::by_cost(&offered, config.format);
    if candidates.is_empty() {
        return Err(SourceError::permanent(no_format(node, config, &offered)));
    }
    let (width, height) = (config.width.unwrap_or(current.width), config.height.unwrap_or(current.height));
    let choice = |&(fourcc, format): &(FourCc, CameraFormat)| FormatRequest { fourcc, format, width, height };
    let has_size = |choice: &FormatRequest| {
        let tried = node.try_format(&request(choice));
        tried.is_ok_and(|pix| pix.fourcc == choice.fourcc && (pix.width, pix.height) == (width, height))
    };
    let highest_rate = |choice: &FormatRequest| formats::highest_rate(node, choice.fourcc, width, height);
    let best = first_that_fits(candidates.iter().map(choice), config.fps, has_size, highest_rate);
    Ok(best.unwrap_or_else(|| choice(&candidates[0])))
}

/// Returns the first choice with the wanted size and rate: a webcam has its larger sizes and higher rates only in MJPEG. `None` if
/// none fits, so that one is as good as any.
fn first_that_fits(
    mut choices: impl Iterator<Item = FormatRequest>,
    fps: Option<f64>,
    has_size: impl Fn(&FormatRequest) -> bool,
    highest_rate: impl Fn(&FormatRequest) -> Option<f64>,
) -> Option<FormatRequest> {
    choices.find(|choice| {
        let rate = || fps.and_then(|fps| Some((fps, highest_rate(choice)?)));
        has_size(choice) && rate().is_none_or(|(fps, highest)| is_fast_enough(highest, fps))
    })
}

/// Returns the format that the driver would send for `config`: its answer to TRY_FMT. If the node is `idle`, the control of
/// the sensor's mode has its configured value meanwhile, and the stored one afterwards.
pub fn expected(node: &Node, config: &V4l2Config, idle: bool) -> Result<FormatRequest, SourceError> {
    let mode = config.controls.get(sensor_modes::SENSOR_MODE).filter(|_| idle);
    let kept = mode.map(|mode| (controls::KeptControls::new(node, &[]), mode));
    if let Some((kept, ControlValue::Number(mode))) = &kept {
        kept.set(sensor_modes::SENSOR_MODE, *mode);
    }
    let choice = choose(node, config)?;
    // A driver without TRY_FMT says no more than this.
    let answer = node.try_format(&request(&choice)).ok().filter(|pix| pix.fourcc == choice.fourcc);
    Ok(answer.map_or(choice, |pix| FormatRequest { width: pix.width, height: pix.height, ..choice }))
}

fn request(choice: &FormatRequest) -> PixFormat {
    PixFormat {
        width: choice.width,
        height: choice.height,
        fourcc: choice.fourcc,
        field: sys::v4l2_field_V4L2_FIELD_NONE,
        ..PixFormat::default()
    }
}

/// Sets the chosen format. Logs, as `label`, how it differs from the configured one.
pub fn set(
    node: &Node,
    config: &V4l2Config,
    choice: FormatRequest,
    label: &str,
) -> Result<NegotiatedFormat, SourceError> {
    let device = node.path().display();
    let FormatRequest { fourcc: code, format, .. } = choice;
    let set = node.set_format(&request(&choice)).map_err(|error| refused(node, "set its format (S_FMT)", &error))?;
    if set.fourcc != code {
        let (given, wanted) = (fourcc::text(set.fourcc), fourcc::text(code));
        return Err(SourceError::permanent(format!(
            "{device} lists the format {wanted} but sets {given}: set another `format` from `visiond probe`"
        )));
    }
    if let Some(fields) = interlaced(set.field) {
        // The user may change what is plugged into an input.
        return Err(SourceError::transient(format!(
            "{device} sends interlaced frames ({fields}), which visiond does not read: set its input to a progressive mode, \
             or deinterlace in a program and read that with `type = \"command\"`"
        )));
    }
    let (wanted_width, wanted_height) = (config.width.unwrap_or(set.width), config.height.unwrap_or(set.height));
    if (set.width, set.height) != (wanted_width, wanted_height) {
        let (word, used) = (fourcc::word(format), format!("{}x{}", set.width, set.height));
        if config.controls.contains_key(sensor_modes::SENSOR_MODE) {
            log::warn!("{label}: the configured `sensor_mode` has {used}: remove it, or `width` and `height`");
        } else {
            log::warn!("{label}: the driver has no {wanted_width}x{wanted_height} in {word}, using {used}");
        }
    }
    if config.levels.is_some() && !matches!(format, CameraFormat::Raw(raw) if raw.has_levels()) {
        let word = fourcc::word(format);
        log::warn!("{label}: the driver delivers {word}, ignoring `levels`: set `format` to grey10, grey12 or grey16");
    }
    let fps = set_rate(node, config.fps, label);
    let read_as = if node.has(Quirk::SamplesFillWords) { full_words(format) } else { format };
    let data = frame_data(&set, read_as, config).map_err(|error| {
        SourceError::permanent(format!("{device}: the driver describes its frames wrongly: {error}"))
    })?;
    Ok(NegotiatedFormat { data, pix: set, format, fps })
}

/// Returns the format of a mosaic or of grey whose samples use the highest bit of their 16-bit words.
fn full_words(format: CameraFormat) -> CameraFormat {
    match format {
        CameraFormat::Raw(PixelFormat::Grey10 | PixelFormat::Grey12) => CameraFormat::Raw(PixelFormat::Grey16),
        CameraFormat::Raw(PixelFormat::Bayer(order, BayerDepth::Bits10 | BayerDepth::Bits12)) => {
            CameraFormat::Raw(PixelFormat::Bayer(order, BayerDepth::Bits16))
        }
        format => format,
    }
}

/// Returns the current rate; `None` if the driver does not say.
pub fn rate(node: &Node) -> Option<f64> {
    let by_control = || FrameRateControl::among(&controls::list(node).ok()?)?.now();
    let rate = if node.has(Quirk::RateByControl) { by_control() } else { None };
    rate.or_else(|| node.rate())
}

/// Requests the rate; returns the rate that is set, or will be set with the controls.
fn set_rate(node: &Node, wanted: Option<f64>, label: &str) -> Option<f64> {
    let warn = |fps: f64, rate: f64| {
        if (rate - fps).abs() > fps * RATE_TOLERANCE {
            log::warn!("{label}: the driver has no {fps} frames per second at this size, using {rate:.2}");
        }
    };
    if let Some(fps) = wanted.filter(|_| node.has(Quirk::RateByControl)) {
        let controls = controls::list(node).unwrap_or_default();
        if let Some(control) = FrameRateControl::among(&controls) {
            let rate = control.fps(control.value(fps));
            warn(fps, rate);
            return Some(rate);
        }
    }
    let Some(fps) = wanted else { return rate(node) };
    match node.set_interval(interval(fps)) {
        Ok(rate) => rate.inspect(|&rate| warn(fps, rate)),
        Err(error) => {
            log::warn!("{label}: the driver cannot set a rate (S_PARM: {error}), ignoring `fps`");
            node.rate()
        }
    }
}

/// Returns the time between frames at `fps`, to a thousandth of a frame per second.
fn interval(fps: f64) -> sys::v4l2_fract {
    let thousandths = (fps * 1000.0).round().max(1.0) as u32;
    let unit = if thousandths.is_multiple_of(1000) { 1000 } else { 1 };
    sys::v4l2_fract { numerator: 1000 / unit, denominator: thousandths / unit }
}

/// Describes the frames with the driver's pitches; configured colours take precedence.
pub(super) fn frame_data(pix: &PixFormat, format: CameraFormat, config: &V4l2Config) -> Result<FrameData, PlanesError> {
    let CameraFormat::Raw(format) = format else {
        let rgb = FrameLayout::packed(PixelFormat::Rgb, pix.width, pix.height, ColorDescription::default())?;
        return Ok(FrameData::Jpeg(rgb));
    };
    let said = color::description(pix);
    let color =
        ColorDescription::new(config.color_matrix.unwrap_or(said.matrix), config.color_range.unwrap_or(said.range))
            .with_levels(config.levels.filter(|_| format.has_levels()));
    Ok(FrameData::Raw(Planes::new(pix, format, color)?))
}

/// Returns the kind of interlacing of a field order; `None` for progressive frames.
fn interlaced(field: u32) -> Option<&'static str> {
    match field {
        sys::v4l2_field_V4L2_FIELD_ANY | sys::v4l2_field_V4L2_FIELD_NONE => None,
        sys::v4l2_field_V4L2_FIELD_TOP | sys::v4l2_field_V4L2_FIELD_BOTTOM => Some("every second line alone"),
        sys::v4l2_field_V4L2_FIELD_ALTERNATE => Some("one field after the other"),
        sys::v4l2_field_V4L2_FIELD_SEQ_TB | sys::v4l2_field_V4L2_FIELD_SEQ_BT => {
            Some("both fields, one below the other")
        }
        _ => Some("both fields, line by line"),
    }
}

fn no_format(node: &Node, config: &V4l2Config, offered: &[FourCc]) -> String {
    let device = node.path().display();
    let mut readable: Vec<_> =
        fourcc::by_cost(offered, None).into_iter().map(|(_, format)| fourcc::word(format)).collect();
    readable.dedup();
    let readable = readable.join(", ");
    let all = offered.iter().map(|&code| fourcc::text(code)).collect::<Vec<_>>().join(", ");
    match config.format {
        _ if offered.is_empty() => {
            format!("{device} offers no pixel format: it may need its media pipeline set up first (media-ctl)")
        }
        Some(wanted) if !readable.is_empty() => {
            format!("{device} does not offer {}: it offers {readable}; correct `format`", fourcc::word(wanted))
        }
        _ => format!(
            "{device} offers no format that visiond reads: it offers {all}; let a program convert it and read it by \
             `type = \"command\"`"
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_kernels::color::{ColorMatrix, ColorRange, GreyLevels};

    use super::super::device::rate;
    use super::*;

    #[test]
    fn a_webcam_that_is_fast_enough_in_mjpeg_alone_is_asked_for_that() {
        let request = |fourcc: &FourCc, format| FormatRequest { fourcc: *fourcc, format, width: 1920, height: 1080 };
        let yuyv = request(b"YUYV", CameraFormat::Raw(PixelFormat::Yuyv));
        let mjpeg = request(b"MJPG", CameraFormat::Mjpeg);
        let chosen = |fps, sizes: [bool; 2], rates: [Option<f64>; 2]| {
            let at = |choice: &FormatRequest| usize::from(*choice == mjpeg);
            first_that_fits([yuyv, mjpeg].into_iter(), fps, |one| sizes[at(one)], |one| rates[at(one)])
        };
        let rates = [Some(5.0), Some(30.0)];
        assert_eq!(chosen(Some(30.0), [true, true], rates), Some(mjpeg));
        assert_eq!(chosen(Some(5.0), [true, true], rates), Some(yuyv));
        assert_eq!(chosen(None, [true, true], rates), Some(yuyv));
        assert_eq!(chosen(None, [false, true], rates), Some(mjpeg));
        assert_eq!(chosen(Some(30.0), [true, true], [None, Some(30.0)]), Some(yuyv), "a driver without a list");
        assert_eq!(chosen(Some(60.0), [true, true], rates), None);
    }

    #[test]
    fn configured_colours_win_and_jpeg_becomes_rgb() {
        let mut pix = PixFormat { width: 64, height: 4, fourcc: *b"YUYV", memory_count: 1, ..PixFormat::default() };
        pix.memories[0].pitch_bytes = 128;
        let config = V4l2Config { color_matrix: Some(ColorMatrix::Bt709), ..V4l2Config::default() };
        let raw = frame_data(&pix, CameraFormat::Raw(PixelFormat::Yuyv), &config).unwrap();
        let FrameData::Raw(planes) = raw else { panic!("{raw:?}") };
        let color = planes.layout(&[0; 3]).unwrap().color();
        assert_eq!(color, ColorDescription::new(ColorMatrix::Bt709, ColorRange::Limited));
        // The range is the configured one, otherwise the driver's, in raw formats of every kind.
        let range = |pix: &PixFormat, color_range| {
            let config = V4l2Config { color_range, ..V4l2Config::default() };
            let raw = frame_data(pix, CameraFormat::Raw(PixelFormat::Yuyv), &config).unwrap();
            let FrameData::Raw(planes) = raw else { panic!("{raw:?}") };
            planes.layout(&[0; 3]).unwrap().color().range
        };
        let full = PixFormat { quantization: sys::v4l2_quantization_V4L2_QUANTIZATION_FULL_RANGE, ..pix };
        let (limited, ours) = (ColorRange::Limited, ColorRange::Full);
        assert_eq!([range(&pix, None), range(&full, None)], [limited, ours]);
        assert_eq!([range(&pix, Some(ours)), range(&full, Some(limited))], [ours, limited]);
        let jpeg = frame_data(&pix, CameraFormat::Mjpeg, &config).unwrap();
        let FrameData::Jpeg(layout) = jpeg else { panic!("{jpeg:?}") };
        assert_eq!((layout.format(), layout.size_bytes()), (PixelFormat::Rgb, 64 * 4 * 3));
    }

    #[test]
    fn configured_levels_are_those_of_grey_with_more_than_8_bits() {
        let mut pix = PixFormat { width: 64, height: 4, fourcc: *b"Y16 ", memory_count: 1, ..PixFormat::default() };
        pix.memories[0].pitch_bytes = 128;
        let color = |format, levels| {
            let raw =
                frame_data(&pix, CameraFormat::Raw(format), &V4l2Config { levels, ..V4l2Config::default() }).unwrap();
            let FrameData::Raw(planes) = raw else { panic!("{raw:?}") };
            planes.layout(&[0; 3]).unwrap().color()
        };
        let (levels, full) =
            (GreyLevels::new(28_815, 31_315), ColorDescription::new(ColorMatrix::Bt601, ColorRange::Full));
        assert_eq!(color(PixelFormat::Grey16, levels), full.with_levels(levels));
        assert_eq!(color(PixelFormat::Grey16, None), full);
        assert_eq!(color(PixelFormat::Yuyv, levels).levels, None);
    }

    #[test]
    fn samples_that_fill_their_words_are_read_as_sixteen_bits() {
        use visiond_kernels::frame::BayerDepth::{Bits8, Bits10, Bits12, Bits16};
        use visiond_kernels::frame::BayerOrder::Grbg;
        let read_as = |depth| full_words(CameraFormat::Raw(PixelFormat::Bayer(Grbg, depth)));
        let bayer = |depth| CameraFormat::Raw(PixelFormat::Bayer(Grbg, depth));
        assert_eq!([Bits8, Bits10, Bits12, Bits16].map(read_as), [Bits8, Bits16, Bits16, Bits16].map(bayer));
        let grey = |format| full_words(CameraFormat::Raw(format));
        let words = [PixelFormat::Grey10, PixelFormat::Grey12, PixelFormat::Grey16].map(grey);
        assert_eq!(words, [CameraFormat::Raw(PixelFormat::Grey16); 3]);
        for format in [PixelFormat::Grey, PixelFormat::Yuyv].map(CameraFormat::Raw) {
            assert_eq!(full_words(format), format);
        }
    }

    #[test]
    fn rates_become_intervals() {
        let parts = |fps| (interval(fps).numerator, interval(fps).denominator);
        assert_eq!([30.0, 29.97, 0.5].map(parts), [(1, 30), (1000, 29_970), (1000, 500)]);
        assert_eq!(rate(interval(30.0)), Some(30.0));
        assert_eq!(rate(sys::v4l2_fract { numerator: 0, denominator: 30 }), None);
    }

    #[test]
    fn a_format_that_the_camera_lacks_is_answered_with_those_it_has() {
        let config = V4l2Config { format: Some(CameraFormat::Mjpeg), ..V4l2Config::default() };
        let node = Node::of(std::fs::File::open("/dev/null").unwrap(), "/dev/video0".as_ref());
        let text = no_format(&node, &config, &[*b"YUYV", *b"H264"]);
        assert!(text.contains("does not offer mjpeg: it offers yuyv; correct"), "{text}");
        assert!(no_format(&node, &V4l2Config::default(), &[*b"H264"]).contains("type = \"command\""));
    }

    #[test]
    fn whole_pictures_alone_are_not_interlaced() {
        assert_eq!(interlaced(sys::v4l2_field_V4L2_FIELD_NONE), None);
        assert!(interlaced(sys::v4l2_field_V4L2_FIELD_INTERLACED).is_some());
        assert!(interlaced(sys::v4l2_field_V4L2_FIELD_ALTERNATE).is_some());
    }

    use super::super::device::fake_camera::{FakeCamera, FakeFormat};

    const FULL_HD: (u32, u32) = (1920, 1080);
    const VGA: (u32, u32) = (640, 480);

    /// A webcam that is fast at its larger size only in MJPEG.
    fn webcam() -> FakeCamera {
        let yuyv = FakeFormat { fourcc: *b"YUYV", sizes: vec![(VGA, vec![30, 15]), (FULL_HD, vec![5])] };
        let mjpeg = FakeFormat { fourcc: *b"MJPG", sizes: vec![(VGA, vec![30]), (FULL_HD, vec![30, 15])] };
        let field = sys::v4l2_field_V4L2_FIELD_NONE;
        FakeCamera { formats: vec![mjpeg, yuyv], field, current: (0, VGA), fps: Some(15), ..FakeCamera::default() }
    }

    fn wanted((width, height): (u32, u32), fps: Option<f64>) -> V4l2Config {
        V4l2Config { width: Some(width), height: Some(height), fps, ..V4l2Config::default() }
    }

    fn changes(node: &Node) -> Vec<&'static str> {
        std::mem::take(&mut node.fake.as_ref().unwrap().lock().changes)
    }

    #[test]
    fn a_webcam_is_asked_for_the_cheapest_format_that_has_the_size_and_the_rate() {
        let node = webcam().node();
        let chosen = |config: &V4l2Config| {
            let FormatRequest { fourcc, width, height, .. } = choose(&node, config).unwrap();
            (fourcc::text(fourcc), (width, height))
        };
        let of = |size, fps| chosen(&wanted(size, fps));
        assert_eq!(of(FULL_HD, Some(30.0)), ("MJPG".to_owned(), FULL_HD));
        assert_eq!(of(FULL_HD, Some(5.0)), ("YUYV".to_owned(), FULL_HD));
        assert_eq!(of(FULL_HD, None), ("YUYV".to_owned(), FULL_HD));
        assert_eq!(of(VGA, Some(30.0)), ("YUYV".to_owned(), VGA));
        // Without a configured value, the driver's current one; if no format has that, the cheapest.
        assert_eq!(chosen(&V4l2Config::default()), ("YUYV".to_owned(), VGA));
        assert_eq!(of((1000, 1000), None), ("YUYV".to_owned(), (1000, 1000)));
        assert_eq!(of(VGA, Some(90.0)), ("YUYV".to_owned(), VGA));
        let mjpeg = V4l2Config { format: Some(CameraFormat::Mjpeg), ..wanted(VGA, None) };
        assert_eq!(chosen(&mjpeg), ("MJPG".to_owned(), VGA));
        // `probe` reports the format that would result, even for a size that no format has.
        let FormatRequest { width, height, .. } = expected(&node, &wanted((1000, 1000), None), true).unwrap();
        assert_eq!((width, height), VGA);
        assert!(changes(&node).is_empty(), "nothing was set");
        let grey = V4l2Config { format: Some(CameraFormat::Raw(PixelFormat::Grey)), ..V4l2Config::default() };
        let error = choose(&node, &grey).unwrap_err();
        assert!(
            error.to_string().contains("does not offer grey: it offers yuyv, mjpeg") && !error.may_pass(),
            "{error}"
        );
        let error = choose(&FakeCamera::default().node(), &V4l2Config::default()).unwrap_err();
        assert!(error.to_string().contains("offers no pixel format: it may need its media pipeline"), "{error}");
    }

    #[test]
    fn the_chosen_format_and_rate_are_set_and_what_the_driver_makes_of_them_counts() {
        let node = webcam().node();
        let negotiated = |config: &V4l2Config| set(&node, config, choose(&node, config).unwrap(), "camera door");
        let config = wanted(FULL_HD, Some(30.0));
        let NegotiatedFormat { data, pix, format, fps } = negotiated(&config).unwrap();
        assert_eq!((pix.width, pix.height, format, fps), (1920, 1080, CameraFormat::Mjpeg, Some(30.0)));
        assert!(matches!(data, FrameData::Jpeg(_)));
        assert_eq!(changes(&node), ["S_FMT", "S_PARM"]);
        assert_eq!((node.format().unwrap().fourcc, rate_of(&node)), (*b"MJPG", Some(30.0)));
        // A rate near the wanted one; without a wanted one, that of the driver.
        assert_eq!(negotiated(&wanted(FULL_HD, Some(20.0))).unwrap().fps, Some(15.0));
        changes(&node);
        assert_eq!(negotiated(&wanted(VGA, None)).unwrap().fps, Some(15.0));
        assert_eq!(changes(&node), ["S_FMT"]);
        assert_eq!(negotiated(&wanted((1000, 1000), None)).unwrap().pix.width, 640);

        // A driver without rates, one that does not support what it lists, and one that sends fields.
        node.fake.as_ref().unwrap().lock().fps = None;
        assert_eq!(negotiated(&config).unwrap().fps, None);
        let missing = FormatRequest { fourcc: *b"GREY", ..choose(&node, &config).unwrap() };
        let error = set(&node, &config, missing, "camera door").unwrap_err();
        assert!(error.to_string().contains("lists the format GREY but sets MJPG") && !error.may_pass(), "{error}");
        node.fake.as_ref().unwrap().lock().field = sys::v4l2_field_V4L2_FIELD_INTERLACED;
        let error = negotiated(&config).unwrap_err();
        assert!(error.to_string().contains("sends interlaced frames (both fields, line by line)"), "{error}");
        assert!(error.may_pass(), "another signal may be plugged in");
    }

    fn rate_of(node: &Node) -> Option<f64> {
        super::rate(node)
    }

    #[test]
    fn what_a_camera_offers_is_listed_with_the_largest_size_and_the_highest_rate_first() {
        let node = webcam().node();
        let listed = formats::list(&node).unwrap();
        let sizes =
            |at: usize| listed[at].sizes.iter().map(|size| (size.largest, size.rates.clone())).collect::<Vec<_>>();
        let rates = |rates: &[f64]| formats::FrameRates::List(rates.to_vec());
        assert_eq!(listed.iter().map(|one| &*one.description).collect::<Vec<_>>(), ["MJPG", "YUYV"]);
        assert_eq!(sizes(0), [(FULL_HD, rates(&[30.0, 15.0])), (VGA, rates(&[30.0]))]);
        assert_eq!(sizes(1), [(FULL_HD, rates(&[5.0])), (VGA, rates(&[30.0, 15.0]))]);
        assert_eq!(formats::highest_rate(&node, *b"YUYV", 640, 480), Some(30.0));
        assert_eq!(formats::highest_rate(&node, *b"YUYV", 1, 1), None);
    }
}
