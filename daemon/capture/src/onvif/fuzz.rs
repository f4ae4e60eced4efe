//! Answers of hostile devices, for `tests/fuzz`.

use std::net::Ipv4Addr;

use url::Host;

use super::{media, ws_discovery};

const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const ID: &str = "00000000-0000-4000-8000-000000000000";

/// Reads an answer of each kind: to the multicast search, and to the requests for profiles and their URLs.
pub fn onvif(answer: &[u8]) {
    let ids = [ID.to_owned(), ID.to_owned()];
    for device in ws_discovery::devices(answer, FROM, &ids) {
        assert!(device.name.iter().chain(&device.model).all(|text| text.chars().count() <= 64), "{device:?}");
        match device.service {
            Ok(url) => assert!(url.scheme() == "http" && url.host() == Some(Host::Ipv4(FROM)), "{url}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let Ok(text) = str::from_utf8(answer) else { return };
    if let Ok(offered) = media::offered(text) {
        assert!(offered.len() <= media::MOST_PROFILES, "{} profiles", offered.len());
        for (_, profile) in offered {
            assert!(profile.fps.is_none_or(|fps| fps > 0.0 && fps <= 1000.0), "{profile:?}");
            assert!(profile.name.chars().count() <= 64, "{profile:?}");
        }
    }
    if let Ok(url) = media::stream_url(Some(text), FROM) {
        assert!(url.shown.starts_with("rtsp://"), "{url:?}");
    }
}
