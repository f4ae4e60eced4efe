//! A moving test picture: colour bars, a box on its way, and the frame's number in black and white cells.
//!
//! The picture depends on the sequence number alone. A frame costs one copy of its bytes plus the box and the cells:
//! every row of the bars is a slice of one prepared row. Positions are even, so that a 2x2 group has one colour and every
//! format draws the same picture.

use std::sync::Arc;

use visiond_kernels::color::{ColorDescription, ColorMatrix};
use visiond_kernels::frame::{BayerDepth, BayerOrder, FrameLayout, PixelFormat};

use super::buffers::Buffers;
use super::clock::{self, Clock};
use super::frame::{Frame, FramePool};
use super::pace::Pacer;
use super::source::{LossCause, Next, Source, SourceError};
use crate::config::types::PatternConfig;
use crate::pipeline::stop::Stop;

/// Cells of the frame's number: one a bit, the lowest first.
const COUNTER_BITS: usize = 32;

/// Colour bars at 75 %, as SMPTE EG 1 has them, and black.
const BARS: [[u8; 3]; 8] =
    [[191, 191, 191], [191, 191, 0], [0, 191, 191], [0, 191, 0], [191, 0, 191], [191, 0, 0], [0, 0, 191], [0, 0, 0]];

const BOX: [u8; 3] = [255, 128, 0];
const WHITE: [u8; 3] = [255, 255, 255];
const BLACK: [u8; 3] = [0, 0, 0];

/// The source of `type = "pattern"`.
pub struct PatternSource {
    painter: Painter,
    pool: FramePool,
    pacer: Pacer,
    clock: Arc<dyn Clock>,
    fps: f64,
    max_frames: Option<u64>,
    sequence: u64,
}

impl PatternSource {
    /// Prepares the rows and the buffers.
    pub fn open(config: &PatternConfig, buffers: &Buffers, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let painter = Painter::new(config.format, config.width, config.height)
            .map_err(|error| SourceError::permanent(format!("cannot draw the pattern: {error}")))?;
        if !(config.fps.is_finite() && config.fps > 0.0) {
            let message = format!("cannot draw the pattern at {} frames per second: fps must be above 0", config.fps);
            return Err(SourceError::permanent(message));
        }
        let pool = buffers.pool(painter.layout.size_bytes())?;
        Ok(Self {
            painter,
            pool,
            pacer: Pacer::new(config.fps),
            clock,
            fps: config.fps,
            max_frames: config.max_frames,
            sequence: 0,
        })
    }
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
        self.painter.draw(sequence, buffer.as_mut_slice());
        Ok(Next::Frame(Frame { layout: self.painter.layout, buffer: buffer.into(), sequence, timestamp, name: None }))
    }

    fn describe(&self) -> String {
        let layout = &self.painter.layout;
        format!("test pattern, {}x{} {} at {} fps", layout.width(), layout.height(), layout.format(), self.fps)
    }
}

/// Draws frames of one shape.
struct Painter {
    layout: FrameLayout,
    /// By plane and by parity of the row: twice the bars' row, so that any shift is one slice.
    bars: Vec<[Vec<u8>; 2]>,
}

/// A rectangle in groups of 2x2 pixels.
#[derive(Clone, Copy)]
struct Cells {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

impl Painter {
    fn new(format: PixelFormat, width: u32, height: u32) -> Result<Self, visiond_kernels::frame::FrameError> {
        let layout = FrameLayout::packed(format, width, height, ColorDescription::default())?;
        let pairs = width.div_ceil(2) as usize;
        let row = |plane, parity| -> Vec<u8> {
            (0..2 * pairs).flat_map(|pair| Pair::of(format, plane, parity, BARS[pair % pairs * 8 / pairs])).collect()
        };
        let bars = (0..format.plane_count()).map(|plane| [row(plane, 0), row(plane, 1)]).collect();
        Ok(Self { layout, bars })
    }

    fn draw(&self, sequence: u64, out: &mut [u8]) {
        let (width, height) = (self.layout.width() as usize, self.layout.height() as usize);
        let (columns, rows) = (width.div_ceil(2), height.div_ceil(2));
        self.draw_bars((sequence % columns as u64) as usize, out);

        let side = (columns.min(rows) / 6).max(1);
        let swing = |span: usize, speed: u64| -> usize {
            let span = (span - side.min(span)).max(1) as u64;
            let phase = sequence * speed % (2 * span);
            phase.min(2 * span - phase) as usize
        };
        self.fill(Cells { x: swing(columns, 2), y: swing(rows, 1), width: side, height: side }, BOX, out);

        let cell = (columns / 64).max(1);
        for bit in 0..COUNTER_BITS {
            let color = if sequence >> bit & 1 == 1 { WHITE } else { BLACK };
            self.fill(Cells { x: bit * cell, y: 0, width: cell, height: cell }, color, out);
        }
    }

    /// The bars, moved left by `shift` groups.
    fn draw_bars(&self, shift: usize, out: &mut [u8]) {
        let format = self.layout.format();
        for (plane, place) in self.layout.planes().iter().enumerate() {
            let row_bytes = format.row_bytes(plane, self.layout.width());
            let start = shift * Pair::of(format, plane, 0, BLACK).len;
            for y in 0..format.plane_rows(plane, self.layout.height()) {
                let at = place.offset_bytes + y * place.pitch_bytes;
                out[at..at + row_bytes].copy_from_slice(&self.bars[plane][y % 2][start..start + row_bytes]);
            }
        }
    }

    /// Fills a rectangle, as far as it lies in the frame.
    fn fill(&self, cells: Cells, color: [u8; 3], out: &mut [u8]) {
        let format = self.layout.format();
        for (plane, place) in self.layout.planes().iter().enumerate() {
            let row_bytes = format.row_bytes(plane, self.layout.width());
            let rows = format.plane_rows(plane, self.layout.height());
            // Rows of the plane in one group: 1 for subsampled chroma, else 2.
            let group = if plane > 0 { 1 } else { 2 };
            for y in cells.y * group..((cells.y + cells.height) * group).min(rows) {
                let pair = Pair::of(format, plane, y % 2, color);
                let start = (cells.x * pair.len).min(row_bytes);
                let end = ((cells.x + cells.width) * pair.len).min(row_bytes);
                let at = place.offset_bytes + y * place.pitch_bytes;
                for chunk in out[at + start..at + end].chunks_mut(pair.len) {
                    chunk.copy_from_slice(&pair.bytes[..chunk.len()]);
                }
            }
        }
    }
}

/// The bytes of two neighbouring pixels of one colour in one plane.
struct Pair {
    bytes: [u8; 8],
    len: usize,
}

impl Pair {
    fn of(format: PixelFormat, plane: usize, row_parity: usize, rgb: [u8; 3]) -> Self {
        let [r, g, b] = rgb;
        let [y, cb, cr] = to_yuv(rgb);
        match (format, plane) {
            (PixelFormat::Yuyv, _) => Self::new(&[y, cb, y, cr]),
            (PixelFormat::Uyvy, _) => Self::new(&[cb, y, cr, y]),
            (PixelFormat::Nv12 | PixelFormat::Nv21 | PixelFormat::I420 | PixelFormat::Grey, 0) => Self::new(&[y, y]),
            (PixelFormat::Nv12, _) => Self::new(&[cb, cr]),
            (PixelFormat::Nv21, _) => Self::new(&[cr, cb]),
            (PixelFormat::I420, 1) => Self::new(&[cb]),
            (PixelFormat::I420 | PixelFormat::Grey, _) => Self::new(&[cr]),
            (PixelFormat::Rgb, _) => Self::new(&[r, g, b, r, g, b]),
            (PixelFormat::Bgr, _) => Self::new(&[b, g, r, b, g, r]),
            (PixelFormat::Rgba, _) => Self::new(&[r, g, b, 255, r, g, b, 255]),
            (PixelFormat::Bgra, _) => Self::new(&[b, g, r, 255, b, g, r, 255]),
            (PixelFormat::Bayer(order, depth), _) => {
                let samples = match (order, row_parity) {
                    (BayerOrder::Rggb, 0) | (BayerOrder::Gbrg, 1) => [r, g],
                    (BayerOrder::Rggb, _) | (BayerOrder::Gbrg, _) => [g, b],
                    (BayerOrder::Grbg, 0) | (BayerOrder::Bggr, 1) => [g, r],
                    (BayerOrder::Grbg, _) | (BayerOrder::Bggr, _) => [b, g],
                };
                Self::samples(samples, depth)
            }
        }
    }

    fn samples(samples: [u8; 2], depth: BayerDepth) -> Self {
        if depth == BayerDepth::Bits8 {
            return Self::new(&samples);
        }
        // 255 becomes the depth's largest number.
        let [a, b] = samples.map(|v| ((u32::from(v) * ((1 << depth.bits()) - 1) + 127) / 255) as u16);
        let ([a0, a1], [b0, b1]) = (a.to_le_bytes(), b.to_le_bytes());
        Self::new(&[a0, a1, b0, b1])
    }

    fn new(of: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes[..of.len()].copy_from_slice(of);
        Self { bytes, len: of.len() }
    }
}

impl IntoIterator for Pair {
    type Item = u8;
    type IntoIter = std::iter::Take<std::array::IntoIter<u8, 8>>;

    fn into_iter(self) -> Self::IntoIter {
        self.bytes.into_iter().take(self.len)
    }
}

/// BT.601, limited range: what `ColorDescription::default` says.
fn to_yuv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (kr, kb) = ColorMatrix::Bt601.luma_weights();
    let [r, g, b] = [r, g, b].map(|v| f64::from(v) / 255.0);
    let y = kr * r + (1.0 - kr - kb) * g + kb * b;
    let cb = (b - y) / (2.0 * (1.0 - kb));
    let cr = (r - y) / (2.0 * (1.0 - kr));
    [16.0 + 219.0 * y, 128.0 + 224.0 * cb, 128.0 + 224.0 * cr].map(|v| v.round() as u8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::super::clock::simulated::SimulatedClock;
    use super::*;

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
    fn a_mosaic_has_its_colours_in_its_order() {
        let bytes = |order, parity| -> Vec<u8> {
            Pair::of(PixelFormat::Bayer(order, BayerDepth::Bits8), 0, parity, [1, 2, 3]).into_iter().collect()
        };
        assert_eq!((bytes(BayerOrder::Rggb, 0), bytes(BayerOrder::Rggb, 1)), (vec![1, 2], vec![2, 3]));
        assert_eq!((bytes(BayerOrder::Grbg, 0), bytes(BayerOrder::Grbg, 1)), (vec![2, 1], vec![3, 2]));
        assert_eq!((bytes(BayerOrder::Gbrg, 0), bytes(BayerOrder::Gbrg, 1)), (vec![2, 3], vec![1, 2]));
        assert_eq!((bytes(BayerOrder::Bggr, 0), bytes(BayerOrder::Bggr, 1)), (vec![3, 2], vec![2, 1]));
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
}
