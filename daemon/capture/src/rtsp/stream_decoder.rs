//! Decodes access units by ffmpeg in a child process, whose frames go straight into unified buffers.
//!
//! A thread of its own writes to ffmpeg, so that the camera's thread only reads. ffmpeg holds back no frame but what the stream's
//! B-frames require: its decoder uses threads within a picture only, its output uses one thread, and every unit is followed by an
//! access unit delimiter.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use visiond_config::types::{Pace, RtspConfig};
use visiond_flow::frame::PooledBuffer;
use visiond_flow::timestamp::Timestamp;
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{self, Child};
use visiond_system::stop::Stop;

use super::super::buffers::Buffers;
use super::super::decoder_process;
use super::super::ffmpeg_output::FfmpegOutput;
use super::super::ffprobe::{self, VideoInfo};
use super::super::pipe::{PipeFrames, ReadError};
use super::super::source::SourceError;
use super::access_unit::AccessUnit;
use super::frame_times::PendingTimes;
use super::unit_queue::{Taken, UnitQueue};

/// How long the next key frame may take where frames wait for one.
pub const KEY_FRAME_WAIT: Duration = Duration::from_secs(60);

pub struct StreamDecoder {
    pub info: VideoInfo,
    pub frames: PipeFrames,
    /// `None` once it ended.
    child: Option<Child>,
    feeder: Option<JoinHandle<FeedEnd>>,
    feed: Arc<Feed>,
    queue: Arc<UnitQueue>,
    frame_timeout: Duration,
    /// Frames that it has returned.
    pub decoded: u64,
}

/// What the thread that writes and the one that reads share.
struct Feed {
    is_over: AtomicBool,
    times: Mutex<PendingTimes>,
}

/// Why the thread that writes to ffmpeg has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedEnd {
    OtherParameters,
    SessionEnded,
    Cancelled,
    /// ffmpeg reads no more.
    Refused,
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

impl StreamDecoder {
    /// Starts a decoder for the stream that goes on with `first`. `origin` names the stream in errors.
    pub fn start(
        config: &RtspConfig,
        first: &AccessUnit,
        buffers: &Buffers,
        queue: &Arc<UnitQueue>,
        label: &str,
        origin: &str,
        stop: &Stop,
    ) -> Result<Self, ReadError> {
        let demuxer = first.codec.demuxer();
        let info = ffprobe::probe_start(config, demuxer, &first.data, label, origin, stop)?;
        let wrong = |reason: String| SourceError::transient(format!("cannot read the video of {origin}: {reason}"));
        let output =
            FfmpegOutput { pixels: config.pixels, color_matrix: config.color_matrix, color_range: config.color_range };
        let (format, color) = output.format(&info);
        buffers.check_size(info.width, info.height).map_err(|error| wrong(error.to_string()))?;
        let layout = FrameLayout::packed(format, info.width, info.height, color);
        let layout = layout.map_err(|error| wrong(error.to_string()))?;
        buffers.check_memory(layout.size_bytes()).map_err(|error| wrong(error.to_string()))?;
        let frames = PipeFrames::new(layout, buffers, Pace::Realtime)?;
        let mut args = arguments(demuxer);
        args.extend(output.arguments(&info));
        let mut child = decoder_process::spawn_fed(&config.ffmpeg, config, label, args)?;
        let times = Mutex::new(PendingTimes::new(info.held_back));
        let feed = Arc::new(Feed { is_over: AtomicBool::new(false), times });
        let feeder = child.take_input().map(|input| {
            let feeder = Feeder {
                queue: Arc::clone(queue),
                feed: Arc::clone(&feed),
                input,
                generation: first.generation,
                repetitions: if config.key_frames_only { info.held_back } else { 0 },
            };
            thread::Builder::new().name("feed".to_owned()).spawn(move || feeder.run())
        });
        let feeder = feeder.transpose().map_err(|error| wrong(format!("cannot start a thread: {error}")))?;
        let waits = if config.key_frames_only { KEY_FRAME_WAIT } else { Duration::ZERO };
        let frame_timeout = config.timeout.max(waits);
        Ok(Self { info, frames, child: Some(child), feeder, feed, queue: Arc::clone(queue), frame_timeout, decoded: 0 })
    }

    /// Reads the next frame. Without a free buffer, the frame is discarded, and `None` returned for it.
    pub fn read(&mut self, stop: &Stop, origin: &str) -> Result<(Option<PooledBuffer>, Option<Timestamp>), ReadError> {
        loop {
            let child = self.child.as_mut().ok_or(ReadError::Ended(0))?;
            let buffer = self.frames.read(child, stop, self.frame_timeout, || origin.to_owned())?;
            // Not within the match, which would hold the lock.
            let time = self.feed.times.lock().next();
            match time {
                Some(None) => stop.mark_progress(),
                Some(time) => {
                    self.decoded += 1;
                    return Ok((buffer, time));
                }
                None => {
                    self.decoded += 1;
                    return Ok((buffer, None));
                }
            }
        }
    }

    /// Finds out why ffmpeg's output has ended.
    pub fn end(mut self, origin: &str, max_memory_bytes: u64, stop: &Stop) -> DecoderEnd {
        let status = self.child.as_mut().and_then(|child| child.exit_status(stop));
        let lines = self.child.as_ref().map(Child::last_lines).unwrap_or_default();
        let end = self.close();
        if stop.is_raised() {
            return DecoderEnd::Stopped;
        }
        match end {
            Some(FeedEnd::OtherParameters) => DecoderEnd::OtherParameters,
            Some(FeedEnd::SessionEnded) => DecoderEnd::SessionEnded,
            _ => {
                let how = status.map_or("closed its output and did not exit".to_owned(), child_process::how_it_ended);
                let said = lines.last().map(|line| format!(": {line}")).unwrap_or_default();
                let remedy = decoder_process::memory_remedy(max_memory_bytes, &lines);
                let frames = self.decoded;
                let message =
                    format!("cannot decode the video of {origin}: ffmpeg {how} after {frames} frames{said}{remedy}");
                DecoderEnd::Failed(SourceError::transient(message))
            }
        }
    }

    fn close(&mut self) -> Option<FeedEnd> {
        self.feed.is_over.store(true, Ordering::SeqCst);
        // The end of ffmpeg fails the thread's write, so it comes first.
        self.child = None;
        self.queue.wake();
        self.feeder.take().and_then(|feeder| feeder.join().ok())
    }
}

impl Drop for StreamDecoder {
    fn drop(&mut self) {
        self.close();
    }
}

/// Writes access units to ffmpeg.
struct Feeder {
    queue: Arc<UnitQueue>,
    feed: Arc<Feed>,
    input: ChildStdin,
    generation: u64,
    /// How often each unit is written again. A decoder that holds back frames returns one only when others have followed; where
    /// only key frames are decoded, it would be late by seconds.
    repetitions: usize,
}

impl Feeder {
    fn run(mut self) -> FeedEnd {
        loop {
            let unit = match self.queue.take(self.generation, &self.feed.is_over) {
                Taken::Unit(unit) => unit,
                Taken::OtherParameters => return FeedEnd::OtherParameters,
                Taken::Ended => return FeedEnd::SessionEnded,
                Taken::Cancelled => return FeedEnd::Cancelled,
            };
            for repetition in 0..=self.repetitions {
                let captured = (repetition == 0).then_some(unit.captured);
                self.feed.times.lock().add(unit.presentation, captured);
                let written = self.input.write_all(&unit.data);
                if written.and_then(|()| self.input.write_all(unit.codec.delimiter())).is_err() {
                    return FeedEnd::Refused;
                }
            }
        }
    }
}

/// Returns ffmpeg's arguments up to its input. `-flags bitexact` is explained in `video.rs`. ffmpeg would look at the first
/// seconds of a stream before it decodes; ffprobe has found out what there is to know.
fn arguments(demuxer: &str) -> Vec<String> {
    let args = ["-nostdin", "-hide_banner", "-loglevel", "error", "-flags", "bitexact", "-thread_type", "slice"];
    let input = ["-probesize", "32", "-analyzeduration", "0", "-f", demuxer, "-i", "pipe:0", "-threads", "1"];
    args.into_iter().chain(input).map(str::to_owned).collect()
}
