//! Previews whose sources are written as a script.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use visiond_capture::source::Source;
use visiond_frames::clock::SystemClock;
use visiond_frames::frame::FramePool;
use visiond_live::{CameraView, PictureStream, PreviewPhase};
use visiond_system::exit::Exit;
use visiond_system::testing::{EVER, wait_until};

use super::*;
use crate::lane::testing;

/// The outcome of an attempt to play the stream.
#[derive(Clone, Copy)]
enum Act {
    /// Cannot be opened.
    Refuses,
    /// Panics at the first frame.
    Panics,
    /// Gives a frame and ends.
    Ends,
    /// Gives frames until stop.
    Plays,
    /// Gives no frame until stop.
    IsSilent,
    /// Costs the process its GPU.
    LosesGpu,
}

struct Scripted {
    act: Act,
    pool: FramePool,
    frames: u64,
}

impl Source for Scripted {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        match self.act {
            Act::Panics => panic!("made to panic"),
            Act::LosesGpu => return Err(SourceError::gpu_lost("the GPU fell off the bus")),
            Act::Ends if self.frames == 1 => return Ok(Next::End),
            Act::IsSilent => drop(stop.sleep(EVER)),
            _ => {}
        }
        if stop.sleep(Duration::from_millis(1)) {
            return Ok(Next::Stopped);
        }
        self.frames += 1;
        match testing::frame(&self.pool, self.frames) {
            Some(frame) => Ok(Next::Frame(frame)),
            None => self.next(stop),
        }
    }

    fn describe(&self) -> String {
        "a script".into()
    }
}

/// A preview's thread, and its attempts so far.
struct Bench {
    view: Arc<CameraView>,
    opened: Arc<AtomicUsize>,
    stop: Stop,
    end: Stop,
    needs_restart: NeedsRestart,
    thread: JoinHandle<()>,
    _live: Arc<Live>,
}

impl Bench {
    /// Starts it; the attempts to play the stream do what `script` says.
    fn start(script: &[Act]) -> Self {
        let (live, stop, end) = (Live::new(), Stop::new().unwrap(), Stop::new().unwrap());
        let (view, opened, needs_restart) = (live.view("door"), Arc::<AtomicUsize>::default(), NeedsRestart::default());
        let (mut script, counted) = (VecDeque::from(script.to_vec()), Arc::clone(&opened));
        let open = move || -> Result<Box<dyn Source>, SourceError> {
            counted.fetch_add(1, Ordering::SeqCst);
            match script.pop_front().unwrap() {
                Act::Refuses => Err(SourceError::permanent("no such stream")),
                act => Ok(Box::new(Scripted { act, pool: testing::pool(4), frames: 0 })),
            }
        };
        let short = Duration::from_millis(1);
        let preview = PreviewPlayer {
            camera: "door".into(),
            open: Box::new(open),
            feed: PreviewFeed::new(&view).unwrap(),
            live: Arc::clone(&live),
            retry_policy: RetryPolicy { first: short, limit: short, failed: short, ..RetryPolicy::default() },
            clock: Arc::new(SystemClock),
            stop: stop.clone(),
            end: end.clone(),
            needs_restart: Arc::clone(&needs_restart),
        };
        let thread = thread::spawn(move || preview.run());
        Self { view, opened, stop, end, needs_restart, thread, _live: live }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    fn phase(&self) -> Option<PreviewPhase> {
        self.view.preview().map(|status| status.phase)
    }

    fn end(self) {
        self.stop.raise();
        wait_until("the thread to end", || self.thread.is_finished());
        self.thread.join().unwrap();
        assert_eq!(self.view.preview(), None, "it is detached");
    }
}

#[test]
fn a_preview_that_fails_in_any_way_is_opened_again_while_a_person_watches() {
    let bench = Bench::start(&[Act::Refuses, Act::Panics, Act::Ends, Act::Plays]);
    assert_eq!((bench.phase(), bench.opened()), (Some(PreviewPhase::Idle), 0));
    let watch = bench.view.watch(PictureStream::Shown, false).unwrap();
    wait_until("frames", || bench.opened() == 4 && bench.phase() == Some(PreviewPhase::Streaming));
    assert_eq!(bench.view.preview().unwrap().size, Some((4, 2)));
    drop(watch);
    wait_until("the preview to be closed", || bench.phase() == Some(PreviewPhase::Idle));
    assert_eq!(bench.opened(), 4);
    bench.end();
}

#[test]
fn stop_ends_a_preview_that_waits_plays_or_gives_nothing() {
    Bench::start(&[]).end();
    for act in [Act::Plays, Act::IsSilent] {
        let bench = Bench::start(&[act]);
        let _watch = bench.view.watch(PictureStream::Shown, false).unwrap();
        wait_until("the stream", || bench.opened() == 1);
        bench.end();
    }
}

#[test]
fn a_gpu_that_is_lost_in_a_preview_ends_the_daemon() {
    let bench = Bench::start(&[Act::LosesGpu]);
    let _watch = bench.view.watch(PictureStream::Shown, false).unwrap();
    wait_until("the end", || bench.end.is_raised());
    let end = bench.needs_restart.get().unwrap();
    assert!(end.exit == Exit::GpuLost && end.message.ends_with("the GPU fell off the bus"), "{end:?}");
    bench.end();
}
