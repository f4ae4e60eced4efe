//! A client of RTSP cameras (RFC 2326) without I/O: bytes and times go in, requests and RTP packets come out.
//!
//! Reading is lenient where nothing is ambiguous, because many cameras deviate; sending is strict. A table in docs/cameras.md lists the
//! accepted deviations.

pub mod authentication;
pub mod client;
pub mod codec;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod message;
pub mod picture_size;
mod rtcp;
mod rtp;
pub mod sdp;
mod session_headers;

pub use message::MessageError;
pub use rtp::{RtpCounts, RtpPacket};
