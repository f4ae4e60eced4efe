#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::io::Read;
use std::num::NonZeroU32;

use retina::rtp::ReceivedPacketBuilder;
use visiond_flow::clock::simulated::SimulatedClock;

use super::*;

#[test]
fn a_wake_makes_few_reads_whatever_it_read_before() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut reads = [0; 6];
    runtime.block_on(async {
        let meter = ReadMeter::default();
        for (n, reads) in reads.iter_mut().enumerate() {
            // Each third wait is woken once before it is over.
            let mut has_waited = n % 3 != 2;
            let read_all = poll_fn(|context| {
                *reads = 0;
                while has_budget_remaining() {
                    let _ = pin!(consume_budget()).poll(context);
                    *reads += 1;
                }
                if !std::mem::replace(&mut has_waited, true) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            });
            // As in a session: `select!` waits by itself where no budget is left.
            tokio::select! {
                biased;
                _ = few_reads(&meter, read_all) => {}
                () = std::future::pending() => {}
            }
        }
    });
    assert!(reads.iter().all(|&reads| reads <= 128 - SPENT_BUDGET), "{reads:?}");
}

#[test]
fn what_a_session_reads_is_counted_on_any_thread_and_nothing_else_is() {
    const STEP: u64 = 1 << 20;
    let read = || File::open("/dev/zero").unwrap().take(STEP).read_to_end(&mut Vec::new()).unwrap();
    let meter = ReadMeter::default();
    if meter.count().is_none() {
        // This kernel keeps no accounts.
        return;
    }
    meter.begin();
    let steps = || meter.count().unwrap() / STEP;
    assert_eq!(steps(), 0);
    read();
    meter.pause();
    read();
    assert_eq!(steps(), 1);
    meter.pause();
    thread::scope(|scope| {
        scope.spawn(|| {
            read();
            assert_eq!(steps(), 1);
            read();
            meter.pause();
        });
    });
    read();
    assert_eq!(steps(), 2);
    read();
    assert_eq!(steps(), 3);
    meter.begin();
    assert_eq!(steps(), 0);
}

#[test]
fn packets_of_a_wake_are_taken_together_and_those_before_an_end_too() {
    const RATE_HZ: u32 = 90_000;
    let inter = |rtp: u16| {
        let packet = ReceivedPacketBuilder {
            ctx: retina::PacketContext::dummy(),
            stream_id: 0,
            sequence_number: rtp,
            timestamp: retina::Timestamp::new(rtp.into(), NonZeroU32::new(RATE_HZ).unwrap(), 0).unwrap(),
            payload_type: 96,
            ssrc: 0,
            mark: true,
            loss: 0,
        };
        Some(PacketItem::Rtp(packet.build([0x41, 0x9A, 8]).unwrap()))
    };
    // `None`: nothing is there, and the next look is a wake.
    let mut left = VecDeque::from([inter(1), inter(2), None, inter(3)]);
    let packets = futures_util::stream::poll_fn(|context| match left.pop_front() {
        Some(Some(packet)) => Poll::Ready(Some(Ok(packet))),
        Some(None) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        None => Poll::Ready(None),
    });
    let mut packets = pin!(packets);
    let clock = SimulatedClock::default();
    let stream = ChosenStream { index: 0, codec: Codec::H264, rate_hz: RATE_HZ, sets: Vec::new() };
    let mut captured = Vec::new();
    let mut reception = Reception {
        assembler: StreamAssembler::new(&stream),
        camera_clock: CameraClock::new(RATE_HZ),
        arrival: clock::now(&clock),
        units: 0,
        damaged: None,
        receive: |received| {
            if let Received::Unit { unit, .. } = received {
                captured.push((unit.presentation, unit.captured.monotonic_ns));
            }
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        gather(packets.as_mut(), &mut reception, &clock).await.unwrap();
        assert_eq!(mem::take(&mut reception.units), 2);
        clock.advance(Duration::from_secs(1));
        let ended = gather(packets.as_mut(), &mut reception, &clock).await;
        assert!(matches!(ended, Err(Failure::Closed)), "{ended:?}");
        assert_eq!(reception.units, 1);
    });
    assert_eq!(captured, [(1, 0), (2, 0), (3, 1_000_000_000)]);
}
