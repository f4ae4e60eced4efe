//! A camera's open source, and where its frames go. It runs on the camera's own thread or on a shared one.

use std::mem;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use visiond_capture::source::{Next, Source, SourceError, Worked};
use visiond_frames::clock::Clock;
use visiond_frames::frame::Frame;
use visiond_kernels::nvtx;
use visiond_system::logging::{self, Subject};
use visiond_system::process::CpuWatch;
use visiond_system::stop::Stop;
use visiond_telemetry::metrics::{CameraMetrics, DropCause};
use visiond_telemetry::trace;

use crate::collector::{FrameTicket, Joiner};
use crate::frame_rate::FrameRate;
use crate::lane::{LaneSlot, QueuedFrame};
use crate::mailbox::Put;
use crate::stream_threads::SharedStream;

/// How many frames and losses a source may return in a row before the thread's other sources run. A source that sends without
/// pause must not monopolise the thread.
const MOST_IN_TURN: usize = 8;

/// A source that streams.
pub struct CameraStream {
    pub(super) source: Box<dyn Source>,
    pub(super) frame_rate: FrameRate,
    pub(super) metrics: Arc<CameraMetrics>,
    pub(super) slots: Vec<LaneSlot>,
    /// See [`Camera::joiner`](super::Camera::joiner).
    pub(super) joiner: Option<Arc<Joiner>>,
    pub(super) sequence: Arc<AtomicU64>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    /// The number of the source's first frame.
    pub(super) base: u64,
    /// How many bytes the source had copied when that was last counted.
    pub(super) copied_bytes: u64,
    /// A result from a shared thread that the camera's own thread must handle.
    pub(super) came: Option<Result<Next, SourceError>>,
}

impl CameraStream {
    /// Waits for the source's next result.
    pub(super) fn next(&mut self, cpu: &mut CpuWatch) -> Result<Next, SourceError> {
        if let Some(came) = self.came.take() {
            return came;
        }
        let range = nvtx::range(c"capture");
        let trace = trace::work("wait for a frame");
        let next = self.source.next(&self.stop);
        drop(trace);
        drop(range);
        // CPU time of the wait for this frame and of delivering the previous one.
        self.count_work(cpu);
        next
    }

    fn count_work(&mut self, cpu: &mut CpuWatch) {
        let copied = self.source.copied_bytes();
        self.metrics.copied_bytes.add(copied - mem::replace(&mut self.copied_bytes, copied));
        self.metrics.capture_cpu_ns.add(cpu.lap_ns());
    }

    /// Lends a frame to each lane, or skips it; returns `false` if no lane wants more. A frame that a busy lane does not get counts as
    /// lost for that lane, although another lane may have it.
    pub(super) fn deliver(&mut self, mut frame: Frame) -> bool {
        // A driver that restarts its count must not make sequence numbers go back.
        frame.sequence = frame.sequence.saturating_add(self.base).max(self.sequence.load(Ordering::Relaxed));
        self.sequence.store(frame.sequence + 1, Ordering::Relaxed);
        self.metrics.captured.add(1);
        if !self.frame_rate.takes(frame.timestamp.monotonic_ns) {
            self.metrics.count_dropped(DropCause::Skipped, 1);
            // An earlier frame may have waited for too long.
            self.joiner.iter().for_each(|joiner| joiner.flush());
            return true;
        }
        let queued_ns = self.clock.monotonic_ns();
        let _waiting = self.stop.waiting();
        let _trace = trace::work_on(trace::DELIVER, &self.metrics.name, frame.sequence);
        // Several lanes may read a frame at once only if its memory needs no attaching, which the service checks: memory
        // attached to one lane's stream is inaccessible to the others.
        let (frame, mut is_wanted) = (Arc::new(frame), false);
        let group = self.joiner.as_ref().map(|joiner| {
            joiner.wait_for_room(&self.stop);
            joiner.announce(frame.sequence)
        });
        for LaneSlot { mailbox, number, model, frame_rate } in &mut self.slots {
            if !frame_rate.takes(frame.timestamp.monotonic_ns) {
                self.metrics.count_dropped_by(model, DropCause::Skipped, 1);
                is_wanted = true;
                continue;
            }
            let (frame, ticket) = (Arc::clone(&frame), group.as_ref().map(FrameTicket::lend));
            match mailbox.put(*number, QueuedFrame { frame, queued_ns, ticket }) {
                Put::Stored => is_wanted = true,
                Put::Displaced(_) => {
                    self.metrics.count_dropped_by(model, DropCause::Overload, 1);
                    is_wanted = true;
                }
                Put::Stopped(_) => {}
            }
        }
        drop(group);
        // The frames that were displaced may have been the last that a message waited for.
        self.joiner.iter().for_each(|joiner| joiner.flush());
        is_wanted
    }

    /// Lets the source work up to [`MOST_IN_TURN`] times: see [`SharedStream::work`].
    fn work_in_turn(&mut self, mut is_readable: bool, cpu: &mut CpuWatch) -> Option<Instant> {
        let mut due = Some(Instant::now());
        for _ in 0..MOST_IN_TURN {
            let range = nvtx::range(c"capture");
            let trace = trace::work("read and decode");
            let worked = self.source.work(is_readable, &self.stop);
            drop(trace);
            drop(range);
            is_readable = false;
            self.came = match worked {
                Ok(Worked::Next(Next::Frame(frame))) => match self.deliver(frame) {
                    true => continue,
                    false => Some(Ok(Next::Stopped)),
                },
                Ok(Worked::Next(Next::Lost { frames, cause })) => {
                    self.metrics.count_dropped(cause.into(), frames);
                    continue;
                }
                Ok(Worked::Next(next)) => Some(Ok(next)),
                Ok(Worked::Idle(until)) => {
                    due = Some(until);
                    break;
                }
                Ok(Worked::NeedsThread) => None,
                Err(error) => Some(Err(error)),
            };
            due = None;
            break;
        }
        self.count_work(cpu);
        due
    }
}

impl SharedStream for CameraStream {
    fn socket(&mut self) -> Option<BorrowedFd<'_>> {
        self.source.shares_thread()
    }

    fn work(&mut self, is_readable: bool, cpu: &mut CpuWatch) -> Option<Instant> {
        logging::about(Subject::Camera, Arc::clone(&self.metrics.name));
        // The source ends with the error; the mailboxes hold whole values at every call.
        catch_unwind(AssertUnwindSafe(|| self.work_in_turn(is_readable, cpu))).unwrap_or_else(|_| {
            self.came = Some(Err(SourceError::transient("its thread panicked, see above")));
            None
        })
    }
}
