//! A client of RTSP cameras (RFC 2326) without I/O: bytes and times go in, requests and RTP packets come out.
//!
//! Reading is lenient where nothing is ambiguous, because cameras are what they are; sending is strict. What is read that the standards
//! do not allow stands in one table, in docs/cameras.md.

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
