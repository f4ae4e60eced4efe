//! What a session with an RTSP camera needs to know of it.

use std::time::Duration;

use url::Url;
use visiond_config::types::RtspTransport;
use visiond_system::credentials::Login;

use super::super::camera_tls::TlsKeys;

/// What a session needs.
#[derive(Clone)]
pub struct SessionTarget {
    /// Without a user.
    pub url: Url,
    /// The URL as errors and the log show it.
    pub shown: String,
    pub login: Option<Login>,
    pub tls: TlsKeys,
    /// Whether the login may not be sent as it is.
    pub require_digest: bool,
    pub transport: RtspTransport,
    pub key_frames_only: bool,
    pub timeout: Duration,
}
