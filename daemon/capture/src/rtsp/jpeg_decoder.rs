//! Decodes a camera's JPEG images in this process, on the camera's thread.

use std::sync::Arc;
use std::time::Instant;

use visiond_system::stop::Stop;

use super::super::jpeg_frames::{DECODER, JpegFrames};
use super::super::source::Next;
use super::access_unit::AccessUnit;
use super::running_session::RunningSession;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};

/// Decodes JPEG images to frames.
pub struct JpegStreamDecoder {
    stream: Arc<Stream>,
    generation: u64,
    frames: JpegFrames,
    decoded: u64,
}

impl JpegStreamDecoder {
    /// Starts for the stream that continues with `first`.
    pub fn start(stream: &Arc<Stream>, first: &AccessUnit) -> Self {
        let (stream, generation) = (Arc::clone(stream), first.generation);
        Self { stream, generation, frames: JpegFrames::new(), decoded: 0 }
    }
}

impl StreamDecoder for JpegStreamDecoder {
    fn next(&mut self, session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        let deadline = Instant::now() + self.stream.frame_timeout();
        let unit = self.stream.take_unit(session, self.generation, deadline, stop)?;
        self.decoded += 1;
        let Stream { buffers, origin, .. } = self.stream.as_ref();
        let decoded = self.frames.decode(&unit.data, sequence, unit.captured, buffers, origin);
        decoded.map_err(DecoderEnd::Failed)
    }

    fn name(&self) -> &'static str {
        DECODER
    }

    fn describe(&self) -> String {
        self.frames.describe()
    }

    fn decoded(&self) -> u64 {
        self.decoded
    }
}
