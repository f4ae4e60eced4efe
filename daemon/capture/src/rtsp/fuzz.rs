//! Packets of a hostile camera, for `tests/fuzz`.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use visiond_config::types::DamagedFrames;
use visiond_frames::clock::simulated::SimulatedClock;
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::LossCause;

use super::access_unit::{AccessUnit, Assembler, Codec, MAX_UNIT_BYTES};
use super::frame_times::{CameraClock, PendingTimes};
use super::jpeg_payload::JpegAssembler;
use super::running_session;
use super::unit_queue::{Taken, UnitQueue};

/// The bits of a packet's flags.
const MARKER: u8 = 1;
const NEW_TIME: u8 = 2;
const LOST: u8 = 4;
const REPORT: u8 = 8;
/// The decoder takes a unit and returns a frame.
const TAKE: u8 = 16;

/// Seconds from 1900, where NTP begins, to 1970.
const EPOCH_S: u64 = 2_208_988_800;

/// Returns the next unit with any parameters; its generation is at most `newest`.
fn next(queue: &UnitQueue, front: &mut u64, newest: u64) -> Taken {
    loop {
        match queue.take(*front, None, || false, None) {
            Taken::OtherParameters if *front < newest => *front += 1,
            taken => return taken,
        }
    }
}

/// The assembler of either kind of stream.
enum AnyAssembler {
    Nal(Assembler),
    Jpeg(JpegAssembler),
}

/// Passes ordered packets through all steps before the decoder. The first byte chooses the codec; each packet is a byte of
/// flags, its length in two bytes, and its payload.
pub fn rtp(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let codec = match first & 3 {
        0 | 2 => Codec::H264,
        1 => Codec::H265,
        _ => Codec::Jpeg,
    };
    let mut assembler = match codec {
        Codec::Jpeg => AnyAssembler::Jpeg(JpegAssembler::default()),
        _ => AnyAssembler::Nal(Assembler::new(codec, &[])),
    };
    let clock = Arc::new(SimulatedClock::default());
    let damaged = if first & 8 == 0 { DamagedFrames::Drop } else { DamagedFrames::Mark };
    let queue = UnitQueue::new(Arc::<SimulatedClock>::clone(&clock) as Arc<dyn Clock>, damaged);
    let mut camera_clock = CameraClock::new(90_000);
    let mut pending = PendingTimes::new(usize::from(first >> 4));
    let (mut time, mut generation, mut front, mut given, mut taken) = (0_i64, 0, 0, 0_u64, 0_u64);
    while let Some((&[flags, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        rest = behind;
        // One frame interval forward, or up to 25 minutes back.
        let step = i64::from(low) << (flags >> 5) << 12;
        if flags & NEW_TIME != 0 {
            time = time.wrapping_add(if high & 1 == 0 { 3_000 } else { -step });
        }
        // Up to a second and a half, so that some units grow old in the queue.
        clock.advance(Duration::from_millis(u64::from(high) * 6));
        if flags & REPORT != 0 {
            // Up to 1.3 s ago by a correct clock, or by one with any error.
            let now_s = (clock.realtime_ns() / 1_000_000_000 + EPOCH_S) << 32;
            let wrong = if high & 2 == 0 { 0 } else { u64::from_be_bytes([low, flags, 0, 0, 0, 0, 0, 0]) };
            camera_clock
                .report(time, now_s.wrapping_sub(u64::from(low) * (u64::from(u32::MAX) / 200)).wrapping_add(wrong));
        }
        let captured = camera_clock.captured(time, clock::now(clock.as_ref()));
        let lost = u16::from(flags & LOST != 0);
        let give = |unit: AccessUnit| {
            assert!(unit.data.len() <= MAX_UNIT_BYTES + (128 << 10), "{} bytes", unit.data.len());
            let start: &[u8] = if codec == Codec::Jpeg { &[0xFF, 0xD8, 0xFF, 0xE0] } else { &[0, 0, 0, 1] };
            assert!(unit.data.starts_with(start), "{:?}", unit.data.get(..4));
            assert!(unit.generation >= generation && unit.codec == codec);
            generation = unit.generation;
            given += 1;
            queue.push(unit);
        };
        let (time, marker) = ((time, captured), flags & MARKER != 0);
        queue.count_corrupt(match &mut assembler {
            AnyAssembler::Nal(assembler) => {
                assembler.push(payload, time, marker, lost, give);
                assembler.take_damaged()
            }
            AnyAssembler::Jpeg(assembler) => {
                let profile = if low & 1 == 0 { 0xFFD8 } else { 0xFFFF };
                let extension = (high & 4 != 0).then_some((profile, behind));
                assembler.push(payload, time, marker, lost, extension, give);
                assembler.take_damaged()
            }
        });
        if flags & TAKE != 0 {
            // It does not wait for units that never come.
            queue.end(running_session::session_ended());
            while let Taken::Unit(unit) = next(&queue, &mut front, generation + given) {
                taken += 1;
                pending.add(unit.presentation, Some(unit.captured));
                let frame = pending.next().flatten();
                assert!(frame.is_some_and(|frame| frame.monotonic_ns <= clock.monotonic_ns()), "{frame:?}");
            }
        }
    }
    let losses = iter::from_fn(|| queue.take_loss());
    let overload: u64 = losses.filter(|(_, cause)| *cause == LossCause::Overload).map(|(units, _)| units).sum();
    assert!(taken + overload <= given, "{taken} taken and {overload} dropped of {given}");
}
