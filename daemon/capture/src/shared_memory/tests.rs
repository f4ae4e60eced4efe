//! A `shmsink` made by hand, so that it can do what GStreamer's does not. `command/tests.rs` has GStreamer's.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::CString;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;

use visiond_system::testing::{HANG, stopped_while_it_waits};

use super::*;

const FRAME_BYTES: usize = 64;

/// The program's side of a connection, and the shared memory that it made.
struct Sink {
    socket: UnixStream,
    areas: Vec<(CString, File)>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Those that were not opened.
        for (name, _) in &self.areas {
            let _ = shm::unlink(name.as_c_str());
        }
    }
}

/// Connects both sides, with `count` frames in use at most.
fn connected(count: usize) -> (Sink, SharedMemory) {
    let folder = SocketFolder::new().unwrap();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let memory = SharedMemory::connect(&folder.socket(), FRAME_BYTES, &Buffers::host(count)).unwrap();
    (Sink { socket: listener.accept().unwrap().0, areas: Vec::new() }, memory)
}

fn words(kind: u32, id: u32, first: u64, second: u64) -> Vec<u8> {
    [&kind.to_ne_bytes()[..], &id.to_ne_bytes(), &first.to_ne_bytes(), &second.to_ne_bytes()].concat()
}

impl Sink {
    fn send(&self, bytes: &[u8]) {
        (&self.socket).write_all(bytes).unwrap();
    }

    /// Makes an area of `bytes`, and says that it has `claimed`.
    fn area(&mut self, id: u32, bytes: u64, claimed: u64) -> Vec<u8> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("/visiond-test.{}.{number}", process::id())).unwrap();
        let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
        let file = File::from(shm::open(name.as_c_str(), flags, Mode::RUSR | Mode::WUSR).unwrap());
        file.set_len(bytes).unwrap();
        let named = name.as_bytes_with_nul().to_vec();
        self.areas.push((name, file));
        [words(NEW_AREA, id, claimed, named.len() as u64), named].concat()
    }

    fn write(&self, area: usize, offset: u64, value: u8) {
        self.areas[area].1.write_all_at(&[value; FRAME_BYTES], offset).unwrap();
    }

    fn frame(&self, id: u32, offset: u64) {
        self.send(&words(FRAME, id, offset, FRAME_BYTES as u64));
    }

    /// The area and the offset of the next frame that comes back.
    fn returned(&self) -> (u32, u64) {
        let mut bytes = [0; MESSAGE_BYTES];
        (&self.socket).read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], RETURN.to_ne_bytes());
        (u32::from_ne_bytes(bytes[4..8].try_into().unwrap()), u64::from_ne_bytes(bytes[8..16].try_into().unwrap()))
    }

    /// Whether nothing has come back.
    fn has_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let read = (&self.socket).read(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

fn next(memory: &mut SharedMemory) -> Result<Received, SharedMemoryError> {
    memory.next(false, &Stop::new().unwrap(), Instant::now() + HANG)
}

fn frame(memory: &mut SharedMemory) -> DriverBuffer {
    match next(memory).unwrap() {
        Received::Frame(frame) => frame,
        other => panic!("no frame: {other:?}"),
    }
}

/// What [`SharedMemory::next`] says at once.
fn now(memory: &mut SharedMemory) -> Received {
    memory.next(false, &Stop::new().unwrap(), Instant::now()).unwrap()
}

#[test]
fn a_frame_is_read_where_it_was_written_and_goes_back_when_it_is_dropped() {
    let (mut sink, mut memory) = connected(2);
    let area = sink.area(7, 4096, 4096);
    sink.send(&area);
    for round in 0..3 {
        sink.write(0, 128, round);
        sink.frame(7, 128);
        let held = frame(&mut memory);
        assert_eq!(held.as_slice(), [round; FRAME_BYTES]);
        // The same memory, not a copy.
        sink.write(0, 128, 100 + round);
        assert_eq!(held.as_slice(), [100 + round; FRAME_BYTES]);
        assert!(matches!(now(&mut memory), Received::TimedOut) && sink.has_nothing());
        drop(held);
        assert!(matches!(now(&mut memory), Received::TimedOut));
        assert_eq!(sink.returned(), (7, 128));
    }
    assert_eq!(memory.known.len(), 1, "the same buffer");
    assert_eq!(shm::unlink(sink.areas[0].0.as_c_str()), Err(rustix::io::Errno::NOENT), "nobody else has to remove it");
}

#[test]
fn a_frame_that_comes_while_too_many_are_in_use_goes_back_at_once_or_waits() {
    let (mut sink, mut memory) = connected(2);
    let area = sink.area(1, 4096, 4096);
    sink.send(&area);
    (0..3).for_each(|number| sink.frame(1, number * 64));
    let (first, _second) = (frame(&mut memory), frame(&mut memory));
    assert!(matches!(next(&mut memory).unwrap(), Received::Dropped));
    assert_eq!(sink.returned(), (1, 128));
    sink.frame(1, 128);
    let waiting = std::thread::spawn(move || {
        let received = memory.next(true, &Stop::new().unwrap(), Instant::now() + HANG).unwrap();
        assert!(matches!(received, Received::Frame(_)), "{received:?}");
    });
    // Nothing but the drop can end its wait.
    drop(first);
    waiting.join().unwrap();
    assert_eq!(sink.returned(), (1, 0));
}

#[test]
fn a_frame_that_is_sent_again_while_it_is_in_use_goes_back_or_waits() {
    let (mut sink, mut memory) = connected(3);
    let area = sink.area(1, 4096, 4096);
    sink.send(&area);
    sink.frame(1, 0);
    let held = frame(&mut memory);
    sink.frame(1, 0);
    assert!(matches!(next(&mut memory).unwrap(), Received::Dropped));
    assert_eq!(sink.returned(), (1, 0));
    sink.frame(1, 0);
    let waiting = std::thread::spawn(move || {
        let received = memory.next(true, &Stop::new().unwrap(), Instant::now() + HANG).unwrap();
        assert!(matches!(received, Received::Frame(_)), "{received:?}");
    });
    drop(held);
    waiting.join().unwrap();
    assert_eq!(sink.returned(), (1, 0));
}

#[test]
fn a_frame_outlives_its_area_and_the_program() {
    let (mut sink, mut memory) = connected(2);
    let area = sink.area(1, 4096, 4096);
    sink.send(&area);
    sink.write(0, 0, 5);
    sink.frame(1, 0);
    let held = frame(&mut memory);
    let other = sink.area(2, 8192, 8192);
    sink.send(&[words(CLOSE_AREA, 1, 0, 0), other].concat());
    sink.write(1, 4096, 6);
    sink.frame(2, 4096);
    assert_eq!(frame(&mut memory).as_slice(), [6; FRAME_BYTES]);
    drop(sink);
    assert!(matches!(next(&mut memory).unwrap(), Received::Ended));
    drop(memory);
    assert_eq!(held.as_slice(), [5; FRAME_BYTES]);
}

#[test]
fn messages_may_arrive_in_pieces() {
    let (mut sink, mut memory) = connected(1);
    let area = sink.area(3, 4096, 4096);
    for byte in [area, words(FRAME, 3, 64, FRAME_BYTES as u64)].concat() {
        assert!(matches!(now(&mut memory), Received::TimedOut));
        sink.send(&[byte]);
    }
    frame(&mut memory);
    sink.send(&[1]);
    drop(sink);
    assert!(matches!(next(&mut memory).unwrap(), Received::Ended));
}

#[test]
fn what_makes_no_sense_is_an_error_that_says_so() {
    let refused = |name: &str, wanted: &str, messages: &dyn Fn(&mut Sink) -> Vec<u8>| {
        let (mut sink, mut memory) = connected(3);
        let bytes = [sink.area(1, 4096, 4096), messages(&mut sink)].concat();
        sink.send(&bytes);
        let error = loop {
            match next(&mut memory) {
                Ok(Received::Frame(frame)) => std::mem::forget(frame),
                Ok(other) => panic!("{name}: {other:?}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(wanted), "{name}: {error}");
    };
    let bytes = FRAME_BYTES as u64;
    let named = |name: &[u8]| [words(NEW_AREA, 2, 4096, name.len() as u64), name.to_vec()].concat();
    refused("type", "a message of type 9", &|_| words(9, 1, 0, 0));
    refused("size", "its frames have 65 bytes, and", &|_| words(FRAME, 1, 0, 65));
    refused("end", "outside of its area", &|_| words(FRAME, 1, 4096 - 63, bytes));
    refused("overflow", "outside of its area", &|_| words(FRAME, 1, u64::MAX, bytes));
    refused("area", "of an unknown area", &|_| words(FRAME, 2, 0, bytes));
    refused("closed", "of an unknown area", &|_| [words(CLOSE_AREA, 1, 0, 0), words(FRAME, 1, 0, bytes)].concat());
    refused("overlap", "a frame that overlaps another one", &|_| {
        [words(FRAME, 1, 64, bytes), words(FRAME, 1, 127, bytes)].concat()
    });
    refused("cut short", "it has 64 bytes instead of 4096", &|sink| {
        sink.areas[0].1.set_len(64).unwrap();
        words(FRAME, 1, 0, bytes)
    });
    refused("longer", "it has 4096 bytes instead of 4097", &|sink| sink.area(2, 4096, 4097));
    refused("empty", "an area of 0 bytes", &|sink| sink.area(2, 4096, 0));
    refused("huge", "an area of 18446744073709551615 bytes", &|sink| sink.area(2, 4096, u64::MAX));
    refused("same id", "one more area, 1", &|sink| sink.area(1, 4096, 4096));
    refused("many", "one more area, 9", &|sink| (2..10).flat_map(|id| sink.area(id, 4096, 4096)).collect());
    refused("missing", "cannot use its shared memory /visiond-none", &|_| named(b"/visiond-none\0"));
    refused("outside", "cannot use its shared memory /../etc/passwd", &|_| named(b"/../etc/passwd\0"));
    refused("no end", "a name without an end", &|_| named(b"/visiond"));
    refused("no name", "a name of 1 bytes", &|_| named(b"\0"));
    refused("long name", "a name of 4294967295 bytes", &|_| words(NEW_AREA, 2, 4096, u64::from(u32::MAX)));
}

#[test]
fn a_wait_ends_when_it_is_stopped() {
    for waits in [false, true] {
        let (mut sink, mut memory) = connected(1);
        let area = sink.area(1, 4096, 4096);
        sink.send(&area);
        sink.frame(1, 0);
        let held = frame(&mut memory);
        let received = stopped_while_it_waits(move |stop| memory.next(waits, stop, Instant::now() + HANG)).unwrap();
        assert!(matches!(received, Received::Stopped), "{received:?}");
        drop((held, sink));
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_are_too_odd(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..512)) {
        let (sink, mut memory) = connected(2);
        sink.send(&bytes);
        drop(sink);
        while let Ok(Received::Frame(_) | Received::Dropped) = next(&mut memory) {}
    }
}
