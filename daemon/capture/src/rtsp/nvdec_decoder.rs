//! Decodes access units on the GPU's video engine. Frames stay in the GPU's memory.
//!
//! A frame costs the CPU some 100 us in NVIDIA's library, and no copy. A thread need not wait for the engine, and can decode the
//! streams of many cameras.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use visiond_config::types::{DamagedFrames, VideoPixels};
use visiond_frames::clock;
use visiond_frames::frame::{Frame, FrameBytes, LossCause};
use visiond_ground::gpu_lost::is_gpu_lost;
use visiond_kernels::color::{ColorDescription, YuvArithmetic};
use visiond_kernels::cuda::Device;
use visiond_kernels::frame::{FrameError, FrameLayout, PixelFormat, PlaneLayout};
use visiond_kernels::nvdec::{NvdecError, Picture, Surface, VideoCodec, VideoDecoder, VideoFormat};
use visiond_system::priority::wake_together;
use visiond_system::stop::Stop;

use super::super::source::{Next, SourceError, Worked};
use super::access_unit::{Access, AccessUnit, Fate};
use super::frame_times::ShownTimes;
use super::picture_order::PictureOrder;
use super::running_session::RunningSession;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};
use super::unit_queue::Taken;

/// How many units a decoder may hold back before it shows one: H.264 and H.265 keep 16 frames.
const MOST_HELD_BACK: u32 = 16;

pub struct NvdecDecoder {
    stream: Arc<Stream>,
    decoder: VideoDecoder,
    format: VideoFormat,
    color: ColorDescription,
    times: ShownTimes,
    order: PictureOrder,
    generation: u64,
    /// The presentation time of the unit that [`NvdecDecoder::start`] decoded, until the queue delivers it again.
    started_with: Option<i64>,
    /// The same, for a unit that the queue has dropped and counted: it yields no frame.
    unwanted: Option<i64>,
    /// How the stream ended; its last frames are returned first.
    end: Option<DecoderEnd>,
    damage: Damage,
    /// Whether decoding started at a recovery point that is correct at once. Frames shown before it and decoded after it are
    /// skipped then: if a camera writes times in decoding order, they would be mistaken for others.
    skips_leading: bool,
    /// How many units the decoder has received since its last frame.
    fed: u32,
    /// The deadline of the next frame.
    deadline: Instant,
    decoded: u64,
}

/// Frames that the engine could not decode, although nothing was lost in transit. Later ones may refer to them, up to the next
/// key frame.
#[derive(Debug, Default)]
struct Damage {
    may_show: bool,
    /// The times of the first key frame after it and of the frames after that. Every one that the decoder returns is clean.
    /// The key frame itself may be skipped.
    clean: VecDeque<i64>,
}

impl Damage {
    /// Starts tracking at a frame that the engine could not decode.
    fn begin(&mut self, given_with: i64) {
        // A frame from before the key frame does not damage those after it.
        if self.clean.contains(&given_with) {
            self.clean.clear();
        }
        self.may_show = true;
    }

    /// Notes a frame that the decoder receives.
    fn feed(&mut self, given_with: i64, is_key: bool) {
        if self.may_show && (is_key || !self.clean.is_empty()) {
            if self.clean.len() == MOST_HELD_BACK as usize {
                self.clean.pop_front();
            }
            self.clean.push_back(given_with);
        }
    }

    /// Returns whether a returned frame may show the damage. The first clean one ends the damage.
    fn shows(&mut self, given_with: i64) -> bool {
        if self.clean.contains(&given_with) {
            *self = Self::default();
        }
        self.may_show
    }
}

/// Creates a decoder for a stream with these parameter sets before its first unit arrives.
pub fn prepare(
    stream: &Stream,
    codec: VideoCodec,
    sets: &[u8],
    device: &Arc<Device>,
) -> Result<VideoDecoder, NvdecError> {
    make(stream, codec, device)?.prepared(sets)
}

fn make(stream: &Stream, codec: VideoCodec, device: &Arc<Device>) -> Result<VideoDecoder, NvdecError> {
    let limits = stream.buffers.clone();
    let accept = move |width: u32, height: u32, bytes: u64| {
        limits.check_size(width, height).map_err(|error| error.to_string())?;
        limits.check_memory_in_all(bytes).map_err(|error| error.to_string())
    };
    VideoDecoder::new(device, codec, stream.buffers.count, Box::new(accept))
}

impl NvdecDecoder {
    /// Decodes `first`, the next unit of the queue, to find out whether the engine supports the stream. Uses `prepared` if there is
    /// one and the stream matches its description.
    pub fn start(
        stream: &Arc<Stream>,
        first: &AccessUnit,
        codec: VideoCodec,
        device: &Arc<Device>,
        prepared: Option<VideoDecoder>,
    ) -> Result<Self, NvdecError> {
        let mut times = ShownTimes::default();
        times.add(first.presentation, first.captured);
        times.add_fate(first.presentation, first.fate);
        let mut order = PictureOrder::of(first, stream.config.key_frames_only);
        let showing = order.next(first);
        let decode = |mut decoder: VideoDecoder| {
            decoder.decode(&first.data, first.presentation, showing)?;
            // The engine may reject it only at this point.
            decoder.await_picture()?;
            Ok(decoder)
        };
        let decoded = prepared.map_or(Err(NvdecError::OtherParameters), decode);
        let decoder = match decoded {
            Err(NvdecError::OtherParameters) => decode(make(stream, codec, device)?)?,
            decoded => decoded?,
        };
        let format = decoder.format().filter(|_| decoder.has_begun()).ok_or(NvdecError::NoPicture)?;
        // With dozens of cameras, this may have taken seconds.
        stream.queue.catch_up();
        let color = ColorDescription {
            matrix: stream.config.color_matrix.unwrap_or(format.color.matrix),
            range: stream.config.color_range.unwrap_or(format.color.range),
            arithmetic: match stream.config.pixels {
                VideoPixels::Bgr if format.kind.bits == 8 => YuvArithmetic::Ffmpeg,
                _ => YuvArithmetic::Nearest,
            },
            levels: None,
        };
        let (generation, started_with) = (first.generation, Some(first.presentation));
        // This thread sleeps several times per frame.
        wake_together();
        Ok(Self {
            stream: Arc::clone(stream),
            decoder,
            format,
            color,
            times,
            order,
            generation,
            started_with,
            unwanted: None,
            end: None,
            damage: Damage::default(),
            skips_leading: matches!(first.access, Access::Recovery(point) if point.distance <= 0),
            fed: 0,
            deadline: Instant::now() + stream.frame_timeout(),
            decoded: 0,
        })
    }

    /// Passes the stream's next unit to the decoder.
    fn feed(&mut self, unit: AccessUnit) -> Result<(), DecoderEnd> {
        if let Some(first) = self.started_with.take() {
            if first == unit.presentation {
                return Ok(());
            }
            self.unwanted = Some(first);
        }
        if self.skips_leading && unit.fate == Fate::Discarded {
            return Ok(());
        }
        self.times.add(unit.presentation, unit.captured);
        self.times.add_fate(unit.presentation, unit.fate);
        self.damage.feed(unit.presentation, unit.access == Access::Key);
        match self.decoder.decode(&unit.data, unit.presentation, self.order.next(&unit)) {
            Ok(()) => Ok(()),
            Err(NvdecError::OtherParameters) => {
                self.stream.queue.put_back(unit);
                Err(DecoderEnd::OtherParameters)
            }
            Err(error) => Err(DecoderEnd::Failed(failed(&self.stream, &error))),
        }
    }

    /// Passes the next unit to the decoder, or requests its last frames if there is none.
    fn feed_or_end(&mut self, unit: Result<AccessUnit, DecoderEnd>) -> Result<(), DecoderEnd> {
        self.fed += 1;
        match unit.and_then(|unit| self.feed(unit)) {
            Err(end @ (DecoderEnd::OtherParameters | DecoderEnd::SessionEnded)) => {
                self.end = Some(end);
                self.decoder.finish().map_err(|error| DecoderEnd::Failed(failed(&self.stream, &error)))
            }
            fed => fed,
        }
    }

    /// Returns the decoder's next available frame, or its loss.
    fn take_frame(&mut self, sequence: u64) -> Result<Option<Next>, DecoderEnd> {
        loop {
            let picture = self.decoder.next_picture();
            let Some(picture) = picture.map_err(|error| DecoderEnd::Failed(failed(&self.stream, &error)))? else {
                return Ok(None);
            };
            // The queue has already counted it.
            if matches!(picture, Picture::Shown { given_with, .. } if self.unwanted == Some(given_with)) {
                continue;
            }
            self.decoded += 1;
            let next = match picture {
                Picture::Shown { surface, presentation, given_with } => {
                    match self.frame(surface, presentation, given_with, sequence) {
                        Ok(Some(next)) => next,
                        Ok(None) => continue,
                        Err(error) => return Err(DecoderEnd::Failed(self.stream.undecodable(error))),
                    }
                }
                Picture::Damaged { given_with } => {
                    self.damage.begin(given_with);
                    match self.times.take_fate(given_with) {
                        Fate::Discarded => continue,
                        _ => Next::Lost { frames: 1, cause: LossCause::Corrupt },
                    }
                }
                Picture::Skipped { given_with } => {
                    self.damage.shows(given_with);
                    match self.times.take_fate(given_with) {
                        Fate::Discarded => continue,
                        _ => Next::Lost { frames: 1, cause: LossCause::Overload },
                    }
                }
            };
            return Ok(Some(next));
        }
    }

    /// Starts to wait for a frame.
    fn begin_wait(&mut self) {
        (self.fed, self.deadline) = (0, Instant::now() + self.stream.frame_timeout());
    }

    /// Returns how the decoder ends, if it does now: its last frames are out, or it takes units without showing any.
    fn take_end(&mut self) -> Result<(), DecoderEnd> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        if self.fed > MOST_HELD_BACK && Instant::now() >= self.deadline {
            return Err(DecoderEnd::Failed(self.stream.no_frame()));
        }
        Ok(())
    }

    /// Makes a frame from a frame whose unit has the time `given_with`; `None` if it does not become a frame.
    fn frame(
        &mut self,
        surface: Surface,
        presentation: i64,
        given_with: i64,
        sequence: u64,
    ) -> Result<Option<Next>, FrameError> {
        let layout = self.layout(&surface)?;
        let damaged = match (self.times.take_fate(given_with), self.damage.shows(given_with)) {
            (Fate::Discarded, _) => return Ok(None),
            (Fate::Published, false) => false,
            (Fate::Published, _) if self.stream.config.damaged == DamagedFrames::Drop => {
                return Ok(Some(Next::Lost { frames: 1, cause: LossCause::Corrupt }));
            }
            (Fate::Published | Fate::PublishedAsDamaged | Fate::PublishedAsRecovering, _) => true,
        };
        let captured = self.times.take(presentation);
        let timestamp = captured.unwrap_or_else(|| clock::now(self.stream.clock.as_ref()));
        let buffer = FrameBytes::Surface(surface);
        Ok(Some(Next::Frame(Frame { layout, buffer, sequence, timestamp, damaged, name: None })))
    }

    fn layout(&self, surface: &Surface) -> Result<FrameLayout, FrameError> {
        let pitch_bytes = surface.pitch_bytes();
        let planes = self.format.plane_offsets(surface).map(|offset_bytes| PlaneLayout { offset_bytes, pitch_bytes });
        let format = self.pixel_format();
        let planes = &planes[..format.plane_count()];
        FrameLayout::with_planes(format, self.format.width, self.format.height, planes, self.color)
    }

    fn pixel_format(&self) -> PixelFormat {
        if self.format.kind.bits > 8 { PixelFormat::P010 } else { PixelFormat::Nv12 }
    }
}

/// Returns the error for a stream that NVDEC cannot continue to decode.
pub fn failed(stream: &Stream, error: &NvdecError) -> SourceError {
    let failed = stream.undecodable(error);
    if is_gpu_lost(error) { SourceError::gpu_lost(failed.message) } else { failed }
}

impl StreamDecoder for NvdecDecoder {
    fn next(&mut self, session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        self.begin_wait();
        loop {
            if let Some(next) = self.take_frame(sequence)? {
                self.begin_wait();
                return Ok(next);
            }
            self.take_end()?;
            let unit = self.stream.take_unit(session, self.generation, self.deadline, stop);
            self.feed_or_end(unit)?;
        }
    }

    fn shares_thread(&self) -> bool {
        true
    }

    fn work(&mut self, session: &RunningSession, sequence: u64, is_readable: bool) -> Result<Worked, SourceError> {
        let due = session.read(is_readable);
        let failed = |end| match end {
            DecoderEnd::Failed(error) => Err(error),
            _ => Ok(Worked::NeedsThread),
        };
        while self.end.is_none() {
            let now = Instant::now();
            if let Some(due) = self.decoder.due().filter(|due| *due > now) {
                return Ok(Worked::Idle(due));
            }
            match self.take_frame(sequence) {
                Ok(Some(next)) => {
                    self.begin_wait();
                    return Ok(Worked::Next(next));
                }
                Ok(None) => {}
                Err(end) => return failed(end),
            }
            let shows_nothing = self.fed > MOST_HELD_BACK && now >= self.deadline;
            match session.take_ready(self.generation) {
                Taken::Unit(unit) if !shows_nothing => {
                    if let Err(end) = self.feed_or_end(Ok(unit)) {
                        return failed(end);
                    }
                }
                Taken::Cancelled | Taken::TimedOut if now < self.deadline => return Ok(Worked::Idle(due)),
                // Creating another decoder and freeing this one take long.
                Taken::OtherParameters | Taken::Ended => break,
                _ => return Err(self.stream.no_frame()),
            }
        }
        Ok(Worked::NeedsThread)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_ends_with_the_first_picture_from_the_next_key_frame_on_that_comes_out() {
        let mut damage = Damage::default();
        damage.feed(1, true);
        assert!(!damage.shows(1));
        damage.feed(2, false);
        damage.begin(2);
        damage.feed(3, false);
        assert!(damage.shows(3));
        // The key frame is not returned, but one that is shown after it is.
        damage.feed(4, true);
        damage.feed(6, false);
        damage.feed(5, false);
        assert!(damage.shows(3) && !damage.shows(5) && !damage.shows(6));
        // A frame from before the key frame turns out damaged after the decoder received the key frame.
        damage.begin(7);
        damage.feed(8, true);
        damage.begin(7);
        assert!(damage.shows(7) && !damage.shows(8));
        // The key frame itself is damaged, so the next one ends the damage.
        damage.begin(9);
        damage.feed(10, true);
        damage.feed(11, false);
        damage.begin(10);
        assert!(damage.shows(11));
        damage.feed(12, true);
        assert!(!damage.shows(12));
        // Only key frames, none of which is returned in time: the list stays bounded.
        damage.begin(13);
        (14..1000).for_each(|time| damage.feed(time, true));
        assert!(damage.clean.len() == MOST_HELD_BACK as usize && !damage.shows(999));
    }
}
