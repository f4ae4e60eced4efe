//! Decodes access units with ffmpeg.
//!
//! ffmpeg holds back only the frames that the stream's B-frames require: its decoder uses slice threads only, its output uses one
//! thread, and every unit is followed by an access unit delimiter. It returns every decoded frame, damaged or not
//! (`output_corrupt`, `showall`).

use std::sync::Arc;

use visiond_kernels::frame::FrameLayout;

use super::super::decoder_process;
use super::super::ffmpeg_output::FfmpegOutput;
use super::super::ffprobe::VideoInfo;
use super::super::source::SourceError;
use super::access_unit::AccessUnit;
use super::child_decoder::{ChildDecoder, DecoderProgram};
use super::stream_decoder::Stream;

/// Starts ffmpeg for the stream that continues with `first`, and is as `info` says.
pub fn start(stream: &Arc<Stream>, first: &AccessUnit, info: &VideoInfo) -> Result<ChildDecoder, SourceError> {
    let config = &stream.config;
    let output =
        FfmpegOutput { pixels: config.pixels, color_matrix: config.color_matrix, color_range: config.color_range };
    let (format, color) = output.format(info);
    let layout = FrameLayout::packed(format, info.width, info.height, color);
    let layout = layout.map_err(|error| stream.unreadable(error))?;
    stream.buffers.check_memory(layout.size_bytes()).map_err(|error| stream.unreadable(error))?;
    let mut args = arguments(first.codec.demuxer());
    args.extend(output.arguments(info));
    let label = format!("camera {}: ffmpeg", stream.camera);
    let child = decoder_process::spawn_fed(&config.ffmpeg.program, config, &label, args)?;
    ChildDecoder::start(stream, first, DecoderProgram::Ffmpeg, info, layout, child)
}

/// Returns ffmpeg's arguments up to its input. `video.rs` explains `-flags bitexact`. By itself, ffmpeg would analyse the first
/// seconds of a stream before it decodes; ffprobe has already found the parameters.
fn arguments(demuxer: &str) -> Vec<String> {
    let args = ["-nostdin", "-hide_banner", "-loglevel", "error", "-flags", "bitexact+output_corrupt"];
    let decoder = ["-flags2", "showall", "-thread_type", "slice"];
    let input = ["-probesize", "32", "-analyzeduration", "0", "-f", demuxer, "-i", "pipe:0", "-threads", "1"];
    args.into_iter().chain(decoder).chain(input).map(str::to_owned).collect()
}
