//! Decodes a camera's JPEG images in this process, straight into pooled buffers.

use visiond_frames::frame::{Frame, FramePool, LossCause};
use visiond_frames::timestamp::Timestamp;
use visiond_kernels::color::ColorDescription;
use visiond_kernels::frame::{FrameLayout, PixelFormat};
use visiond_kernels::jpeg::JpegDecoder;

use super::buffers::Buffers;
use super::source::{Next, SourceError};

/// How many images in a row may each differ in size from the one before. Each change reallocates all buffers.
const MOST_CHANGES: u32 = 5;

/// The decoder's name in the configuration.
pub const DECODER: &str = "libjpeg-turbo";

/// Decodes the images of one camera.
pub struct JpegFrames {
    decoder: JpegDecoder,
    /// The layout of the frames, and their buffers; `None` before the first image.
    frames: Option<(FrameLayout, FramePool)>,
    changes: u32,
}

impl JpegFrames {
    pub fn new() -> Self {
        Self { decoder: JpegDecoder::new(), frames: None, changes: 0 }
    }

    /// Decodes the image `data` into a free buffer. A damaged image is a loss; an image that is too large, or a size that changes
    /// with every image, is an error. `origin` is the URL as errors and the log show it.
    pub fn decode(
        &mut self,
        data: &[u8],
        sequence: u64,
        timestamp: Timestamp,
        buffers: &Buffers,
        origin: &str,
    ) -> Result<Next, SourceError> {
        let damaged = |error: &dyn std::fmt::Display| {
            log::debug!("{origin}: lost frame {sequence}: {error}");
            Next::Lost { frames: 1, cause: LossCause::Corrupt }
        };
        let wrong = |reason: String| SourceError::transient(format!("cannot read the video of {origin}: {reason}"));
        let (width, height) = match self.decoder.header(data) {
            Ok(header) => (header.width, header.height),
            Err(error) => return Ok(damaged(&error)),
        };
        let size = self.frames.as_ref().map(|(layout, _)| (layout.width(), layout.height()));
        if size == Some((width, height)) {
            self.changes = 0;
        } else {
            self.changes += 1;
            if self.changes > MOST_CHANGES {
                return Err(wrong("every image has a different size: set the camera to one resolution".to_owned()));
            }
            buffers.check_size(width, height).map_err(|error| wrong(error.to_string()))?;
            let layout = FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default());
            let layout = layout.map_err(|error| wrong(error.to_string()))?;
            buffers.check_memory(layout.size_bytes()).map_err(|error| wrong(error.to_string()))?;
            // The old buffers are freed first.
            self.frames = None;
            self.frames = Some((layout, buffers.pool(layout.size_bytes())?));
        }
        let Some((layout, mut buffer)) = self.frames.as_ref().and_then(|(layout, pool)| Some((*layout, pool.take()?)))
        else {
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        if let Err(error) = self.decoder.decode(data, buffer.as_mut_slice()) {
            return Ok(damaged(&error));
        }
        Ok(Next::Frame(Frame {
            layout,
            buffer: buffer.into(),
            sequence,
            timestamp,
            recorded_at: None,
            damaged: false,
            name: None,
        }))
    }

    /// Returns codec, size and format, for the log.
    pub fn describe(&self) -> String {
        match &self.frames {
            Some((layout, _)) => {
                let (width, height, format) = (layout.width(), layout.height(), layout.format());
                format!("jpeg, {width}x{height}, by {DECODER} as {format}")
            }
            None => format!("jpeg, by {DECODER}"),
        }
    }
}
