//! The parameters of a session with an RTSP camera.

use std::time::Duration;

use url::Url;
use visiond_config::types::RtspTransport;
use visiond_system::credentials::Login;

use super::super::camera_tls::TlsKeys;

/// The parameters of a session.
#[derive(Clone)]
pub struct SessionTarget {
    /// The URL without a user.
    pub url: Url,
    /// The URL as errors and the log show it.
    pub shown: String,
    pub login: Option<Login>,
    pub tls: TlsKeys,
    /// Whether basic authentication is forbidden.
    pub require_digest: bool,
    pub transport: RtspTransport,
    pub key_frames_only: bool,
    pub timeout: Duration,
}
