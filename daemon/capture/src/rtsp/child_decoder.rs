//! Decodes access units in a child process, whose frames go straight into unified buffers. `ffmpeg_decoder` and
//! `gstreamer_decoder` start it.
//!
//! A separate thread writes to the program, so that the camera's thread only reads. The program must return every frame that it
//! decodes, damaged or not: if it left one out, later frames would be mistaken for others.

use std::io::Write;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_config::types::Pace;
use visiond_frames::clock;
use visiond_frames::frame::PooledBuffer;
use visiond_kernels::frame::FrameLayout;
use visiond_kernels::nvdec::Showing;
use visiond_system::child_process::{self, Child};
use visiond_system::stop::Stop;

use super::super::decoder_process;
use super::super::ffprobe::VideoInfo;
use super::super::pipe::{PipeFrames, ReadError, fill};
use super::super::source::{Next, SourceError};
use super::access_unit::{Access, AccessUnit, Fate};
use super::frame_times::PendingTimes;
use super::gdp::{self, Payload};
use super::gstreamer_trials;
use super::picture_order::PictureOrder;
use super::running_session::RunningSession;
use super::stream_decoder::{DecoderEnd, Stream, StreamDecoder};
use super::unit_queue::{self, MAX_BYTES, Taken, UnitQueue};

/// How often a trial looks whether the program has received a unit.
const UNIT_WAIT: Duration = Duration::from_millis(10);

pub struct ChildDecoder {
    stream: Arc<Stream>,
    program: DecoderProgram,
    info: VideoInfo,
    frames: PipeFrames,
    /// `None` once the program has ended.
    child: Option<Child>,
    feeder: Option<JoinHandle<FeedEnd>>,
    feed: Arc<Feed>,
    /// The frame that the trial has read. The inner `None` is one that found no free buffer.
    first: Option<Option<PooledBuffer>>,
    /// The number of frames that it returned.
    decoded: u64,
}

/// A program that reads access units in Annex B and writes frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecoderProgram {
    /// Its frames follow each other without anything between them.
    Ffmpeg,
    /// Each of its frames has a header ([`gdp`]).
    Gstreamer,
}

impl DecoderProgram {
    /// Returns its name in texts.
    const fn name(self) -> &'static str {
        match self {
            Self::Ffmpeg => "ffmpeg",
            Self::Gstreamer => "GStreamer",
        }
    }

    /// Returns how many access unit delimiters follow each unit. To GStreamer's parsers, a delimiter ends where the next one
    /// starts.
    const fn delimiters(self) -> usize {
        match self {
            Self::Ffmpeg => 1,
            Self::Gstreamer => 2,
        }
    }
}

/// After so many frames, a failure is not the beginning's.
const LASTING: u64 = 100;

/// The state that the writing and the reading thread share.
struct Feed {
    is_over: AtomicBool,
    /// Whether the program has received a unit.
    has_begun: AtomicBool,
    times: Mutex<PendingTimes>,
    /// What the program has received, while it is on trial: if it fails, another decoder gets it.
    on_trial: Mutex<Option<TrialUnits>>,
}

#[derive(Debug, Default)]
struct TrialUnits {
    units: Vec<AccessUnit>,
    bytes: usize,
}

impl TrialUnits {
    /// Keeps a unit; returns whether there is room for more.
    fn keep(&mut self, unit: &AccessUnit) -> bool {
        self.bytes += unit_queue::size(unit);
        self.units.push(unit.clone());
        self.bytes < MAX_BYTES
    }
}

/// Why the writing thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedEnd {
    OtherParameters,
    SessionEnded,
    Cancelled,
    /// Frames of a stream that did not say so are reordered, for which the program was not started.
    Reordered,
    /// The program stopped reading, or its trial took too many units.
    Refused,
}

impl ChildDecoder {
    /// Feeds `child`, which runs `program`, with the stream that continues with `first`. `layout` is that of its frames.
    pub fn start(
        stream: &Arc<Stream>,
        first: &AccessUnit,
        program: DecoderProgram,
        info: &VideoInfo,
        layout: FrameLayout,
        mut child: Child,
    ) -> Result<Self, SourceError> {
        let frames = PipeFrames::new(layout, &stream.buffers, Pace::Realtime)?;
        let feed = Arc::new(Feed {
            is_over: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
            times: Mutex::new(PendingTimes::new(info.held_back)),
            on_trial: Mutex::new((program == DecoderProgram::Gstreamer).then(TrialUnits::default)),
        });
        let feeder = child.take_input().map(|input| {
            let feeder = Feeder {
                queue: Arc::clone(&stream.queue),
                feed: Arc::clone(&feed),
                input,
                generation: first.generation,
                repetitions: if stream.config.key_frames_only { info.held_back } else { 0 },
                order: (program == DecoderProgram::Gstreamer)
                    .then(|| PictureOrder::of(first, stream.config.key_frames_only))
                    .filter(PictureOrder::may_change),
                unit_end: first.codec.delimiter().repeat(program.delimiters()),
            };
            thread::Builder::new().name("feed".to_owned()).spawn(move || feeder.run())
        });
        let feeder =
            feeder.transpose().map_err(|error| stream.unreadable(format!("cannot start a thread: {error}")))?;
        let (stream, info, child) = (Arc::clone(stream), info.clone(), Some(child));
        Ok(Self { stream, program, info, frames, child, feeder, feed, first: None, decoded: 0 })
    }

    /// Waits for the first frame, at most `timeout` from the first unit on, to find out whether the program decodes the stream. If not,
    /// the units that it has received are back in the queue.
    pub fn try_out(mut self, timeout: Duration, stop: &Stop) -> Result<Self, ReadError> {
        self.wait_for_a_unit(stop);
        let mut is_its_fault = true;
        let failed = match self.read_buffer(timeout, stop) {
            Ok(buffer) => {
                self.first = Some(buffer);
                *self.feed.on_trial.lock() = None;
                return Ok(self);
            }
            Err(ReadError::Stopped) => ReadError::Stopped,
            Err(_) if stop.is_raised() => ReadError::Stopped,
            Err(ReadError::Failed(error)) => {
                let lines = self.child.as_ref().map(Child::last_lines).unwrap_or_default();
                let said = self.reason(&lines).map(|line| format!("; its last line: {line}")).unwrap_or_default();
                let error = format!("{error} ({} on trial{said})", self.program.name());
                ReadError::Failed(SourceError::transient(error))
            }
            Err(ReadError::Ended(read)) => {
                let (end, succeeded, error) = self.why_it_ended(stop);
                // When the camera leaves or changes its stream early, the program has nothing to return.
                let is_cameras = matches!(end, Some(FeedEnd::SessionEnded | FeedEnd::OtherParameters));
                is_its_fault = !is_cameras || read > 0 || !succeeded;
                ReadError::Failed(error)
            }
        };
        self.close();
        is_its_fault &= self.feed.has_begun.load(Ordering::SeqCst);
        if matches!(failed, ReadError::Failed(_)) && is_its_fault {
            gstreamer_trials::give_up(&self.stream, &self.info);
        }
        let received = self.feed.on_trial.lock().take().unwrap_or_default();
        self.stream.queue.put_back_all(received.units);
        Err(failed)
    }

    /// Waits until the program has received a unit, which may be a key frame that has yet to come.
    fn wait_for_a_unit(&self, stop: &Stop) {
        let until = Instant::now() + self.stream.frame_timeout();
        let is_over = || self.feeder.as_ref().is_none_or(JoinHandle::is_finished);
        while !self.feed.has_begun.load(Ordering::SeqCst) && !is_over() && Instant::now() < until {
            stop.mark_progress();
            if stop.sleep(UNIT_WAIT) {
                return;
            }
        }
    }

    /// Reads the next frame; without a free buffer, returns `None`.
    fn read_buffer(&mut self, timeout: Duration, stop: &Stop) -> Result<Option<PooledBuffer>, ReadError> {
        if let Some(buffer) = self.first.take() {
            return Ok(buffer);
        }
        let child = self.child.as_mut().ok_or(ReadError::Ended(0))?;
        let origin = || self.stream.origin.clone();
        if self.program == DecoderProgram::Gstreamer {
            let (expected, mut header) = (self.frames.layout.size_bytes(), [0; gdp::HEADER_BYTES]);
            loop {
                fill(child, &mut header, stop, timeout, "frame", origin)?;
                match gdp::payload(&header) {
                    Some(Payload::Frame(bytes)) if bytes == expected => break,
                    Some(Payload::Frame(bytes)) => {
                        let reason = format!("GStreamer returned a frame of {bytes} bytes instead of {expected}");
                        return Err(self.stream.undecodable(reason).into());
                    }
                    Some(Payload::Other(bytes)) => fill(child, &mut vec![0; bytes], stop, timeout, "frame", origin)?,
                    None => {
                        let reason = "GStreamer returned something other than frames";
                        return Err(self.stream.undecodable(reason).into());
                    }
                }
            }
        }
        self.frames.read(child, stop, timeout, origin)
    }

    /// Reads the next frame; without a free buffer, the frame is discarded.
    fn read(&mut self, sequence: u64, stop: &Stop) -> Result<Next, ReadError> {
        loop {
            let buffer = self.read_buffer(self.stream.frame_timeout(), stop)?;
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
            if self.decoded == LASTING && self.program == DecoderProgram::Gstreamer {
                gstreamer_trials::note_success(&self.stream);
            }
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

    /// Notes a failure of GStreamer after its trial: after two in a row, another decoder is used.
    fn note_failure(&self) {
        if self.program == DecoderProgram::Gstreamer && self.decoded < LASTING {
            gstreamer_trials::note_failure(&self.stream, &self.info);
        }
    }

    /// Finds out why the program's output ended.
    fn end(&mut self, stop: &Stop) -> DecoderEnd {
        match self.why_it_ended(stop) {
            _ if stop.is_raised() => DecoderEnd::Stopped,
            (Some(FeedEnd::OtherParameters), ..) => DecoderEnd::OtherParameters,
            (Some(FeedEnd::Reordered), ..) => {
                gstreamer_trials::give_up(&self.stream, &self.info);
                DecoderEnd::OtherParameters
            }
            (Some(FeedEnd::SessionEnded), ..) => DecoderEnd::SessionEnded,
            (.., error) => {
                self.note_failure();
                DecoderEnd::Failed(error)
            }
        }
    }

    /// Returns why the writing thread ended, whether the program ended with success, and the error for one that ended before its
    /// input.
    fn why_it_ended(&mut self, stop: &Stop) -> (Option<FeedEnd>, bool, SourceError) {
        let status = self.child.as_mut().and_then(|child| child.exit_status(stop));
        let lines = self.child.as_ref().map(Child::last_lines).unwrap_or_default();
        let end = self.close();
        let how = status.map_or("closed its output and did not exit".to_owned(), child_process::how_it_ended);
        let said = self.reason(&lines).map(|line| format!(": {line}")).unwrap_or_default();
        let remedy = decoder_process::memory_remedy(self.stream.config.ffmpeg.max_memory_bytes, &lines);
        let (name, frames) = (self.program.name(), self.decoded);
        let error = self.stream.undecodable(format!("{name} {how} after {frames} frames{said}{remedy}"));
        (end, status.is_some_and(|status| status.success()), error)
    }

    /// Returns the line of the program's last ones that says why it failed. gst-launch prints more after it, and NVIDIA's
    /// elements print at any time.
    fn reason<'a>(&self, lines: &'a [String]) -> Option<&'a String> {
        let is_reason = |line: &&String| line.starts_with("ERROR") || line.starts_with("WARNING: erroneous");
        match self.program {
            DecoderProgram::Ffmpeg => lines.last(),
            DecoderProgram::Gstreamer => lines.iter().find(is_reason).or(lines.last()),
        }
    }

    fn close(&mut self) -> Option<FeedEnd> {
        self.feed.is_over.store(true, Ordering::SeqCst);
        // The program's end makes the thread's write fail, so check it first.
        self.child = None;
        self.feeder.take().and_then(|feeder| feeder.join().ok())
    }
}

impl StreamDecoder for ChildDecoder {
    fn next(&mut self, _session: &RunningSession, sequence: u64, stop: &Stop) -> Result<Next, DecoderEnd> {
        self.read(sequence, stop).map_err(|error| match error {
            ReadError::Stopped => DecoderEnd::Stopped,
            ReadError::Failed(_) if self.stream.queue.awaits_entry() => DecoderEnd::Failed(self.stream.no_frame()),
            ReadError::Failed(error) => {
                self.note_failure();
                DecoderEnd::Failed(error)
            }
            ReadError::Ended(_) => self.end(stop),
        })
    }

    fn name(&self) -> &'static str {
        match self.program {
            DecoderProgram::Ffmpeg => "ffmpeg",
            DecoderProgram::Gstreamer => "gstreamer",
        }
    }

    fn describe(&self) -> String {
        let VideoInfo { codec, width, height, pixel_format, .. } = &self.info;
        let (program, format) = (self.program.name(), self.frames.layout.format());
        format!("{codec} {pixel_format}, {width}x{height}, by {program} as {format}")
    }

    fn decoded(&self) -> u64 {
        self.decoded
    }
}

impl Drop for ChildDecoder {
    fn drop(&mut self) {
        self.close();
    }
}

/// Writes access units to the program.
struct Feeder {
    queue: Arc<UnitQueue>,
    feed: Arc<Feed>,
    input: ChildStdin,
    generation: u64,
    /// How often to repeat each unit. A decoder that holds back frames returns one only when others have followed; with key frames
    /// only, it would be late by seconds.
    repetitions: usize,
    /// Finds out, by the first B slice, whether frames are reordered; `None` if that is known.
    order: Option<PictureOrder>,
    /// Follows each unit.
    unit_end: Vec<u8>,
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
            if self.order.as_mut().is_some_and(|order| order.next(&unit) == Showing::InOrder) {
                self.queue.put_back(unit);
                return FeedEnd::Reordered;
            }
            if self.feed.on_trial.lock().as_mut().is_some_and(|trial| !trial.keep(&unit)) {
                return FeedEnd::Refused;
            }
            self.feed.times.lock().add_fate(unit.fate);
            self.feed.has_begun.store(true, Ordering::SeqCst);
            for repetition in 0..=self.repetitions {
                let captured = (repetition == 0).then_some(unit.captured);
                self.feed.times.lock().add(unit.presentation, captured);
                let written = self.input.write_all(&unit.data);
                if written.and_then(|()| self.input.write_all(&self.unit_end)).is_err() {
                    return FeedEnd::Refused;
                }
            }
        }
    }
}
