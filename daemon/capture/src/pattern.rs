//! Draws a moving test pattern: a box that moves over colour bars, and the frame's number in black and white cells.
//!
//! The image depends on the sequence number alone. A buffer that holds an earlier image is redrawn only where the images differ, so
//! this source costs as little as a camera whose driver fills the buffers, and a benchmark measures the rest.

mod painter;

use std::sync::Arc;

use visiond_config::types::PatternConfig;
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::{Frame, FramePool, LossCause};
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::pacer::SourcePacer;
use super::source::{Next, Source, SourceError, SourceFault};
use painter::Painter;

pub struct PatternSource {
    painter: Painter,
    pool: FramePool,
    /// Which image each buffer holds, by the buffer's address. The pool's buffers live as long as it does, and only this source
    /// writes to them.
    drawn: Vec<(usize, u64)>,
    pacer: SourcePacer,
    clock: Arc<dyn Clock>,
    fps: f64,
    max_frames: Option<u64>,
    sequence: u64,
}

impl PatternSource {
    /// Checks whether [`PatternSource::open`] would fail.
    pub fn check(config: &PatternConfig) -> Option<SourceFault> {
        painter(config).err().map(|error| SourceFault::new("format", error))
    }

    /// Prepares the rows and the buffers.
    pub fn open(config: &PatternConfig, buffers: &Buffers, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let painter = painter(config)?;
        if !(config.fps.is_finite() && config.fps > 0.0) {
            let message = format!("cannot draw the pattern at {} frames per second: fps must be above 0", config.fps);
            return Err(SourceError::permanent(message));
        }
        let pool = buffers.pool(painter.layout().size_bytes())?;
        Ok(Self {
            painter,
            pool,
            drawn: Vec::new(),
            pacer: SourcePacer::new(config.fps),
            clock,
            fps: config.fps,
            max_frames: config.max_frames,
            sequence: 0,
        })
    }
}

fn painter(config: &PatternConfig) -> Result<Painter, SourceError> {
    Painter::new(config.format, config.width, config.height).map_err(|error| {
        SourceError::permanent(format!("cannot draw a pattern of {}x{}: {error}", config.width, config.height))
    })
}

impl Source for PatternSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if self.max_frames.is_some_and(|max| self.sequence >= max) {
            return Ok(Next::End);
        }
        let now_ns = self.clock.monotonic_ns();
        let mut missed = self.pacer.skip_missed(now_ns);
        if let Some(max) = self.max_frames {
            missed = missed.min(max - self.sequence);
        }
        if missed > 0 {
            self.sequence += missed;
            return Ok(Next::Lost { frames: missed, cause: LossCause::Overload });
        }
        let due_ns = self.pacer.due_ns(now_ns);
        if self.clock.sleep_until(due_ns, stop) {
            return Ok(Next::Stopped);
        }
        self.pacer.advance();
        let sequence = self.sequence;
        self.sequence += 1;
        let Some(mut buffer) = self.pool.take() else {
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        let timestamp = clock::now(self.clock.as_ref());
        let out = buffer.as_mut_slice();
        let address = out.as_ptr().addr();
        match self.drawn.iter_mut().find(|(other, _)| *other == address) {
            Some((_, drawn)) => self.painter.redraw(std::mem::replace(drawn, sequence), sequence, out),
            None => {
                self.drawn.push((address, sequence));
                self.painter.draw(sequence, out);
            }
        }
        Ok(Next::Frame(Frame {
            layout: *self.painter.layout(),
            buffer: buffer.into(),
            sequence,
            timestamp,
            recorded_at: None,
            damaged: false,
            name: None,
        }))
    }

    fn describe(&self) -> String {
        let layout = self.painter.layout();
        format!("test pattern, {}x{} {} at {} fps", layout.width(), layout.height(), layout.format(), self.fps)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use visiond_kernels::frame::PixelFormat;

    use super::painter::COUNTER_BITS;
    use super::*;
    use visiond_frames::clock::simulated::SimulatedClock;

    fn config(format: PixelFormat, width: u32, height: u32) -> PatternConfig {
        PatternConfig { width, height, fps: 30.0, format, max_frames: None }
    }

    fn buffers() -> Buffers {
        Buffers::host(3)
    }

    fn counter(frame: &Frame, first: usize, step: usize) -> u32 {
        (0..COUNTER_BITS).map(|bit| u32::from(frame.buffer.as_slice()[first + bit * step] > 128) << bit).sum()
    }

    #[test]
    fn every_format_draws_at_odd_sizes_and_moves() {
        let stop = Stop::new().unwrap();
        for format in PixelFormat::all() {
            for (width, height) in [(1, 1), (65, 33), (640, 480)] {
                let clock = Arc::new(SimulatedClock::default());
                let mut source = PatternSource::open(&config(format, width, height), &buffers(), clock).unwrap();
                let Next::Frame(first) = source.next(&stop).unwrap() else { panic!("no frame") };
                let Next::Frame(second) = source.next(&stop).unwrap() else { panic!("no frame") };
                assert!(first.view().is_ok());
                assert_eq!((first.sequence, second.sequence), (0, 1));
                assert_eq!(second.timestamp.monotonic_ns, 33_333_333);
                if width > 1 {
                    assert_ne!(first.buffer.as_slice(), second.buffer.as_slice(), "{format} {width}x{height}");
                }
            }
        }
    }

    #[test]
    fn the_cells_count_the_frames() {
        let stop = Stop::new().unwrap();
        let clock = Arc::new(SimulatedClock::default());
        let mut source = PatternSource::open(&config(PixelFormat::Grey, 128, 64), &buffers(), clock).unwrap();
        for expected in 0..300 {
            let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
            assert_eq!(counter(&frame, 0, 2), expected);
        }
    }

    #[test]
    fn when_every_buffer_is_out_frames_are_lost_and_counted() {
        let stop = Stop::new().unwrap();
        let clock = Arc::new(SimulatedClock::default());
        let mut source = PatternSource::open(&config(PixelFormat::Nv12, 64, 64), &buffers(), clock.clone()).unwrap();
        let held: Vec<_> = (0..3).map(|_| source.next(&stop).unwrap()).collect();
        assert!(matches!(source.next(&stop).unwrap(), Next::Lost { frames: 1, cause: LossCause::Overload }));
        drop(held);
        clock.advance(Duration::from_millis(340));
        assert!(matches!(source.next(&stop).unwrap(), Next::Lost { frames: 9, cause: LossCause::Overload }));
        let Next::Frame(frame) = source.next(&stop).unwrap() else { panic!("no frame") };
        assert_eq!(frame.sequence, 13);
    }

    #[test]
    fn it_ends_after_max_frames_and_stops_at_once() {
        let stop = Stop::new().unwrap();
        let clock = Arc::new(SimulatedClock::default());
        let config = PatternConfig { max_frames: Some(1), ..config(PixelFormat::Rgb, 8, 8) };
        let mut source = PatternSource::open(&config, &buffers(), clock.clone()).unwrap();
        assert!(matches!(source.next(&stop).unwrap(), Next::Frame(_)));
        assert!(matches!(source.next(&stop).unwrap(), Next::End));
        let config = PatternConfig { max_frames: None, ..config };
        let mut source = PatternSource::open(&config, &buffers(), clock).unwrap();
        stop.raise();
        assert!(matches!(source.next(&stop).unwrap(), Next::Stopped));
    }

    #[test]
    fn what_cannot_be_drawn_is_known_before_it_is_opened() {
        let wrong = config(PixelFormat::Rgb, 0, 48);
        let opened = PatternSource::open(&wrong, &buffers(), Arc::new(SimulatedClock::default())).err().unwrap();
        assert!(opened.to_string().starts_with("cannot draw a pattern of 0x48: ") && !opened.may_pass(), "{opened}");
        let fault = PatternSource::check(&wrong).unwrap();
        assert_eq!((fault.key, fault.error.to_string()), ("format", opened.to_string()));
        assert!(PatternSource::check(&config(PixelFormat::Rgb, 64, 48)).is_none());
    }

    #[test]
    fn a_rate_is_a_finite_number_above_zero() {
        let open = |fps| {
            let config = PatternConfig { fps, ..config(PixelFormat::Rgb, 64, 48) };
            PatternSource::open(&config, &buffers(), Arc::new(SimulatedClock::default())).map(drop)
        };
        for fps in [0.0, -0.0, -30.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = open(fps).unwrap_err();
            assert!(error.to_string().ends_with("fps must be above 0") && !error.may_pass(), "{fps}: {error}");
        }
        assert!(open(0.001).is_ok());
    }
}
