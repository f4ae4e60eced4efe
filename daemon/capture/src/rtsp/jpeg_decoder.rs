//! Decodes JPEG pictures of a camera in this process, straight into unified buffers, on the camera's thread.

use std::sync::Arc;
use std::time::Instant;

use visiond_flow::frame::{Frame, FramePool};
use visiond_flow::metrics::LossCause;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::jpeg::JpegDecoder;
use visiond_system::stop::Stop;

use super::super::source::{Next, SourceError};
use super::access_unit::AccessUnit;
use super::session::RunningSession;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};

/// Pictures in turn that each have another size than the one before. Each allocates all buffers.
const MOST_CHANGES: u32 = 5;

/// Makes frames of JPEG pictures.
pub struct JpegStreamDecoder {
    stream: Arc<Stream>,
    generation: u64,
    decoder: JpegDecoder,
    /// The layout of the frames, and their buffers; `None` before the first picture.
    frames: Option<(FrameLayout, FramePool)>,
    changes: u32,
    decoded: u64,
}

impl JpegStreamDecoder {
    /// Starts for the stream that goes on with `first`.
    pub fn start(stream: &Arc<Stream>, first: &AccessUnit) -> Self {
        let (stream, generation) = (Arc::clone(stream), first.generation);
        Self { stream, generation, decoder: JpegDecoder::new(), frames: None, changes: 0, decoded: 0 }
    }

    /// Decodes a picture into a free buffer. A damaged one is a loss; it is an error if a picture is larger than is allowed, or
    /// each has another size.
    fn decode(&mut self, unit: &AccessUnit, sequence: u64) -> Result<Next, SourceError> {
        let Stream { buffers, origin, .. } = self.stream.as_ref();
        let damaged = |error: &dyn std::fmt::Display| {
            log::debug!("{origin}: lost frame {sequence}: {error}");
            Next::Lost { frames: 1, cause: LossCause::Corrupt }
        };
        let wrong = |reason: String| SourceError::transient(format!("cannot read the video of {origin}: {reason}"));
        let (width, height) = match self.decoder.header(&unit.data) {
            Ok(header) => (header.width, header.height),
            Err(error) => return Ok(damaged(&error)),
        };
        let size = self.frames.as_ref().map(|(layout, _)| (layout.width(), layout.height()));
        if size == Some((width, height)) {
            self.changes = 0;
        } else {
            self.changes += 1;
            if self.changes > MOST_CHANGES {
                return Err(wrong("each picture has another size: set the camera to one resolution".to_owned()));
            }
            buffers.check_size(width, height).map_err(|error| wrong(error.to_string()))?;
            let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default());
            let layout = layout.map_err(|error| wrong(error.to_string()))?;
            buffers.check_memory(layout.size_bytes()).map_err(|error| wrong(error.to_string()))?;
            // Those before are freed first.
            self.frames = None;
            self.frames = Some((layout, buffers.pool(layout.size_bytes())?));
        }
        let Some((layout, mut buffer)) = self.frames.as_ref().and_then(|(layout, pool)| Some((*layout, pool.take()?)))
        else {
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        if let Err(error) = self.decoder.decode(&unit.data, buffer.as_mut_slice()) {
            return Ok(damaged(&error));
        }
        Ok(Next::Frame(Frame {
            layout,
            buffer: buffer.into(),
            sequence,
            timestamp: unit.captured,
            damaged: false,
            name: None,
        }))
    }
}

impl StreamDecoder for JpegStreamDecoder {
    fn next(&mut self, session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        let deadline = Instant::now() + self.stream.frame_timeout();
        let unit = self.stream.take_unit(session, self.generation, deadline, stop)?;
        self.decoded += 1;
        self.decode(&unit, sequence).map_err(DecoderEnd::Failed)
    }

    fn name(&self) -> &'static str {
        "libjpeg-turbo"
    }

    fn describe(&self) -> String {
        match &self.frames {
            Some((layout, _)) => {
                let (width, height, format) = (layout.width(), layout.height(), layout.format());
                format!("jpeg, {width}x{height}, by libjpeg-turbo as {format}")
            }
            None => "jpeg, by libjpeg-turbo".to_owned(),
        }
    }

    fn decoded(&self) -> u64 {
        self.decoded
    }
}
