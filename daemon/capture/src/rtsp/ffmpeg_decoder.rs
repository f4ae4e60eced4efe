//! Decodes access units with ffmpeg in a child process, whose frames go straight into unified buffers.
//!
//! A separate thread writes to ffmpeg, so that the camera's thread only reads. ffmpeg holds back only the frames that the stream's
//! B-frames require: its decoder uses slice threads only, its output uses one thread, and every unit is followed by an access unit
//! delimiter. It returns every decoded frame, damaged or not (`output_corrupt`, `showall`): if it left one out, later frames
//! would be mistaken for others.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use visiond_config::types::Pace;
use visiond_frames::clock;
use visiond_kernels::frame::FrameLayout;
use visiond_system::child_process::{self, Child};
use visiond_system::stop::Stop;

use super::super::decoder_process;
use super::super::ffmpeg_output::FfmpegOutput;
use super::super::ffprobe::{self, VideoInfo};
use super::super::pipe::{PipeFrames, ReadError};
use super::super::source::{Next, SourceError};
use super::access_unit::{Access, AccessUnit, Fate};
use super::frame_times::PendingTimes;
use super::running_session::RunningSession;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};
use super::unit_queue::{Taken, UnitQueue};

pub struct FfmpegDecoder {
    stream: Arc<Stream>,
    info: VideoInfo,
    frames: PipeFrames,
    /// `None` once ffmpeg has ended.
    child: Option<Child>,
    feeder: Option<JoinHandle<FeedEnd>>,
    feed: Arc<Feed>,
    /// The number of frames that it returned.
    decoded: u64,
}

/// The state that the writing and the reading thread share.
struct Feed {
    is_over: AtomicBool,
    times: Mutex<PendingTimes>,
}

/// Why the writing thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedEnd {
    OtherParameters,
    SessionEnded,
    Cancelled,
    /// ffmpeg stopped reading.
    Refused,
}

impl FfmpegDecoder {
    /// Starts ffmpeg for the stream that continues with `first`.
    pub fn start(
        stream: &Arc<Stream>,
        first: &AccessUnit,
        session: &mut RunningSession,
        stop: &Stop,
    ) -> Result<Self, ReadError> {
        // This thread waits only for ffmpeg.
        session.run_apart()?;
        let Stream { config, buffers, queue, camera, origin, .. } = stream.as_ref();
        let (demuxer, label) = (first.codec.demuxer(), format!("camera {camera}: ffmpeg"));
        let info = ffprobe::probe_start(config, demuxer, &first.data, &label, origin, stop)?;
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
        let mut child = decoder_process::spawn_fed(&config.ffmpeg.program, config, &label, args)?;
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
        Ok(Self { stream: Arc::clone(stream), info, frames, child: Some(child), feeder, feed, decoded: 0 })
    }

    /// Reads the next frame; without a free buffer, the frame is discarded.
    fn read(&mut self, sequence: u64, stop: &Stop) -> Result<Next, ReadError> {
        loop {
            let child = self.child.as_mut().ok_or(ReadError::Ended(0))?;
            let buffer = self.frames.read(child, stop, self.stream.frame_timeout(), || self.stream.origin.clone())?;
            // Outside the match, which would hold the lock.
            let (time, fate) = {
                let mut times = self.feed.times.lock();
                let time = times.next();
                let fate = if time == Some(None) { Fate::Discarded } else { times.next_fate() };
                (time, fate)
            };
            let captured = match time {
                // A repetition.
                Some(None) => {
                    stop.mark_progress();
                    continue;
                }
                Some(time) => time,
                None => None,
            };
            self.decoded += 1;
            if fate == Fate::Discarded {
                stop.mark_progress();
                continue;
            }
            let timestamp = captured.unwrap_or_else(|| clock::now(self.stream.clock.as_ref()));
            let mut next = self.frames.frame(buffer, sequence, timestamp, None);
            if let Next::Frame(frame) = &mut next {
                frame.damaged = fate.is_damaged();
            }
            return Ok(next);
        }
    }

    /// Finds out why ffmpeg's output ended.
    fn end(&mut self, stop: &Stop) -> DecoderEnd {
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
                let remedy = decoder_process::memory_remedy(self.stream.config.ffmpeg.max_memory_bytes, &lines);
                let frames = self.decoded;
                DecoderEnd::Failed(self.stream.undecodable(format!("ffmpeg {how} after {frames} frames{said}{remedy}")))
            }
        }
    }

    fn close(&mut self) -> Option<FeedEnd> {
        self.feed.is_over.store(true, Ordering::SeqCst);
        // ffmpeg's end makes the thread's write fail, so check it first.
        self.child = None;
        self.feeder.take().and_then(|feeder| feeder.join().ok())
    }
}

impl StreamDecoder for FfmpegDecoder {
    fn next(&mut self, _session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        self.read(sequence, stop).map_err(|error| match error {
            ReadError::Stopped => DecoderEnd::Stopped,
            ReadError::Failed(_) if self.stream.queue.awaits_entry() => DecoderEnd::Failed(self.stream.no_frame()),
            ReadError::Failed(error) => DecoderEnd::Failed(error),
            ReadError::Ended(_) => self.end(stop),
        })
    }

    fn name(&self) -> &'static str {
        "ffmpeg"
    }

    fn describe(&self) -> String {
        let VideoInfo { codec, width, height, pixel_format, .. } = &self.info;
        format!("{codec} {pixel_format}, {width}x{height}, by ffmpeg as {}", self.frames.layout.format())
    }

    fn decoded(&self) -> u64 {
        self.decoded
    }
}

impl Drop for FfmpegDecoder {
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
    /// How often to repeat each unit. A decoder that holds back frames returns one only when others have followed; with key frames
    /// only, it would be late by seconds.
    repetitions: usize,
}

impl Feeder {
    fn run(mut self) -> FeedEnd {
        loop {
            let unit = match self.queue.take(self.generation, None, || self.feed.is_over.load(Ordering::SeqCst), None) {
                Taken::Unit(unit) => unit,
                Taken::OtherParameters => return FeedEnd::OtherParameters,
                Taken::Ended => return FeedEnd::SessionEnded,
                Taken::Cancelled | Taken::TimedOut => return FeedEnd::Cancelled,
            };
            // The next frame may be this one or another: only a new decoder yields frames that are certain to be clean.
            if unit.access == Access::Key && self.feed.times.lock().has_damage() {
                self.queue.put_back(unit);
                return FeedEnd::OtherParameters;
            }
            self.feed.times.lock().add_fate(unit.fate);
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

/// Returns ffmpeg's arguments up to its input. `video.rs` explains `-flags bitexact`. By itself, ffmpeg would analyse the first
/// seconds of a stream before it decodes; ffprobe has already found the parameters.
fn arguments(demuxer: &str) -> Vec<String> {
    let args = ["-nostdin", "-hide_banner", "-loglevel", "error", "-flags", "bitexact+output_corrupt"];
    let decoder = ["-flags2", "showall", "-thread_type", "slice"];
    let input = ["-probesize", "32", "-analyzeduration", "0", "-f", demuxer, "-i", "pipe:0", "-threads", "1"];
    args.into_iter().chain(decoder).chain(input).map(str::to_owned).collect()
}
