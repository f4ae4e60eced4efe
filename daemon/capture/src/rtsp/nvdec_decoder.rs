//! Decodes access units on the GPU's video engine, on the camera's thread. Frames stay in the GPU's memory.
//!
//! A frame costs this thread two waits, for the engine and for the copy into the frame's surface, and no copy by the CPU.

use std::sync::Arc;

use visiond_flow::clock;
use visiond_flow::frame::{Frame, FrameBytes};
use visiond_flow::metrics::LossCause;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::cuda::Device;
use visiond_kernels::frame::{FrameError, FrameLayout, PixelFormat, PlaneLayout};
use visiond_kernels::nvdec::{Chroma, NvdecError, Picture, Surface, VideoCodec, VideoDecoder, VideoFormat, VideoKind};
use visiond_system::stop::Stop;

use super::super::source::Next;
use super::access_unit::AccessUnit;
use super::frame_times::ShownTimes;
use super::picture_order::PictureOrder;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};

pub struct NvdecDecoder {
    stream: Arc<Stream>,
    decoder: VideoDecoder,
    format: VideoFormat,
    color: ColorDescription,
    times: ShownTimes,
    order: PictureOrder,
    generation: u64,
    /// The presentation of the unit that [`NvdecDecoder::start`] has decoded, until the queue gives it once more.
    started_with: Option<i64>,
    decoded: u64,
}

impl NvdecDecoder {
    /// Decodes `first`, the next unit of the queue, to find out whether the engine takes the stream.
    pub fn start(
        stream: &Arc<Stream>,
        first: &AccessUnit,
        codec: VideoCodec,
        device: &Arc<Device>,
    ) -> Result<Self, NvdecError> {
        let limits = stream.buffers.clone();
        let accept = move |width: u32, height: u32| {
            limits.check_size(width, height).map_err(|error| error.to_string())?;
            // P016, which takes more than NV12.
            let bytes = width as usize * height as usize * 3;
            limits.check_memory(bytes).map_err(|error| error.to_string())
        };
        let mut decoder = VideoDecoder::new(device, codec, stream.buffers.count, Box::new(accept))?;
        let mut times = ShownTimes::default();
        times.add(first.presentation, first.captured);
        let mut order = PictureOrder::of(first, stream.config.key_frames_only);
        decoder.decode(&first.data, first.presentation, order.next(first))?;
        let format = decoder.format().ok_or(NvdecError::NoPicture)?;
        // With dozens of cameras, seconds have passed.
        stream.queue.catch_up();
        let color = ColorDescription {
            matrix: stream.config.color_matrix.unwrap_or(format.color.matrix),
            range: stream.config.color_range.unwrap_or(format.color.range),
        };
        let (generation, started_with) = (first.generation, Some(first.presentation));
        Ok(Self {
            stream: Arc::clone(stream),
            decoder,
            format,
            color,
            times,
            order,
            generation,
            started_with,
            decoded: 0,
        })
    }

    /// Gives the decoder the stream's next unit.
    fn feed(&mut self, stop: &Stop) -> Result<(), DecoderEnd> {
        let unit = self.stream.take_unit(self.generation, stop)?;
        if self.started_with.take() == Some(unit.presentation) {
            return Ok(());
        }
        self.times.add(unit.presentation, unit.captured);
        let decoded = self.decoder.decode(&unit.data, unit.presentation, self.order.next(&unit));
        decoded.map_err(|error| match error {
            NvdecError::OtherParameters => DecoderEnd::OtherParameters,
            error => DecoderEnd::Failed(self.stream.undecodable(error)),
        })
    }

    fn frame(&mut self, surface: Surface, presentation: i64, sequence: u64) -> Result<Next, FrameError> {
        let layout = self.layout(&surface)?;
        let captured = self.times.take(presentation);
        let timestamp = captured.unwrap_or_else(|| clock::now(self.stream.clock.as_ref()));
        Ok(Next::Frame(Frame { layout, buffer: FrameBytes::Surface(surface), sequence, timestamp, name: None }))
    }

    fn layout(&self, surface: &Surface) -> Result<FrameLayout, FrameError> {
        let pitch_bytes = surface.pitch_bytes();
        let planes = self.format.plane_offsets(surface).map(|offset_bytes| PlaneLayout { offset_bytes, pitch_bytes });
        let format = self.pixel_format();
        let planes = &planes[..format.plane_count()];
        FrameLayout::with_planes(format, self.format.width, self.format.height, planes, self.color)
    }

    fn pixel_format(&self) -> PixelFormat {
        match self.format.kind {
            VideoKind { bits: 9.., .. } => PixelFormat::P010,
            VideoKind { chroma: Chroma::Monochrome, .. } => PixelFormat::Grey,
            _ => PixelFormat::Nv12,
        }
    }
}

impl StreamDecoder for NvdecDecoder {
    fn next(&mut self, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        loop {
            let Some(picture) = self.decoder.next_picture() else {
                self.feed(stop)?;
                continue;
            };
            self.decoded += 1;
            return match picture {
                Picture::Shown { surface, presentation } => self
                    .frame(surface, presentation, sequence)
                    .map_err(|error| DecoderEnd::Failed(self.stream.undecodable(error))),
                Picture::Damaged => Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt }),
                Picture::Skipped => Ok(Next::Lost { frames: 1, cause: LossCause::Overload }),
            };
        }
    }

    fn name(&self) -> &'static str {
        "nvdec"
    }

    fn describe(&self) -> String {
        let VideoFormat { kind, width, height, is_interlaced, .. } = self.format;
        let fields = if is_interlaced { ", deinterlaced" } else { "" };
        format!("{kind}, {width}x{height}, by NVDEC as {}{fields}", self.pixel_format())
    }

    fn decoded(&self) -> u64 {
        self.decoded
    }
}
