//! Which decoder a stream gets. H.264 and H.265: the GPU's video engine where the model runs on a GPU and the engine takes the
//! stream, else ffmpeg. JPEG: libjpeg-turbo in this process.

use std::sync::Arc;

use visiond_config::types::{RtspConfig, StreamDecoding};
use visiond_flow::clock::Clock;
use visiond_kernels::nvdec::VideoCodec;
use visiond_system::stop::Stop;

use super::super::buffers::Buffers;
use super::super::pipe::ReadError;
use super::super::source::{Next, SourceError};
use super::access_unit::{AccessUnit, Codec};
use super::ffmpeg_decoder::FfmpegDecoder;
use super::jpeg_decoder::JpegStreamDecoder;
use super::nvdec_decoder::NvdecDecoder;
use super::unit_queue::{Taken, UnitQueue};

/// What the decoders of a camera have in common.
pub struct Stream {
    pub config: RtspConfig,
    pub buffers: Buffers,
    pub queue: Arc<UnitQueue>,
    /// The camera's name.
    pub camera: String,
    /// The URL as errors and the log show it.
    pub origin: String,
    pub clock: Arc<dyn Clock>,
}

impl Stream {
    /// Takes the next unit for a decoder with the parameters of `generation`, on the camera's thread.
    pub fn take_unit(&self, generation: u64, stop: &Stop) -> Result<AccessUnit, DecoderEnd> {
        let is_over = || {
            stop.mark_progress();
            stop.is_raised()
        };
        match self.queue.take(generation, is_over) {
            Taken::Unit(unit) => Ok(unit),
            Taken::OtherParameters => Err(DecoderEnd::OtherParameters),
            Taken::Ended => Err(DecoderEnd::SessionEnded),
            Taken::Cancelled => Err(DecoderEnd::Stopped),
        }
    }

    /// Returns the error of a stream that cannot be decoded.
    pub fn undecodable(&self, reason: impl std::fmt::Display) -> SourceError {
        SourceError::transient(format!("cannot decode the video of {}: {reason}", self.origin))
    }
}

/// Makes frames of a stream's access units.
pub trait StreamDecoder: Send {
    /// Waits for the next frame, which gets the number `sequence`, or for the loss of one.
    fn next(&mut self, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd>;

    /// Returns what decodes, as the configuration calls it.
    fn name(&self) -> &'static str;

    /// Returns codec, size and formats, for the log.
    fn describe(&self) -> String;

    /// Returns how many frames it has decoded.
    fn decoded(&self) -> u64;
}

/// How a decoder ended.
#[derive(Debug)]
pub enum DecoderEnd {
    /// The stream goes on with other parameters.
    OtherParameters,
    SessionEnded,
    Stopped,
    Failed(SourceError),
}

/// Starts a decoder for the stream that goes on with `first`, the next unit of the queue.
pub fn start(stream: &Arc<Stream>, first: &AccessUnit, stop: &Stop) -> Result<Box<dyn StreamDecoder>, ReadError> {
    let codec = match first.codec {
        Codec::H264 => VideoCodec::H264,
        Codec::H265 => VideoCodec::H265,
        Codec::Jpeg => return Ok(Box::new(JpegStreamDecoder::start(stream, first))),
    };
    let on_gpu = match (stream.config.decoder, stream.buffers.memory.device()) {
        (StreamDecoding::Ffmpeg, _) | (StreamDecoding::Auto, None) => None,
        (StreamDecoding::Nvdec, None) => {
            let reason =
                "`decoder = \"nvdec\"` is for models that run on a GPU, and this camera's does not: take the key out";
            return Err(SourceError::permanent(format!("cannot play {}: {reason}", stream.origin)).into());
        }
        (StreamDecoding::Auto | StreamDecoding::Nvdec, Some(device)) => {
            Some(NvdecDecoder::start(stream, first, codec, device))
        }
    };
    match on_gpu {
        Some(Ok(decoder)) => return Ok(Box::new(decoder)),
        Some(Err(error)) if error.is_sticky() || stream.config.decoder == StreamDecoding::Nvdec => {
            return Err(stream.undecodable(error).into());
        }
        Some(Err(error)) => log::info!("camera {}: {error}. ffmpeg decodes", stream.camera),
        None => {}
    }
    Ok(Box::new(FfmpegDecoder::start(stream, first, stop)?))
}
