//! Where frames come from: cameras, video and picture files, programs, a test pattern.

pub mod frame;
pub mod source;
