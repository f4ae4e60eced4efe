//! The spool with disk faults, power cuts and full disks.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use visiond_system::testing::{finishes, make_fifo};

use super::*;

const ROOM: u64 = 1 << 30;

fn message(number: u64, length: usize) -> QueuedMessage {
    // Begins like a record and is none: a reader must skip it.
    let mut line = format!("{number} \u{f5}vsr ").into_bytes();
    line.extend_from_slice(b"\xf5vsr");
    line.resize(line.len() + length, b'x');
    QueuedMessage { number, id: format!("id-{number}").into(), camera: "door".into(), line: line.into() }
}

/// Appends the record of a message to `out`; returns `false` if it is too long for one.
fn encode(message: &QueuedMessage, out: &mut Vec<u8>) -> bool {
    let mut records = Records::default();
    let fits = records.push(message);
    out.extend(records.to_vec());
    fits
}

fn open(directory: &Path) -> Spool {
    Spool::open(directory, ROOM).unwrap()
}

fn append(spool: &mut Spool, numbers: std::ops::Range<u64>) {
    let messages: Vec<_> = numbers.map(|number| message(number, 5)).collect();
    spool.append(messages.iter()).unwrap();
}

/// Reads everything, and checks that each message is as it was written.
fn read_all(spool: &mut Spool) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !spool.is_read() {
        if let Ok(Some(found)) = spool.read() {
            let length = found.line.len() - message(found.number, 0).line.len();
            assert_eq!(found, message(found.number, length));
            numbers.push(found.number);
        }
    }
    numbers
}

/// A spool of three segments with numbers 1 to 12, of which 1 to 5 are acknowledged: 1 to 4 are gone, 5 is still on disk.
fn example(directory: &Path) -> Vec<PathBuf> {
    for first in [1, 5, 9] {
        let mut spool = open(directory);
        append(&mut spool, first..first + 4);
        for number in [first / 3, 5.min(first + 1)] {
            spool.acknowledge(number);
            spool.write_cursor().unwrap();
        }
    }
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.ends_with("lock"));
    files.sort();
    assert_eq!(files.len(), 3, "{files:?}");
    files
}

#[test]
fn what_is_not_acknowledged_is_there_after_a_restart_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    append(&mut spool, 1..4);
    append(&mut spool, 4..10);
    assert_eq!(spool.read().unwrap(), Some(message(1, 5)));
    // As if killed: nothing is closed in order.
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!((spool.next_number(), spool.records(), spool.unread()), (10, 9, 9));
    append(&mut spool, 10..12);
    assert_eq!(read_all(&mut spool), (1..12).collect::<Vec<_>>());
    spool.acknowledge(9);
    spool.write_cursor().unwrap();
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!(read_all(&mut spool), [10, 11]);
    spool.acknowledge(11);
    spool.write_cursor().unwrap();
    drop(spool);
    let mut spool = open(folder.path());
    assert_eq!((read_all(&mut spool), spool.bytes(), spool.next_number()), (vec![], 0, 12));
}

#[test]
fn every_byte_cut_leaves_a_spool_that_opens_and_has_what_stands_before() {
    let whole = tempfile::tempdir().unwrap();
    let files = example(whole.path());
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let is_cursor = path.ends_with("cursor");
        for length in 0..bytes.len() {
            fs::write(path, &bytes[..length]).unwrap();
            let mut spool = open(whole.path());
            let numbers = read_all(&mut spool);
            assert!(numbers.is_sorted() && numbers.last().is_none_or(|last| *last < spool.next_number()));
            let found: BTreeSet<_> = numbers.into_iter().collect();
            if is_cursor {
                assert!((6..=12).all(|number| found.contains(&number)), "cursor cut at {length}: {found:?}");
            } else {
                let name = path.file_stem().unwrap().to_str().unwrap();
                let first = u64::from_str_radix(name, 16).unwrap();
                let others = (6..=12).filter(|number| !(first..first + 4).contains(number));
                // Each record is whole once its last byte is written.
                let mut end = 16;
                let before = (first..first + 4).take_while(|number| {
                    let mut record = Vec::new();
                    encode(&message(*number, 5), &mut record);
                    end += record.len();
                    end <= length
                });
                let due: BTreeSet<_> = others.chain(before.filter(|number| *number > 5)).collect();
                assert_eq!(found, due, "{name} cut at {length}");
            }
            // And goes on.
            let next = spool.next_number();
            assert!(next >= 9);
            append(&mut spool, next..next + 1);
            assert_eq!(read_all(&mut spool), [next]);
            drop(spool);
            restore(whole.path(), &files, path, &bytes);
        }
    }
}

#[test]
fn every_byte_flipped_costs_one_message_at_most() {
    let whole = tempfile::tempdir().unwrap();
    let files = example(whole.path());
    for path in &files {
        let bytes = fs::read(path).unwrap();
        let is_cursor = path.ends_with("cursor");
        // Between its two copies the cursor's file is empty.
        let of_interest = |at: &usize| !is_cursor || *at < 40 || *at > 4090;
        for at in (0..bytes.len()).filter(of_interest) {
            for flip in [0x01, 0x80, 0xff] {
                let mut flipped = bytes.clone();
                flipped[at] ^= flip;
                fs::write(path, flipped).unwrap();
                let mut spool = open(whole.path());
                let numbers = read_all(&mut spool);
                assert!(numbers.is_sorted());
                let found: BTreeSet<_> = numbers.iter().copied().collect();
                assert_eq!(found.len(), numbers.len());
                let missing = (6..=12).filter(|number| !found.contains(number)).count();
                let allowed = usize::from(!is_cursor && at >= 16);
                assert!(missing <= allowed, "{} byte {at}: {numbers:?}", path.display());
                let next = spool.next_number();
                append(&mut spool, next..next + 1);
                assert_eq!(read_all(&mut spool), [next]);
                drop(spool);
                restore(whole.path(), &files, path, &bytes);
            }
        }
    }
}

/// Restores the folder.
fn restore(directory: &Path, files: &[PathBuf], changed: &Path, bytes: &[u8]) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if !files.contains(&path) && !path.ends_with("lock") {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(changed, bytes).unwrap();
    assert!(files.iter().all(|path| path.exists()), "a file that was not changed is gone");
}

#[test]
fn a_full_spool_gives_up_its_oldest_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 64 << 10;
    let mut spool = Spool::open(folder.path(), limit).unwrap();
    for number in 1..=1000 {
        spool.append([message(number, 500)].iter()).unwrap();
        assert!(spool.bytes() <= limit);
    }
    let on_disk = || fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum::<u64>();
    assert!(on_disk() <= limit && on_disk() > limit * 9 / 10, "{}", on_disk());
    let dropped = spool.dropped;
    assert_eq!(spool.unread() + dropped, 1000);
    assert_eq!(spool.records(), spool.unread());
    assert_eq!(read_all(&mut spool), (dropped + 1..=1000).collect::<Vec<_>>());
    // A message that was read before does not count as dropped.
    spool.append([message(1001, 500)].iter()).unwrap();
    (1002..1200).for_each(|number| spool.append([message(number, 500)].iter()).unwrap());
    assert!(spool.dropped - dropped < 200);
    let mut smaller = spool;
    smaller.limit_bytes = 8 << 10;
    smaller.append([message(1200, 500)].iter()).unwrap();
    assert!(smaller.bytes() <= 8 << 10);
}

/// Found by fuzzing: what counts on from such a number overflows.
#[test]
fn a_number_that_no_message_can_have_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    for number in [u64::MAX, record::LARGEST_NUMBER + 1] {
        let mut records = b"visiond spool 1\n".to_vec();
        encode(&message(1, 5), &mut records);
        encode(&message(number, 5), &mut records);
        let mut cursor = [b"vsr ack\n".as_slice(), &number.to_le_bytes()].concat();
        cursor.extend_from_slice(&crc32fast::hash(&cursor).to_le_bytes());
        fs::write(folder.path().join(format!("{:016x}.spool", 1)), records).unwrap();
        fs::write(folder.path().join(format!("{number:016x}.spool")), b"visiond spool 1\n").unwrap();
        fs::write(folder.path().join("cursor"), cursor).unwrap();
        let mut spool = open(folder.path());
        assert_eq!((spool.next_number(), read_all(&mut spool)), (2, vec![1]), "{number}");
    }
}

/// Found by fuzzing. A copy of another spool's segment may have such a record.
#[test]
fn a_record_that_belongs_behind_later_segments_hides_none_of_theirs() {
    let folder = tempfile::tempdir().unwrap();
    for numbers in [[1, 7], [5, 6]] {
        let mut records = b"visiond spool 1\n".to_vec();
        for number in numbers {
            encode(&message(number, 5), &mut records);
        }
        fs::write(folder.path().join(format!("{:016x}.spool", numbers[0])), records).unwrap();
    }
    let mut spool = open(folder.path());
    assert_eq!(read_all(&mut spool), [1, 5, 6]);
    append(&mut spool, 7..8);
    assert_eq!(read_all(&mut spool), [7]);
}

#[test]
fn messages_are_counted_and_not_the_gaps_between_their_numbers() {
    const FAR: u64 = 1 << 32;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    append(&mut spool, 1..4);
    drop(spool);
    // A file from elsewhere; the numbers continue after it.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = open(elsewhere.path());
    append(&mut other, FAR..FAR + 2);
    drop(other);
    let name = Segment { first: FAR, ..Segment::default() }.path(Path::new(""));
    fs::copy(elsewhere.path().join(&name), folder.path().join(&name)).unwrap();
    // Without reading the older file, the gap counts as what its bytes have room for at most.
    let room = |first| {
        let path = Segment { first, ..Segment::default() }.path(folder.path());
        (fs::metadata(path).unwrap().len() - 16) / record::SHORTEST as u64
    };
    let about = room(1);
    assert!((3..12).contains(&about), "{about}");
    let mut spool = open(folder.path());
    append(&mut spool, FAR + 2..FAR + 3);
    assert_eq!((spool.records(), spool.unread()), (about + 3, about + 3));
    assert_eq!(read_all(&mut spool), [1, 2, 3, FAR, FAR + 1, FAR + 2]);
    spool.acknowledge(FAR);
    assert_eq!((spool.records(), spool.unread()), (2, 0));
    spool.write_cursor().unwrap();
    drop(spool);
    // A full spool counts dropped messages in the same way.
    let mut spool = open(folder.path());
    assert_eq!(spool.records(), 2);
    spool.limit_bytes = 120;
    append(&mut spool, FAR + 1000..FAR + 1001);
    assert_eq!((spool.dropped, spool.records()), (2, 1));
}

#[test]
fn a_start_reads_the_newest_segment_alone() {
    let folder = tempfile::tempdir().unwrap();
    for first in [1, 5, 9] {
        append(&mut open(folder.path()), first..first + 4);
    }
    let (old, newest) = (1, 9);
    for first in [old, newest] {
        // Bytes written over the last record show whether it was read.
        let path = Segment { first, ..Segment::default() }.path(folder.path());
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let mut spool = open(folder.path());
    assert_eq!((spool.records(), spool.unread(), spool.next_number()), (11, 11, 12));
    assert_eq!(read_all(&mut spool), [1, 2, 3, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((spool.unread(), spool.damaged), (0, 1));
}

#[test]
fn messages_are_read_again_by_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for first in [1, 5, 9] {
        append(&mut open(folder.path()), first..first + 4);
    }
    let mut spool = open(folder.path());
    read_all(&mut spool);
    let again = |spool: &mut Spool, numbers: &[u64]| {
        let (found, settled) = spool.read_again(numbers).unwrap();
        (found.iter().map(|message| message.number).collect::<Vec<_>>(), settled)
    };
    assert_eq!(again(&mut spool, &[2, 4, 5, 6]), (vec![2, 4], 2), "of one file");
    assert_eq!(again(&mut spool, &[5, 6, 100]), (vec![5, 6], 2));
    assert_eq!(again(&mut spool, &[100]), (vec![], 0));
    assert_eq!(again(&mut spool, &[]), (vec![], 0));
    spool.acknowledge(8);
    assert_eq!(again(&mut spool, &[2, 9]), (vec![], 1), "deleted");
    assert!(spool.is_read());
}

#[test]
fn a_segment_that_cannot_be_read_again_is_lost_and_the_others_are_read() {
    let deleted: fn(&Path) = |_| ();
    for obstacle in obstacles().into_iter().chain([deleted]) {
        let folder = tempfile::tempdir().unwrap();
        for first in [1, 5, 9] {
            append(&mut open(folder.path()), first..first + 4);
        }
        let mut spool = open(folder.path());
        assert_eq!(read_all(&mut spool).len(), 12);
        let path = Segment { first: 5, ..Segment::default() }.path(folder.path());
        fs::remove_file(&path).unwrap();
        obstacle(&path);
        let numbers = [4, 5, 6, 9, 12];
        let mut again = |from: usize| {
            let (found, settled) = spool.read_again(&numbers[from..]).unwrap();
            (found.iter().map(|message| message.number).collect::<Vec<_>>(), settled)
        };
        assert_eq!([again(0), again(1), again(3)], [(vec![4], 1), (vec![], 2), (vec![9, 12], 2)]);
        assert_eq!((spool.unreadable, spool.is_read(), spool.next_number()), (1, true, 13));
        append(&mut spool, 13..14);
        assert_eq!(read_all(&mut spool), [13]);
    }
}

#[test]
fn a_spool_has_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path());
    assert!(matches!(Spool::open(folder.path(), ROOM), Err(OpenError::HeldByThisProcess)));
    assert!(matches!(
        Spool::open(&folder.path().join("../").join(folder.path().file_name().unwrap()), ROOM),
        Err(OpenError::HeldByThisProcess)
    ));
    drop(spool);
    let theirs = File::open(folder.path().join("lock")).unwrap();
    theirs.lock().unwrap();
    assert!(matches!(Spool::open(folder.path(), ROOM), Err(OpenError::HeldByOtherProcess)));
    theirs.unlock().unwrap();
    open(folder.path());
}

#[test]
fn a_full_disk_costs_nothing_that_was_written_and_is_gone_on_with_once_there_is_room() {
    let Some(disk) = visiond_system::testing::TinyDisk::mount(256 << 10) else { return };
    let ballast = disk.join("ballast");
    fs::write(&ballast, vec![0; 128 << 10]).unwrap();
    let mut spool = Spool::open(&disk.join("spool"), ROOM).unwrap();
    let mut number = 1;
    while spool.append([message(number, 3000)].iter()).is_ok() {
        number += 1;
    }
    assert!(number > 10);
    assert!(spool.append([message(number, 3000)].iter()).is_err(), "it is still full");
    fs::remove_file(ballast).unwrap();
    spool.append([message(number, 3000)].iter()).unwrap();
    assert_eq!(read_all(&mut spool), (1..=number).collect::<Vec<_>>());
    drop(spool);
    assert_eq!(read_all(&mut Spool::open(&disk.join("spool"), ROOM).unwrap()), (1..=number).collect::<Vec<_>>());
}

#[test]
fn a_folder_that_was_taken_away_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("spool");
    let mut spool = open(&directory);
    append(&mut spool, 1..3);
    fs::remove_dir_all(&directory).unwrap();
    spool.unsynced();
    append(&mut spool, 3..5);
    assert_eq!(read_all(&mut spool), [3, 4]);
    assert_eq!(spool.unreadable, 1);
}

/// Obstacles in place of a file: a folder, a FIFO, a link.
fn obstacles() -> [fn(&Path); 3] {
    [|path| fs::create_dir(path).unwrap(), make_fifo, |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()]
}

#[test]
fn an_unreadable_segment_is_set_aside_and_the_others_go_out() {
    for obstacle in obstacles() {
        for first in [1, 5, 9] {
            let folder = tempfile::tempdir().unwrap();
            for first in [1, 5, 9] {
                append(&mut open(folder.path()), first..first + 4);
            }
            let path = folder.path().join(format!("{first:016x}.spool"));
            let kept = folder.path().join("kept");
            fs::rename(&path, &kept).unwrap();
            obstacle(&path);
            let directory = folder.path().to_owned();
            let mut spool = finishes("the start", move || open(&directory));
            let others: Vec<_> = (1..13).filter(|number| !(first..first + 4).contains(number)).collect();
            assert_eq!(read_all(&mut spool), others);
            assert_eq!(spool.unreadable, 1);
            let aside = folder.path().join(format!("{first:016x}.spool.unreadable"));
            assert!(fs::symlink_metadata(&aside).is_ok());
            // It continues, under new names.
            let next = spool.next_number();
            append(&mut spool, next..next + 2);
            assert_eq!(read_all(&mut spool), [next, next + 1]);
            drop(spool);
            let mut again = others.clone();
            again.extend([next, next + 1]);
            assert_eq!(read_all(&mut open(folder.path())), again);
        }
    }
}

#[test]
fn a_segment_that_becomes_unreadable_is_renamed_and_never_deleted() {
    let folder = tempfile::tempdir().unwrap();
    for first in [1, 5] {
        append(&mut open(folder.path()), first..first + 4);
    }
    let mut spool = open(folder.path());
    append(&mut spool, 9..11);
    let of = |first: u64| folder.path().join(format!("{first:016x}.spool"));
    // An earlier one of the same name is not replaced.
    fs::write(folder.path().join("0000000000000005.spool.unreadable"), "older").unwrap();
    for first in [5, 9] {
        fs::remove_file(of(first)).unwrap();
        fs::create_dir(of(first)).unwrap();
    }
    assert_eq!(read_all(&mut spool), [1, 2, 3, 4]);
    append(&mut spool, 11..12);
    assert_eq!(read_all(&mut spool), [11]);
    spool.acknowledge(11);
    append(&mut spool, 12..13);
    assert_eq!(spool.unreadable, 2);
    let name = |name: &str| folder.path().join(name);
    assert_eq!(fs::read(name("0000000000000005.spool.unreadable")).unwrap(), b"older");
    assert!(name("0000000000000005.spool.unreadable.1").is_dir() && name("0000000000000009.spool.unreadable").is_dir());
}

#[test]
fn a_cursor_or_lock_that_is_no_file_is_set_aside() {
    for obstacle in obstacles() {
        for name in [CURSOR, lock::FILE] {
            let folder = tempfile::tempdir().unwrap();
            append(&mut open(folder.path()), 1..4);
            fs::remove_file(folder.path().join(name)).unwrap();
            obstacle(&folder.path().join(name));
            let directory = folder.path().to_owned();
            let mut spool = finishes("the start", move || open(&directory));
            assert_eq!(read_all(&mut spool), [1, 2, 3]);
            spool.acknowledge(3);
            spool.write_cursor().unwrap();
            assert_eq!(spool.unreadable, 1);
            assert!(fs::symlink_metadata(folder.path().join(format!("{name}.unreadable"))).is_ok());
            drop(spool);
            assert!(read_all(&mut open(folder.path())).is_empty());
        }
    }
}

#[test]
fn what_stands_where_a_new_segment_would_be_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    fs::create_dir(folder.path().join("0000000000000001.spool")).unwrap();
    append(&mut spool, 1..3);
    assert_eq!(read_all(&mut spool), [1, 2]);
    assert!(folder.path().join("0000000000000001.spool.unreadable").is_dir());
}

#[test]
fn a_process_without_descriptors_skips_nothing() {
    let folder = tempfile::tempdir().unwrap();
    append(&mut open(folder.path()), 1..4);
    let mut spool = open(folder.path());
    assert!(spool.give_up(0, io::Error::from_raw_os_error(libc::EMFILE)).is_err());
    assert_eq!((read_all(&mut spool), spool.unreadable), (vec![1, 2, 3], 0));
}

/// The bytes of a record of `message(number, length)`.
fn record_bytes(number: u64, length: usize) -> usize {
    let mut record = Vec::new();
    assert!(encode(&message(number, length), &mut record));
    record.len()
}

#[test]
fn a_segment_and_the_spool_are_filled_to_their_limits() {
    let folder = tempfile::tempdir().unwrap();
    // All numbers have two digits, so all records have one length: three fill a segment.
    let record = record_bytes(10, 5) as u64;
    let segment = segment::HEAD.len() as u64 + 3 * record;
    let mut spool = Spool::open(folder.path(), SEGMENTS * segment).unwrap();
    spool.skip_numbers(10);
    for number in 10..16 {
        append(&mut spool, number..number + 1);
    }
    assert_eq!(
        spool.segments.iter().map(|found| (found.first, found.bytes)).collect::<Vec<_>>(),
        [(10, segment), (13, segment)]
    );
    spool.limit_bytes = 2 * segment + record + segment::HEAD.len() as u64;
    // Without room for three records in one segment, each has its own.
    append(&mut spool, 16..17);
    assert_eq!((spool.dropped, spool.segments.len(), spool.bytes()), (0, 3, spool.limit_bytes));
    append(&mut spool, 17..18);
    assert_eq!((spool.dropped, spool.segments.front().map(|oldest| oldest.first)), (3, Some(13)));
    assert_eq!((spool.unread(), read_all(&mut spool)), (5, vec![13, 14, 15, 16, 17]));
    spool.limit_bytes = 1;
    append(&mut spool, 18..19);
    assert_eq!((spool.dropped, read_all(&mut spool)), (3, vec![18]), "what was read is not dropped");
}

#[test]
fn what_waits_for_a_sync_is_bounded() {
    let open_one = |length: usize| {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = open(folder.path());
        spool.append([message(1, length)].iter()).unwrap();
        (spool, folder)
    };
    let (spool, _folder) = open_one(0);
    let little = spool.unsynced_bytes();
    assert_eq!(little, segment::HEAD.len() + record_bytes(1, 0));
    for (more, syncs) in [(0, false), (1, true)] {
        assert_eq!(open_one((4 << 20) - little + more).0.should_sync(), syncs);
    }
    let (mut spool, _folder) = open_one(17 << 20);
    let error = spool.append([message(2, 0)].iter()).unwrap_err().to_string();
    assert!(error.contains("has not synced the last 16 MiB"), "{error}");
    assert!(spool.unsynced().unwrap().sync().is_ok());
    append(&mut spool, 2..3);
    for (more, fits) in [(0, true), (1, false)] {
        let (mut spool, _folder) = open_one(0);
        let rest = (16 << 20) - little - record_bytes(2, 0);
        assert_eq!(spool.append([message(2, rest + more)].iter()).is_ok(), fits);
    }
}

#[test]
fn long_lines_are_written_as_short_ones_are_and_share_the_messages_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    let lengths = [5, 1 << 20, 70_000, 5, 5, 64 << 10];
    let messages: Vec<_> = (1..).zip(lengths).map(|(number, length)| message(number, length)).collect();
    spool.append(messages[..4].iter()).unwrap();
    spool.append(messages[4..].iter()).unwrap();
    let mut expected = segment::HEAD.to_vec();
    messages.iter().for_each(|message| assert!(encode(message, &mut expected)));
    let path = folder.path().join("0000000000000001.spool");
    assert_eq!(fs::read(&path).unwrap(), expected);
    assert!(messages.iter().all(|message| message.line.is_unique() == (message.line.len() < 64 << 10)));
    // The disk forgets the bytes that it could not write.
    let mut unsynced = spool.unsynced().unwrap();
    fs::write(&path, vec![0; expected.len()]).unwrap();
    unsynced.failed = true;
    unsynced.sync().unwrap();
    assert_eq!(fs::read(&path).unwrap(), expected);
    drop(unsynced);
    assert!(messages.iter().all(|message| message.line.is_unique()), "what is synced is not kept");
    assert_eq!(read_all(&mut spool), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn each_write_is_synced_once_and_again_after_a_sync_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("a/b");
    let mut spool = open(&directory);
    let new = spool.unsynced().unwrap();
    assert!(new.records.is_empty() && new.cursor.is_none());
    assert_eq!(new.folders, [folder.path().to_owned(), folder.path().join("a")].into());
    assert!(spool.unsynced().is_none(), "taken once");
    append(&mut spool, 1..3);
    let path = directory.join("0000000000000001.spool");
    let first = spool.unsynced().unwrap();
    assert_eq!((first.records.len(), first.folders.contains(&directory)), (1, true));
    assert_eq!(first.records[0].records.to_vec(), fs::read(&path).unwrap());
    append(&mut spool, 3..4);
    append(&mut spool, 4..5);
    spool.acknowledge(1);
    assert_eq!((spool.write_cursor().unwrap(), spool.write_cursor().unwrap()), (true, false));
    let mut second = spool.unsynced().unwrap();
    let whole = fs::read(&path).unwrap();
    let [records] = &second.records[..] else { panic!() };
    let before = first.records[0].records.bytes();
    assert_eq!((records.start as usize, &records.records.to_vec()[..]), (before, &whole[before..]));
    assert!(second.cursor.is_some() && second.folders.is_empty());
    assert!(spool.unsynced().is_none());
    // The disk forgets the bytes that it could not write.
    let start = records.start;
    second.records[0].file.write_all_at(&vec![0; whole.len() - start as usize], start).unwrap();
    second.failed = true;
    spool.not_synced(second);
    assert!(spool.write_cursor().unwrap(), "it may not have reached the disk");
    append(&mut spool, 5..6);
    assert_eq!(spool.segments.len(), 2);
    let mut third = spool.unsynced().unwrap();
    assert_eq!((third.failed, third.records.len(), third.cursor.is_some()), (true, 2, true));
    third.sync().unwrap();
    assert_eq!((third.failed, fs::read(&path).unwrap()), (false, whole));
    // Files deleted meanwhile are not written again.
    append(&mut spool, 6..7);
    let fourth = spool.unsynced().unwrap();
    append(&mut spool, 7..8);
    spool.write_cursor().unwrap();
    spool.acknowledge(4);
    spool.write_cursor().unwrap();
    spool.not_synced(fourth);
    spool.not_synced(third);
    let kept = spool.unsynced().unwrap();
    assert!(kept.records.iter().all(|records| records.first == 5) && kept.records.len() == 3, "{kept:?}");
    assert!(kept.failed && kept.cursor.is_some());
}

#[test]
fn a_check_finds_what_a_start_would_find_and_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("spool");
    Spool::check(&directory).unwrap();
    assert!(!directory.exists());
    fs::create_dir(&directory).unwrap();
    Spool::check(&directory).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    for name in [lock::FILE, CURSOR] {
        fs::create_dir(directory.join(name)).unwrap();
        assert!(Spool::check(&directory).is_err(), "{name}");
        fs::remove_dir(directory.join(name)).unwrap();
    }
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, "").unwrap();
    assert!(Spool::check(&directory).is_err());
}

#[test]
fn each_damaged_place_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut spool = open(folder.path());
    append(&mut spool, 1..8);
    drop(spool);
    let path = folder.path().join("0000000000000001.spool");
    let mut bytes = fs::read(&path).unwrap();
    let record = record_bytes(1, 5);
    for damaged in [1, 2, 5] {
        bytes[segment::HEAD.len() + damaged * record + 20] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let mut spool = open(folder.path());
    assert_eq!((read_all(&mut spool), spool.damaged), (vec![1, 4, 5, 7], 2));
}

#[derive(Debug, Clone)]
enum Step {
    Append(u8, u16),
    Read(u8),
    Acknowledge(u8),
    /// As if killed and started again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..20_u8, 0..900_u16).prop_map(|(n, length)| Step::Append(n, length)),
        3 => (1..40_u8).prop_map(Step::Read),
        2 => (0..40_u8).prop_map(Step::Acknowledge),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every appended message is read in order, once a run, unless it was acknowledged before the run or counted as dropped.
    #[test]
    fn nothing_is_lost_or_out_of_order_whatever_happens(steps in proptest::collection::vec(step(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let limit = 32 << 10;
        let mut spool = Spool::open(folder.path(), limit).unwrap();
        let (mut written, mut acknowledged) = (0, 0);
        // The largest number read in this run, and how many were read or acknowledged before it began.
        let (mut last, mut count, mut before) = (0, 0, 0);
        for step in steps.into_iter().chain([Step::Read(255), Step::Read(255), Step::Read(255), Step::Read(255)]) {
            match step {
                Step::Append(n, length) => {
                    let messages: Vec<_> =
                        (1..=u64::from(n)).map(|i| message(written + i, length.into())).collect();
                    prop_assert!(spool.next_number() <= written + 1);
                    spool.append(messages.iter()).unwrap();
                    written += u64::from(n);
                }
                Step::Read(n) => {
                    for _ in 0..n {
                        let Some(found) = spool.read().unwrap() else { break };
                        prop_assert!(found.number > last && found.number > acknowledged.min(before));
                        (last, count) = (found.number, count + 1);
                    }
                }
                Step::Acknowledge(n) => {
                    acknowledged = (acknowledged + u64::from(n)).min(last).max(acknowledged);
                    spool.acknowledge(acknowledged);
                    spool.write_cursor().unwrap();
                }
                Step::Restart => {
                    let unread = spool.unread();
                    prop_assert_eq!(count + unread + spool.dropped + before, written, "before the restart");
                    drop(spool);
                    spool = Spool::open(folder.path(), limit).unwrap();
                    (last, count, before) = (0, 0, written - spool.unread());
                    prop_assert!(before >= acknowledged.min(written));
                }
            }
        }
        while spool.read().unwrap().is_some() {
            count += 1;
        }
        prop_assert_eq!(count + spool.dropped + before, written);
        prop_assert_eq!(spool.damaged, 0);
    }
}

#[test]
fn thirty_days_of_outages_and_restarts_lose_only_what_is_counted_and_keep_the_limit() {
    const LIMIT: u64 = 1 << 18;
    let folder = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(folder.path(), LIMIT).unwrap();
    let (mut next, mut read, mut dropped, mut last) = (1_u64, 0_u64, 0_u64, 0_u64);
    // Four messages a minute. Each day the broker is away for five hours, which overflows the spool, and the daemon is killed
    // once, with nothing unread: what was read and not acknowledged would come twice.
    for minute in 0..30 * 1440_u64 {
        let messages: Vec<_> = (next..next + 4).map(|number| message(number, 300)).collect();
        next += 4;
        spool.append(messages.iter()).unwrap();
        if minute % 1440 >= 300 {
            while let Some(found) = spool.read().unwrap() {
                assert!(found.number > last, "{} after {last}", found.number);
                (last, read) = (found.number, read + 1);
            }
            spool.acknowledge(last);
            assert_eq!((spool.records(), spool.unread()), (0, 0));
            spool.write_cursor().unwrap();
        }
        // As a sync does.
        drop(spool.unsynced());
        assert!(spool.bytes() <= LIMIT && spool.segments.len() as u64 <= SEGMENTS * 5 / 4, "{}", spool.segments.len());
        assert_eq!(read + dropped + spool.dropped + spool.unread(), next - 1);
        if minute % 1440 == 1000 {
            dropped += spool.dropped;
            drop(spool);
            spool = Spool::open(folder.path(), LIMIT).unwrap();
            assert_eq!((spool.next_number(), spool.unread(), spool.damaged, spool.unreadable), (next, 0, 0, 0));
            assert!(fs::read_dir(folder.path()).unwrap().count() as u64 <= SEGMENTS * 5 / 4);
        }
    }
    dropped += spool.dropped;
    assert_eq!(read + dropped, 30 * 1440 * 4);
    assert!(dropped > 30 * 100, "the outages were too short: {dropped}");
}
