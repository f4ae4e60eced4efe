//! `visiond probe --http`: shows a camera's content over HTTP, and which source reads it.

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;
use visiond_capture::{HttpContent, HttpOffer, WatchedParts};
use visiond_config::types::MjpegConfig;
use visiond_frames::clock::SystemClock;
use visiond_system::exit::{Exit, ExitError};

use super::network::{CertificateReport, NetworkArgs, advice_and_snippet, cannot_ask, source_toml};
use crate::output::{labelled, print_report};

/// The report, printed as JSON or text.
#[derive(Debug, Serialize)]
struct HttpReport {
    /// Without user and password.
    url: String,
    /// The certificate of a camera with TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<CertificateReport>,
    /// The media type that the camera states.
    media_type: String,
    /// The content, in words.
    content: String,
    /// The `type` of the source that reads it.
    source: &'static str,
    /// In pixels, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    /// Present for a stream of JPEGs.
    #[serde(skip_serializing_if = "Option::is_none")]
    watched: Option<WatchedReport>,
    /// Advice, as sentences.
    advice: Vec<String>,
    /// Configuration of this camera.
    toml: String,
}

#[derive(Debug, Serialize)]
struct WatchedReport {
    pictures: u64,
    damaged: u64,
    seconds: f64,
    /// `null` if fewer than two images arrived.
    fps: Option<f64>,
    bits_per_s: Option<u64>,
}

/// Queries the camera, and prints its content.
pub(super) fn run(url: &str, args: &NetworkArgs, json: bool) -> Result<Exit, ExitError> {
    args.check_scheme(url, ["http://", "https://"], "http://192.168.1.30/video.mjpg")?;
    let config = MjpegConfig {
        url: url.to_owned(),
        login: args.login_file()?,
        ca: args.ca.clone(),
        fingerprint: args.fingerprint,
        insecure: args.insecure,
        ..MjpegConfig::default()
    };
    let offer = HttpOffer::ask(&config, args.watch, Arc::new(SystemClock)).map_err(|error| cannot_ask(&error))?;
    print_report(json, &HttpReport::new(&offer, args, args.has_login(url)), text)
}

impl HttpReport {
    fn new(offer: &HttpOffer, args: &NetworkArgs, has_login: bool) -> Self {
        let certificate = offer.certificate.as_deref().map(|seen| CertificateReport::new(seen, args));
        let (source, content, size) = match &offer.content {
            HttpContent::Mjpeg(parts) => ("mjpeg", "one JPEG after another (MJPEG)".to_owned(), parts.size),
            HttpContent::Snapshot { size, bytes } => {
                ("snapshot", format!("one image of {} kB", bytes.div_ceil(1000)), Some(*size))
            }
            HttpContent::Video(what) => ("video", what.clone(), None),
        };
        let mut toml = source_toml(source, &offer.url, offer.has_secret, has_login);
        let mut notes = Vec::new();
        match (&offer.content, &certificate) {
            (HttpContent::Video(_), Some(_)) => {
                // `video` has no keys for this: ffmpeg checks certificates only with extra arguments.
                match args.ca_toml() {
                    Some(ca) => {
                        let _ = writeln!(toml, "input_args = [\"-tls_verify\", \"1\", \"-ca_file\", {ca}]");
                    }
                    None => notes.push(
                        "ffmpeg accepts any certificate: set `input_args = [\"-tls_verify\", \"1\", \"-ca_file\", \"FILE\"]`, where \
                         FILE has the CA or the camera's own certificate"
                            .to_owned(),
                    ),
                }
            }
            (_, Some(certificate)) => toml += &certificate.toml(args),
            (_, None) => {}
        }
        if source == "snapshot" {
            toml += "interval = \"1 s\"\n";
        }
        let watched = match &offer.content {
            HttpContent::Mjpeg(parts) => {
                notes.extend(advice(parts));
                Some(WatchedReport::new(parts))
            }
            _ => None,
        };
        Self {
            url: offer.url.clone(),
            certificate,
            media_type: offer.media_type.clone(),
            content,
            source,
            width: size.map(|size| size[0]),
            height: size.map(|size| size[1]),
            watched,
            advice: notes,
            toml,
        }
    }
}

fn advice(parts: &WatchedParts) -> Vec<String> {
    let mut advice = Vec::new();
    if parts.has_ended {
        advice.push(format!(
            "the camera ended the stream after {} images, and visiond requests it again each time: look in the camera's manual for a \
             URL without an end",
            parts.pictures
        ));
    } else if parts.pictures < 2 {
        advice.push("only one image arrived: watch longer with --watch to measure the rate".to_owned());
    }
    if parts.damaged > 0 {
        advice.push("images were damaged: restart the camera, or update its firmware".to_owned());
    }
    advice
}

impl WatchedReport {
    fn new(parts: &WatchedParts) -> Self {
        let hundredths = |number: f64| (number * 100.0).round() / 100.0;
        Self {
            pictures: parts.pictures,
            damaged: parts.damaged,
            seconds: hundredths(parts.seconds),
            fps: parts.fps.map(hundredths),
            bits_per_s: parts.bits_per_s().map(|bits| bits.round() as u64),
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{} images in {} s", self.pictures, self.seconds);
        if let (Some(fps), Some(bits)) = (self.fps, self.bits_per_s) {
            let _ = write!(line, ", {fps} a second, {:.1} Mbit/s", bits as f64 / 1e6);
        }
        let damaged = if self.damaged == 0 { "none".to_owned() } else { self.damaged.to_string() };
        line + &format!(", {damaged} damaged")
    }
}

fn text(report: &HttpReport) -> String {
    let mut out = labelled("camera", &report.url);
    if let Some(certificate) = &report.certificate {
        out += &certificate.line();
    }
    let size = match (report.width, report.height) {
        (Some(width), Some(height)) => format!(", {width}x{height}"),
        _ => String::new(),
    };
    let stated = match report.media_type.as_str() {
        "" => "without a media type".to_owned(),
        stated => stated.to_owned(),
    };
    out += &labelled("sends", &format!("{}{size} ({stated}): `type = \"{}\"` reads it", report.content, report.source));
    if let Some(watched) = &report.watched {
        out += &labelled("came", &watched.line());
    }
    out + &advice_and_snippet(&report.advice, &report.toml)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use visiond_config::types::Config;

    use super::super::network::tests::args;
    use super::*;

    fn offer(content: HttpContent) -> HttpOffer {
        let url = "http://10.0.0.2/a".to_owned();
        HttpOffer { url, has_secret: false, certificate: None, media_type: "x/y".to_owned(), content }
    }

    fn parts() -> WatchedParts {
        WatchedParts {
            pictures: 31,
            damaged: 0,
            size: Some([640, 480]),
            bytes: 775_000,
            fps: Some(5.0),
            seconds: 6.0,
            has_ended: false,
        }
    }

    fn report(offer: &HttpOffer, words: &[&str], has_login: bool) -> HttpReport {
        let report = HttpReport::new(offer, &args(&[&["--http", "u"], words].concat()).unwrap(), has_login);
        let toml = format!("[[model]]\nname = \"m\"\npath = \"m.onnx\"\n{}", report.toml);
        Config::parse(&toml, Path::new("visiond.toml")).unwrap();
        report
    }

    #[test]
    fn a_stream_has_its_rate_and_its_configuration_no_password() {
        let expected = "\
camera       http://10.0.0.2/a
sends        one JPEG after another (MJPEG), 640x480 (x/y): `type = \"mjpeg\"` reads it
came         31 images in 6 s, 5 a second, 1.0 Mbit/s, none damaged

Configuration of this camera:

[[camera]]
name = \"camera\"

[camera.source]
type = \"mjpeg\"
url = \"http://10.0.0.2/a\"
login = \"/etc/visiond/camera.login\"   # one line, user:password; readable by visiond alone
";
        assert_eq!(text(&report(&offer(HttpContent::Mjpeg(parts())), &[], true)), expected);
    }

    #[test]
    fn a_certificate_that_was_accepted_here_is_pinned_where_the_source_can() {
        let snapshot = HttpContent::Snapshot { size: [64, 48], bytes: 1001 };
        for (content, words, line) in [
            (snapshot.clone(), &["--insecure"][..], "fingerprint = \"AB:"),
            (snapshot.clone(), &["--ca", "/c.pem"], "ca = \"/c.pem\""),
            (snapshot, &[], "interval = \"1 s\""),
            (HttpContent::Video("FLV".to_owned()), &["--ca", "/c.pem"], "\"-ca_file\", \"/c.pem\"]"),
        ] {
            let certificate = Some(["AB"; 32].join(":"));
            let secure = HttpOffer { url: "https://h/a".to_owned(), certificate, ..offer(content) };
            let report = report(&secure, words, false);
            assert!(report.toml.contains(line), "{}", report.toml);
        }
        let certificate = Some(["AB"; 32].join(":"));
        let video =
            HttpOffer { url: "https://h/a".to_owned(), certificate, ..offer(HttpContent::Video("FLV".to_owned())) };
        let report = report(&video, &["--insecure"], false);
        assert!(report.advice[0].starts_with("ffmpeg accepts any certificate") && !report.toml.contains("fingerprint"));
    }

    #[test]
    fn each_fault_has_its_advice() {
        assert!(advice(&parts()).is_empty());
        assert!(advice(&WatchedParts { has_ended: true, ..parts() })[0].contains("ended the stream after 31 images"));
        assert!(advice(&WatchedParts { pictures: 1, ..parts() })[0].contains("--watch"));
        assert!(advice(&WatchedParts { damaged: 2, ..parts() })[0].contains("damaged"));
    }

    #[test]
    fn what_is_not_known_of_a_stream_is_left_out() {
        let few = WatchedParts {
            pictures: 1,
            damaged: 3,
            size: None,
            bytes: 2_000,
            fps: None,
            seconds: 1.006,
            has_ended: false,
        };
        let offer = HttpOffer { media_type: String::new(), ..offer(HttpContent::Mjpeg(few.clone())) };
        let told = text(&report(&offer, &[], false));
        let expected = "\
camera       http://10.0.0.2/a
sends        one JPEG after another (MJPEG) (without a media type): `type = \"mjpeg\"` reads it
came         1 images in 1.01 s, 3 damaged
advice       only one image arrived: watch longer with --watch to measure the rate
advice       images were damaged: restart the camera, or update its firmware
";
        assert!(told.starts_with(expected), "{told}");
        assert!(advice(&WatchedParts { pictures: 2, damaged: 0, ..few }).is_empty());
    }

    #[test]
    fn one_picture_has_its_size_and_the_interval_of_its_source() {
        let told = text(&report(&offer(HttpContent::Snapshot { size: [64, 48], bytes: 1001 }), &[], false));
        let sends = "sends        one image of 2 kB, 64x48 (x/y): `type = \"snapshot\"` reads it\n";
        assert!(told.contains(sends) && told.ends_with("interval = \"1 s\"\n"), "{told}");
        let video = text(&report(&offer(HttpContent::Video("FLV".to_owned())), &[], false));
        assert!(video.contains("FLV (x/y): `type = \"video\"` reads it") && !video.contains("interval"), "{video}");
    }
}
