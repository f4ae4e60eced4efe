//! Chooses the decoder of a stream. H.264 and H.265: the GPU's video engine if the model runs on a GPU and the engine supports the
//! stream; on a Jetson, otherwise the same engine through GStreamer; otherwise ffmpeg. JPEG: libjpeg-turbo in this process.

use std::sync::Arc;

use visiond_config::types::StreamDecoding;
use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::nvdec::{VideoCodec, VideoDecoder};
use visiond_system::stop::Stop;

use super::super::ffprobe;
use super::super::pipe::ReadError;
use super::super::source::SourceError;
use super::access_unit::{AccessUnit, Codec};
use super::child_decoder::ChildDecoder;
use super::ffmpeg_decoder;
use super::gstreamer_decoder;
use super::gstreamer_trials;
use super::jpeg_decoder::JpegStreamDecoder;
use super::nvdec_decoder::{self, NvdecDecoder};
use super::running_session::RunningSession;
use super::stream_decoder::{Stream, StreamDecoder};
use super::unit_queue::Description;

/// Creates the GPU's decoder for a stream with this description before it plays, so that no frame waits for that. `None` if
/// a different decoder is used, or the first frame must decide.
pub fn prepare(stream: &Stream, description: &Description) -> Option<VideoDecoder> {
    let codec = video_codec(description.codec)?;
    let may_be_nvdec = matches!(stream.config.decoder, StreamDecoding::Auto | StreamDecoding::Nvdec);
    let device = stream.buffers.memory.device().filter(|_| may_be_nvdec)?;
    let prepared = nvdec_decoder::prepare(stream, codec, &description.sets, device);
    prepared.inspect_err(|error| log::debug!("camera {}: no decoder before it plays: {error}", stream.camera)).ok()
}

fn video_codec(codec: Codec) -> Option<VideoCodec> {
    match codec {
        Codec::H264 => Some(VideoCodec::H264),
        Codec::H265 => Some(VideoCodec::H265),
        Codec::Jpeg => None,
    }
}

/// Starts a decoder for the stream that continues with `first`, the next unit of the queue; uses `prepared` if there is one.
pub fn start(
    stream: &Arc<Stream>,
    first: &AccessUnit,
    prepared: Option<VideoDecoder>,
    session: &mut RunningSession,
    stop: &Stop,
) -> Result<Box<dyn StreamDecoder>, ReadError> {
    let Some(codec) = video_codec(first.codec) else { return Ok(Box::new(JpegStreamDecoder::start(stream, first))) };
    let on_gpu = match (stream.config.decoder, stream.buffers.memory.device()) {
        (StreamDecoding::Gstreamer | StreamDecoding::Ffmpeg, _) | (StreamDecoding::Auto, None) => None,
        (StreamDecoding::Nvdec, None) => {
            let reason =
                "`decoder = \"nvdec\"` is for models that run on a GPU, and this camera's does not: take the key out";
            return Err(SourceError::permanent(format!("cannot play {}: {reason}", stream.origin)).into());
        }
        (StreamDecoding::Auto | StreamDecoding::Nvdec, Some(device)) => {
            Some(session.work_beside(|| NvdecDecoder::start(stream, first, codec, device, prepared)))
        }
    };
    match on_gpu {
        Some(Ok(decoder)) => return Ok(Box::new(decoder)),
        Some(Err(error)) if is_gpu_lost(&error) => return Err(nvdec_decoder::failed(stream, &error).into()),
        Some(Err(error)) if stream.config.decoder == StreamDecoding::Nvdec => {
            return Err(stream.undecodable(format!("{error}. `decoder = \"auto\"` leaves it to ffmpeg")).into());
        }
        Some(Err(error)) => {
            let next = if stream.gstreamer.is_some() { "GStreamer or ffmpeg decodes" } else { "ffmpeg decodes" };
            log::info!("camera {}: {error}. {next}", stream.camera);
        }
        None => {}
    }
    Ok(Box::new(start_child(stream, first, session, stop)?))
}

/// Starts a decoder in a child process.
fn start_child(
    stream: &Arc<Stream>,
    first: &AccessUnit,
    session: &mut RunningSession,
    stop: &Stop,
) -> Result<ChildDecoder, ReadError> {
    // This thread waits only for the child.
    session.run_apart()?;
    let Stream { config, camera, origin, gstreamer, .. } = stream.as_ref();
    let label = format!("camera {camera}: ffprobe");
    let info = ffprobe::probe_start(config, first.codec.demuxer(), &first.data, &label, origin, stop)?;
    stream.buffers.check_size(info.width, info.height).map_err(|error| stream.unreadable(error))?;
    let must = config.decoder == StreamDecoding::Gstreamer;
    if let Some(program) = gstreamer.as_ref().filter(|_| must || !gstreamer_trials::is_given_up(stream, &info)) {
        match gstreamer_decoder::start(stream, program, first, &info, stop) {
            Err(ReadError::Failed(error)) if must => {
                let text = format!("{error}. `decoder = \"auto\"` leaves it to ffmpeg");
                return Err(SourceError { message: text.into(), ..error }.into());
            }
            Err(ReadError::Failed(error)) => log::info!("camera {camera}: {error}. ffmpeg decodes"),
            done => return done,
        }
    }
    Ok(ffmpeg_decoder::start(stream, first, &info)?)
}
