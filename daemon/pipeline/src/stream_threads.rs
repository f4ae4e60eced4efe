//! Threads that each serve the streams of many cameras.
//!
//! A stream that the GPU decodes needs the CPU for some 150 us a frame: to read its packets, to submit the frame to the
//! engine, and to fetch it. A thread of its own would be woken for each of these, and with dozens of cameras the wakes cost
//! as much as the work. So one thread serves up to [`MOST_STREAMS`] streams. docs/figures.md shows how much that saves.
//!
//! A camera keeps its own thread for slow operations: connecting, creating a decoder, waiting before a retry. That thread
//! sleeps while its stream is served here.

use std::array;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use visiond_system::priority::wake_together;
use visiond_system::process::CpuWatch;

/// The most streams of one thread: with more, the last one of a round would wait too long.
const MOST_STREAMS: usize = 32;

/// The minimum time between the starts of two rounds when there are many streams. It delays frames by at most twice that.
const ROUND: Duration = Duration::from_millis(1);

/// From this many streams on, most rounds have work. A thread that sleeps until the next round wakes once; one that waits for
/// the first packet would wake twice.
const MANY: usize = 16;

/// How long to collect packets after the first. This delays frames by the same time.
const GATHERING: Duration = Duration::from_micros(500);

/// A stream that needs no thread of its own.
pub trait SharedStream: Send + 'static {
    /// Returns the socket that can be read when there is work; `None` if the stream needs its own thread again.
    fn socket(&mut self) -> Option<BorrowedFd<'_>>;

    /// Does all pending work without waiting. Returns when to run again if the socket does not become readable first; `None`
    /// if the stream needs its own thread again. Must not panic. The CPU time since the last lap of `cpu` is charged to this
    /// stream.
    fn work(&mut self, is_readable: bool, cpu: &mut CpuWatch) -> Option<Instant>;
}

/// The threads. Each one ends when its last [`Seat`] is dropped.
pub struct StreamThreads<S> {
    threads: Arc<Mutex<Vec<SharedThread<S>>>>,
}

/// The shared side of a thread.
struct SharedThread<S> {
    /// How many streams may use it.
    seats: usize,
    coming: Coming<S>,
}

/// Where a thread finds its new streams.
struct Coming<S> {
    /// `None` once the thread is to end.
    streams: Arc<Mutex<Option<Vec<Visitor<S>>>>>,
    /// An eventfd that signals new streams.
    news: Arc<OwnedFd>,
}

/// A place on a thread for one stream.
pub struct Seat<S> {
    threads: Arc<Mutex<Vec<SharedThread<S>>>>,
    coming: Coming<S>,
}

/// A stream on a shared thread, and the way back.
struct Visitor<S> {
    stream: S,
    back: SyncSender<S>,
    /// When there is work even if its socket is not readable.
    due: Instant,
}

/// Refuses new streams once the thread has ended for any reason.
struct EndOfThread<S>(Coming<S>);

impl<S> Drop for EndOfThread<S> {
    fn drop(&mut self) {
        // Dropped after the lock is released, because it may take long.
        let coming = self.0.streams.lock().take();
        drop(coming);
    }
}

impl<S> Clone for Coming<S> {
    fn clone(&self) -> Self {
        Self { streams: Arc::clone(&self.streams), news: Arc::clone(&self.news) }
    }
}

impl<S> Default for StreamThreads<S> {
    fn default() -> Self {
        Self { threads: Arc::default() }
    }
}

impl<S: SharedStream> StreamThreads<S> {
    /// Returns a seat on the thread that has the most streams and is not full, or on a new one.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn seat(&self) -> io::Result<Seat<S>> {
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.coming.streams.lock().is_some());
        let free = threads.iter_mut().filter(|thread| thread.seats < MOST_STREAMS).max_by_key(|thread| thread.seats);
        let coming = match free {
            Some(thread) => {
                thread.seats += 1;
                thread.coming.clone()
            }
            None => {
                let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                let coming = Coming { streams: Arc::new(Mutex::new(Some(Vec::new()))), news: Arc::new(news) };
                let run = {
                    let end = EndOfThread(coming.clone());
                    move || work(&end.0)
                };
                thread::Builder::new().name("streams".to_owned()).spawn(run)?;
                threads.push(SharedThread { seats: 1, coming: coming.clone() });
                coming
            }
        };
        drop(threads);
        Ok(Seat { threads: Arc::clone(&self.threads), coming })
    }
}

impl<S: SharedStream> Seat<S> {
    /// Lets the shared thread serve `stream` until it needs its own thread again; this thread sleeps meanwhile.
    ///
    /// `None` if the shared thread has ended because of a bug, and the stream with it.
    pub fn work(&self, stream: S) -> Option<S> {
        let (back, over) = sync_channel(1);
        self.coming.streams.lock().as_mut()?.push(Visitor { stream, back, due: Instant::now() });
        self.coming.tell();
        over.recv().ok()
    }
}

impl<S> Drop for Seat<S> {
    fn drop(&mut self) {
        let mut threads = self.threads.lock();
        let own = |thread: &SharedThread<S>| Arc::ptr_eq(&thread.coming.news, &self.coming.news);
        let Some(at) = threads.iter().position(own) else { return };
        threads[at].seats -= 1;
        if threads[at].seats == 0 {
            threads.remove(at);
            *self.coming.streams.lock() = None;
            self.coming.tell();
        }
    }
}

impl<S> Coming<S> {
    fn tell(&self) {
        // The result does not matter: a full counter is also readable.
        let _ = rustix::io::write(&*self.news, &1_u64.to_ne_bytes());
    }

    /// Takes the new streams; `None` once the thread is to end.
    fn take(&self) -> Option<Vec<Visitor<S>>> {
        // Having nothing to read is fine.
        let _ = rustix::io::read(&*self.news, &mut [0_u8; 8]);
        self.streams.lock().as_mut().map(std::mem::take)
    }
}

/// The streams of a thread, each with a fixed index.
type Places<S> = [Option<Visitor<S>>; MOST_STREAMS];

/// A shared thread.
fn work<S: SharedStream>(coming: &Coming<S>) {
    wake_together();
    let mut places: Places<S> = array::from_fn(|_| None);
    let mut cpu = CpuWatch::start();
    let mut round = Instant::now();
    loop {
        let (has_news, readable) = wait(coming, &mut places, round);
        round = Instant::now();
        for (place, is_readable) in places.iter_mut().zip(readable) {
            let Some(visitor) = place.as_mut().filter(|visitor| is_readable || visitor.due <= round) else { continue };
            match visitor.stream.work(is_readable, &mut cpu) {
                Some(due) if visitor.stream.socket().is_some() => visitor.due = due,
                _ => {
                    if let Some(Visitor { stream, back, .. }) = place.take() {
                        // The camera's own thread waits for it.
                        let _ = back.send(stream);
                    }
                }
            }
        }
        if has_news {
            let Some(new) = coming.take() else { return };
            // At most one per seat.
            let free = places.iter_mut().filter(|place| place.is_none());
            free.zip(new).for_each(|(place, visitor)| *place = Some(visitor));
        }
    }
}

/// Waits for the next round. Returns whether there are new streams, and which sockets can be read.
fn wait<S: SharedStream>(coming: &Coming<S>, places: &mut Places<S>, round: Instant) -> (bool, [bool; MOST_STREAMS]) {
    let mut began = Instant::now();
    if places.iter().flatten().count() >= MANY {
        thread::sleep((round + ROUND).saturating_duration_since(began));
        began = Instant::now();
    }
    let due = places.iter().flatten().map(|visitor| visitor.due).min();
    let timeout = due.map(|due| due.saturating_duration_since(began));
    let timeout =
        timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
    // The last entry is the eventfd; entries without a stream also poll it.
    let mut sockets: [_; MOST_STREAMS + 1] = array::from_fn(|_| PollFd::new(&*coming.news, PollFlags::IN));
    for (socket, visitor) in sockets.iter_mut().zip(places) {
        if let Some(readable) = visitor.as_mut().and_then(|visitor| visitor.stream.socket()) {
            *socket = PollFd::from_borrowed_fd(readable, PollFlags::IN);
        }
    }
    // A signal ends the wait; the next round waits again.
    let _ = poll(&mut sockets, timeout.as_ref());
    let ready = sockets.map(|socket| !socket.revents().is_empty());
    let [readable @ .., has_news] = ready;
    if began.elapsed() > GATHERING / 8 && readable.contains(&true) {
        thread::sleep(GATHERING);
    }
    (has_news, readable)
}

#[cfg(test)]
mod tests;
