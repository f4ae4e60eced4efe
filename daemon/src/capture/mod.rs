//! Where frames come from: cameras, video and picture files, programs, a test pattern.

mod child;
pub mod clock;
mod command;
mod ffprobe;
pub mod frame;
pub mod images;
#[cfg(test)]
mod leak_tests;
mod pace;
mod pattern;
pub mod picture;
mod pipe;
pub mod source;
pub mod v4l2;
mod video;
mod y4m;

use std::sync::Arc;

use self::clock::SystemClock;
use self::frame::FramePool;
use self::source::{Source, SourceError};
use visiond_kernels::buffer::Memory;

use crate::config::types::{BufferConfig, SourceConfig};

/// Opens a source and makes its buffers. `name` is the camera's, for the log.
pub fn open(source: &SourceConfig, name: &str, buffers: &BufferConfig) -> Result<Box<dyn Source>, SourceError> {
    let clock = Arc::new(SystemClock);
    match source {
        SourceConfig::Pattern(config) => Ok(Box::new(pattern::PatternSource::open(config, buffers, clock)?)),
        SourceConfig::Video(config) => Ok(Box::new(video::VideoSource::open(config, name, buffers, clock)?)),
        SourceConfig::Command(config) => Ok(Box::new(command::CommandSource::open(config, name, buffers, clock)?)),
        SourceConfig::Images(config) => Ok(Box::new(images::ImagesSource::open(config, name, buffers, clock)?)),
        SourceConfig::V4l2(config) => Ok(Box::new(v4l2::V4l2Source::open(config, name, buffers, clock)?)),
    }
}

/// The buffers of a source whose frames have `bytes` bytes.
fn pool(buffers: &BufferConfig, bytes: usize) -> Result<FramePool, SourceError> {
    FramePool::new(&Memory::host(), buffers.count, bytes).map_err(|error| SourceError::transient(error.to_string()))
}
