//! The ledger with crashes at any moment, and damaged files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;
use serde_json::Value;
use visiond_message::EventTotals;
use visiond_system::testing::{hang, wait_until};

use super::*;

const NOW: &str = "2026-05-04T09:30:00.000000000Z";

/// What sinks got.
type Sent = Arc<Mutex<Vec<Published>>>;

fn ledger(folder: &Path) -> (EventLedger, Sent) {
    let sent = Sent::default();
    let sink = Arc::clone(&sent);
    let ledger = EventLedger::new(move |published| sink.lock().push(published));
    ledger.open(folder, NOW);
    (ledger, sent)
}

fn event(number: u64, phase: EventPhase, event: &str) -> EventMessage {
    EventMessage {
        id: format!("m{number}").into(),
        event: event.into(),
        camera: "gate".into(),
        topic: event_topic("gate"),
        rule: "dock".into(),
        kind: "zone".into(),
        phase,
        at: format!("t{number}"),
        sequence: number,
        ..EventMessage::default()
    }
}

fn totals(begun: u64, ended: u64) -> RuleTotals {
    RuleTotals { begun, ended, ..RuleTotals::default() }
}

/// Id, event, phase and reason of what sinks got.
fn told(sent: &Sent) -> Vec<String> {
    let sent = sent.lock();
    let words = |published: &Published| {
        let event: Value = serde_json::from_slice(published.line()).unwrap();
        let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let id = if word("reason") == "restart" { "new".to_owned() } else { word("id") };
        format!("{id} {} {} {}", word("event"), word("phase"), word("reason")).trim_end().to_owned()
    };
    sent.iter().map(words).collect()
}

#[test]
fn totals_that_a_command_reset_are_0_after_a_crash_and_of_the_same_day() {
    let folder = tempfile::tempdir().unwrap();
    let (running, _sent) = ledger(folder.path());
    let of_day = |begun, day| RuleTotals { begun, day: Some(day), ..RuleTotals::default() };
    running.publish(event(1, EventPhase::Moment, "a"), Some(of_day(7, 20_000)));
    let other = EventMessage { rule: "yard".into(), ..event(2, EventPhase::Moment, "b") };
    running.publish(other, Some(of_day(5, 20_000)));
    running.flush(hang());
    running.reset_totals("gate", "dock");
    running.reset_totals("gate", "gone");
    running.flush(hang());
    let crashed = crash(folder.path());
    let (next, _sent) = ledger(crashed.path());
    for ledger in [&running, &next] {
        assert_eq!(ledger.totals("gate", "dock", "zone"), of_day(0, 20_000));
        assert_eq!(ledger.totals("gate", "yard", "zone"), of_day(5, 20_000));
    }
    // An event that comes later counts from 0.
    running.publish(event(3, EventPhase::Moment, "c"), Some(of_day(1, 20_000)));
    assert_eq!(running.totals("gate", "dock", "zone"), of_day(1, 20_000));
}

/// Copies the files of a running ledger, as a crash would leave them.
fn crash(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

#[test]
fn the_next_start_sends_what_was_not_confirmed_and_ends_what_was_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, sent) = ledger(folder.path());
    ledger.publish(event(1, EventPhase::Begin, "a"), Some(totals(1, 0)));
    ledger.publish(event(2, EventPhase::Begin, "b"), Some(totals(2, 0)));
    let with_image = EventMessage { image: Some("a.jpg".into()), ..event(3, EventPhase::Update, "a") };
    ledger.publish(with_image, Some(totals(2, 0)));
    ledger.flush(hang());
    assert_eq!(told(&sent), ["m1 a begin", "m2 b begin", "m3 a update"]);
    sent.lock().remove(0);
    wait_until("the confirmation", || ledger.shared.state.lock().confirmed.is_empty());
    ledger.publish(event(4, EventPhase::End, "b"), Some(totals(2, 1)));
    ledger.flush(hang());

    let left = crash(folder.path());
    let (next, sent) = self::ledger(left.path());
    next.flush(hang());
    assert_eq!(told(&sent), ["m2 b begin", "m3 a update", "m4 b end", "new a end restart"]);
    let end: Value = serde_json::from_slice(sent.lock().last().unwrap().line()).unwrap();
    assert_eq!((&end["at"], &end["since"], &end["sequence"]), (&NOW.into(), &"t3".into(), &3.into()));
    assert_eq!((&end["camera"], &end["rule"], &end["totals"]["begun"]), (&"gate".into(), &"dock".into(), &2.into()));
    assert_eq!(end["image"], "a.jpg");
    assert_eq!(&**sent.lock()[0].topic(), "gate!events");
    assert_eq!(next.totals("gate", "dock", "zone"), totals(2, 2));
    sent.lock().clear();
    next.close(hang());

    let (last, sent) = self::ledger(left.path());
    last.flush(hang());
    assert!(told(&sent).is_empty(), "all of it is over and confirmed");
    assert_eq!(last.totals("gate", "dock", "zone"), totals(2, 2));
}

#[test]
fn totals_end_with_their_rule_or_when_they_are_reset() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, _) = ledger(folder.path());
    ledger.publish(event(1, EventPhase::Moment, "a"), Some(totals(5, 5)));
    ledger.publish(event(2, EventPhase::Moment, "b"), Some(totals(3, 3)));
    assert_eq!(ledger.totals("gate", "dock", "zone"), totals(5, 5), "none goes back");
    ledger.set_totals("gate", "dock", "zone", totals(0, 0));
    ledger.set_totals("gate", "door", "line", totals(7, 0));
    ledger.retain([("gate".to_owned(), "dock".to_owned())].into());
    ledger.publish(event(3, EventPhase::Moment, "c"), Some(totals(1, 1)));
    let late = EventMessage { rule: "door".into(), kind: "line".into(), ..event(4, EventPhase::Moment, "d") };
    ledger.publish(late, Some(totals(8, 0)));
    ledger.close(hang());
    drop(ledger);
    let (next, _) = self::ledger(folder.path());
    assert_eq!(next.totals("gate", "dock", "zone"), totals(1, 1));
    assert_eq!(next.totals("gate", "door", "line"), totals(0, 0));
}

#[test]
fn a_damaged_file_costs_at_most_the_entries_that_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, sent) = ledger(folder.path());
    for number in 0..5 {
        ledger.publish(event(2 * number, EventPhase::Begin, &format!("e{number}")), Some(totals(number + 1, number)));
        ledger.publish(
            event(2 * number + 1, EventPhase::End, &format!("e{number}")),
            Some(totals(number + 1, number + 1)),
        );
        ledger.flush(hang());
        sent.lock().clear();
    }
    ledger.publish(event(10, EventPhase::Begin, "last"), Some(totals(6, 5)));
    ledger.flush(hang());
    let left = crash(folder.path());
    let files = ["events.0", "events.1"].map(|name| fs::read(left.path().join(name)).unwrap_or_default());
    let whole = files.into_iter().max_by_key(Vec::len).unwrap();
    assert!(whole.len() > 1000);
    // A file whose copy is not complete does not count.
    let complete = b" \"complete\"\n";
    let copy = whole.windows(complete.len()).position(|bytes| bytes == complete).unwrap() + complete.len();
    for at in 0..whole.len() {
        for cut in [true, false] {
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 0x10;
            }
            let Some((_, entries)) = file::parse(&bytes) else {
                assert!(at < copy, "{at} {cut}");
                continue;
            };
            let (mut state, mut earlier) = (State::default(), Earlier::default());
            entries.into_iter().for_each(|entry| state.restore(entry, &mut earlier));
            let known = state.totals.values().next().cloned().unwrap_or_default();
            assert!(known.begun <= 6 && known.ended <= 5, "{at} {cut} {known:?}");
            if cut {
                // Totals follow each begin and each end.
                let written = whole[..at].split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
                let written =
                    written.filter(|line| line.windows(11).any(|word| word == b"{\"totals\":{")).count() as u64;
                assert!(known.begun >= written.div_ceil(2), "{at} {known:?}");
            }
            if !cut && at >= copy {
                assert!(known.begun >= 5, "{at} {known:?}");
            }
            assert!(earlier.open.len() <= 2, "{at} {cut}");
        }
    }
}

#[test]
fn the_file_stays_small_and_so_does_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, sent) = ledger(folder.path());
    for number in 0..20_000 {
        ledger.publish(event(number, EventPhase::Moment, "e"), Some(totals(number, number)));
        if number % 500 == 0 {
            ledger.flush(hang());
            sent.lock().clear();
        }
    }
    ledger.flush(hang());
    let bytes = |name: &str| fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
    assert!(bytes("events.0") + bytes("events.1") < 16 << 20);
    sent.lock().clear();
    assert!(ledger.shared.state.lock().unconfirmed.is_empty());
    ledger.close(hang());
    drop(ledger);
    let (next, sent) = self::ledger(folder.path());
    next.flush(hang());
    assert!(told(&sent).is_empty());
    assert_eq!(next.totals("gate", "dock", "zone").begun, 19_999);
}

#[test]
fn sinks_get_events_without_a_usable_folder_and_a_second_process_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let not_a_folder = folder.path().join("file");
    fs::write(&not_a_folder, "").unwrap();
    let (ledger, sent) = ledger(&not_a_folder);
    ledger.publish(event(1, EventPhase::Begin, "a"), Some(totals(1, 0)));
    ledger.flush(hang());
    assert_eq!(told(&sent), ["m1 a begin"]);
    // Once the folder can be used, the ledger has what happened before.
    fs::remove_file(&not_a_folder).unwrap();
    wait_until("the folder", || not_a_folder.join("events.0").exists());
    ledger.close(hang());

    let (first, _) = self::ledger(folder.path());
    let (second, sent) = self::ledger(folder.path());
    second.publish(event(2, EventPhase::Moment, "b"), None);
    second.flush(hang());
    assert_eq!(told(&sent), ["m2 b moment"]);
    first.close(hang());
    second.close(hang());
}

/// The totals of each event that sinks got.
fn begun(sent: &Sent) -> Vec<u64> {
    let begun = |published: &Published| {
        let event: Value = serde_json::from_slice(published.line()).unwrap();
        event["totals"]["begun"].as_u64().unwrap()
    };
    sent.lock().iter().map(begun).collect()
}

fn counted(number: u64, begun: u64) -> (EventMessage, Option<RuleTotals>) {
    let totals = EventTotals { begun, inside: None };
    let event = EventMessage { totals: Some(totals), ..event(number, EventPhase::Moment, &format!("e{number}")) };
    (event, Some(RuleTotals { begun, ..RuleTotals::default() }))
}

#[test]
fn a_ledger_that_opens_late_counts_on_from_the_totals_of_earlier_processes() {
    let folder = tempfile::tempdir().unwrap();
    let (first, sent) = ledger(folder.path());
    for number in 1..=5 {
        let (event, totals) = counted(number, number);
        first.publish(event, totals);
    }
    let other = EventMessage { rule: "yard".into(), ..event(6, EventPhase::Moment, "y") };
    first.publish(other, Some(RuleTotals { begun: 3, day: Some(20_000), ..RuleTotals::default() }));
    let gone = EventMessage { rule: "gone".into(), ..event(7, EventPhase::Moment, "g") };
    first.publish(gone, Some(totals(4, 0)));
    first.flush(hang());
    sent.lock().clear();
    // Another process has the folder for a while.
    let (second, sent) = ledger(folder.path());
    second.retain([("gate".to_owned(), "dock".to_owned()), ("gate".to_owned(), "yard".to_owned())].into());
    let before = second.revision();
    for number in 1..=2 {
        let (event, totals) = counted(10 + number, number);
        second.publish(event, totals);
    }
    // Its day began since.
    let of_today = RuleTotals { begun: 1, day: Some(20_001), ..RuleTotals::default() };
    second.set_totals("gate", "yard", "zone", of_today.clone());
    second.flush(hang());
    assert_eq!(begun(&sent), [1, 2]);
    first.close(hang());
    drop(first);
    wait_until("the folder", || second.revision() != before);
    // A camera that does not know of it yet, and one that does.
    let (event, totals) = counted(13, 3);
    second.publish(event, totals);
    assert_eq!(second.totals("gate", "dock", "zone").begun, 8);
    let (event, totals) = counted(14, 9);
    second.publish(event, totals);
    second.flush(hang());
    assert_eq!(begun(&sent), [1, 2, 8, 9]);
    assert_eq!(second.totals("gate", "yard", "zone"), of_today);
    assert_eq!(second.totals("gate", "gone", "zone"), RuleTotals::default());
    second.close(hang());
    drop(second);
    let (third, _) = ledger(folder.path());
    assert_eq!(third.totals("gate", "dock", "zone").begun, 9);
    assert_eq!(third.totals("gate", "yard", "zone"), of_today);
}

#[test]
fn damaged_files_are_set_aside_and_totals_begin_at_0() {
    let folder = tempfile::tempdir().unwrap();
    let (first, _) = ledger(folder.path());
    first.publish(event(1, EventPhase::Moment, "a"), Some(totals(5, 5)));
    first.close(hang());
    drop(first);
    for name in ["events.0", "events.1"] {
        fs::write(folder.path().join(name), "no entry").unwrap();
    }
    assert!(EventLedger::is_in(folder.path()));
    let (second, _) = ledger(folder.path());
    assert_eq!(second.totals("gate", "dock", "zone"), totals(0, 0));
    for name in ["events.0.unreadable", "events.1.unreadable"] {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "no entry");
    }
    second.publish(event(2, EventPhase::Moment, "b"), Some(totals(1, 1)));
    second.close(hang());
    drop(second);
    // A copy that a crash cut off costs nothing while the other file is whole.
    let (whole, other) =
        if folder.path().join("events.0").exists() { ("events.0", "events.1") } else { ("events.1", "events.0") };
    assert!(folder.path().join(whole).exists());
    fs::write(folder.path().join(other), "").unwrap();
    let (third, _) = ledger(folder.path());
    assert_eq!(third.totals("gate", "dock", "zone"), totals(1, 1));
    assert!(!folder.path().join(format!("{other}.unreadable.1")).exists());
}

#[test]
fn events_keep_their_order_when_the_disk_comes_back_while_they_are_passed_on() {
    let sent = Sent::default();
    let ledger = Arc::new(std::sync::OnceLock::<EventLedger>::new());
    let (sink, back) = (Arc::clone(&sent), Arc::clone(&ledger));
    let is_first = std::sync::atomic::AtomicBool::new(true);
    let made = EventLedger::new(move |published| {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        sink.lock().push(published);
        if let Some(ledger) = back.get().filter(|_| is_first) {
            // As the thread that writes.
            ledger.publish(event(3, EventPhase::End, "a"), None);
            let state = ledger.shared.state.lock();
            let all = state.waiting.len();
            ledger.shared.send_waiting(state, all);
        }
    });
    let ledger = ledger.get_or_init(|| made);
    ledger.shared.state.lock().writes = true;
    ledger.publish(event(1, EventPhase::Begin, "a"), None);
    ledger.publish(event(2, EventPhase::Update, "a"), None);
    ledger.flush(Instant::now());
    assert_eq!(told(&sent), ["m1 a begin", "m2 a update", "m3 a end"]);
}

#[test]
fn events_do_not_wait_for_a_disk_that_hangs_and_keep_their_order() {
    let sent = Sent::default();
    let sink = Arc::clone(&sent);
    let ledger = EventLedger::new(move |published| sink.lock().push(published));
    // As with a thread that is in a system call.
    ledger.shared.state.lock().writes = true;
    ledger.publish(event(1, EventPhase::Begin, "a"), None);
    ledger.publish(event(2, EventPhase::End, "a"), None);
    assert!(told(&sent).is_empty());
    ledger.shared.state.lock().since = Instant::now().checked_sub(PATIENCE + Duration::from_millis(1));
    ledger.publish(event(3, EventPhase::Moment, "b"), None);
    assert_eq!(told(&sent), ["m1 a begin", "m2 a end", "m3 b moment"]);
    ledger.publish(event(4, EventPhase::Moment, "c"), None);
    assert_eq!(told(&sent).len(), 3);
    ledger.flush(Instant::now());
    assert_eq!(told(&sent).last().unwrap(), "m4 c moment", "at the end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is lost in memory at a crash: every begin that a sink got has its end after the next start, ends once, and no total that a
    /// sink got goes back.
    #[test]
    fn after_crashes_every_begin_has_its_end_and_no_total_goes_back(
        runs in proptest::collection::vec(
            proptest::collection::vec((0..4_u8, 0..6_usize, any::<bool>()), 0..25), 1..5),
    ) {
        let mut folder = tempfile::tempdir().unwrap();
        // Event and phase of each message that a sink has for good, by id, in order.
        let (mut got, mut ids, mut number, mut highest) = (Vec::<(String, String)>::new(), BTreeSet::new(), 0, 0);
        for actions in runs {
            let (ledger, sent) = ledger(folder.path());
            ledger.flush(hang());
            let mut open: Vec<String> = Vec::new();
            let mut counted = ledger.totals("gate", "dock", "zone");
            prop_assert!(counted.begun >= highest);
            let mut take = |sent: &Sent, all: bool| {
                let mut sent = sent.lock();
                let count = if all { sent.len() } else { sent.len().min(1) };
                for published in sent.drain(..count) {
                    let event: Value = serde_json::from_slice(published.line()).unwrap();
                    let word = |key: &str| event[key].as_str().unwrap().to_owned();
                    highest = highest.max(event["totals"]["begun"].as_u64().unwrap());
                    if ids.insert(word("id")) {
                        got.push((word("event"), word("phase")));
                    }
                }
            };
            for (action, pick, flush) in actions {
                number += 1;
                match action {
                    0 | 1 => {
                        counted.begun += 1;
                        let name = format!("e{number}");
                        let total = Some(EventTotals { begun: counted.begun, inside: None });
                        ledger.publish(EventMessage { totals: total, ..event(number, EventPhase::Begin, &name) }, Some(counted.clone()));
                        open.push(name);
                    }
                    2 if !open.is_empty() => {
                        counted.ended += 1;
                        let name = open.swap_remove(pick % open.len());
                        let total = Some(EventTotals { begun: counted.begun, inside: None });
                        ledger.publish(EventMessage { totals: total, ..event(number, EventPhase::End, &name) }, Some(counted.clone()));
                    }
                    _ => take(&sent, false),
                }
                if flush {
                    ledger.flush(hang());
                }
            }
            // What the files have now; then a sink gets some more, which the files may not know.
            let left = crash(folder.path());
            drop(sent);
            ledger.close(hang());
            folder = left;
        }
        let (ledger, sent) = ledger(folder.path());
        ledger.flush(hang());
        let mut all = got.clone();
        for published in sent.lock().iter() {
            let event: Value = serde_json::from_slice(published.line()).unwrap();
            let word = |key: &str| event[key].as_str().unwrap().to_owned();
            if ids.insert(word("id")) {
                all.push((word("event"), word("phase")));
            }
        }
        for (event, phase) in &got {
            let ends = all.iter().filter(|(other, phase)| other == event && phase == "end").count();
            prop_assert!(ends == 1, "{event} {phase}: {ends} ends");
        }
    }
}
