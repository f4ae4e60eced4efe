//! Frame sources: cameras, video and image files, programs, a test pattern.

mod buffers;
mod camera_address;
pub mod camera_connection;
mod camera_tls;
mod command;
mod damage_watch;
mod decoder_process;
mod described_cameras;
mod ffmpeg_output;
mod ffprobe;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gstreamer_registry;
mod http_client;
mod http_offer;
pub mod image_file;
pub mod images;
mod jpeg_frames;
mod mapping;
mod masked_source;
mod mjpeg;
pub mod onvif;
mod other_content;
mod pacer;
mod pattern;
mod pipe;
mod quarantine;
mod rtsp;
mod shared_memory;
mod snapshot;
pub mod source;
pub mod v4l2;
mod video;
mod y4m;

use std::sync::Arc;

use visiond_config::types::SourceConfig;
use visiond_frames::clock::SystemClock;
use visiond_frames::coded_ring::CodedRing;
use visiond_kernels::privacy::PrivacyMask;
use visiond_system::state;

use self::masked_source::{MaskedOpener, MaskedSource};
use self::source::{Source, SourceError};
use crate::source::{Open, SourceFault};

pub use self::buffers::Buffers;
pub use self::http_offer::{HttpContent, HttpOffer, WatchedParts};
pub use self::rtsp::{OfferedStream, RtspOffer, Watched};

/// Returns an opener for a camera's source, which can be used any number of times. The areas of `masks` are blanked in every frame.
///
/// A source that has a bitstream puts it into `coded`. With masks, it never does: nothing is blanked in a bitstream.
///
/// The pipeline, previews and `capture --config` get frames of a configured camera from this and [`open`] only. `probe` and `selftest`
/// open devices without a configuration's masks, and show no image.
pub fn opener(
    source: &SourceConfig,
    masks: Vec<PrivacyMask>,
    name: &Arc<str>,
    buffers: &Buffers,
    coded: Option<Arc<CodedRing>>,
) -> Open {
    let coded = coded.filter(|_| masks.is_empty());
    let masks: Arc<[PrivacyMask]> = masks.into();
    MaskedOpener::wrap(unmasked_opener(source, name, buffers, coded), masks)
}

fn unmasked_opener(source: &SourceConfig, name: &Arc<str>, buffers: &Buffers, coded: Option<Arc<CodedRing>>) -> Open {
    let (name, buffers) = (Arc::clone(name), buffers.clone());
    match source {
        SourceConfig::V4l2(config) => {
            Box::new(v4l2::opener::V4l2Opener::new(config.clone(), name, buffers).recording_to(coded))
        }
        // The pipeline logs when a camera returns. On the first connection it logs only the start.
        SourceConfig::Mjpeg(config) => {
            let (config, mut announced) = (config.clone(), Some(name));
            Box::new(move || {
                let clock = Arc::new(SystemClock);
                let source = mjpeg::MjpegSource::open(&config, announced.take(), &buffers, clock)?;
                Ok(Box::new(source.recording_to(coded.clone())) as Box<dyn Source>)
            })
        }
        SourceConfig::Rtsp(config) => {
            let config = config.clone();
            Box::new(move || {
                let source = rtsp::RtspSource::open(&config, &name, &buffers, Arc::new(SystemClock))?;
                Ok(Box::new(source.recording_to(coded.clone())) as Box<dyn Source>)
            })
        }
        source => {
            let source = source.clone();
            Box::new(move || open_unmasked(&source, &name, &buffers))
        }
    }
}

/// Returns why a source cannot be opened. Starts no program, opens no camera, and decodes nothing, so it knows nothing about
/// cameras.
pub fn check(source: &SourceConfig) -> Vec<SourceFault> {
    match source {
        SourceConfig::Pattern(config) => pattern::PatternSource::check(config).into_iter().collect(),
        SourceConfig::Rtsp(config) => rtsp::RtspSource::check(config),
        SourceConfig::Mjpeg(config) => mjpeg::MjpegSource::check(config),
        SourceConfig::Snapshot(config) => snapshot::SnapshotSource::check(config),
        SourceConfig::Video(config) => video::VideoSource::check(config),
        SourceConfig::Command(config) => command::CommandSource::check(config),
        SourceConfig::Images(config) => images::ImagesSource::check(config).into_iter().collect(),
        SourceConfig::V4l2(_) => Vec::new(),
    }
}

/// Opens a source and allocates its buffers. The areas of `masks` are blanked in every frame. `name` is the camera's, for the log.
pub fn open(
    source: &SourceConfig,
    masks: Vec<PrivacyMask>,
    name: &str,
    buffers: &Buffers,
) -> Result<Box<dyn Source>, SourceError> {
    let masks: Arc<[PrivacyMask]> = masks.into();
    Ok(MaskedSource::wrap(open_unmasked(source, name, buffers)?, &masks))
}

fn open_unmasked(source: &SourceConfig, name: &str, buffers: &Buffers) -> Result<Box<dyn Source>, SourceError> {
    let clock = Arc::new(SystemClock);
    match source {
        SourceConfig::Pattern(config) => Ok(Box::new(pattern::PatternSource::open(config, buffers, clock)?)),
        SourceConfig::Rtsp(config) => Ok(Box::new(rtsp::RtspSource::open(config, name, buffers, clock)?)),
        SourceConfig::Mjpeg(config) => Ok(Box::new(mjpeg::MjpegSource::open(config, None, buffers, clock)?)),
        SourceConfig::Snapshot(config) => Ok(Box::new(snapshot::SnapshotSource::open(config, buffers, clock)?)),
        SourceConfig::Video(config) => Ok(Box::new(video::VideoSource::open(config, name, buffers, clock)?)),
        SourceConfig::Command(config) => Ok(Box::new(command::CommandSource::open(config, name, buffers, clock)?)),
        SourceConfig::Images(config) => {
            let state = state::folder();
            Ok(Box::new(images::ImagesSource::open(config, name, buffers, state.as_deref(), clock)?))
        }
        SourceConfig::V4l2(config) => {
            let found = v4l2::find_camera::find(&config.device, None);
            let found = found.map_err(|error| SourceError::transient(error.to_string()))?;
            Ok(Box::new(v4l2::V4l2Source::open_node(&found.node, config, name, buffers, clock)?))
        }
    }
}

#[cfg(test)]
mod tests;
