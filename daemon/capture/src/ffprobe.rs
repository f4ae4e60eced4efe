//! Asks ffprobe about a video: size, rate, pixel format, colours.

use std::fs;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fs::{Access, access};
use serde_json::Value;
use visiond_config::types::{RtspConfig, VideoConfig};
use visiond_kernels::color::{ColorDescription, ColorMatrix, ColorRange};
use visiond_system::redact::redact_line;
use visiond_system::stop::Stop;

use super::decoder_process::{self, is_remote, is_session_description};
use super::pipe::{ReadError, fill};
use super::source::SourceError;
use super::y4m::ratio;

/// ffmpeg's demuxer that finds JPEG images in any bytes.
pub const RAW_JPEG: &str = "mjpeg";

const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The range of valid frame rates in a file; `fps` of other sources has the same bounds.
const RATES: RangeInclusive<f64> = 0.001..=1000.0;

/// The largest frame count that a file may state: a hundred days at 500 frames per second. A larger one would skew the count of
/// lost frames.
const MAX_FRAMES: u64 = u32::MAX as u64;

/// The most frames that a decoder can delay, in H.264 and in H.265.
const MAX_HELD_BACK: u64 = 16;

/// Arguments of ffmpeg that ffprobe does not know. All but `-re` take a value.
const FFMPEG_ONLY: &str = "-re -readrate -stream_loop -ss -sseof -t -to -itsoffset -r -hwaccel -hwaccel_device \
                           -hwaccel_output_format";

#[derive(Debug, Clone, PartialEq)]
pub struct VideoInfo {
    /// Width in pixels as shown, after the rotation that the file requests.
    pub width: u32,
    pub height: u32,
    /// ffmpeg's name of the pixel format.
    pub pixel_format: String,
    /// Average frames per second; `None` if the file has no rate.
    pub fps: Option<f64>,
    /// The number of frames to show, if the container states it.
    pub frames: Option<u64>,
    /// Whether the edit list hides some of the container's frames. `frames` is then computed from duration and average rate, and
    /// approximate.
    pub hides_frames: bool,
    /// Seconds; `None` for a live stream.
    pub duration: Option<f64>,
    pub codec: String,
    /// The demuxer as ffprobe calls it: "mpegts", "hls", "mov,mp4,m4a,3gp,3g2,mj2".
    pub container: String,
    /// How many frames the decoder delays, because frames are not decoded in display order (B-frames).
    pub held_back: usize,
    /// Matrix as tagged, otherwise BT.601; range as tagged, otherwise by the pixel format.
    pub color: ColorDescription,
    /// The matrix as ffprobe calls it: "bt709", "smpte170m", "unspecified".
    pub color_space: String,
    /// Where chroma samples lie, as ffprobe calls it: "left", "topleft", "unspecified".
    pub chroma_location: String,
    /// The demuxer to pass to ffmpeg, because the one that ffmpeg chooses cannot read this input.
    pub demuxer: Option<&'static str>,
    /// Whether this ffmpeg knows `-fps_mode` (5.1 and later) instead of `-vsync`.
    pub has_fps_mode: bool,
}

/// Asks ffprobe about the video of `config`.
///
/// ffmpeg's multipart JPEG demuxer rejects parts without the type `image/jpeg`; some cameras send `image/jpg` or no type. For
/// those, a second ffprobe finds the images in the bytes.
pub fn probe(config: &VideoConfig, label: &str, stop: &Stop) -> Result<VideoInfo, ReadError> {
    let wrong = |reason| SourceError::permanent(format!("cannot read the video {}: {reason}", shown(&config.url)));
    let answer = ask(config, None, label, stop)?;
    if is_odd_multipart(&answer) && !config.input_args.iter().any(|arg| arg == "-f") {
        let info = parse(&ask(config, Some(RAW_JPEG), label, stop)?).map_err(wrong)?;
        return Ok(VideoInfo { demuxer: Some(RAW_JPEG), ..info });
    }
    Ok(parse(&answer).map_err(wrong)?)
}

/// Whether this is a multipart JPEG stream of which ffmpeg could not read a single part.
fn is_odd_multipart(answer: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    answer["format"]["format_name"] == "mpjpeg" && answer["streams"][0]["width"].as_u64().unwrap_or(0) == 0
}

/// Returns the arguments that this input needs: a session description refers to network streams, which ffmpeg opens from a file
/// only if they are allowed explicitly.
pub fn input_options(config: &VideoConfig, demuxer: Option<&'static str>) -> Vec<&'static str> {
    let mut args = Vec::new();
    if is_session_description(&config.url) && !config.input_args.iter().any(|arg| arg == "-protocol_whitelist") {
        args.extend(["-protocol_whitelist", "file,crypto,data,udp,rtp,srtp"]);
    }
    args.extend(demuxer.iter().flat_map(|demuxer| ["-f", demuxer]));
    args
}

/// Runs ffprobe and returns its answer.
fn ask(config: &VideoConfig, demuxer: Option<&'static str>, label: &str, stop: &Stop) -> Result<Vec<u8>, ReadError> {
    let mut args =
        ["-v", "error", "-hide_banner", "-print_format", "json", "-show_program_version", "-show_format"].to_vec();
    args.extend(["-show_streams", "-select_streams", "v"]);
    args.extend(probe_args(&config.input_args));
    args.extend(input_options(config, demuxer));
    let input = input(&config.url);
    args.extend(["-i", &input]);
    let args = args.into_iter().map(str::to_owned).collect();
    let mut child = decoder_process::spawn(&beside(&config.ffmpeg.program), config, label, args)?;
    let mut answer = vec![0; MAX_ANSWER_BYTES];
    match fill(&mut child, &mut answer, stop, config.timeout, "answer", || shown(&config.url)) {
        Err(ReadError::Ended(read)) => answer.truncate(read),
        result => result?,
    }
    let Some(status) = child.exit_status(stop) else {
        return Err(unfinished(&shown(&config.url), stop));
    };
    if !status.success() {
        return Err(refused(config, &child.last_lines()).into());
    }
    Ok(answer)
}

/// Asks ffprobe about a stream that begins with `start`; `demuxer` is ffmpeg's name for its format, and `origin` names the stream
/// in errors.
pub fn probe_start(
    config: &RtspConfig,
    demuxer: &str,
    start: &[u8],
    label: &str,
    origin: &str,
    stop: &Stop,
) -> Result<VideoInfo, ReadError> {
    let args = ["-v", "error", "-hide_banner", "-print_format", "json", "-show_program_version", "-show_format"];
    let args = args.into_iter().chain(["-show_streams", "-f", demuxer, "-i", "pipe:0"]).map(str::to_owned).collect();
    let mut child = decoder_process::spawn_fed(&beside(&config.ffmpeg.program), config, label, args)?;
    let mut input = child.take_input();
    let mut answer = vec![0; MAX_ANSWER_BYTES];
    let (read, status, lines) = thread::scope(|scope| {
        // On its own thread, because `start` may be larger than the pipe. If ffprobe exits, the write fails.
        let write = move || {
            if let Some(input) = &mut input {
                // ffprobe may have seen enough before it has read everything.
                let _ = input.write_all(start);
            }
        };
        let writer = thread::Builder::new().name("probe".to_owned()).spawn_scoped(scope, write);
        writer.map_err(|error| SourceError::transient(format!("cannot start a thread: {error}")))?;
        let read = fill(&mut child, &mut answer, stop, config.timeout, "answer", || origin.to_owned());
        let status = if let Err(ReadError::Ended(_)) = &read { child.exit_status(stop) } else { None };
        let lines = child.last_lines();
        drop(child);
        Ok::<_, SourceError>((read, status, lines))
    })?;
    match read {
        Err(ReadError::Ended(read)) => answer.truncate(read),
        result => result?,
    }
    let Some(status) = status else { return Err(unfinished(origin, stop)) };
    let wrong = |reason: &str| {
        let remedy = decoder_process::memory_remedy(config.ffmpeg.max_memory_bytes, &lines);
        SourceError::transient(format!("cannot read the video of {origin}: {reason}{remedy}"))
    };
    if !status.success() {
        return Err(wrong(lines.last().map_or("ffprobe gave no reason", String::as_str)).into());
    }
    Ok(parse(&answer).map_err(|reason| wrong(&reason))?)
}

/// Returns why ffprobe has no exit status: it was stopped, or it did not exit by itself.
fn unfinished(origin: &str, stop: &Stop) -> ReadError {
    if stop.is_raised() {
        return ReadError::Stopped;
    }
    let message =
        format!("cannot read the video of {origin}: ffprobe did not end: check that `ffprobe` runs by itself");
    SourceError::transient(message).into()
}

/// Returns the value of `-i`: a path gets the prefix `file:`, so that ffmpeg does not read a colon in it as a protocol.
pub fn input(url: &str) -> String {
    if Path::new(url).exists() { format!("file:{url}") } else { url.to_owned() }
}

/// Returns a URL for the log and for messages: without secrets, like the lines of ffmpeg.
pub fn shown(url: &str) -> String {
    redact_line(url)
}

/// Checks whether the file of `config` can be opened. It checks neither streams nor inputs that only ffmpeg understands.
pub fn check_file(config: &VideoConfig) -> io::Result<()> {
    let name = config.url.strip_prefix("file:").unwrap_or(&config.url);
    // A protocol (concat:a|b), an image sequence (%03d, *), or the input of another demuxer (testsrc with `-f lavfi`).
    if name.contains([':', '%', '*', '?']) || !config.input_args.is_empty() {
        return Ok(());
    }
    let path = Path::new(name);
    if fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(access(path, Access::READ_OK)?)
}

/// Returns the error of a video file that cannot be opened.
pub fn cannot_open(config: &VideoConfig, error: &io::Error) -> SourceError {
    let url = shown(&config.url);
    SourceError::permanent(match error.kind() {
        io::ErrorKind::NotFound => format!("cannot open the video {url}: there is no such file"),
        io::ErrorKind::IsADirectory => {
            format!("cannot open the video {url}: it is a folder; name a file in it, or set `type = \"images\"`")
        }
        _ => format!("cannot open the video {url}: {error}"),
    })
}

/// Returns the ffprobe that belongs to `ffmpeg`.
pub fn beside(ffmpeg: &Path) -> PathBuf {
    match ffmpeg.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.join("ffprobe"),
        _ => PathBuf::from("ffprobe"),
    }
}

/// Whether ffmpeg decodes a different part of the file than ffprobe describes.
pub fn is_part(input_args: &[String]) -> bool {
    const PART: [&str; 8] = ["-ss", "-sseof", "-t", "-to", "-stream_loop", "-r", "-skip_frame", "-discard"];
    input_args.iter().any(|arg| PART.contains(&arg.as_str()))
}

fn probe_args(input_args: &[String]) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut args = input_args.iter();
    while let Some(arg) = args.next() {
        if !FFMPEG_ONLY.split(' ').any(|name| name == arg) {
            kept.push(arg.as_str());
        } else if arg != "-re" {
            args.next();
        }
    }
    kept
}

/// Returns the error of an ffprobe that failed; its last line is the reason.
fn refused(config: &VideoConfig, lines: &[String]) -> SourceError {
    let url = &shown(&config.url);
    let said = lines.last().map_or("ffprobe gave no reason", |line| reason(line, url));
    if is_session_description(&config.url) && check_file(config).is_ok() {
        return SourceError::transient(format!(
            "cannot play the session of {url}: {said}; check that the sender runs and sends to this machine"
        ));
    }
    if is_remote(url) {
        return SourceError::transient(format!(
            "cannot open the video {url}: {said}; check the address and the network"
        ));
    }
    let missing = !Path::new(url).exists() && said.contains("No such file");
    let failed = if missing { Err(io::ErrorKind::NotFound.into()) } else { check_file(config) };
    if let Err(error) = failed {
        return cannot_open(config, &error);
    }
    let remedy = decoder_process::memory_remedy(config.ffmpeg.max_memory_bytes, lines);
    SourceError::permanent(format!(
        "cannot read the video {url}: not a video, or damaged at its start ({said}){remedy}"
    ))
}

/// Removes the input's name (`url` as shown) from the start of ffmpeg's line, because the error already has it.
pub fn reason<'a>(line: &'a str, url: &str) -> &'a str {
    let rest = line.strip_prefix("file:").unwrap_or(line);
    rest.strip_prefix(url).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line)
}

/// Parses ffprobe's answer. The error is a sentence: only the error of [`probe`] adds the context.
pub fn parse(answer: &[u8]) -> Result<VideoInfo, String> {
    let answer: Value =
        serde_json::from_slice(answer).map_err(|error| format!("ffprobe's answer is not JSON: {error}"))?;
    // ffmpeg renders a text file as an ANSI terminal would.
    if answer["format"]["format_name"] == "tty" {
        return Err("it is a text file".to_owned());
    }
    let streams = answer["streams"].as_array();
    // ffmpeg reports a cover image in a music file as a video stream.
    let stream = streams
        .into_iter()
        .flatten()
        .find(|stream| stream["disposition"]["attached_pic"] != 1)
        .ok_or("it has no video in it, only sound or other streams")?;
    let side = |name: &str| stream[name].as_u64().and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0);
    let (Some(width), Some(height)) = (side("width"), side("height")) else {
        return Err("its size is unknown: the file is damaged, or this ffmpeg lacks its codec".to_owned());
    };
    let pixel_format = stream["pix_fmt"].as_str().ok_or("its pixel format is unknown: the file may be damaged")?;
    let (width, height) = if is_turned(stream) { (height, width) } else { (width, height) };
    let rate = |name: &str| ratio(stream[name].as_str()?, '/').filter(|rate| RATES.contains(rate));
    let text_number = |value: &Value| value.as_str().and_then(|text| text.parse::<f64>().ok()).filter(|n| *n > 0.0);
    let stored = stream["nb_frames"].as_str().and_then(|text| text.parse().ok()).filter(|&frames| frames <= MAX_FRAMES);
    // The edit list of MP4 and MOV (ISO/IEC 14496-12, 8.6.6) shortens the stream's duration, but not its frame count.
    let has_edits =
        answer["format"]["format_name"].as_str().is_some_and(|names| names.split(',').any(|name| name == "mp4"));
    let lasting = text_number(&stream["duration"]).zip(rate("avg_frame_rate")).filter(|_| has_edits);
    let lasting = lasting.map(|(seconds, rate)| (seconds * rate + 0.001) as u64);
    let hides_frames = stored.zip(lasting).is_some_and(|(stored, lasting)| lasting + 1 < stored);
    Ok(VideoInfo {
        width,
        height,
        pixel_format: pixel_format.to_owned(),
        fps: rate("avg_frame_rate").or_else(|| rate("r_frame_rate")),
        frames: if hides_frames { lasting } else { stored },
        hides_frames,
        demuxer: None,
        duration: text_number(&answer["format"]["duration"]).or_else(|| text_number(&stream["duration"])),
        held_back: stream["has_b_frames"].as_u64().map_or(0, |frames| frames.min(MAX_HELD_BACK) as usize),
        codec: stream["codec_name"].as_str().unwrap_or("unknown codec").to_owned(),
        container: answer["format"]["format_name"].as_str().unwrap_or_default().to_owned(),
        color: color(stream, pixel_format),
        color_space: stream["color_space"].as_str().unwrap_or("unspecified").to_owned(),
        chroma_location: stream["chroma_location"].as_str().unwrap_or("unspecified").to_owned(),
        has_fps_mode: has_fps_mode(answer["program_version"]["version"].as_str().unwrap_or("")),
    })
}

/// Whether ffmpeg will rotate by 90 degrees: the display matrix, or the older tag.
fn is_turned(stream: &Value) -> bool {
    let sides = stream["side_data_list"].as_array();
    let matrix = sides.and_then(|list| list.iter().find_map(|side| side["rotation"].as_f64()));
    let tag = || stream["tags"]["rotate"].as_str().and_then(|text| text.parse().ok());
    let degrees: f64 = matrix.or_else(tag).unwrap_or(0.0);
    (degrees.rem_euclid(180.0) - 90.0).abs() < 1.0
}

fn color(stream: &Value, pixel_format: &str) -> ColorDescription {
    let matrix = match stream["color_space"].as_str() {
        Some("bt709") => ColorMatrix::Bt709,
        Some("bt2020nc" | "bt2020c") => ColorMatrix::Bt2020,
        // All others are BT.601, close to it, or unknown, which ffmpeg treats as BT.601 at any size.
        _ => ColorMatrix::Bt601,
    };
    // ffmpeg reads grey and the yuvj formats as full range whatever the tag says.
    let full_by_format = pixel_format.starts_with("yuvj") || pixel_format.starts_with("gray");
    let full = full_by_format || stream["color_range"].as_str() == Some("pc");
    ColorDescription::new(matrix, if full { ColorRange::Full } else { ColorRange::Limited })
}

/// Decides by version: "4.4.2-0ubuntu0.22.04.1", "n7.1", "N-112233-gabcdef" (built from git: new).
fn has_fps_mode(version: &str) -> bool {
    let version = version.strip_prefix('n').unwrap_or(version);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), minor) => (major, minor.unwrap_or(0)) >= (5, 1),
        (None, _) => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::source::SourceErrorKind;

    fn answer(stream: &str) -> Result<VideoInfo, String> {
        let text = format!(
            r#"{{"program_version":{{"version":"5.1.9"}},"streams":[{stream}],"format":{{"duration":"2.5"}}}}"#
        );
        parse(text.as_bytes())
    }

    #[test]
    fn a_video_that_cannot_be_opened_is_named_with_the_reason() {
        let config = VideoConfig { url: "/films/a.mp4".into(), ..VideoConfig::default() };
        let said = |kind: io::ErrorKind| {
            let error = cannot_open(&config, &kind.into());
            assert_eq!(error.kind, SourceErrorKind::Permanent);
            error.to_string()
        };
        assert_eq!(said(io::ErrorKind::NotFound), "cannot open the video /films/a.mp4: there is no such file");
        assert!(said(io::ErrorKind::IsADirectory).contains("it is a folder; name a file in it"));
        assert_eq!(said(io::ErrorKind::PermissionDenied), "cannot open the video /films/a.mp4: permission denied");
    }

    #[test]
    fn a_stream_is_read_with_its_rotation_and_colours() {
        let info = answer(
            r#"{"codec_name":"h264","width":640,"height":360,"pix_fmt":"yuv420p","avg_frame_rate":"30000/1001",
                "nb_frames":"75","color_space":"bt709","color_range":"pc","side_data_list":[{"rotation":-90}]}"#,
        )
        .unwrap();
        assert_eq!((info.width, info.height), (360, 640));
        assert!((info.fps.unwrap() - 29.97).abs() < 0.001);
        assert_eq!((info.frames, info.duration), (Some(75), Some(2.5)));
        assert_eq!(info.color, ColorDescription::new(ColorMatrix::Bt709, ColorRange::Full));
        assert!(info.has_fps_mode);
    }

    #[test]
    fn an_untagged_stream_is_bt601_limited_and_may_have_no_rate() {
        let info = answer(r#"{"width":1920,"height":1080,"pix_fmt":"yuv420p","avg_frame_rate":"0/0"}"#).unwrap();
        assert_eq!(info.color, ColorDescription::default());
        assert_eq!(info.fps, None);
        let info = answer(r#"{"width":8,"height":8,"pix_fmt":"yuvj420p","tags":{"rotate":"180"}}"#).unwrap();
        assert_eq!(info.color, ColorDescription::JPEG);
    }

    #[test]
    fn numbers_that_cannot_be_are_not_believed() {
        let of = |rate: &str, frames: &str| {
            let info = answer(&format!(
                r#"{{"width":8,"height":8,"pix_fmt":"yuv420p","avg_frame_rate":"{rate}","nb_frames":"{frames}"}}"#
            ));
            let VideoInfo { fps, frames, .. } = info.unwrap();
            (fps, frames)
        };
        assert_eq!(of("1/1000", "4294967295"), (Some(0.001), Some(4_294_967_295)));
        for (rate, frames) in [
            ("1/4294967295", "4294967296"),
            ("NaN/1", "18446744073709551615"),
            ("inf/1", "-1"),
            ("-25/1", "1e3"),
            ("25/-0", ""),
            ("1001/1", "NaN"),
        ] {
            assert_eq!(of(rate, frames), (None, None), "{rate} {frames}");
        }
        for side in ["-8", "0", "8.5", "1e3", "4294967296", "18446744073709551616", "null", "\"8\""] {
            let error = answer(&format!(r#"{{"width":8,"height":{side},"pix_fmt":"gray"}}"#)).unwrap_err();
            assert!(error.contains("size is unknown"), "{error}");
        }
    }

    #[test]
    fn what_is_no_video_is_said() {
        assert!(answer("").unwrap_err().contains("no video in it"));
        let cover = r#"{"width":8,"height":8,"pix_fmt":"rgb24","disposition":{"attached_pic":1}}"#;
        assert!(answer(cover).unwrap_err().contains("no video in it"));
        assert!(answer(r#"{"width":0,"height":0}"#).unwrap_err().contains("size is unknown"));
        assert!(parse(b"{").unwrap_err().contains("not JSON"));
    }

    #[test]
    fn the_option_for_passing_frames_through_goes_by_version() {
        for old in ["4.2.7-0ubuntu0.1", "4.4.2", "5.0", "n5.0.1"] {
            assert!(!has_fps_mode(old), "{old}");
        }
        for new in ["5.1.9-0+deb12u1", "n7.1", "8.0", "N-112233-gabcdef", ""] {
            assert!(has_fps_mode(new), "{new}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        assert_eq!(shown("rtsp://me:p@ss@camera:554/1"), "rtsp://***@camera:554/1");
        assert_eq!(shown("http://camera/a.mp4?apikey=hush&x=1"), "http://camera/a.mp4?apikey=***&x=1");
        assert_eq!(shown("film@home.mp4"), "film@home.mp4");
    }

    #[test]
    fn a_multipart_stream_without_a_readable_part_is_one_of_pictures() {
        let answer = |format: &str, width: u32| {
            format!(r#"{{"streams":[{{"codec_name":"mjpeg","width":{width}}}],"format":{{"format_name":"{format}"}}}}"#)
        };
        assert!(is_odd_multipart(answer("mpjpeg", 0).as_bytes()));
        assert!(!is_odd_multipart(answer("mpjpeg", 640).as_bytes()));
        assert!(!is_odd_multipart(answer("mjpeg", 0).as_bytes()) && !is_odd_multipart(b"{"));
    }

    #[test]
    fn a_session_description_may_use_the_network_unless_the_user_says_what_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cam.sdp");
        fs::write(&path, "v=0\n").unwrap();
        let config = |url: &str, args: &[&str]| VideoConfig {
            url: url.to_owned(),
            input_args: args.iter().map(|&arg| arg.to_owned()).collect(),
            ..VideoConfig::default()
        };
        let path = path.to_str().unwrap();
        assert_eq!(input_options(&config(path, &[]), None)[0], "-protocol_whitelist");
        assert!(input_options(&config(path, &["-protocol_whitelist", "file"]), None).is_empty());
        assert!(input_options(&config("rtsp://cam/live.sdp", &[]), None).is_empty());
        assert_eq!(input_options(&config("http://cam/1", &[]), Some(RAW_JPEG)), ["-f", "mjpeg"]);
    }

    #[test]
    fn arguments_of_ffmpeg_alone_are_kept_from_ffprobe() {
        let args = ["-rtsp_transport", "tcp", "-re", "-ss", "3", "-f", "mpegts"].map(str::to_owned);
        assert_eq!(probe_args(&args), ["-rtsp_transport", "tcp", "-f", "mpegts"]);
    }

    #[test]
    fn in_mp4_alone_an_edit_list_may_hide_frames() {
        let of = |format: &str, seconds: &str| {
            let stream = r#""width":8,"height":8,"pix_fmt":"yuv420p","avg_frame_rate":"25/1","nb_frames":"100""#;
            let answer =
                format!(r#"{{"streams":[{{{stream},"duration":"{seconds}"}}],"format":{{"format_name":"{format}"}}}}"#);
            let VideoInfo { frames, hides_frames, .. } = parse(answer.as_bytes()).unwrap();
            (frames, hides_frames)
        };
        assert_eq!(of("mov,mp4,m4a,3gp,3g2,mj2", "2.0"), (Some(50), true));
        // Rounding is no edit, and other containers have no such list.
        assert_eq!(of("mov,mp4,m4a,3gp,3g2,mj2", "3.96"), (Some(100), false));
        assert_eq!(of("avi", "2.0"), (Some(100), false));
    }

    #[test]
    fn an_ffprobe_that_fails_is_explained_by_what_the_url_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        for name in ["list.m3u8", "a.sdp", "film.mp4"] {
            fs::write(at(name), "").unwrap();
        }
        let invalid = "Invalid data found when processing input";
        for (url, said, is_transient, expected) in [
            (at("a.sdp"), invalid, true, "cannot play the session of URL: SAID; check that the sender runs"),
            (at("gone.sdp"), invalid, false, "cannot open the video URL: there is no such file"),
            (
                "http://h/a.mp4".to_owned(),
                invalid,
                true,
                "cannot open the video URL: SAID; check the address and the network",
            ),
            (at("gone.mp4"), invalid, false, "cannot open the video URL: there is no such file"),
            (at("gone-%d.png"), "No such file or directory", false, "cannot open the video URL: there is no such file"),
            (folder.path().display().to_string(), invalid, false, "cannot open the video URL: it is a folder;"),
            (at("film.mp4"), invalid, false, "cannot read the video URL: not a video, or damaged at its start (SAID)"),
            // A list of parts, of which one is missing.
            (
                at("list.m3u8"),
                "No such file or directory",
                false,
                "cannot read the video URL: not a video, or damaged at its start (SAID)",
            ),
        ] {
            let config = VideoConfig { url: url.clone(), ..VideoConfig::default() };
            let error = refused(&config, &["an earlier line".to_owned(), format!("{url}: {said}")]);
            let expected = expected.replace("URL", &url).replace("SAID", said);
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(error.kind == SourceErrorKind::Transient, is_transient, "{error}");
        }
        let config = VideoConfig { url: at("film.mp4"), ..VideoConfig::default() };
        assert!(refused(&config, &[]).to_string().contains("(ffprobe gave no reason)"));
    }
}
