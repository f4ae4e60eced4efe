#![allow(clippy::unwrap_used)]

use std::io::Read;

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
