//! Packets of a hostile camera, for `tests/fuzz`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use visiond_flow::clock::simulated::SimulatedClock;
use visiond_flow::clock::{self, Clock};

use super::super::source::SourceError;
use super::access_unit::{Assembler, Codec, MAX_UNIT_BYTES};
use super::frame_times::{CameraClock, PendingTimes};
use super::unit_queue::{Taken, UnitQueue};

/// The bits of a packet's flags.
const MARKER: u8 = 1;
const NEW_TIME: u8 = 2;
const LOST: u8 = 4;
const REPORT: u8 = 8;
/// The decoder takes a unit and returns a frame.
const TAKE: u8 = 16;

/// Takes packets through everything between retina and the decoder.
pub fn packets(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let codec = if first & 1 == 0 { Codec::H264 } else { Codec::H265 };
    let mut assembler = Assembler::new(codec, &[]);
    let clock = Arc::new(SimulatedClock::default());
    let queue = UnitQueue::new(Arc::<SimulatedClock>::clone(&clock) as Arc<dyn Clock>);
    let mut camera_clock = CameraClock::new(90_000);
    let mut pending = PendingTimes::new(usize::from(first >> 4));
    let (mut rtp, mut generation, mut given, mut taken) = (0_i64, 0, 0_u64, 0_u64);
    while let Some((&[flags, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        rest = behind;
        // Up to 17 minutes, and back.
        let step = i64::from(low) << (flags >> 5) << 12;
        if flags & NEW_TIME != 0 {
            rtp = rtp.wrapping_add(if high & 1 == 0 { 3_000 } else { -step });
        }
        if flags & REPORT != 0 {
            camera_clock.report(rtp, u64::from_be_bytes([flags, high, low, flags, low, high, 0, 0]));
        }
        let captured = camera_clock.captured(rtp, clock::now(clock.as_ref()));
        let lost = u16::from(flags & LOST != 0);
        assembler.push(payload, (rtp, captured), flags & MARKER != 0, lost, |unit| {
            assert!(unit.data.len() <= MAX_UNIT_BYTES + (128 << 10), "{} bytes", unit.data.len());
            assert!(unit.data.starts_with(&[0, 0, 0, 1]), "{:?}", unit.data.get(..4));
            assert!(unit.generation >= generation && unit.codec == codec);
            generation = unit.generation;
            given += 1;
            queue.push(unit);
        });
        queue.count_corrupt(assembler.take_damaged());
        if flags & TAKE != 0 {
            queue.end(SourceError::transient("the end"));
            if let Taken::Unit(unit) = queue.take(generation, &AtomicBool::new(false)) {
                taken += 1;
                pending.add(unit.presentation, Some(unit.captured));
                let _ = pending.next();
            }
        }
    }
    assert!(taken <= given, "{taken} of {given}");
}
