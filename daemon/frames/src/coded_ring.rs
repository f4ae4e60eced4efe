//! The last seconds of a camera's coded frames: the camera's own bitstream, or JPEGs that visiond has made.
//!
//! A source puts frames in, the writer of clips copies handles out. Coded bytes are shared, never copied.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A frame that is this much older than the one before it begins another stream: a recording that starts again, or a clock that was
/// set back. Frames that are shown later than they are decoded (B-frames) differ by less.
const STEP_BACK: Duration = Duration::from_secs(2);

/// How a frame is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// H.264, in NAL units of Annex B.
    H264,
    /// H.265, in NAL units of Annex B.
    H265,
    /// A JPEG file.
    Jpeg,
}

/// What a decoder needs for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameRole {
    /// Nothing: decoding can start here. Of H.264 and H.265 it begins with its parameter sets.
    Entry,
    /// Frames before the entry that it follows. It must be left out if decoding started there.
    Leading,
    /// Frames since an entry.
    Inter,
}

/// A coded frame.
#[derive(Debug, Clone)]
pub struct CodedFrame {
    /// How it is coded.
    pub coding: Coding,
    /// Its bytes.
    pub data: Arc<Vec<u8>>,
    /// What a decoder needs for it.
    pub role: FrameRole,
    /// When to show it by the stream's clock, in `rate_hz`.
    pub presentation: i64,
    /// Ticks of the stream's clock per second.
    pub rate_hz: u32,
    /// When the scene was as it shows it: see [`FrameFacts::time`](crate::frame::FrameFacts::time).
    pub time: Duration,
}

impl CodedFrame {
    /// The clock of frames whose stream has none.
    pub const RATE_HZ: u32 = 90_000;

    /// Returns a JPEG file that is shown when it was captured.
    pub fn jpeg(data: Arc<Vec<u8>>, time: Duration) -> Self {
        let presentation = ticks(time);
        Self { coding: Coding::Jpeg, data, role: FrameRole::Entry, presentation, rate_hz: Self::RATE_HZ, time }
    }

    /// Returns the bytes of memory that it takes.
    fn memory(&self) -> usize {
        self.data.capacity() + size_of::<Self>() + size_of::<Vec<u8>>()
    }
}

/// Returns a time in ticks of [`CodedFrame::RATE_HZ`].
pub fn ticks(time: Duration) -> i64 {
    i64::try_from(time.as_nanos() * u128::from(CodedFrame::RATE_HZ) / 1_000_000_000).unwrap_or(i64::MAX)
}

/// How much a ring holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLimits {
    /// How far it reaches back. The frames from the last entry before that are there as well.
    pub span: Duration,
    /// The most bytes. Where `span` takes more, it reaches back less far.
    pub max_bytes: usize,
}

/// A ring of coded frames.
#[derive(Debug)]
pub struct CodedRing {
    limits: RingLimits,
    state: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    /// With the number of its stream. The first one is an entry.
    frames: VecDeque<(u64, CodedFrame)>,
    /// The numbers of the frames that are entries. The first one is `first`, if there are frames.
    entries: VecDeque<u64>,
    /// The number of the first frame.
    first: u64,
    bytes: usize,
    stream: u64,
    newest: Duration,
    /// How often frames did not fit although they were within the span.
    overflows: u64,
}

impl CodedRing {
    /// Makes an empty ring.
    pub fn new(limits: RingLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Notes that the next frame continues none before it: the source was opened again.
    pub fn begin_stream(&self) {
        self.state.lock().stream += 1;
    }

    /// Adds a frame, and drops what is older than the span or does not fit. Frames that no entry precedes are refused.
    ///
    /// Costs a lock that only the writer of clips shares, for some microseconds, and no copy. Allocates while it grows.
    pub fn push(&self, frame: CodedFrame) {
        let mut state = self.state.lock();
        if frame.time + STEP_BACK < state.newest {
            state.clear();
        }
        if state.entries.is_empty() && frame.role != FrameRole::Entry {
            return;
        }
        state.newest = state.newest.max(frame.time);
        let number = state.first + state.frames.len() as u64;
        if frame.role == FrameRole::Entry {
            state.entries.push_back(number);
        }
        state.bytes += frame.memory();
        let stream = state.stream;
        state.frames.push_back((stream, frame));
        let is_old = |(_, frame): &(u64, CodedFrame), newest: Duration| frame.time + self.limits.span <= newest;
        while let Some(&second) = state.entries.get(1)
            && state.at(second).is_some_and(|frame| is_old(frame, state.newest))
        {
            state.drop_group();
        }
        while state.bytes > self.limits.max_bytes && !state.frames.is_empty() {
            state.overflows += 1;
            state.drop_group();
        }
    }

    /// Returns the number of the last entry up to a time, or otherwise of the first frame; `None` if there is none.
    pub fn entry_at(&self, time: Duration) -> Option<u64> {
        let state = self.state.lock();
        let is_before = |number: &&u64| state.at(**number).is_some_and(|(_, frame)| frame.time <= time);
        state.entries.iter().rev().find(is_before).or(state.entries.front()).copied()
    }

    /// Appends up to `most` frames from the one with this number on, with the numbers of their streams; returns the number of the
    /// first that it has appended. That is a later one if the ring no longer has the one asked for.
    pub fn read(&self, from: u64, most: usize, out: &mut Vec<(u64, CodedFrame)>) -> u64 {
        let state = self.state.lock();
        let from = from.max(state.first);
        let skipped = usize::try_from(from - state.first).unwrap_or(usize::MAX);
        out.extend(state.frames.iter().skip(skipped).take(most).cloned());
        from
    }

    /// Returns how often frames within the span did not fit.
    pub fn overflows(&self) -> u64 {
        self.state.lock().overflows
    }

    /// Empties it.
    pub fn clear(&self) {
        self.state.lock().clear();
    }
}

impl RingState {
    /// Returns the frame with a number.
    fn at(&self, number: u64) -> Option<&(u64, CodedFrame)> {
        self.frames.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Drops the first entry, and the frames that need it.
    fn drop_group(&mut self) {
        self.entries.pop_front();
        let end = self.first + self.frames.len() as u64;
        let next = self.entries.front().copied().unwrap_or(end);
        let count = usize::try_from(next - self.first).unwrap_or(usize::MAX).min(self.frames.len());
        self.bytes -= self.frames.drain(..count).map(|(_, frame)| frame.memory()).sum::<usize>();
        self.first = next;
    }

    /// Drops all frames. The next one begins another stream.
    fn clear(&mut self) {
        self.first += self.frames.len() as u64;
        self.frames.clear();
        self.entries.clear();
        self.stream += 1;
        (self.bytes, self.newest) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    fn ring(seconds: u64, max_bytes: usize) -> CodedRing {
        CodedRing::new(RingLimits { span: Duration::from_secs(seconds), max_bytes })
    }

    /// The `n`th frame of a stream with ten frames a second and an entry each second.
    fn frame(n: u32, bytes: usize) -> CodedFrame {
        let role = if n.is_multiple_of(10) { FrameRole::Entry } else { FrameRole::Inter };
        CodedFrame {
            coding: Coding::H264,
            data: Arc::new(vec![n as u8; bytes]),
            role,
            presentation: i64::from(n) * 9000,
            rate_hz: 90_000,
            time: STEP * n,
        }
    }

    /// The first bytes of the frames from a number on.
    fn bytes(ring: &CodedRing, from: u64) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        let first = ring.read(from, usize::MAX, &mut out);
        (first, out.iter().map(|(_, frame)| frame.data[0]).collect())
    }

    #[test]
    fn it_reaches_back_to_the_entry_before_its_span_and_no_further() {
        let ring = ring(2, 1 << 20);
        (0..75).for_each(|n| ring.push(frame(n, 100)));
        // The newest frame is of 7.4 s, so the span begins at 5.4 s, and the entry before that is of 5 s.
        assert_eq!(bytes(&ring, 0), (50, (50..75).collect()));
        let at = |seconds| ring.entry_at(Duration::from_millis(seconds));
        assert_eq!([at(0), at(5999), at(6000), at(6999), at(100_000)], [50, 50, 60, 60, 70].map(Some));
        assert_eq!(bytes(&ring, 72), (72, vec![72, 73, 74]));
        let mut some = Vec::new();
        assert_eq!((ring.read(60, 3, &mut some), some.len()), (60, 3));
        assert_eq!(ring.overflows(), 0);
    }

    #[test]
    fn it_never_has_more_bytes_than_its_limit_and_begins_with_an_entry() {
        let ring = ring(60, 30_000);
        for n in 0..200 {
            ring.push(frame(n, 1000));
            assert!(ring.state.lock().bytes <= 30_000);
            let (first, found) = bytes(&ring, 0);
            assert!(found.is_empty() || first.is_multiple_of(10), "frame {first} is first");
        }
        assert_eq!(bytes(&ring, 0).0, 180);
        assert!(ring.overflows() > 0);
        // A group that alone is too large: the rest of it is of no use.
        ring.push(frame(200, 40_000));
        ring.push(frame(201, 10));
        assert_eq!(bytes(&ring, 0), (201, vec![]));
        ring.push(frame(210, 10));
        assert_eq!(bytes(&ring, 0), (201, vec![210]));
        let state = ring.state.lock();
        assert_eq!(state.bytes, state.frames[0].1.memory());
    }

    #[test]
    fn it_takes_nothing_before_an_entry() {
        let ring = ring(1, 1 << 20);
        ring.push(frame(1, 10));
        assert!(ring.entry_at(STEP).is_none());
        ring.push(frame(10, 10));
        assert_eq!(ring.entry_at(STEP), Some(0));
        ring.clear();
        assert!(ring.entry_at(STEP).is_none());
    }

    #[test]
    fn a_source_that_is_opened_again_and_a_clock_that_is_set_back_begin_another_stream() {
        let ring = ring(60, 1 << 20);
        ring.push(frame(100, 10));
        ring.begin_stream();
        ring.push(frame(101, 10));
        let mut out = Vec::new();
        ring.read(0, 9, &mut out);
        assert_eq!(out.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [0, 1]);
        // A frame that is shown later than it is decoded is no step back.
        ring.push(frame(99, 10));
        assert_eq!(bytes(&ring, 0), (0, vec![100, 101, 99]));
        ring.push(frame(10, 10));
        assert_eq!(bytes(&ring, 0), (3, vec![10]));
        out.clear();
        ring.read(0, 9, &mut out);
        assert_eq!(out[0].0, 2);
    }

    #[test]
    fn jpegs_are_all_entries_and_have_the_time_of_their_capture() {
        let frame = CodedFrame::jpeg(Arc::new(vec![1]), Duration::from_millis(1500));
        assert_eq!((frame.presentation, frame.rate_hz, frame.role), (135_000, 90_000, FrameRole::Entry));
    }
}
