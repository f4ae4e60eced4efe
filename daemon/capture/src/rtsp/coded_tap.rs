//! Puts a session's access units into a ring, from which clips are made.

use std::sync::Arc;
use std::time::Duration;

use visiond_frames::coded_ring::{CodedFrame, CodedRing, Coding, FrameRole};

use super::access_unit::{Access, AccessUnit, Codec};
use super::continuity::{Continuity, Verdict};

/// The ring of a camera's clips, and what it has of the stream.
pub struct CodedTap {
    ring: Arc<CodedRing>,
    /// RTP time units per second.
    rate_hz: u32,
    /// What a decoder of the ring's units has. It is not that of the camera's decoder, which may be slow.
    continuity: Continuity,
}

impl CodedTap {
    pub fn new(ring: Arc<CodedRing>) -> Self {
        Self { ring, rate_hz: CodedFrame::RATE_HZ, continuity: Continuity::default() }
    }

    /// Notes that the units of another session follow, with this many RTP time units per second.
    pub fn begin(&mut self, rate_hz: u32) {
        self.rate_hz = rate_hz;
        self.continuity = Continuity::default();
        self.ring.begin_stream();
    }

    /// Adds a unit, unless it refers to a lost one. The ring shares its bytes.
    pub fn put(&mut self, unit: &AccessUnit) {
        let (verdict, begins) = self.continuity.next(unit);
        match verdict {
            Verdict::Whole | Verdict::Recovering => {}
            Verdict::Damaged | Verdict::Undecodable => return,
        }
        let role = match unit.access {
            Access::Key | Access::Recovery(_) => FrameRole::Entry,
            _ if begins => FrameRole::Entry,
            Access::Leading => FrameRole::Leading,
            Access::Inter | Access::LeadingAlone => FrameRole::Inter,
        };
        self.ring.push(CodedFrame {
            coding: match unit.codec {
                Codec::H264 => Coding::H264,
                Codec::H265 => Coding::H265,
                Codec::Jpeg => Coding::Jpeg,
            },
            data: Arc::clone(&unit.data),
            role,
            presentation: unit.presentation,
            rate_hz: self.rate_hz,
            time: Duration::from_nanos(unit.captured.monotonic_ns),
        });
    }
}

#[cfg(test)]
mod tests {
    use visiond_frames::clock::{self, simulated::SimulatedClock};
    use visiond_frames::coded_ring::RingLimits;

    use super::super::access_unit::Fate;
    use super::*;

    #[test]
    fn a_ring_gets_what_a_decoder_can_use_and_begins_again_after_a_loss() {
        let limits = RingLimits { span: Duration::from_secs(60), max_bytes: 1 << 20 };
        let ring = Arc::new(CodedRing::new(limits));
        let mut tap = CodedTap::new(Arc::clone(&ring));
        tap.begin(90_000);
        let units = [
            (Access::Inter, false),
            (Access::Key, false),
            // Of a stream that begins here.
            (Access::Leading, false),
            (Access::Inter, false),
            (Access::Inter, true),
            (Access::Inter, false),
            (Access::Key, false),
            (Access::Inter, false),
            (Access::Key, false),
            (Access::Leading, false),
        ];
        let captured = clock::now(&SimulatedClock::default());
        for (number, (access, follows_loss)) in units.into_iter().enumerate() {
            tap.put(&AccessUnit {
                codec: Codec::H265,
                data: Arc::new(vec![number as u8]),
                access,
                follows_loss,
                position: None,
                fate: Fate::Published,
                presentation: 3600 * number as i64,
                captured,
                generation: 1,
            });
        }
        let mut frames = Vec::new();
        ring.read(0, usize::MAX, &mut frames);
        let frames: Vec<_> = frames.iter().map(|(_, frame)| (frame.data[0], frame.role)).collect();
        let (entry, inter) = (FrameRole::Entry, FrameRole::Inter);
        let expected = [(1, entry), (3, inter), (6, entry), (7, inter), (8, entry), (9, FrameRole::Leading)];
        assert_eq!(frames, expected);
    }
}
