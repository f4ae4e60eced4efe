//! `visiond probe --discover`: the ONVIF cameras on the local networks, with their streams.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use visiond_capture::onvif::{self, Discovery, NetworkCamera, Profile, StreamUrl};
use visiond_config::quote;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::redact::redact;

use crate::output::{labelled, note, print_report};

/// The codecs that `type = "rtsp"` reads, as ONVIF writes them.
const READABLE: [&str; 3] = ["H264", "H265", "JPEG"];

/// The report, printed as JSON or text.
#[derive(Debug, Serialize)]
struct DiscoverReport {
    /// The interfaces that were searched.
    networks: Vec<String>,
    waited_s: f64,
    cameras: Vec<CameraReport>,
    /// Answers that did not come from ONVIF devices on these networks, or that exceed the limit of one sender.
    ignored: u64,
    /// Whether there were more devices or answers than the limit.
    too_many: bool,
}

#[derive(Debug, Serialize)]
struct CameraReport {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The URL of its ONVIF service.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    requires_login: bool,
    /// Why its streams are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    profiles: Vec<ProfileReport>,
    /// Configuration of this camera, with its first readable profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    toml: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProfileReport {
    name: String,
    /// As ONVIF writes it, if the camera states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    codec: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fps: Option<f32>,
    /// Without user and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Why there is no URL, or what is unusual about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Searches, and prints the result.
pub(super) fn run(wait: Duration, json: bool) -> Result<Exit, ExitError> {
    let is_over = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, Arc::clone(&is_over)).map_err(ExitError::system)?;
    note(&format!("searching for cameras, {} s; Ctrl-C ends the wait", wait.as_secs_f64()));
    let found = onvif::discover(wait, &is_over).map_err(|error| ExitError::new(Exit::Input, error.to_string()))?;
    print_report(json, &DiscoverReport::new(&found, wait), text)
}

impl DiscoverReport {
    fn new(found: &Discovery, wait: Duration) -> Self {
        let mut names = BTreeSet::new();
        Self {
            networks: found.networks.clone(),
            waited_s: wait.as_secs_f64(),
            cameras: found.cameras.iter().map(|camera| CameraReport::new(camera, &mut names)).collect(),
            ignored: found.ignored,
            too_many: found.are_too_many,
        }
    }
}

impl CameraReport {
    /// `names` holds the names of earlier cameras: each camera gets a unique one.
    fn new(camera: &NetworkCamera, names: &mut BTreeSet<String>) -> Self {
        let NetworkCamera { address, name, model, service, profiles, requires_login, error } = camera;
        let readable = |profile: &&Profile| {
            profile.url.is_ok() && profile.codec.as_deref().is_none_or(|codec| READABLE.contains(&codec))
        };
        let toml = profiles.iter().find(readable).and_then(|profile| {
            let url = profile.url.as_ref().ok()?;
            let hidden = |url: &StreamUrl| if url.has_secret { "   # replace *** by what is there" } else { "" };
            // The smallest of the smaller profiles.
            let pixels = |profile: &Profile| profile.size.map(|[width, height]| u64::from(width) * u64::from(height));
            let smaller = profiles
                .iter()
                .filter(readable)
                .filter(|other| other.size.is_some() && pixels(other) < pixels(profile));
            let preview = smaller.min_by_key(|other| pixels(other)).and_then(|other| other.url.as_ref().ok());
            let preview = preview.map(|url| format!("#preview_url = {}{}\n", quote(&url.shown), hidden(url)));
            let base = name.as_deref().map(config_name).filter(|name| !name.is_empty());
            let base = base.unwrap_or_else(|| "camera".to_owned());
            let numbered = (2..).map(|number| format!("{base}-{number}"));
            let name = std::iter::once(base.clone()).chain(numbered).find(|name| !names.contains(name))?;
            names.insert(name.clone());
            Some(format!(
                "[[camera]]\nname = {}\n\n[camera.source]\ntype = \"rtsp\"\nurl = {}{}\n{}\
                 #login = \"/etc/visiond/{name}.login\"   # one line, user:password; readable by visiond alone\n",
                quote(&name),
                quote(&url.shown),
                hidden(url),
                preview.unwrap_or_default(),
            ))
        });
        Self {
            address: address.to_string(),
            name: name.as_deref().map(redact),
            model: model.as_deref().map(redact),
            service: service.clone(),
            requires_login: *requires_login,
            error: error.clone(),
            profiles: profiles.iter().map(ProfileReport::new).collect(),
            toml,
        }
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let name = self.name.as_deref().unwrap_or("without a name");
        let model = self.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
        let mut lines = vec![("camera", format!("{}: {name}{model}", self.address))];
        lines.extend(self.profiles.iter().map(|profile| ("stream", profile.line())));
        if self.requires_login {
            lines.push(("login", "required: the camera shows its streams to known users only".to_owned()));
            let url = format!("rtsp://{}/", self.address);
            lines
                .push(("next", format!("visiond probe --rtsp {url} --login FILE; its manual has the path of the URL")));
        } else if let Some(error) = &self.error {
            lines.push(("error", error.clone()));
        } else if self.profiles.is_empty() {
            lines.push(("error", "it has no profile with video: create one in the camera".to_owned()));
        }
        lines
    }
}

impl ProfileReport {
    fn new(profile: &Profile) -> Self {
        let Profile { name, codec, size, fps, url } = profile;
        let note = match url {
            Err(reason) => Some(reason.clone()),
            Ok(url) => url.other_host.as_ref().map(|host| format!("its host {host} is not the camera's address")),
        };
        Self {
            name: redact(name),
            codec: codec.clone(),
            width: size.map(|size| size[0]),
            height: size.map(|size| size[1]),
            fps: *fps,
            url: url.as_ref().ok().map(|url| url.shown.clone()),
            note,
        }
    }

    fn line(&self) -> String {
        let mut out = format!("{}:", self.name);
        let _ = write!(out, " {}", self.codec.as_deref().unwrap_or("unknown codec"));
        if let (Some(width), Some(height)) = (self.width, self.height) {
            let _ = write!(out, " {width}x{height}");
        }
        if let Some(fps) = self.fps {
            let _ = write!(out, ", {fps} frames a second");
        }
        if let Some(url) = &self.url {
            let _ = write!(out, ", {url}");
        }
        if let Some(note) = &self.note {
            let _ = write!(out, " ({note})");
        }
        out
    }
}

/// Makes a configuration name from the camera's own: lower-case letters, digits and `-`.
fn config_name(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("-").to_ascii_lowercase();
    joined.chars().take(32).collect::<String>().trim_end_matches('-').to_owned()
}

fn text(report: &DiscoverReport) -> String {
    let mut out = labelled("searched", &report.networks.join(", "));
    for (head, line) in report.cameras.iter().flat_map(CameraReport::lines) {
        out += &labelled(head, &line);
    }
    if report.cameras.is_empty() {
        out += &labelled(
            "cameras",
            "none answered: switch ONVIF and discovery on in the camera, connect to its network, or wait longer with --wait",
        );
    }
    if report.too_many {
        out += &labelled("warning", "more answers came than visiond reads: a device of the network floods it");
    }
    let tomls: Vec<_> = report.cameras.iter().filter_map(|camera| camera.toml.as_deref()).collect();
    if !tomls.is_empty() {
        let _ = write!(out, "\nConfiguration of these cameras:\n\n{}", tomls.join("\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn profile(codec: &str, shown: &str) -> Profile {
        Profile {
            name: "main".to_owned(),
            codec: Some(codec.to_owned()),
            size: Some([1920, 1080]),
            fps: Some(25.0),
            url: Ok(StreamUrl { shown: shown.to_owned(), has_secret: shown.contains("***"), other_host: None }),
        }
    }

    fn camera(last: u8, profiles: Vec<Profile>) -> NetworkCamera {
        NetworkCamera {
            address: Ipv4Addr::new(10, 0, 0, last),
            name: Some("Front gate \u{1b}[31m".to_owned()),
            model: Some("IPC-1".to_owned()),
            service: None,
            profiles,
            requires_login: false,
            error: None,
        }
    }

    #[test]
    fn cameras_are_listed_with_what_to_paste() {
        let mpeg4 = profile("MPEG4", "rtsp://10.0.0.7/0");
        let main = profile("H265", "rtsp://***@10.0.0.7/1");
        let locked = NetworkCamera { requires_login: true, name: None, ..camera(9, Vec::new()) };
        let sizes = [(2560, 1), (352, 2), (640, 3)];
        let three = sizes.map(|(width, number)| {
            let size = Some([width, width * 9 / 16]);
            Profile { size, ..profile("H264", &format!("rtsp://10.0.0.8/{number}")) }
        });
        let cameras = vec![camera(7, vec![mpeg4, main]), camera(8, three.into()), locked];
        let networks = vec!["eth0 (10.0.0.1)".to_owned()];
        let found = Discovery { networks, cameras, ignored: 0, are_too_many: false };
        let told = text(&DiscoverReport::new(&found, Duration::from_secs(4)));
        let expected = "\
searched     eth0 (10.0.0.1)
camera       10.0.0.7: Front gate \\u{1b}[31m, IPC-1
stream       main: MPEG4 1920x1080, 25 frames a second, rtsp://10.0.0.7/0
stream       main: H265 1920x1080, 25 frames a second, rtsp://***@10.0.0.7/1
camera       10.0.0.8: Front gate \\u{1b}[31m, IPC-1
stream       main: H264 2560x1440, 25 frames a second, rtsp://10.0.0.8/1
stream       main: H264 352x198, 25 frames a second, rtsp://10.0.0.8/2
stream       main: H264 640x360, 25 frames a second, rtsp://10.0.0.8/3
camera       10.0.0.9: without a name, IPC-1
login        required: the camera shows its streams to known users only
next         visiond probe --rtsp rtsp://10.0.0.9/ --login FILE; its manual has the path of the URL

Configuration of these cameras:

[[camera]]
name = \"front-gate-31m\"

[camera.source]
type = \"rtsp\"
url = \"rtsp://***@10.0.0.7/1\"   # replace *** by what is there
#login = \"/etc/visiond/front-gate-31m.login\"   # one line, user:password; readable by visiond alone

[[camera]]
name = \"front-gate-31m-2\"

[camera.source]
type = \"rtsp\"
url = \"rtsp://10.0.0.8/1\"
#preview_url = \"rtsp://10.0.0.8/2\"
#login = \"/etc/visiond/front-gate-31m-2.login\"   # one line, user:password; readable by visiond alone
";
        assert_eq!(told, expected);
    }

    #[test]
    fn nothing_found_has_a_remedy() {
        let found = Discovery { networks: Vec::new(), cameras: Vec::new(), ignored: 3, are_too_many: true };
        let told = text(&DiscoverReport::new(&found, Duration::from_secs(4)));
        assert!(told.contains("switch ONVIF") && told.contains("floods"), "{told}");
        assert_eq!(config_name("--- \u{fc}ber/Tor 1 ---"), "ber-tor-1");
    }
}
