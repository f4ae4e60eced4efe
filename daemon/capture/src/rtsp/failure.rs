//! Why a session with an RTSP camera failed, in words.

use std::io;
use std::time::Duration;

use visiond_config::types::RtspTransport;
use visiond_rtsp::client::ClientError;
use visiond_system::logging::escape;
use visiond_system::redact::redact_line;

use super::super::camera_connection::ConnectionError;
use super::super::source::SourceError;
use super::reachability::Absence;
use super::session_target::SessionTarget;

/// Why a session failed.
#[derive(Debug)]
pub(super) enum Failure {
    Client(ClientError),
    /// A name cannot be resolved, or a connection fails.
    Connect(io::Error),
    /// A connection broke.
    Broken(io::Error),
    /// The TLS handshake fails, for this reason.
    Tls(String),
    /// The target of a redirect requires a login. The configured login is for another host.
    LoginElsewhere(String),
    /// Something on this side is wrong or missing.
    Local(SourceError),
    /// No ports for datagrams.
    Ports(io::Error),
    NoAnswer,
    /// The camera plays, but no frame has arrived for too long. Holds the known cause.
    NoVideo(Option<String>),
    /// The camera plays, but every frame has been damaged for too long. Holds the reason, if known.
    Damaged(Option<&'static str>),
    Closed,
    /// The connection has no TLS, and was closed before an answer.
    Unanswered,
    /// The camera played, then fell silent, and cannot be reached.
    Absent(Absence),
    /// The server keeps redirecting.
    Redirects,
    /// visiond panicked at this place.
    Panic(String),
    /// The camera offers no video in a supported codec, only these.
    OtherCodec(Vec<String>),
    /// The video uses this unsupported form, with the remedy.
    Unsupported(&'static str),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Closed => Self::Closed,
            ConnectionError::Failed(error) => Self::Broken(error),
            ConnectionError::Tls(reason) => Self::Tls(reason),
        }
    }
}

impl Failure {
    /// Whether the server has ended the connection.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Unanswered | Self::Broken(_))
    }

    /// Returns the error of the source.
    pub(super) fn error(&self, target: &SessionTarget) -> SourceError {
        if let Self::Local(error) = self {
            return error.clone();
        }
        let message = self.message(target);
        if self.may_pass() { SourceError::absent(message) } else { SourceError::transient(message) }
    }

    /// Whether the camera may recover at any moment. If it refuses this client or stream, the user must act, and some cameras
    /// lock out a client that keeps trying.
    fn may_pass(&self) -> bool {
        match self {
            Self::Client(
                ClientError::Message(_) | ClientError::Multicast | ClientError::UdpOnly | ClientError::TcpOnly,
            ) => false,
            // A camera that is starting may not know its stream yet (404), or an earlier session (454).
            Self::Client(error) => error.status().is_none_or(|status| matches!(status, 404 | 454 | 500..)),
            Self::NoAnswer
            | Self::NoVideo(_)
            | Self::Damaged(_)
            | Self::Closed
            | Self::Unanswered
            | Self::Broken(_)
            | Self::Absent(_)
            | Self::Connect(_) => true,
            Self::Tls(_)
            | Self::LoginElsewhere(_)
            | Self::Local(_)
            | Self::Ports(_)
            | Self::Redirects
            | Self::Panic(_)
            | Self::OtherCodec(_)
            | Self::Unsupported(_) => false,
        }
    }

    pub(super) fn message(&self, target: &SessionTarget) -> String {
        let shown = &target.shown;
        let seconds = target.timeout.as_secs_f64();
        let reason = match self {
            Self::Client(error) => refusal(error, target),
            Self::Connect(error) => format!("cannot connect: {error}; check the address and the network"),
            Self::Broken(error) => format!("the connection broke: {error}; check the camera and the network"),
            Self::Tls(reason) => reason.clone(),
            Self::LoginElsewhere(url) => {
                format!("the camera names another host, {url}, which requires a login: set `url` to that")
            }
            Self::Local(error) => error.to_string(),
            Self::Ports(error) => format!("cannot open UDP ports: {error}; set `transport = \"tcp\"`"),
            Self::NoAnswer => {
                return format!("no answer from {shown} for {seconds} s; check the camera and the network");
            }
            Self::Damaged(reason) => return damaged(shown, target.timeout, target.transport, *reason),
            Self::NoVideo(Some(what)) => return format!("no video from {shown} for {seconds} s: {what}"),
            Self::NoVideo(None) => {
                let hint = match target.transport {
                    RtspTransport::Tcp => "",
                    RtspTransport::Udp => ", or set `transport = \"tcp\"` where a firewall keeps UDP out",
                };
                return format!("no video from {shown} for {seconds} s; check the camera and the network{hint}");
            }
            Self::Closed => "the camera closed the connection".to_owned(),
            Self::Unanswered => {
                "the camera closed the connection without an answer; if it speaks TLS there, use rtsps:// in `url`"
                    .to_owned()
            }
            Self::Absent(Absence::Unreachable) => {
                "the camera sends nothing and cannot be reached; check its power and the network".to_owned()
            }
            Self::Absent(Absence::Moved) => {
                "the camera sends nothing, and its name has another address now; connecting there".to_owned()
            }
            Self::Redirects => "the server redirects more than 5 times (301, 302): correct its URL".to_owned(),
            Self::Panic(place) => {
                let place: String = redact_line(place).chars().take(300).collect();
                return format!(
                    "cannot play {shown}: a bug in reading this server's data ({place}): please report it, and set `type = \"video\"` \
                     until then"
                );
            }
            Self::OtherCodec(offered) => format!(
                "the camera offers {}, and only H.264, H.265 and JPEG are read: change its codec, or set `type = \"video\"`",
                offered.join(" and ")
            ),
            Self::Unsupported(reason) => (*reason).to_owned(),
        };
        format!("cannot play {shown}: {reason}")
    }
}

/// Returns the server's answer and the remedy.
fn refusal(error: &ClientError, target: &SessionTarget) -> String {
    let remedy = match error.status() {
        Some(403) => "the camera forbids this stream to this user (403): check the user's rights in the camera",
        Some(404) => "the camera has no such stream (404): correct the path in its URL",
        Some(453) => "the camera serves too many clients already (453): close others",
        Some(503) => "the camera serves too many clients, or starts (503): close others if it stays",
        Some(461) => match target.transport {
            RtspTransport::Tcp => "the camera does not send over TCP (461): set `transport = \"udp\"`",
            RtspTransport::Udp => "the camera does not send over UDP (461): set `transport = \"tcp\"`",
        },
        _ => {
            let text: String = error.to_string().chars().take(300).collect();
            return escape(&redact_line(text.trim_end())).to_string();
        }
    };
    remedy.to_owned()
}

/// Returns the sentence about a stream of which every frame is damaged.
pub(super) fn damaged(
    shown: &str,
    timeout: Duration,
    transport: RtspTransport,
    reason: Option<&'static str>,
) -> String {
    let reason = match (reason, transport) {
        (Some(reason), _) => reason,
        (None, RtspTransport::Tcp) => "every frame is damaged: restart the camera, or update its firmware",
        (None, RtspTransport::Udp) => {
            "every frame is damaged: packets are lost on the network: set `transport = \"tcp\"`, or check the network"
        }
    };
    format!("no usable frame from {shown} for {} s: {reason}", timeout.as_secs_f64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn target(transport: RtspTransport) -> SessionTarget {
        SessionTarget {
            url: "rtsp://cam/1".parse().unwrap(),
            shown: "rtsp://cam/1".to_owned(),
            login: None,
            tls: Default::default(),
            require_digest: false,
            transport,
            key_frames_only: false,
            timeout: Duration::from_secs(7),
        }
    }

    fn refused(status: u16) -> Failure {
        ClientError::Refused { method: "SETUP", status, reason: "for\tsome reason".to_owned() }.into()
    }

    #[test]
    fn a_refusal_names_what_to_do_about_it() {
        let said = |failure: &Failure, transport| failure.message(&target(transport));
        for (status, words) in [
            (403, "(403): check the user's rights"),
            (404, "(404): correct the path"),
            (453, "(453): close others"),
            (503, "(503): close others if it stays"),
            (400, "the camera refuses SETUP: 400 for\\tsome reason"),
        ] {
            let text = said(&refused(status), RtspTransport::Tcp);
            assert!(text.starts_with("cannot play rtsp://cam/1: ") && text.contains(words), "{text}");
        }
        // The transport to try instead of the one that the camera does not send over.
        assert!(said(&refused(461), RtspTransport::Tcp).ends_with("over TCP (461): set `transport = \"udp\"`"));
        assert!(said(&refused(461), RtspTransport::Udp).ends_with("over UDP (461): set `transport = \"tcp\"`"));
        // Only datagrams can be lost or blocked by a firewall.
        let no_video = Failure::NoVideo(None);
        assert_eq!(
            said(&no_video, RtspTransport::Tcp),
            "no video from rtsp://cam/1 for 7 s; check the camera and the network"
        );
        assert!(said(&no_video, RtspTransport::Udp).contains("set `transport = \"tcp\"` where a firewall"));
        let damaged = Failure::Damaged(None);
        assert!(said(&damaged, RtspTransport::Tcp).ends_with("restart the camera, or update its firmware"));
        assert!(
            said(&damaged, RtspTransport::Udp).contains("packets are lost on the network: set `transport = \"tcp\"`")
        );
        let known = Failure::Damaged(Some("it sends slices of other frames"));
        assert!(said(&known, RtspTransport::Udp).ends_with("for 7 s: it sends slices of other frames"));
        let other = Failure::OtherCodec(vec!["VP8".to_owned(), "MPEG-4".to_owned()]);
        assert!(said(&other, RtspTransport::Tcp).contains("offers VP8 and MPEG-4, and only"));
    }

    #[test]
    fn a_camera_that_starts_is_tried_soon_and_one_that_refuses_seldom() {
        let soon = |failure: &Failure| {
            let error = failure.error(&target(RtspTransport::Tcp));
            assert!(error.may_pass(), "{error}");
            error.is_absent()
        };
        // It may not know its stream or the earlier session yet, or it has an internal error.
        for status in [404, 454, 500, 503] {
            assert!(soon(&refused(status)), "{status}");
        }
        // Some cameras lock out clients that keep trying.
        for status in [400, 403, 453, 461, 499] {
            assert!(!soon(&refused(status)), "{status}");
        }
        assert!(!soon(&ClientError::LoginRefused.into()) && !soon(&ClientError::UdpOnly.into()));
        assert!(soon(&ClientError::NoStream.into()));
        assert!(soon(&Failure::Closed) && soon(&Failure::NoAnswer) && soon(&Failure::NoVideo(None)));
        assert!(!soon(&Failure::Tls("unknown issuer".to_owned())) && !soon(&Failure::Redirects));
        let local = Failure::Local(SourceError::permanent("no ffmpeg")).error(&target(RtspTransport::Tcp));
        assert_eq!((local.to_string().as_str(), local.may_pass()), ("no ffmpeg", false));
    }
}
