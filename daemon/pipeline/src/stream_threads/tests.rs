#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{JoinHandle, ThreadId};

use visiond_system::testing::{EVER, wait_until};

use super::*;

/// Counts the bytes of a socket and the times without one; leaves at a byte of 0.
struct Counter {
    socket: UnixStream,
    pause: Duration,
    seen: Arc<Mutex<Seen>>,
    leaves: bool,
}

#[derive(Default)]
struct Seen {
    bytes: usize,
    pauses: usize,
    thread: Option<ThreadId>,
}

impl SharedStream for Counter {
    fn socket(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn work(&mut self, is_readable: bool, _: &mut CpuWatch) -> Option<Instant> {
        let mut seen = self.seen.lock();
        seen.thread = Some(thread::current().id());
        if is_readable {
            let mut bytes = [1; 8];
            let read = self.socket.read(&mut bytes).unwrap();
            seen.bytes += read;
            self.leaves = bytes[..read].contains(&0);
        } else {
            seen.pauses += 1;
        }
        (!self.leaves).then(|| Instant::now() + self.pause)
    }
}

struct Camera {
    other: UnixStream,
    seen: Arc<Mutex<Seen>>,
    thread: JoinHandle<Seat<Counter>>,
}

fn camera(threads: &StreamThreads<Counter>, pause: Duration) -> Camera {
    let (socket, other) = UnixStream::pair().unwrap();
    let (seen, seat) = (Arc::<Mutex<Seen>>::default(), threads.seat().unwrap());
    let counter = Counter { socket, pause, seen: Arc::clone(&seen), leaves: false };
    let thread = thread::spawn(move || {
        assert!(seat.work(counter).unwrap().leaves);
        seat
    });
    Camera { other, seen, thread }
}

#[test]
fn many_streams_are_worked_by_few_threads_and_come_back() {
    let threads = StreamThreads::default();
    let mut cameras: Vec<_> = (0..MOST_STREAMS + 3).map(|_| camera(&threads, EVER)).collect();
    for round in 1..20 {
        cameras.iter_mut().for_each(|camera| camera.other.write_all(&[1, 1]).unwrap());
        wait_until("all bytes", || cameras.iter().all(|camera| camera.seen.lock().bytes == 2 * round));
    }
    let used: BTreeSet<_> = cameras.iter().map(|camera| format!("{:?}", camera.seen.lock().thread)).collect();
    assert_eq!(used.len(), 2);
    // One leaves; another takes its place.
    cameras[0].other.write_all(&[0]).unwrap();
    drop(cameras.remove(0).thread.join().unwrap());
    let late = camera(&threads, EVER);
    cameras.push(late);
    cameras.iter_mut().for_each(|camera| camera.other.write_all(&[1]).unwrap());
    wait_until("all bytes", || cameras.iter().all(|camera| camera.seen.lock().bytes % 2 == 1));
    assert_eq!(threads.threads.lock().len(), 2);
    for camera in &mut cameras {
        camera.other.write_all(&[0]).unwrap();
    }
    cameras.into_iter().for_each(|camera| drop(camera.thread.join().unwrap()));
    assert!(threads.threads.lock().is_empty(), "a thread ends with its last seat");
}

#[test]
fn a_stream_is_worked_when_its_time_has_come() {
    let threads = StreamThreads::default();
    let mut one = camera(&threads, Duration::from_millis(1));
    wait_until("some pauses", || one.seen.lock().pauses > 5);
    assert_eq!(one.seen.lock().bytes, 0);
    one.other.write_all(&[0]).unwrap();
    one.thread.join().unwrap();
}

#[test]
fn a_stream_that_comes_back_can_go_again() {
    let threads = StreamThreads::default();
    for _ in 0..3 {
        let mut one = camera(&threads, EVER);
        one.other.write_all(&[0]).unwrap();
        let seat = one.thread.join().unwrap();
        let (socket, mut other) = UnixStream::pair().unwrap();
        other.write_all(&[0]).unwrap();
        assert!(seat.work(Counter { socket, pause: EVER, seen: Arc::default(), leaves: false }).is_some());
    }
}

#[test]
fn a_thread_that_dies_keeps_nobody_waiting() {
    struct Broken(UnixStream);

    impl SharedStream for Broken {
        fn socket(&mut self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn work(&mut self, _: bool, _: &mut CpuWatch) -> Option<Instant> {
            panic!("on purpose")
        }
    }

    let threads = StreamThreads::default();
    let seat = threads.seat().unwrap();
    assert!(seat.work(Broken(UnixStream::pair().unwrap().0)).is_none());
    assert!(seat.work(Broken(UnixStream::pair().unwrap().0)).is_none());
    // The next one gets another thread.
    let other = threads.seat().unwrap();
    assert!(!Arc::ptr_eq(&other.coming.news, &seat.coming.news));
}
