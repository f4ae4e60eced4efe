//! Starts ffmpeg, ffprobe and GStreamer, which decode untrusted data, in a sandbox that allows only what they need.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use visiond_config::format_size;
use visiond_config::types::{RtspConfig, VideoConfig};
use visiond_system::child_process::{Child, Launch};
use visiond_system::confinement::{Confinement, Sockets};
use visiond_system::find_program::find_program;
use visiond_system::stop::Stop;

use super::gstreamer_registry;
use super::source::SourceError;

/// Prefixes of ffmpeg options that use, or may use, hardware: they name an accelerator, a device or a decoder.
const HARDWARE: [&str; 7] = ["-hwaccel", "-init_hw_device", "-vaapi_device", "-qsv_device", "-c", "-codec", "-vcodec"];

/// Values of `-f` that read devices.
const DEVICE_FORMATS: [&str; 8] =
    ["v4l2", "video4linux2", "kmsgrab", "fbdev", "decklink", "libdc1394", "iec61883", "x11grab"];

/// File extensions of formats that refer to other files.
const LISTS: [&str; 9] = ["m3u8", "m3u", "mpd", "ffconcat", "concat", "txt", "sdp", "ifo", "cue"];

/// Starts ffmpeg, or the ffprobe beside it, for the video of `config`.
pub fn spawn(program: &Path, config: &VideoConfig, label: &str, args: Vec<String>) -> Result<Child, SourceError> {
    let mut command = Command::new(program);
    command.args(args);
    let confinement = confinement(program, config);
    let launch = Launch { label, confinement, ..Launch::default() };
    Child::spawn(command, &launch).map_err(|error| cannot_start(program, &error))
}

/// Starts ffmpeg, or the ffprobe beside it, for a stream that arrives on standard input. It needs neither files nor the network.
pub fn spawn_fed(program: &Path, config: &RtspConfig, label: &str, args: Vec<String>) -> Result<Child, SourceError> {
    let mut command = Command::new(program);
    command.args(args);
    let memory_bytes = Some(config.ffmpeg.max_memory_bytes);
    let confinement =
        can_confine(program, config.ffmpeg.confined).then(|| Confinement { memory_bytes, ..Confinement::default() });
    let launch = Launch { label, is_fed: true, confinement, ..Launch::default() };
    Child::spawn(command, &launch).map_err(|error| cannot_start(program, &error))
}

/// Starts gst-launch for a stream that arrives on standard input. It writes frames to descriptor 3, and uses the board's devices.
pub fn spawn_gstreamer(
    program: &Path,
    confined: bool,
    label: &str,
    args: Vec<String>,
    stop: &Stop,
) -> Result<Child, SourceError> {
    let registry = gstreamer_registry::current(program, stop);
    let mut command = Command::new(program);
    // With a display that it cannot open, NVIDIA's converter fails.
    command.args(args).env_remove("DISPLAY");
    command.envs(registry.iter().map(|file| (gstreamer_registry::VARIABLE, file)));
    let readable = registry.into_iter().collect();
    let confinement =
        can_confine(program, confined).then(|| Confinement { readable, devices: true, ..Confinement::default() });
    let launch = Launch { label, is_fed: true, on_descriptor_3: true, confinement, ..Launch::default() };
    Child::spawn(command, &launch).map_err(|error| cannot_start_gstreamer(program, &error))
}

/// Returns the error of a GStreamer that cannot be started.
pub fn cannot_start_gstreamer(program: &Path, error: &io::Error) -> SourceError {
    let name = program.display();
    if error.kind() == io::ErrorKind::NotFound {
        let package = "install it (`apt install gstreamer1.0-tools gstreamer1.0-plugins-bad`)";
        SourceError::permanent(format!("the program {name}, which uses the board's decoder, is missing: {package}"))
    } else {
        SourceError::transient(format!("cannot start {name}: {error}"))
    }
}

/// Whether to confine a program. A snap cannot be confined: its launcher is setuid root, which the sandbox forbids.
fn can_confine(program: &Path, confined: bool) -> bool {
    let found = || find_program(program).and_then(|found| found.canonicalize().ok());
    confined && !found().is_some_and(|it| it.ends_with("snap"))
}

/// Returns the error of a program that cannot be started.
pub fn cannot_start(program: &Path, error: &io::Error) -> SourceError {
    let name = program.display();
    if error.kind() == io::ErrorKind::NotFound {
        SourceError::permanent(format!(
            "the program {name}, which reads videos, is missing: install it (`apt install ffmpeg`) or set `program` in \
             `[ffmpeg]` to its path"
        ))
    } else {
        SourceError::transient(format!("cannot start {name}: {error}"))
    }
}

/// Whether `url` is remote: such a video may disappear and come back.
pub fn is_remote(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme != "file")
}

/// Whether `url` is a session description (SDP, RFC 8866): its streams come over the network.
pub fn is_session_description(url: &str) -> bool {
    let name = url.strip_prefix("file:").unwrap_or(url);
    !is_remote(url) && Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("sdp"))
}

/// Whether the video of `url` comes over the network and may start at any time.
pub fn is_stream(url: &str) -> bool {
    is_remote(url) || is_session_description(url)
}

/// Returns the permissions for the decoder of `config`; `None` leaves it visiond's own.
fn confinement(program: &Path, config: &VideoConfig) -> Option<Confinement> {
    if !can_confine(program, config.ffmpeg.confined) {
        return None;
    }
    let VideoConfig { url, input_args, .. } = config;
    let is_hardware = |pair: &[String]| {
        let (option, value) = (&pair[0], pair.get(1).map_or("", String::as_str));
        let option = option.split_once(':').map_or(option.as_str(), |(option, _)| option);
        option.starts_with("-hwaccel")
            || HARDWARE.contains(&option)
            || (option == "-f" && DEVICE_FORMATS.contains(&value))
    };
    // The last pair has one argument.
    let mut pairs = (0..input_args.len()).map(|at| &input_args[at..(at + 2).min(input_args.len())]);
    let devices = url.starts_with("/dev/") || pairs.any(is_hardware);
    Some(Confinement {
        // An argument may name a certificate or another input.
        readable: readable(url).into_iter().chain(input_args.iter().map(PathBuf::from)).collect(),
        sockets: match is_remote(url) {
            true if is_multicast_name(url) => Sockets::InternetAndUnix,
            true => Sockets::Internet,
            false if input_args.is_empty() && !is_session_description(url) => Sockets::None,
            // `-protocol_whitelist` may allow a list of URLs or another input.
            false => Sockets::Internet,
        },
        devices,
        // GPU drivers reserve far more address space than they use.
        memory_bytes: (!devices).then_some(config.ffmpeg.max_memory_bytes),
    })
}

/// Returns the remedy for a program that ran out of memory; `lines` are its last lines.
pub fn memory_remedy(max_memory_bytes: u64, lines: &[String]) -> String {
    if !lines.iter().any(|line| line.contains("Cannot allocate memory")) {
        return String::new();
    }
    let limit = format_size(max_memory_bytes);
    format!(
        "; it may use {limit} of memory: make the video smaller, or raise `max_memory_bytes` in `[ffmpeg]` (`--input-memory`)"
    )
}

/// Returns the files that `url` names; for a list of files or a pattern, their folder. The URL may wrap them in protocols and
/// filters of ffmpeg, as in `concat:a.ts|b.ts`.
fn readable(url: &str) -> Vec<PathBuf> {
    if is_remote(url) {
        return Vec::new();
    }
    let pieces = url.split(['|', ':', '=', ',', ';']).filter(|piece| !piece.is_empty());
    let file = |name: &str| {
        let path = Path::new(name);
        let is_list = path.extension().is_some_and(|end| LISTS.iter().any(|list| end.eq_ignore_ascii_case(list)));
        match path.parent() {
            Some(folder) if is_list || name.contains(['*', '%', '?']) => {
                Some(if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
            }
            _ => path.exists().then(|| path.to_owned()),
        }
    };
    std::iter::once(url).chain(pieces).filter_map(file).collect()
}

/// Whether a URL's host is a multicast DNS name, which programs ask Avahi to resolve.
fn is_multicast_name(url: &str) -> bool {
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = host.split(':').next().unwrap_or_default();
    name.trim_end_matches('.').to_ascii_lowercase().ends_with(".local")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_config::types::FfmpegConfig;

    use super::*;

    fn of(url: &str, input_args: &[&str]) -> Confinement {
        let input_args = input_args.iter().map(|&arg| arg.to_owned()).collect();
        let config = VideoConfig { url: url.to_owned(), input_args, ..VideoConfig::default() };
        confinement(Path::new("ffmpeg"), &config).unwrap()
    }

    #[test]
    fn a_video_is_readable_by_itself_and_a_list_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (film, list) = (path("a:b.mp4"), path("live.m3u8"));
        for file in [&film, &list] {
            std::fs::write(file, "").unwrap();
        }
        let whole = folder.path().to_owned();
        for (url, readable) in [
            (film.clone(), PathBuf::from(&film)),
            (format!("file:{list}"), whole.clone()),
            (path("%03d.png"), whole.clone()),
            (path("*.png"), whole.clone()),
            (format!("concat:{}|{list}", path("gone.ts")), whole),
        ] {
            assert!(of(&url, &[]).readable.contains(&readable), "{url}");
        }
        assert_eq!(of(&film, &[]).readable, [PathBuf::from(&film)]);
        assert_eq!(of("*.png", &[]).readable, [PathBuf::from("."), PathBuf::from(".")]);
        assert!(of("testsrc=duration=1", &[]).readable.is_empty());
        assert!(of("rtsp://cam/etc/*", &[]).readable.is_empty());
        let ca = ["-ca_file", "/data/ca.pem"];
        assert!(of("https://cam/1", &ca).readable.contains(&PathBuf::from("/data/ca.pem")));
    }

    #[test]
    fn only_what_comes_over_the_network_gets_sockets() {
        for (url, args, sockets) in [
            ("/films/a.mp4", &[][..], Sockets::None),
            ("file:///films/a.mp4", &[], Sockets::None),
            ("/cams/door.SDP", &[], Sockets::Internet),
            ("/films/a.m3u8", &["-protocol_whitelist", "file,http,tcp"], Sockets::Internet),
            ("rtsp://user:word@10.0.0.1:554/1", &[], Sockets::Internet),
            ("rtsp://10.0.0.1/a.local", &[], Sockets::Internet),
            ("rtsp://user:w@rd@Door.Local:554/1", &[], Sockets::InternetAndUnix),
        ] {
            assert_eq!(of(url, args).sockets, sockets, "{url}");
        }
    }

    #[test]
    fn an_accelerator_a_decoder_or_a_device_opens_devices() {
        for args in [
            &["-hwaccel", "cuda"][..],
            &["-hwaccel_device", "/dev/dri/renderD128"],
            &["-rtsp_transport", "tcp", "-c:v", "h264_nvmpi"],
            &["-vcodec", "h264_v4l2m2m"],
            &["-f", "v4l2"],
        ] {
            let confinement = of("rtsp://cam/1", args);
            assert!(confinement.devices && confinement.memory_bytes.is_none(), "{args:?}");
        }
        assert!(of("/dev/video0", &[]).devices);
        for args in [&["-f", "lavfi"][..], &["-rtsp_transport", "tcp"], &["-cookies", "a=b"], &["-f"]] {
            let confinement = of("x", args);
            assert!(!confinement.devices && confinement.memory_bytes == Some(1 << 30), "{args:?}");
        }
    }

    #[test]
    fn a_video_that_need_not_be_confined_is_not() {
        let ffmpeg = FfmpegConfig { confined: false, ..FfmpegConfig::default() };
        let config = VideoConfig { ffmpeg, ..VideoConfig::default() };
        assert_eq!(confinement(Path::new("ffmpeg"), &config), None);
    }
}
