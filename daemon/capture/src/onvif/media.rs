//! Reads the video profiles of an ONVIF device from its media service: version 2, which supports H.265, otherwise version 1.

use std::net::Ipv4Addr;

use roxmltree::Node;
use url::Url;

use super::soap::{self, SoapError};
use super::ws_discovery::{self, ServiceError};
use super::xml::{self, XmlError};
use crate::ffprobe::shown;

const DEVICE: &str = "http://www.onvif.org/ver10/device/wsdl";
const MEDIA: &str = "http://www.onvif.org/ver10/media/wsdl";
const MEDIA_2: &str = "http://www.onvif.org/ver20/media/wsdl";
const SCHEMA: &str = "http://www.onvif.org/ver10/schema";

/// The most profiles of one device.
pub(super) const MOST_PROFILES: usize = 16;

/// The longest name and token; ONVIF allows 64 characters.
const MOST_CHARS: usize = 64;

/// The longest URL.
const MOST_URL_CHARS: usize = 512;

/// A profile: one stream of a camera.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The camera's own name for it.
    pub name: String,
    /// As ONVIF writes it: `H264`, `H265`, `JPEG`.
    pub codec: Option<String>,
    /// Width and height in pixels.
    pub size: Option<[u32; 2]>,
    /// The camera's configured maximum frame rate: above 0, at most 1000.
    pub fps: Option<f32>,
    /// The RTSP URL without its user and without parts that look like secrets; or why there is none.
    pub url: Result<StreamUrl, String>,
}

/// The URL of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamUrl {
    /// Without its user and without parts that look like secrets.
    pub shown: String,
    /// Whether something was left out.
    pub has_secret: bool,
    /// The host, if it differs from the camera's.
    pub other_host: Option<String>,
}

/// Why a device's profiles are unknown.
#[derive(Debug, thiserror::Error)]
pub enum MediaError {
    #[error(transparent)]
    Soap(#[from] SoapError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("it has no media service: set `type = \"rtsp\"` with the URL of its manual if it is a camera")]
    NoMedia,
}

/// A version of the media service, and its URL.
struct MediaService {
    is_second: bool,
    url: Url,
}

/// Queries the device at `service` for its profiles and their URLs.
pub async fn profiles(address: Ipv4Addr, service: &Url) -> Result<Vec<Profile>, MediaError> {
    let services = media_services(address, service).await?;
    let mut failure = None;
    for media in &services {
        match profiles_of(address, media).await {
            Ok(profiles) if profiles.is_empty() => {}
            // The other version also requires a user.
            Err(error @ SoapError::LoginRequired) => return Err(error.into()),
            Err(error) => failure = Some(error),
            Ok(profiles) => return Ok(profiles),
        }
    }
    failure.map_or(Ok(Vec::new()), |error| Err(error.into()))
}

/// Returns the media services, version 2 first.
async fn media_services(address: Ipv4Addr, service: &Url) -> Result<Vec<MediaService>, MediaError> {
    let request = format!("<GetServices xmlns=\"{DEVICE}\"><IncludeCapability>false</IncludeCapability></GetServices>");
    let found: Vec<(bool, String)> = match soap::ask(address, service, &request).await {
        Ok(answer) => {
            let document = xml::parse(&answer).map_err(SoapError::from)?;
            let of = |(namespace, is_second)| {
                let mut services = xml::all(document.root(), "Service");
                let media = services.find(|one| xml::text(*one, "Namespace") == Some(namespace))?;
                Some((is_second, xml::text(media, "XAddr")?.to_owned()))
            };
            [(MEDIA_2, true), (MEDIA, false)].into_iter().filter_map(of).collect()
        }
        // Devices before 2010 do not know it.
        Err(SoapError::Fault(_) | SoapError::Status(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let found = if found.is_empty() {
        let request = format!("<GetCapabilities xmlns=\"{DEVICE}\"><Category>Media</Category></GetCapabilities>");
        let answer = soap::ask(address, service, &request).await?;
        let document = xml::parse(&answer).map_err(SoapError::from)?;
        let media = xml::find(document.root(), "Media").and_then(|media| xml::text(media, "XAddr"));
        media.map(|url| (false, url.to_owned())).into_iter().collect()
    } else {
        found
    };
    let (mut services, mut wrong) = (Vec::new(), None);
    for (is_second, text) in found {
        let url = Url::parse(&text).map_err(|_| ServiceError::Missing);
        match url.and_then(|url| ws_discovery::at(&url, address).map(|()| url)) {
            Ok(url) => services.push(MediaService { is_second, url }),
            Err(error) => wrong = Some(error),
        }
    }
    match wrong {
        _ if !services.is_empty() => Ok(services),
        Some(error) => Err(error.into()),
        None => Err(MediaError::NoMedia),
    }
}

async fn profiles_of(address: Ipv4Addr, media: &MediaService) -> Result<Vec<Profile>, SoapError> {
    let request = if media.is_second {
        format!("<GetProfiles xmlns=\"{MEDIA_2}\"><Type>VideoEncoder</Type></GetProfiles>")
    } else {
        format!("<GetProfiles xmlns=\"{MEDIA}\"/>")
    };
    let answer = soap::ask(address, &media.url, &request).await?;
    let mut profiles = Vec::new();
    for (token, mut profile) in offered(&answer)? {
        let token = xml::escaped(&token, MOST_CHARS);
        let request = if media.is_second {
            format!(
                "<GetStreamUri xmlns=\"{MEDIA_2}\"><Protocol>RTSP</Protocol><ProfileToken>{token}</ProfileToken></GetStreamUri>"
            )
        } else {
            format!(
                "<GetStreamUri xmlns=\"{MEDIA}\"><StreamSetup><Stream xmlns=\"{SCHEMA}\">RTP-Unicast</Stream>\
                 <Transport xmlns=\"{SCHEMA}\"><Protocol>RTSP</Protocol></Transport></StreamSetup>\
                 <ProfileToken>{token}</ProfileToken></GetStreamUri>"
            )
        };
        profile.url = match soap::ask(address, &media.url, &request).await {
            Ok(answer) => stream_url(xml::text(xml::parse(&answer)?.root(), "Uri"), address),
            // In that case, no profile has a URL.
            Err(error @ SoapError::LoginRequired) => return Err(error),
            Err(error) => Err(error.to_string()),
        };
        profiles.push(profile);
    }
    Ok(profiles)
}

/// Reads the profiles of an answer, each with its token and without its URL.
pub(super) fn offered(answer: &str) -> Result<Vec<(String, Profile)>, XmlError> {
    let document = xml::parse(answer)?;
    Ok(xml::all(document.root(), "Profiles").take(MOST_PROFILES).filter_map(profile).collect())
}

/// Reads a profile, and its token.
fn profile(node: Node<'_, '_>) -> Option<(String, Profile)> {
    let token = node.attribute("token")?;
    let short = |text: &str| text.chars().take(MOST_CHARS).collect::<String>();
    let encoder = xml::find(node, "VideoEncoderConfiguration").or_else(|| xml::find(node, "VideoEncoder"));
    let number = |name: &str| encoder.and_then(|encoder| xml::text(encoder, name));
    let side = |name: &str| number(name)?.parse().ok().filter(|side| (1..=65_535).contains(side));
    let fps = number("FrameRateLimit").and_then(|fps| fps.parse().ok());
    let profile = Profile {
        name: short(xml::text(node, "Name").unwrap_or(token)),
        codec: number("Encoding").map(short),
        size: side("Width").zip(side("Height")).map(|(width, height)| [width, height]),
        fps: fps.filter(|fps: &f32| *fps > 0.0 && *fps <= 1000.0),
        url: Err(String::new()),
    };
    Some((token.to_owned(), profile))
}

pub(super) fn stream_url(text: Option<&str>, address: Ipv4Addr) -> Result<StreamUrl, String> {
    let no_url = || "the camera returns no RTSP URL for it".to_owned();
    let text = text.filter(|text| text.chars().count() <= MOST_URL_CHARS).ok_or_else(no_url)?;
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "rtsp").ok_or_else(no_url)?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(no_url)?;
    let other_host = (host != address.to_string()).then(|| host.to_owned());
    let shown = shown(url.as_str());
    let has_secret = shown != url.as_str();
    Ok(StreamUrl { shown, has_secret, other_host })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CAMERA: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

    #[test]
    fn profiles_of_both_versions_are_read() {
        let first = "<trt:GetProfilesResponse xmlns:trt='t' xmlns:tt='s'><trt:Profiles token='p1' fixed='true'>\
             <tt:Name>main</tt:Name><tt:VideoSourceConfiguration><tt:Bounds x='0' width='9' height='9'/>\
             </tt:VideoSourceConfiguration><tt:VideoEncoderConfiguration token='e'><tt:Name>enc</tt:Name>\
             <tt:Encoding>H264</tt:Encoding><tt:Resolution><tt:Width>1920</tt:Width><tt:Height>1080</tt:Height>\
             </tt:Resolution><tt:RateControl><tt:FrameRateLimit>25</tt:FrameRateLimit></tt:RateControl>\
             </tt:VideoEncoderConfiguration></trt:Profiles><trt:Profiles token='p2'/></trt:GetProfilesResponse>";
        let document = xml::parse(first).unwrap();
        let found: Vec<_> = xml::all(document.root(), "Profiles").filter_map(profile).collect();
        let (token, main) = &found[0];
        assert_eq!((token.as_str(), main.name.as_str(), main.codec.as_deref()), ("p1", "main", Some("H264")));
        assert_eq!((main.size, main.fps), (Some([1920, 1080]), Some(25.0)));
        let bare = &found[1].1;
        assert_eq!((bare.name.as_str(), &bare.codec, bare.size, bare.fps), ("p2", &None, None, None));
        let second = "<a><b:Profiles xmlns:b='b' token='q'><b:Configurations><b:VideoEncoder><c>x</c><Encoding>H265</Encoding>\
             <Resolution><Width>0</Width><Height>-1</Height></Resolution><RateControl><FrameRateLimit>12.5</FrameRateLimit>\
             </RateControl></b:VideoEncoder></b:Configurations></b:Profiles></a>";
        let document = xml::parse(second).unwrap();
        let (_, other) = xml::all(document.root(), "Profiles").find_map(profile).unwrap();
        assert_eq!((other.codec.as_deref(), other.size, other.fps), (Some("H265"), None, Some(12.5)));
    }

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url = stream_url(Some("rtsp://admin:swordfish@10.0.0.7:554/1?token=sesame"), CAMERA).unwrap();
        assert!(url.has_secret && url.other_host.is_none(), "{url:?}");
        assert!(!url.shown.contains("swordfish") && !url.shown.contains("sesame"), "{url:?}");
        let other = stream_url(Some("rtsp://192.168.0.2/1"), CAMERA).unwrap();
        assert_eq!((other.has_secret, other.other_host.as_deref()), (false, Some("192.168.0.2")));
        let long = format!("rtsp://10.0.0.7/{}", "a".repeat(600));
        for nothing in [None, Some("http://10.0.0.7/"), Some("nonsense"), Some(long.as_str())] {
            assert!(stream_url(nothing, CAMERA).is_err(), "{nothing:?}");
        }
    }
}
