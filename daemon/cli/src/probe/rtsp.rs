//! `visiond probe --rtsp`: what a network camera offers, and how its video comes.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use visiond_capture::{OfferedStream, RtspOffer, Watched};
use visiond_config::types::{Fingerprint, RtspConfig, RtspTransport};
use visiond_config::{parse_word, quote};
use visiond_flow::clock::SystemClock;
use visiond_system::exit::{Exit, ExitError};

use crate::output::{labelled, print_report};
use crate::value_parsers::duration;

/// A key frame is needed to begin, and again after every loss.
const LONG_KEY_INTERVAL_S: f64 = 4.0;

/// Which network camera to ask, and how.
#[derive(Debug, clap::Args)]
pub(super) struct RtspArgs {
    /// Show only what this network camera offers, and watch its video for a while: rtsp://HOST/PATH, or rtsps:// with TLS
    #[arg(long, value_name = "URL", conflicts_with = "camera")]
    pub(super) rtsp: Option<String>,

    /// File with user and password for --rtsp: one line, user:password. They need not stand in the URL, which every user sees
    #[arg(long, value_name = "FILE", requires = "rtsp", value_hint = clap::ValueHint::FilePath)]
    login: Option<PathBuf>,

    /// PEM file with the CA of a camera with TLS, or with its own certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE", requires = "rtsp", value_hint = clap::ValueHint::FilePath)]
    ca: Option<PathBuf>,

    /// Accept only the certificate with this SHA-256, regardless of its issuer
    #[arg(long, value_name = "SHA-256", requires = "rtsp", conflicts_with = "ca", value_parser = fingerprint)]
    fingerprint: Option<Fingerprint>,

    /// Accept any certificate, and show its fingerprint
    #[arg(long, requires = "rtsp", conflicts_with_all = ["ca", "fingerprint"])]
    insecure: bool,

    /// How the video of --rtsp comes
    #[arg(long, value_name = "tcp|udp", default_value = "tcp", requires = "rtsp", value_parser = parse_word::<RtspTransport>)]
    transport: RtspTransport,

    /// How long to watch the video of --rtsp: at least two key frames tell their interval
    #[arg(long, value_name = "TIME", default_value = "6s", requires = "rtsp", value_parser = duration)]
    watch: Duration,
}

fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    Fingerprint::parse(text).ok_or_else(|| "write 64 hexadecimal digits, with or without colons".to_owned())
}

/// The report, which is printed as JSON or as text.
#[derive(Debug, Serialize)]
struct CameraReport {
    /// Without user and password.
    url: String,
    /// What a camera with TLS showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<CertificateReport>,
    transport: &'static str,
    streams: Vec<StreamReport>,
    watched: WatchedReport,
    /// Why the video ended before the time was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// What to change in the camera, as sentences.
    advice: Vec<String>,
    /// Configuration of this camera.
    toml: String,
}

#[derive(Debug, Serialize)]
struct CertificateReport {
    /// Its fingerprint.
    sha256: String,
    /// Why it was accepted.
    accepted_by: &'static str,
}

#[derive(Debug, Serialize)]
struct StreamReport {
    media: String,
    encoding: String,
    /// In pixels, if the camera tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    /// Frames per second, if the camera tells.
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
    /// `null` if fewer than two pictures came.
    fps: Option<f64>,
    bits_per_s: Option<u64>,
    /// Seconds; `null` if fewer than two key frames came.
    key_frame_interval_s: Option<f64>,
    /// Where the frames' times are from: `"sender reports"` or `"arrival"`.
    times: &'static str,
}

/// Asks the camera, and prints what it offers.
pub(super) fn run(url: &str, args: &RtspArgs, json: bool) -> Result<Exit, ExitError> {
    let input = |error: String| ExitError::new(Exit::Input, error);
    let usage = |error: &str| ExitError::new(Exit::Usage, error.to_owned());
    let is_encrypted = url.starts_with("rtsps://");
    if !is_encrypted && (args.ca.is_some() || args.fingerprint.is_some() || args.insecure) {
        return Err(usage("--ca, --fingerprint and --insecure are for cameras with TLS: write rtsps://"));
    }
    if !is_encrypted && !url.starts_with("rtsp://") {
        return Err(usage("cannot ask the camera: write its URL as rtsp://192.168.1.20/stream1"));
    }
    // A name without a slash would be a systemd credential's.
    let file = args.login.as_deref().map(std::path::absolute).transpose();
    let file =
        file.map_err(|error| input(format!("cannot find the file of --login: {error}: write its whole path")))?;
    let config = RtspConfig {
        url: url.to_owned(),
        login: file,
        transport: args.transport,
        ca: args.ca.clone(),
        fingerprint: args.fingerprint,
        insecure: args.insecure,
        ..RtspConfig::default()
    };
    let offer = RtspOffer::ask(&config, args.watch, Arc::new(SystemClock)).map_err(|error| {
        let error = error.to_string();
        let here = match error.as_str() {
            error if error.contains("`login`") => " (for this command: --login FILE)",
            error if error.contains("`fingerprint") => " (for this command: --fingerprint, --ca or --insecure)",
            _ => "",
        };
        input(error + here)
    })?;
    let report = CameraReport::new(&offer, &config, config.login.is_some() || has_user(url));
    print_report(json, &report, text)
}

fn has_user(url: &str) -> bool {
    url.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|host| host.contains('@')))
}

impl CameraReport {
    fn new(offer: &RtspOffer, config: &RtspConfig, has_login: bool) -> Self {
        let transport = config.transport;
        let url = offer.url.clone();
        let hidden = if offer.has_secret { "   # replace *** by what is there" } else { "" };
        let mut toml = format!(
            "[[camera]]\nname = \"camera\"\n\n[camera.source]\ntype = \"rtsp\"\nurl = {}{hidden}\n",
            quote(&url)
        );
        if has_login {
            toml += "login = \"/etc/visiond/camera.login\"   # one line, user:password; readable by visiond alone\n";
        }
        if transport != RtspTransport::Tcp {
            let _ = writeln!(toml, "transport = {}", quote(transport.name()));
        }
        match (&config.ca, &offer.certificate) {
            (Some(ca), Some(_)) => {
                let _ = writeln!(toml, "ca = {}", quote(&ca.display().to_string()));
            }
            // The pin of what was accepted here is safer than accepting anything.
            (None, Some(seen)) if config.insecure || config.fingerprint.is_some() => {
                let _ = writeln!(toml, "fingerprint = {}", quote(seen));
            }
            _ => {}
        }
        let certificate = offer.certificate.as_ref().map(|seen| CertificateReport {
            sha256: seen.clone(),
            accepted_by: match (&config.ca, config.fingerprint, config.insecure) {
                (_, _, true) => "nothing: any would be",
                (_, Some(_), _) => "its fingerprint",
                (Some(_), _, _) => "the file of --ca",
                (None, None, false) => "the system's CAs",
            },
        });
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
        let mut video = format!("{} pictures in {} s", self.pictures, self.seconds);
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

/// Whether most pictures have their time from a sender report; the first report comes after some.
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
            "a key frame every {interval:.1} s: after a loss there is no picture for so long; set the interval of key frames (GOP) to \
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
            RtspTransport::Tcp => "pictures were damaged: restart the camera, or try another codec in it".to_owned(),
            RtspTransport::Udp => {
                "pictures were damaged on their way: use --transport tcp, or check the network".to_owned()
            }
        });
    }
    if !by_reports(watched) && watched.seconds > LONG_KEY_INTERVAL_S {
        advice.push(
            "no sender report that can be right came for most pictures: set the camera's clock (NTP) to have the times of capture"
                .to_owned(),
        );
    }
    advice
}

fn text(report: &CameraReport) -> String {
    let mut out = labelled("camera", &format!("{} over {}", report.url, report.transport));
    if let Some(CertificateReport { sha256, accepted_by }) = &report.certificate {
        out += &labelled("certificate", &format!("accepted by {accepted_by}; SHA-256 {sha256}"));
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
    for advice in &report.advice {
        out += &labelled("advice", advice);
    }
    out + &format!("\nConfiguration of this camera:\n\n{}", report.toml)
}

#[cfg(test)]
mod tests {
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
        let told = text(&CameraReport::new(
            &offer,
            &RtspConfig { transport: RtspTransport::Udp, ..RtspConfig::default() },
            true,
        ));
        let expected = "\
camera       rtsp://10.0.0.2/a over udp
stream       video h264 1920x1080: visiond plays it
stream       audio pcma: not read
came         126 pictures in 5 s, 25 a second, 2.0 Mbit/s, a key frame every 2 s, none damaged
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
        // Too short to know.
        assert_eq!(count(Watched { seconds: 1.0, key_frame_interval_s: None, timed_by_reports: 0, ..watched() }), 0);
    }

    #[test]
    fn a_user_in_the_url_is_seen() {
        assert!(has_user("rtsp://u:p@host/x") && !has_user("rtsp://host/x@y"));
    }
}
