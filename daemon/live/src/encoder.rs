//! The threads that encode images of all cameras; the first client that watches starts them.
//!
//! Each camera has at most one frame here, and its buffer is given back as soon as its pixels are read. One of two threads
//! works at a time. While a core has idle time, it is the one at idle priority, which runs only when no other thread wants the
//! processor. Otherwise it is the one at nice 10, which gets a tenth of another thread's share: a busy machine then makes
//! fewer images before anything else slows down. At idle priority, an image would take a second if no core is ever idle.
//! The threads choose between themselves by how long an image took and how much CPU time it used ([`CpuHeadroom`]).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use visiond_annotate::draw::{draw_scaled, draw_with_tails};
use visiond_annotate::rgb_converter::{RgbConverter, RgbError};
use visiond_annotate::upright::upright;
use visiond_kernels::buffer::BufferError;
use visiond_kernels::frame::{FrameCopyError, FrameError};
use visiond_kernels::jpeg::{self, JpegEncoder};
use visiond_kernels::view::Orientation;
use visiond_system::backoff::RateLimit;
use visiond_system::priority::{Rank, give_way};
use visiond_system::process::CpuWatch;
use visiond_telemetry::trace;

use crate::camera_view::{CameraView, ModelFrame, OwnedFrame, Picture, TakenFrame};
use crate::encoder_queue::{EncoderQueue, Job};

/// JPEG quality; a 1080p image has about 200 KB.
const QUALITY: u8 = 80;
/// The encoder's memory is freed after this time without work.
const IDLE: Duration = Duration::from_secs(5);
/// How many images it takes to detect headroom: 0.2 s of eight cameras, 1.6 s of one.
const ENOUGH: u32 = 16;
/// The time that an image may take at [`Rank::Idle`] beyond four times its CPU time: half of the
/// time until the next image at the default rate.
const MARGIN: Duration = Duration::from_millis(50);

/// Why a frame did not become an image.
#[derive(Debug, thiserror::Error)]
enum EncodeError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Copy(#[from] FrameCopyError),
    #[error(transparent)]
    Memory(#[from] BufferError),
    #[error(transparent)]
    Convert(#[from] RgbError),
    #[error(transparent)]
    Jpeg(#[from] jpeg::EncodeError),
    #[error("internal error, see the panic above: please report it")]
    Panic,
}

/// Starts the encoder's threads, and adds them to `threads`.
pub fn start_threads(queue: &Arc<EncoderQueue<CameraView>>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
    let nice = Arc::clone(queue);
    threads.push(thread::Builder::new().name("pictures".to_owned()).spawn(move || {
        give_way(Rank::Nice);
        run(&nice, Rank::Nice);
    })?);
    // Not started by the first thread, because a thread would inherit nice 10 and could then not get idle priority on its
    // own.
    let idle = Arc::clone(queue);
    threads.push(thread::Builder::new().name("pictures-idle".to_owned()).spawn(move || {
        // Where the system does not allow it, the other thread encodes everything.
        if give_way(Rank::Idle) {
            idle.add_idle();
            run(&idle, Rank::Idle);
        }
    })?);
    Ok(())
}

fn run(queue: &EncoderQueue<CameraView>, rank: Rank) {
    let mut tools = Tools::new(rank);
    let mut complaints = RateLimit::new(Duration::from_secs(10));
    let mut headroom = CpuHeadroom::default();
    loop {
        let view = match queue.next(rank, (!tools.are_empty()).then_some(IDLE)) {
            Job::Encode(view) => view,
            Job::FreeMemory => {
                tools = Tools::new(rank);
                continue;
            }
            Job::End => return,
        };
        let Some(taken) = view.take() else { continue };
        let (begun, mut work) = (Instant::now(), CpuWatch::start());
        let sequence = taken.frame.sequence;
        let topic = taken.message.as_ref().map_or(&view.name, |message| &message.topic);
        let trace = trace::work_on("encode", topic, sequence);
        let made = catch_unwind(AssertUnwindSafe(|| tools.make(&view, taken)));
        drop(trace);
        let made = made.unwrap_or_else(|_| {
            tools = Tools::new(rank);
            Err(EncodeError::Panic)
        });
        if let Err(error) = made
            && let Some(held_back) = complaints.pass(Instant::now())
        {
            let more = if held_back > 0 { format!(" (and {held_back} more like it)") } else { String::new() };
            log::error!("camera {}: no live image of frame {sequence}: {error}{more}", view.name);
        }
        let (elapsed, worked) = (begun.elapsed(), Duration::from_nanos(work.lap_ns()));
        if rank == Rank::Idle && is_gone(elapsed, worked) {
            queue.hand_over(Rank::Nice);
        } else if rank == Rank::Nice && headroom.add_picture(elapsed, worked) {
            queue.hand_over(Rank::Idle);
        }
        view.done();
    }
}

/// The converter and the encoder of one thread; empty until the first image.
struct Tools {
    /// Called between the stripes of an image.
    pause: fn(),
    converter: RgbConverter,
    jpeg: Option<JpegEncoder>,
    /// The last frame that was in the GPU's memory.
    copy: Vec<u8>,
}

impl Tools {
    fn new(rank: Rank) -> Self {
        // Since Linux 6.6, an idle thread may run until the next tick (4 ms) even if another thread wakes on its core, when
        // that thread recently had more than its share. At nice 10, yielding would cost a wait after each stripe.
        let pause = if rank == Rank::Idle { thread::yield_now } else { || {} };
        Self { pause, converter: RgbConverter::default(), jpeg: None, copy: Vec::new() }
    }

    fn are_empty(&self) -> bool {
        self.jpeg.is_none()
    }

    /// Makes the results that clients requested from a frame: copies, an image, an image with boxes.
    fn make(&mut self, view: &CameraView, taken: TakenFrame) -> Result<(), EncodeError> {
        let TakenFrame { frame, message, is_preview, mask_changes, copies, plain, overlay } = taken;
        // A frame of a model has a message.
        if let Some(message) = &message {
            for wanted in &copies {
                let copy = OwnedFrame::copy_of(frame.layout, frame.bytes(&mut self.copy)?)?;
                view.give(wanted, ModelFrame { frame: copy, message: Arc::clone(message), mask_changes });
            }
        }
        if plain.is_empty() && overlay.is_empty() {
            return Ok(());
        }
        let others = message.as_ref().map(|message| view.others(message)).unwrap_or_default();
        // A picture without boxes adds to the tails of the next one with boxes. Only one of the models has tracks.
        message.iter().chain(&others).for_each(|message| view.add_to_trails(message, mask_changes));
        let sequence = message.as_ref().map(|message| message.sequence);
        let picture = |jpeg: Vec<u8>| Picture { jpeg: Bytes::from(jpeg), sequence, made: Instant::now(), mask_changes };
        let jpeg = match &mut self.jpeg {
            Some(jpeg) => jpeg,
            none => none.insert(JpegEncoder::new(QUALITY)?.pausing(self.pause)),
        };

        let seen = view.orientation();
        let pixels = frame.view()?.turned(seen)?;
        let pixels = pixels.on_host(&mut self.copy)?;
        // `read` only reads the pixels, and unturned; they are encoded below, after the buffer went back.
        let read = !plain.is_empty() && seen == Orientation::UPRIGHT && jpeg.read(&pixels);
        let plain_of_rgb = !plain.is_empty() && !read;
        let rgb = match (overlay.is_empty(), plain_of_rgb) {
            (true, false) => None,
            _ => Some(self.converter.make(&pixels)?),
        };
        drop(frame);
        if read {
            view.show(&plain, false, picture(jpeg.encode_read()?));
        }
        let Some(mut rgb) = rgb else { return Ok(()) };
        let (width, height) = rgb.dimensions();
        if plain_of_rgb {
            view.show(&plain, false, picture(jpeg.encode_rgb(&rgb, width, height)?));
        }
        if !overlay.is_empty() {
            if let Some(message) = &message {
                let tails = view.tails(message);
                for other in &others {
                    draw_scaled(&mut rgb, &upright(other, seen), &view.tails(other));
                }
                let draw = if is_preview { draw_scaled } else { draw_with_tails };
                draw(&mut rgb, &upright(message, seen), &tails);
            }
            view.show(&overlay, true, picture(jpeg.encode_rgb(&rgb, width, height)?));
        }
        Ok(())
    }
}

/// Adds up the cost of the last images at [`Rank::Nice`].
#[derive(Debug, Default)]
struct CpuHeadroom {
    pictures: u32,
    elapsed: Duration,
    worked: Duration,
}

impl CpuHeadroom {
    /// Adds an image that took `elapsed` and used `worked` of CPU time; returns whether there is headroom.
    ///
    /// There is headroom when [`ENOUGH`] images took at most one and a half times their CPU time; `false` until then.
    fn add_picture(&mut self, elapsed: Duration, worked: Duration) -> bool {
        self.pictures += 1;
        self.elapsed += elapsed;
        self.worked += worked;
        if self.pictures < ENOUGH {
            return false;
        }
        let sum = std::mem::take(self);
        sum.elapsed * 2 <= sum.worked * 3
    }
}

/// Whether an image that was encoded at [`Rank::Idle`] shows that the headroom is gone.
fn is_gone(elapsed: Duration, worked: Duration) -> bool {
    elapsed > worked * 4 + MARGIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn there_is_headroom_after_enough_pictures_in_a_row_that_hardly_waited() {
        let mut headroom = CpuHeadroom::default();
        let mut after = |elapsed, count| (0..count).map(|_| headroom.add_picture(elapsed, MS(4))).collect::<Vec<_>>();
        let enough = ENOUGH as usize;
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
        assert!(!after(MS(12), enough).contains(&true), "it waited twice as long as it worked");
        // The count starts again.
        assert_eq!(after(MS(5), enough).iter().position(|&seen| seen), Some(enough - 1));
    }

    #[test]
    fn headroom_is_gone_after_one_picture_that_took_long() {
        assert!(!is_gone(MS(60), MS(3)) && is_gone(MS(70), MS(3)));
        assert!(!is_gone(MS(200), MS(40)), "a large one takes long by itself");
    }
}
