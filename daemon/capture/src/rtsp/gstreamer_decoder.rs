//! Decodes access units with the video engine of a Jetson, through GStreamer and NVIDIA's element `nvv4l2decoder`: JetPack 5 and 6
//! have no NVDECODE.
//!
//! NVIDIA's elements differ between releases, and need devices that visiond cannot check in advance. So GStreamer is on trial
//! until its first frame. If it fails, another decoder gets the units that it has received.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use visiond_config::types::VideoPixels;
use visiond_kernels::color::{ColorDescription, YuvArithmetic};
use visiond_kernels::frame::{FrameError, FrameLayout, PixelFormat};
use visiond_rtsp::codec::Codec;
use visiond_system::stop::Stop;

use super::super::decoder_process;
use super::super::ffprobe::VideoInfo;
use super::super::pipe::ReadError;
use super::super::source::SourceError;
use super::access_unit::AccessUnit;
use super::child_decoder::{ChildDecoder, DecoderProgram};
use super::gstreamer_trials;
use super::stream_decoder::Stream;

/// The program that runs a pipeline.
pub const PROGRAM: &str = "gst-launch-1.0";

/// The most time to the first frame, unless the camera's `timeout` is shorter. NVIDIA's libraries take seconds to load.
const MAX_TRIAL: Duration = Duration::from_secs(10);

/// Starts GStreamer for the stream that continues with `first`, and is as `info` says; waits for its first frame.
pub fn start(
    stream: &Arc<Stream>,
    program: &Path,
    first: &AccessUnit,
    info: &VideoInfo,
    stop: &Stop,
) -> Result<ChildDecoder, ReadError> {
    let decoder = begin(stream, program, first, info, stop).inspect_err(|error| {
        if !error.may_pass() {
            gstreamer_trials::give_up(stream, info);
        }
    })?;
    decoder.try_out(stream.config.timeout.min(MAX_TRIAL), stop)
}

fn begin(
    stream: &Arc<Stream>,
    program: &Path,
    first: &AccessUnit,
    info: &VideoInfo,
    stop: &Stop,
) -> Result<ChildDecoder, SourceError> {
    let Stream { config, buffers, camera, .. } = stream.as_ref();
    let color = color(stream, info).ok_or_else(|| {
        let kind = gstreamer_trials::kind(info);
        let error = stream.undecodable(format!("GStreamer takes 4:2:0 video with even sides only, and this is {kind}"));
        SourceError::permanent(error.message)
    })?;
    let layout = layout(info, color).map_err(|error| stream.unreadable(error))?;
    buffers.check_memory(layout.size_bytes()).map_err(|error| stream.unreadable(error))?;
    let args = arguments(first.codec, info);
    let label = format!("camera {camera}: GStreamer");
    let child = decoder_process::spawn_gstreamer(program, config.ffmpeg.confined, &label, args, stop)?;
    ChildDecoder::start(stream, first, DecoderProgram::Gstreamer, info, layout, child)
}

/// Returns the colours of the frames; `None` if this decoder does not take the stream.
fn color(stream: &Stream, info: &VideoInfo) -> Option<ColorDescription> {
    let bits = match info.pixel_format.as_str() {
        "yuv420p" | "yuvj420p" => 8,
        // The board's converter rounds it to 8 bits.
        "yuv420p10le" => 10,
        _ => return None,
    };
    let has_even_sides = info.width.is_multiple_of(2) && info.height.is_multiple_of(2);
    has_even_sides.then(|| ColorDescription {
        matrix: stream.config.color_matrix.unwrap_or(info.color.matrix),
        range: stream.config.color_range.unwrap_or(info.color.range),
        arithmetic: match stream.config.pixels {
            VideoPixels::Bgr if bits == 8 => YuvArithmetic::Ffmpeg,
            _ => YuvArithmetic::Nearest,
        },
        levels: None,
    })
}

/// Returns the layout of NV12 in GStreamer: rows of a multiple of 4 bytes (`GstVideoInfo`).
fn layout(info: &VideoInfo, color: ColorDescription) -> Result<FrameLayout, FrameError> {
    let pitch_bytes = info.width.next_multiple_of(4) as usize;
    FrameLayout::with_pitches(PixelFormat::Nv12, info.width, info.height, &[pitch_bytes; 2], color)
}

/// Returns the arguments of gst-launch: a pipeline from standard input to descriptor 3, because NVIDIA's elements print to
/// standard output.
fn arguments(codec: Codec, info: &VideoInfo) -> Vec<String> {
    let parser = if codec == Codec::H265 { "h265parse" } else { "h264parse" };
    let mut args = vec!["-q", "fdsrc", "fd=0", "blocksize=65536", "!", parser, "!", "nvv4l2decoder"];
    // Without it, the decoder holds back frames of streams that need no reordering as well; with it, it would return B-frames
    // in decoding order. If a stream does not say whether it has some, the first one ends this decoder.
    if info.held_back == 0 {
        args.push("disable-dpb=true");
    }
    let caps = format!("video/x-raw,format=NV12,width={},height={}", info.width, info.height);
    args.extend(["!", "nvvidconv", "!", &caps, "!", "gdppay", "!", "fdsink", "fd=3", "sync=false"]);
    args.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
