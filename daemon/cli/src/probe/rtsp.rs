//! `visiond probe --rtsp`: shows a network camera's streams, and samples its video.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;
use visiond_capture::{OfferedStream, RtspOffer, Watched};
use visiond_config::quote;
use visiond_config::types::{RtspConfig, RtspTransport};
use visiond_frames::clock::SystemClock;
use visiond_system::exit::{Exit, ExitError};

use super::network::{CertificateReport, NetworkArgs, advice_and_snippet, cannot_ask, source_toml};
use crate::output::{labelled, print_report};

/// The key-frame interval above which to advise a shorter one: decoding needs a key frame to start, and after every loss.
const LONG_KEY_INTERVAL_S: f64 = 4.0;

/// The report, printed as JSON or text.
#[derive(Debug, Serialize)]
struct CameraReport {
    /// Without user and password.
    url: String,
    /// The certificate of a camera with TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<CertificateReport>,
    transport: &'static str,
    streams: Vec<StreamReport>,
    watched: WatchedReport,
    /// Why the video ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// Advice on the camera's settings, as sentences.
    advice: Vec<String>,
    /// Configuration of this camera.
    toml: String,
}

#[derive(Debug, Serialize)]
struct StreamReport {
    media: String,
    encoding: String,
    /// In pixels, if the camera states them.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    /// Frames per second, if the camera states them.
    #[serde(skip_serializing_if = "Option::is_none")]
    announced_fps: Option<f32>,
    readable: bool,
    played: bool,
}

#[derive(Debug, Serialize)]
struct WatchedReport {
    pictures: u32,
    damaged: u64,
    seconds: f64,
    /// `null` if fewer than two frames arrived.
    fps: Option<f64>,
    bits_per_s: Option<u64>,
    /// Seconds; `null` if fewer than two key frames arrived.
    key_frame_interval_s: Option<f64>,
    /// The origin of the frames' times: `"sender reports"` or `"arrival"`.
    times: &'static str,
}

/// Queries the camera, and prints its streams.
pub(super) fn run(url: &str, args: &NetworkArgs, json: bool) -> Result<Exit, ExitError> {
    args.check_scheme(url, ["rtsp://", "rtsps://"], "rtsp://192.168.1.20/stream1")?;
    let config = RtspConfig {
        url: url.to_owned(),
        login: args.login_file()?,
        transport: args.transport,
        ca: args.ca.clone(),
        fingerprint: args.fingerprint,
        insecure: args.insecure,
        ..RtspConfig::default()
    };
    let offer = RtspOffer::ask(&config, args.watch, Arc::new(SystemClock)).map_err(|error| cannot_ask(&error))?;
    let report = CameraReport::new(&offer, args, args.has_login(url));
    print_report(json, &report, text)
}

impl CameraReport {
    fn new(offer: &RtspOffer, args: &NetworkArgs, has_login: bool) -> Self {
        let transport = args.transport;
        let url = offer.url.clone();
        let mut toml = source_toml("rtsp", &url, offer.has_secret, has_login);
        if transport != RtspTransport::Tcp {
            let _ = writeln!(toml, "transport = {}", quote(transport.name()));
        }
        let certificate = offer.certificate.as_deref().map(|seen| CertificateReport::new(seen, args));
        if let Some(certificate) = &certificate {
            toml += &certificate.toml(args);
        }
        Self {
            url,
            certificate,
            transport: transport.name(),
            streams: offer.streams.iter().map(StreamReport::new).collect(),
            watched: WatchedReport::new(&offer.watched),
            ended: offer.ended.clone(),
            advice: advice(&offer.watched, transport, offer.ended.is_some()),
            toml,
        }
    }
}

impl StreamReport {
    fn new(stream: &OfferedStream) -> Self {
        let OfferedStream { media, encoding, size, announced_fps, is_readable, is_played } = stream;
        Self {
            media: media.clone(),
            encoding: encoding.clone(),
            width: size.map(|size| size[0]),
            height: size.map(|size| size[1]),
            announced_fps: *announced_fps,
            readable: *is_readable,
            played: *is_played,
        }
    }

    fn line(&self) -> String {
        let mut out = format!("{} {}", self.media, self.encoding);
        if let (Some(width), Some(height)) = (self.width, self.height) {
            let _ = write!(out, " {width}x{height}");
        }
        if let Some(fps) = self.announced_fps {
            let _ = write!(out, ", announced with {fps} frames a second");
        }
        out + match (self.played, self.readable) {
            (true, _) => ": visiond plays it",
            (false, true) => ": not played, it is not the first",
            (false, false) => ": not read",
        }
    }
}

impl WatchedReport {
    fn new(watched: &Watched) -> Self {
        let hundredths = |number: f64| (number * 100.0).round() / 100.0;
        Self {
            pictures: watched.pictures,
            damaged: watched.damaged,
            seconds: hundredths(watched.seconds),
            fps: watched.fps().map(hundredths),
            bits_per_s: watched.bits_per_s().map(|bits| bits.round() as u64),
            key_frame_interval_s: watched.key_frame_interval_s.map(hundredths),
            times: if by_reports(watched) { "sender reports" } else { "arrival" },
        }
    }

    fn lines(&self) -> [(&'static str, String); 2] {
        let mut video = format!("{} frames in {} s", self.pictures, self.seconds);
        if let (Some(fps), Some(bits)) = (self.fps, self.bits_per_s) {
            let _ = write!(video, ", {fps} a second, {:.1} Mbit/s", bits as f64 / 1e6);
        }
        if let Some(interval) = self.key_frame_interval_s {
            let _ = write!(video, ", a key frame every {interval} s");
        }
        let _ =
            write!(video, ", {} damaged", if self.damaged == 0 { "none".to_owned() } else { self.damaged.to_string() });
        [
            ("came", video),
            (
                "times",
                format!(
                    "frames have the time of their {}",
                    match self.times {
                        "arrival" => "arrival here",
                        _ => "capture, by the camera's sender reports",
                    }
                ),
            ),
        ]
    }
}

/// Whether most frames are timed by a sender report; the first report arrives after some frames.
fn by_reports(watched: &Watched) -> bool {
    2 * watched.timed_by_reports > watched.pictures
}

fn advice(watched: &Watched, transport: RtspTransport, has_ended: bool) -> Vec<String> {
    let mut advice = Vec::new();
    if has_ended {
        advice.push(
            "the video ended while visiond watched: close other clients, or check the camera and the network"
                .to_owned(),
        );
    }
    match watched.key_frame_interval_s {
        Some(interval) if interval > LONG_KEY_INTERVAL_S => advice.push(format!(
            "a key frame every {interval:.1} s: after a loss there are no frames for that long; set the interval of key frames (GOP) to \
             2 s in the camera"
        )),
        None if watched.seconds > LONG_KEY_INTERVAL_S => advice.push(
            "no second key frame came: set the interval of key frames (GOP) to 2 s in the camera, or watch longer with --watch"
                .to_owned(),
        ),
        _ => {}
    }
    if watched.damaged > 0 {
        advice.push(match transport {
            RtspTransport::Tcp => "frames were damaged: restart the camera, or try another codec in it".to_owned(),
            RtspTransport::Udp => {
                "frames were damaged on the network: use --transport tcp, or check the network".to_owned()
            }
        });
    }
    if !by_reports(watched) && watched.seconds > LONG_KEY_INTERVAL_S {
        advice.push(
            "most frames had no plausible sender report: set the camera's clock (NTP) to have the times of capture"
                .to_owned(),
        );
    }
    advice
}

fn text(report: &CameraReport) -> String {
    let mut out = labelled("camera", &format!("{} over {}", report.url, report.transport));
    if let Some(certificate) = &report.certificate {
        out += &certificate.line();
    }
    for stream in &report.streams {
        out += &labelled("stream", &stream.line());
    }
    for (head, line) in report.watched.lines() {
        out += &labelled(head, &line);
    }
    if let Some(ended) = &report.ended {
        out += &labelled("ended", ended);
    }
    out + &advice_and_snippet(&report.advice, &report.toml)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::network::tests::args;
    use super::*;

    fn watched() -> Watched {
        Watched {
            pictures: 126,
            key_frames: 3,
            damaged: 0,
            timed_by_reports: 100,
            bytes: 1_250_000,
            seconds: 5.0,
            key_frame_interval_s: Some(2.0),
        }
    }

    #[test]
    fn a_good_camera_gets_no_advice_and_its_configuration_has_no_password() {
        let url = "rtsp://10.0.0.2/a".to_owned();
        let stream = |media: &str, encoding: &str, size, is_played| OfferedStream {
            media: media.to_owned(),
            encoding: encoding.to_owned(),
            size,
            announced_fps: None,
            is_readable: media == "video",
            is_played,
        };
        let streams = vec![stream("video", "h264", Some([1920, 1080]), true), stream("audio", "pcma", None, false)];
        let offer = RtspOffer { url, has_secret: false, certificate: None, streams, watched: watched(), ended: None };
        let args = args(&["--rtsp", "u", "--transport", "udp"]).unwrap();
        let told = text(&CameraReport::new(&offer, &args, true));
        let expected = "\
camera       rtsp://10.0.0.2/a over udp
stream       video h264 1920x1080: visiond plays it
stream       audio pcma: not read
came         126 frames in 5 s, 25 a second, 2.0 Mbit/s, a key frame every 2 s, none damaged
times        frames have the time of their capture, by the camera's sender reports

Configuration of this camera:

[[camera]]
name = \"camera\"

[camera.source]
type = \"rtsp\"
url = \"rtsp://10.0.0.2/a\"
login = \"/etc/visiond/camera.login\"   # one line, user:password; readable by visiond alone
transport = \"udp\"
";
        assert_eq!(told, expected);
    }

    #[test]
    fn each_fault_has_its_advice() {
        let count = |watched: Watched| advice(&watched, RtspTransport::Tcp, false).len();
        assert_eq!(advice(&watched(), RtspTransport::Udp, true).len(), 1);
        assert_eq!(count(watched()), 0);
        assert_eq!(count(Watched { key_frame_interval_s: Some(10.0), ..watched() }), 1);
        assert_eq!(count(Watched { key_frame_interval_s: None, ..watched() }), 1);
        assert_eq!(count(Watched { damaged: 2, ..watched() }), 1);
        assert_eq!(count(Watched { timed_by_reports: 3, ..watched() }), 1);
        // Too short to measure.
        assert_eq!(count(Watched { seconds: 1.0, key_frame_interval_s: None, timed_by_reports: 0, ..watched() }), 0);
    }

    #[test]
    fn advice_begins_above_four_seconds_and_where_most_times_are_of_arrival() {
        let tcp = RtspTransport::Tcp;
        let none = Watched { seconds: 4.0, key_frame_interval_s: None, timed_by_reports: 63, ..watched() };
        assert!(!by_reports(&none) && by_reports(&Watched { timed_by_reports: 64, ..watched() }));
        for (watched, transport, has_ended, expected) in [
            (Watched { key_frame_interval_s: Some(4.0), ..watched() }, tcp, false, &[][..]),
            (Watched { key_frame_interval_s: Some(4.06), ..watched() }, tcp, false, &["a key frame every 4.1 s: "]),
            (none, tcp, false, &[]),
            (
                Watched { seconds: 4.5, ..none },
                tcp,
                false,
                &["no second key frame came: ", "most frames had no plausible sender report: "],
            ),
            (Watched { damaged: 1, ..watched() }, tcp, false, &["frames were damaged: restart the camera"]),
            (Watched { damaged: 1, ..watched() }, RtspTransport::Udp, false, &["frames were damaged on the network: "]),
            (watched(), tcp, true, &["the video ended while visiond watched: "]),
        ] {
            let found = advice(&watched, transport, has_ended);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(found, start)| found.starts_with(start)), "{found:?}");
        }
    }

    #[test]
    fn a_bad_camera_is_described_with_what_is_known() {
        let stream = |is_readable, announced_fps| OfferedStream {
            media: "video".to_owned(),
            encoding: "h264".to_owned(),
            size: None,
            announced_fps,
            is_readable,
            is_played: false,
        };
        let few = Watched {
            pictures: 1,
            key_frames: 1,
            damaged: 2,
            timed_by_reports: 0,
            bytes: 1_000,
            seconds: 1.006,
            key_frame_interval_s: None,
        };
        let offer = RtspOffer {
            url: "rtsps://10.0.0.2/***".to_owned(),
            has_secret: true,
            certificate: Some("AB:CD".to_owned()),
            streams: vec![stream(true, Some(12.5)), stream(false, None)],
            watched: few,
            ended: Some("the camera closed the connection".to_owned()),
        };
        let args = args(&["--rtsp", "u", "--insecure"]).unwrap();
        let told = text(&CameraReport::new(&offer, &args, false));
        let expected = "\
camera       rtsps://10.0.0.2/*** over tcp
certificate  accepted by nothing: any would be; SHA-256 AB:CD
stream       video h264, announced with 12.5 frames a second: not played, it is not the first
stream       video h264: not read
came         1 frames in 1.01 s, 2 damaged
times        frames have the time of their arrival here
ended        the camera closed the connection
advice       the video ended while visiond watched: close other clients, or check the camera and the network
advice       frames were damaged: restart the camera, or try another codec in it

Configuration of this camera:

[[camera]]
name = \"camera\"

[camera.source]
type = \"rtsp\"
url = \"rtsps://10.0.0.2/***\"   # replace *** by what is there
fingerprint = \"AB:CD\"
";
        assert_eq!(told, expected);
    }
}
