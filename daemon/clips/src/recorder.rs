//! Stores clips of a camera's events, on a thread of its own.
//!
//! The frames come from a ring, which has the camera's last seconds ([`CodedRing`]). A source that has a bitstream fills it. Of other
//! sources, and of cameras with privacy masks, the thread does: it draws a few frames per second and encodes them as JPEG.
//!
//! The lane never waits, except for frames of a source that must lose nothing. It notes that an event begins or ends; the thread writes
//! the frames of each clip into a file of its own, and gives that its name when it is whole and on disk. A disk that is too slow for
//! the ring, and one that is full, cost clips, which are counted.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use visiond_annotate::draw::draw_with_tails;
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_annotate::trails::Tails;
use visiond_annotate::upright::upright;
use visiond_config::types::{ClipsConfig, EventKind};
use visiond_frames::coded_ring::{CodedFrame, CodedRing, FrameRole, RingLimits};
use visiond_frames::frame::Frame;
use visiond_kernels::jpeg::JpegEncoder;
use visiond_kernels::view::Orientation;
use visiond_message::Message;
use visiond_message::status::ClipCounts;
use visiond_system::backoff::RateLimit;
use visiond_system::outage::{IfUnusable, Outage, explain};
use visiond_system::preflight::Certainty;
use visiond_system::priority::{Rank, give_way};
use visiond_system::threads::finished_by;
use visiond_telemetry::metrics::Counter;
use visiond_telemetry::trace;

use super::clip_folder::{ClipFolder, clip_name};
use super::mp4_writer::{Added, Mp4Error, Mp4Writer};

/// The most clips under way; the events beyond have none.
const MOST_UNDER_WAY: usize = 32;

/// How far the ring reaches back beyond the time before an event: how late an event may be decided, and the disk may be.
const SLACK: Duration = Duration::from_secs(5);

/// The time between two frames that are drawn.
const DRAWN_INTERVAL: Duration = Duration::from_millis(200);

/// JPEG quality of frames that are drawn: 200 KB for 1080p.
const QUALITY: u8 = 80;

/// How often to look for new frames while a clip is under way. Frames then come in batches, and none wakes the thread.
const LOOK: Duration = Duration::from_millis(200);

/// How often to make room for clips under way.
const ROOM: Duration = Duration::from_secs(2);

/// How long the frames after an event may be late. Then the clip ends without them, as the camera is away.
const LATENESS: Duration = Duration::from_secs(3);

/// How many frames to take out of the ring at once.
const BATCH: usize = 32;

/// How often to log that clips are lost.
const QUIET: Duration = Duration::from_secs(300);

/// Why frames are missing in the ring.
const TOO_SLOW: &str =
    "the disk is slower than the camera's video: use a faster disk, or name fewer events in `rules` and `kinds`";
const TOO_SMALL: &str = "`max_memory_bytes` is too small for the camera's video: raise it";
const NO_ENTRY: &str =
    "the camera sent no frame from which it could begin: shorten its interval of key frames (GOP) in the camera";

/// Clips cannot be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("clips of camera {camera}: {reason}")]
pub struct ClipError {
    /// The camera.
    pub camera: String,
    /// A sentence with its remedy.
    pub reason: String,
    /// Whether the service would fail in the same way.
    pub certainty: Certainty,
}

fn cannot_write(config: &ClipsConfig, camera: &str, error: &io::Error) -> ClipError {
    ClipError {
        camera: camera.to_owned(),
        reason: format!("cannot write to {}: {}", config.directory.display(), explain(error)),
        certainty: Certainty::of(error, &config.directory),
    }
}

#[derive(Debug, Default)]
struct Counters {
    written: Counter,
    dropped: Counter,
    failed: Counter,
    outage: Mutex<Option<String>>,
}

/// A frame to draw.
#[derive(Debug)]
struct Job {
    frame: Arc<Frame>,
    /// How to turn it.
    seen: Orientation,
    message: Arc<Message>,
}

/// An event that has begun.
#[derive(Debug)]
struct Begun {
    name: Arc<str>,
    at: Duration,
}

/// What the lane and the thread share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something has happened that the other side may wait for.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: Vec<Begun>,
    /// The clips whose events have ended, and when.
    ended: Vec<(Arc<str>, Duration)>,
    /// How many clips have begun and are not finished.
    under_way: usize,
    job: Option<Job>,
    /// When the next frame is to be drawn.
    due: Duration,
    /// How often everything was forgotten, and of these how often the thread has done so.
    forgotten: (u64, u64),
    closed: bool,
}

/// The clips of one camera.
#[derive(Debug)]
pub struct ClipRecorder {
    camera: String,
    rules: Vec<String>,
    kinds: Vec<EventKind>,
    /// Whether its frames are drawn.
    draws: bool,
    ring: Arc<CodedRing>,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ClipRecorder {
    /// Starts the thread, which creates the folder if it is missing, and removes what a killed process left there of this camera.
    ///
    /// With `draws`, clips are of the frames that it is offered; otherwise of those that the source puts into its ring.
    ///
    /// # Errors
    /// The thread cannot be started or, with [`IfUnusable::Refuse`], the folder cannot be written.
    pub fn start(config: &ClipsConfig, camera: &str, draws: bool, if_unusable: IfUnusable) -> Result<Self, ClipError> {
        let mut folder = ClipFolder::new(config, camera);
        if if_unusable == IfUnusable::Refuse {
            folder.open().map_err(|error| cannot_write(config, camera, &error))?;
        }
        let max_bytes = usize::try_from(config.max_memory_bytes).unwrap_or(usize::MAX);
        let ring = Arc::new(CodedRing::new(RingLimits { span: config.before + SLACK, max_bytes }));
        let (counters, shared) = <(Arc<Counters>, Arc<Shared>)>::default();
        let outage = Outage::new(format!("clips of camera {camera}: {}", config.directory.display()));
        let mut writer = Writer {
            camera: camera.to_owned(),
            config: config.clone(),
            counters: Arc::clone(&counters),
            shared: Arc::clone(&shared),
            ring: Arc::clone(&ring),
            folder,
            room_due: Instant::now(),
            outage: outage.costing("clips are lost"),
            clips: Vec::new(),
            batch: Vec::new(),
            converter: RgbConverter::default(),
            jpeg: None,
            complaints: RateLimit::new(QUIET),
            overflows: 0,
        };
        let thread = std::thread::Builder::new().name("clips".to_owned()).spawn(move || {
            give_way(Rank::Nice);
            writer.run();
        });
        let thread = thread.map_err(|error| ClipError {
            camera: camera.to_owned(),
            reason: format!("cannot start a thread: {error}"),
            certainty: Certainty::Certain,
        })?;
        let ClipsConfig { rules, kinds, .. } = config.clone();
        let thread = Mutex::new(Some(thread));
        Ok(Self { camera: camera.to_owned(), rules, kinds, draws, ring, counters, shared, thread })
    }

    /// Finds out whether a reload would refuse the folder, without touching it.
    pub fn check(config: &ClipsConfig, camera: &str) -> Result<(), ClipError> {
        ClipFolder::check(&config.directory).map_err(|error| cannot_write(config, camera, &error))
    }

    /// Whether it needs frames to draw.
    pub fn draws(&self) -> bool {
        self.draws
    }

    /// Returns the ring that the source fills, unless frames are drawn.
    pub fn ring(&self) -> Option<Arc<CodedRing>> {
        (!self.draws).then(|| Arc::clone(&self.ring))
    }

    /// Notes that an event begins with the frame of a time; returns the name of its clip in the folder. `None` if the configuration does
    /// not ask for it, or too many clips are under way. Never waits for the disk.
    pub fn begin(&self, event: &str, (rule, kind): (&str, &str), at: Duration) -> Option<Arc<str>> {
        let is_named = self.rules.is_empty() || self.rules.iter().any(|named| named == rule);
        let is_of_kind = self.kinds.is_empty() || self.kinds.iter().any(|named| named.name() == kind);
        if !is_named || !is_of_kind {
            return None;
        }
        let mut state = self.shared.state.lock();
        if state.closed || state.under_way >= MOST_UNDER_WAY {
            self.counters.dropped.add(1);
            return None;
        }
        state.under_way += 1;
        let name: Arc<str> = clip_name(&self.camera, event).into();
        state.begun.push(Begun { name: Arc::clone(&name), at });
        drop(state);
        self.shared.changed.notify_all();
        Some(name)
    }

    /// Notes that the event of a clip ended with the frame of a time. Never waits for the disk.
    pub fn end(&self, clip: &Arc<str>, at: Duration) {
        let mut state = self.shared.state.lock();
        if !state.closed {
            state.ended.push((Arc::clone(clip), at));
            drop(state);
            self.shared.changed.notify_all();
        }
    }

    /// Offers a frame of the camera with its detections, and how models see it; it is drawn if it is due and no other one waits. Never
    /// waits.
    pub fn offer(&self, frame: &Arc<Frame>, seen: Orientation, message: &Arc<Message>) {
        self.put(frame, seen, message, false);
    }

    /// Like [`ClipRecorder::offer`], but waits while another frame does. For sources that are read as fast as possible.
    pub fn offer_wait(&self, frame: &Arc<Frame>, seen: Orientation, message: &Arc<Message>) {
        self.put(frame, seen, message, true);
    }

    fn put(&self, frame: &Arc<Frame>, seen: Orientation, message: &Arc<Message>, may_wait: bool) {
        // Events are about the objects of the camera's first model.
        if !self.draws || *message.topic != *message.camera {
            return;
        }
        let time = frame.time();
        let mut state = self.shared.state.lock();
        // A recording may begin again.
        if time < state.due && state.due - time <= DRAWN_INTERVAL {
            return;
        }
        let forgotten = state.forgotten.0;
        while may_wait && state.job.is_some() && !state.closed && state.forgotten.0 == forgotten {
            self.shared.changed.wait(&mut state);
        }
        if state.job.is_some() || state.closed || state.forgotten.0 != forgotten {
            return;
        }
        // Steady if frames come in time.
        let next = state.due + DRAWN_INTERVAL;
        state.due = if next > time && next <= time + DRAWN_INTERVAL { next } else { time + DRAWN_INTERVAL };
        state.job = Some(Job { frame: Arc::clone(frame), seen, message: Arc::clone(message) });
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Drops the frame that waits, and releases a lane that waits to offer one.
    pub fn drop_waiting(&self) {
        self.shared.state.lock().job = None;
        self.shared.changed.notify_all();
    }

    /// Drops every frame and every clip under way, because the camera's privacy masks have changed. Stored clips stay. Returns `false` if
    /// a file of such a clip may still be there at `deadline`.
    pub fn forget(&self, deadline: Instant) -> bool {
        let mut state = self.shared.state.lock();
        state.forgotten.0 += 1;
        state.job = None;
        state.under_way -= std::mem::take(&mut state.begun).len();
        self.shared.changed.notify_all();
        let is_done = |state: &State| state.forgotten.0 == state.forgotten.1 || state.closed;
        while !is_done(&state) && !self.shared.changed.wait_until(&mut state, deadline).timed_out() {}
        is_done(&state)
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> ClipCounts {
        let Counters { written, dropped, failed, outage } = &*self.counters;
        let outage = outage.lock().clone();
        ClipCounts { written: written.get(), dropped: dropped.get(), failed: failed.get(), outage }
    }

    /// Finishes the clips under way with the frames that there are, ends the thread by `deadline`, and returns the counts.
    pub fn close(&self, deadline: Instant) -> ClipCounts {
        self.shared.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            if !finished_by([&thread], deadline) {
                log::warn!("clips of camera {}: the last ones were not stored in time", self.camera);
            } else if thread.join().is_err() {
                log::error!("clips of camera {}: internal error, see the panic above: please report it", self.camera);
            }
        }
        self.counts()
    }
}

impl Drop for ClipRecorder {
    fn drop(&mut self) {
        self.close(Instant::now());
    }
}

impl Shared {
    /// Accepts nothing further, and releases a lane that waits.
    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// What the thread has to do next.
struct Work {
    begun: Vec<Begun>,
    ended: Vec<(Arc<str>, Duration)>,
    job: Option<Job>,
    /// Whether to drop everything.
    forgets: Option<u64>,
    closed: bool,
}

/// A clip under way.
struct Clip {
    name: Arc<str>,
    /// When its event began.
    at: Duration,
    /// The last frame that it may have.
    until: Duration,
    /// When its event has ended: how long to wait for the next frame.
    expected: Option<Instant>,
    /// The next frame to take out of the ring; `None` before the first one.
    next: Option<u64>,
    /// The stream that its frames are of.
    stream: u64,
    /// `None` before the first frame.
    file: Option<Mp4Writer<File>>,
}

/// How a clip comes to its end.
enum ClipEnd {
    /// It is whole.
    Finished,
    /// A sentence: frames are lost.
    Dropped(&'static str),
    Failed(Mp4Error),
}

/// The thread.
struct Writer {
    camera: String,
    config: ClipsConfig,
    counters: Arc<Counters>,
    shared: Arc<Shared>,
    ring: Arc<CodedRing>,
    folder: ClipFolder,
    /// When to make room in it again.
    room_due: Instant,
    outage: Outage,
    clips: Vec<Clip>,
    batch: Vec<(u64, CodedFrame)>,
    converter: RgbConverter,
    /// `None` before the first frame that is drawn.
    jpeg: Option<JpegEncoder>,
    complaints: RateLimit,
    /// How often the ring was too small, when that was last logged.
    overflows: u64,
}

impl Drop for Writer {
    /// Releases the lane if the thread panicked.
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Writer {
    fn run(&mut self) {
        let opened = self.folder.open();
        self.note(&opened);
        loop {
            let work = self.next_work();
            let is_last = work.closed && work.job.is_none();
            if let Some(forgotten) = work.forgets {
                self.forget(forgotten);
            }
            for Begun { name, at } in work.begun {
                let until = at + self.config.longest - self.config.before.min(self.config.longest);
                self.clips.push(Clip { name, at, until, expected: None, next: None, stream: 0, file: None });
            }
            for (name, at) in work.ended {
                if let Some(clip) = self.clips.iter_mut().find(|clip| clip.name == name) {
                    clip.until = clip.until.min(at + self.config.after);
                    clip.expected = Some(Instant::now() + self.config.after + LATENESS);
                }
            }
            if let Some(job) = work.job {
                self.draw(job);
            }
            self.write_clips(is_last);
            self.make_room(Instant::now());
            if is_last {
                return;
            }
        }
    }

    /// Removes old clips now and then, in whose place come those under way.
    fn make_room(&mut self, now: Instant) {
        let is_writing = self.clips.iter().any(|clip| clip.file.is_some());
        if is_writing && self.config.max_bytes > 0 && now >= self.room_due {
            self.folder.make_room();
            self.room_due = now + ROOM;
        }
    }

    /// Waits for something to do: while a clip is under way, for [`LOOK`] at most.
    fn next_work(&self) -> Work {
        let mut state = self.shared.state.lock();
        let has_news = |state: &State| {
            let State { begun, ended, job, forgotten, closed, .. } = state;
            !begun.is_empty() || !ended.is_empty() || job.is_some() || forgotten.0 != forgotten.1 || *closed
        };
        let until = Instant::now() + LOOK;
        while !has_news(&state) {
            if self.clips.is_empty() {
                self.shared.changed.wait(&mut state);
            } else if self.shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let forgets = (state.forgotten.0 != state.forgotten.1).then_some(state.forgotten.0);
        let (begun, ended, job) =
            (std::mem::take(&mut state.begun), std::mem::take(&mut state.ended), state.job.take());
        let closed = state.closed;
        drop(state);
        self.shared.changed.notify_all();
        Work { begun, ended, job, forgets, closed }
    }

    /// Draws a frame, and puts it into the ring.
    fn draw(&mut self, Job { frame, seen, message }: Job) {
        let _trace = trace::work_on("draw", &message.topic, message.sequence);
        let turned = frame.view().and_then(|view| view.turned(seen));
        let picture = turned.map_err(Into::into).and_then(|view| self.converter.make(&view));
        let time = frame.time();
        // The source needs its buffer.
        drop(frame);
        let drawn = picture.map_err(|error| error.to_string()).and_then(|mut picture| {
            // A clip shows by itself where objects come from.
            draw_with_tails(&mut picture, &upright(&message, seen), &Tails::default());
            let jpeg = match &mut self.jpeg {
                Some(jpeg) => jpeg,
                None => self.jpeg.insert(JpegEncoder::new(QUALITY).map_err(|error| error.to_string())?),
            };
            let (width, height) = picture.dimensions();
            jpeg.encode_rgb(picture.as_raw(), width, height).map_err(|error| error.to_string())
        });
        match drawn {
            Ok(file) => self.ring.push(CodedFrame::jpeg(Arc::new(file), time)),
            Err(error) => {
                log::error!("clips of camera {}: cannot draw frame {}: {error}", self.camera, message.sequence);
            }
        }
    }

    /// Writes the frames that have come into the files of all clips.
    fn write_clips(&mut self, is_last: bool) {
        let mut clips = std::mem::take(&mut self.clips);
        clips.retain_mut(|clip| {
            // What a camera sends is not trusted: a bug costs one clip.
            let written = catch_unwind(AssertUnwindSafe(|| self.write(clip, is_last)));
            let end = match written {
                Ok(None) => return true,
                Ok(Some(end)) => end,
                Err(_) => {
                    ClipEnd::Failed(Mp4Error::Stream("internal error, see the panic above: please report it".into()))
                }
            };
            self.end(clip, end);
            false
        });
        self.clips = clips;
    }

    /// Writes the frames that have come into a clip's file; returns how it ends, if it does.
    fn write(&mut self, clip: &mut Clip, is_last: bool) -> Option<ClipEnd> {
        if clip.next.is_none() {
            clip.next = self.ring.entry_at(clip.at.saturating_sub(self.config.before));
        }
        while let Some(next) = clip.next {
            let mut batch = std::mem::take(&mut self.batch);
            let first = self.ring.read(next, BATCH, &mut batch);
            let count = batch.len();
            let goes_on = batch.first().is_none_or(|(stream, _)| *stream == clip.stream);
            let end = match first != next && clip.file.is_some() && goes_on {
                true => Some(ClipEnd::Dropped(TOO_SLOW)),
                false => batch.drain(..).find_map(|(stream, frame)| self.add(clip, stream, &frame)),
            };
            batch.clear();
            self.batch = batch;
            if end.is_some() {
                return end;
            }
            clip.next = Some(first + count as u64);
            if count > 0 && clip.expected.is_some() {
                clip.expected = Some(Instant::now() + self.config.after + LATENESS);
            }
            if count < BATCH {
                break;
            }
        }
        let is_over = is_last || clip.expected.is_some_and(|expected| Instant::now() >= expected);
        is_over.then_some(ClipEnd::Finished)
    }

    /// Adds a frame to a clip; returns how the clip ends, if it does.
    fn add(&mut self, clip: &mut Clip, stream: u64, frame: &CodedFrame) -> Option<ClipEnd> {
        if frame.time > clip.until {
            return Some(ClipEnd::Finished);
        }
        let file = match &mut clip.file {
            Some(_) if stream != clip.stream => return self.restart(clip, stream, frame),
            Some(file) => file,
            None => match self.create(&clip.name) {
                Ok(file) => {
                    clip.stream = stream;
                    clip.file.insert(file)
                }
                Err(error) => return Some(ClipEnd::Failed(error)),
            },
        };
        match file.add(frame) {
            Ok(Added::Taken) => None,
            Ok(Added::OtherParameters) => self.restart(clip, stream, frame),
            Err(error) => Some(ClipEnd::Failed(error)),
        }
    }

    /// Goes on with a frame that cannot follow the others in a file: it ends the clip, unless its event has not begun by then.
    fn restart(&mut self, clip: &mut Clip, stream: u64, frame: &CodedFrame) -> Option<ClipEnd> {
        if frame.time > clip.at || frame.role != FrameRole::Entry {
            return Some(ClipEnd::Finished);
        }
        clip.file = None;
        self.add(clip, stream, frame)
    }

    fn create(&mut self, name: &str) -> Result<Mp4Writer<File>, Mp4Error> {
        if !self.outage.may_try(Instant::now()) {
            let reason = self.outage.reason().unwrap_or_default().to_owned();
            return Err(Mp4Error::Io(io::Error::other(reason)));
        }
        Mp4Writer::new(self.folder.create(name)?)
    }

    /// Stores a clip that is whole, and counts it.
    fn end(&mut self, clip: &mut Clip, end: ClipEnd) {
        let file = clip.file.take();
        let result = match (end, file) {
            (ClipEnd::Finished, Some(file)) => self.store(&clip.name, file),
            (ClipEnd::Finished, None) => {
                self.drop_clip(NO_ENTRY);
                Ok(())
            }
            (ClipEnd::Dropped(reason), _) => {
                self.drop_clip(reason);
                Ok(())
            }
            (ClipEnd::Failed(error), _) => Err(error),
        };
        if let Err(error) = result {
            self.counters.failed.add(1);
            match error {
                Mp4Error::Io(error) => {
                    if self.outage.may_try(Instant::now()) {
                        self.note(&Err(error));
                    }
                    self.outage.lost(1);
                }
                error @ (Mp4Error::Stream(_) | Mp4Error::TooLarge(_)) => self.complain(&error.to_string()),
            }
        }
        self.folder.discard(&clip.name);
        self.shared.state.lock().under_way -= 1;
    }

    /// Finishes a file and gives it its name, unless everything has been forgotten meanwhile.
    fn store(&mut self, name: &str, file: Mp4Writer<File>) -> Result<(), Mp4Error> {
        let file = file.finish()?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        drop(file);
        let forgotten = self.shared.state.lock().forgotten;
        if forgotten.0 == forgotten.1 {
            self.folder.keep(name, bytes)?;
            self.counters.written.add(1);
        }
        self.note(&Ok(()));
        Ok(())
    }

    /// Counts a clip whose frames are not in the ring.
    fn drop_clip(&mut self, reason: &str) {
        self.counters.dropped.add(1);
        let overflows = self.ring.overflows();
        let fits = std::mem::replace(&mut self.overflows, overflows) == overflows;
        self.complain(if fits { reason } else { TOO_SMALL });
    }

    /// Logs why a clip is lost, now and then.
    fn complain(&mut self, reason: &str) {
        let Some(held_back) = self.complaints.pass(Instant::now()) else { return };
        let more = if held_back > 0 { format!(" (and {held_back} more)") } else { String::new() };
        log::warn!("clips of camera {}: a clip is lost{more}: {reason}", self.camera);
    }

    /// Drops every frame, and every clip under way with its file.
    fn forget(&mut self, forgotten: u64) {
        self.ring.clear();
        let clips = std::mem::take(&mut self.clips);
        for clip in &clips {
            self.folder.discard(&clip.name);
        }
        let mut state = self.shared.state.lock();
        state.forgotten.1 = forgotten;
        state.under_way -= clips.len();
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Notes whether the folder can be written.
    fn note(&mut self, result: &io::Result<()>) {
        match result {
            Ok(()) => self.outage.recovered(Instant::now()),
            Err(error) => self.outage.failed(&explain(error), Instant::now()),
        }
        *self.counters.outage.lock() = self.outage.reason().map(str::to_owned);
    }
}

#[cfg(test)]
mod tests;
