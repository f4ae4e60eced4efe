//! Writes JSON lines to the programs that connect to a Unix socket.
//!
//! One thread serves all readers with poll(2) and never waits for one of them. Each reader has a buffer that is bounded in
//! bytes. When it is full, the sink drops and counts the oldest whole messages in it, so that a slow reader sees gaps in
//! `sequence` but never half a line. Readers share the lines; nothing is copied.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use visiond_config::types::{SinkConfig, SinkKind, UnixSinkConfig};
use visiond_message::Published;
use visiond_system::unix_socket::{self, SocketError, SocketFile};
use visiond_system::wake_pipe::WakePipe;
use visiond_telemetry::trace;

use super::poll::{entry, poll};
use super::queue::{Counters, Popped, Queue};
use super::sink::{Opening, Sink, SinkEnd, SinkError, SinkType};

/// At the end: how long a reader may accept nothing before the sink drops its remaining messages.
const LAST_PATIENCE: Duration = Duration::from_millis(200);

/// How long the sink accepts no readers after the process ran out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct UnixSink {
    name: String,
    listener: UnixListener,
    socket: SocketFile,
    readers: Vec<ReaderConnection>,
    max_readers: usize,
    reader_buffer_bytes: usize,
    /// The sink accepts no readers until then.
    accept_again: Option<Instant>,
    refusal_logged: bool,
}

#[derive(Debug)]
struct ReaderConnection {
    stream: UnixStream,
    /// Messages for the reader, oldest first.
    pending: VecDeque<Arc<Published>>,
    pending_bytes: usize,
    /// Bytes of the first pending line that were sent.
    sent_of_first: usize,
    /// The reader has closed its sending side; it may still read.
    mute: bool,
    gone: bool,
}

impl SinkType for UnixSinkConfig {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn check(&self) -> Result<(), SinkError> {
        unix_socket::check(&self.path).map_err(of_socket)
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        Ok(Box::new(UnixSink::open(&opening.sink.name, self)?))
    }
}

impl UnixSink {
    /// Creates the socket. Replaces a socket that no process serves; leaves one that is served, and any other file, alone.
    fn open(name: &str, config: &UnixSinkConfig) -> Result<Self, SinkError> {
        let (listener, socket) = unix_socket::bind(&config.path, config.mode).map_err(of_socket)?;
        Ok(Self {
            name: name.to_owned(),
            listener,
            socket,
            readers: Vec::new(),
            max_readers: config.max_readers,
            reader_buffer_bytes: config.reader_buffer_bytes,
            accept_again: None,
            refusal_logged: false,
        })
    }

    /// Applies a new name and new limits; the socket and its readers stay.
    fn configure(&mut self, config: SinkConfig) {
        let SinkKind::Unix(UnixSinkConfig { mode, max_readers, reader_buffer_bytes, .. }) = config.kind else { return };
        (self.name, self.max_readers, self.reader_buffer_bytes) = (config.name, max_readers, reader_buffer_bytes);
        if let Err(error) = self.socket.set_mode(mode) {
            log::error!("sink {}: cannot change who may connect: {error}", self.name);
        }
    }

    /// Sleeps until there is a message, a reader or the end, and serves the readers.
    fn serve(&mut self, wake_pipe: &WakePipe, patience: Duration, counters: &Counters) {
        let accepts = self.accept_again.is_none_or(|at| Instant::now() >= at);
        let mut entries = Vec::with_capacity(2 + self.readers.len());
        entries.push(entry(&wake_pipe.reader, libc::POLLIN));
        entries.push(entry(&self.listener, if accepts { libc::POLLIN } else { 0 }));
        entries.extend(self.readers.iter().map(|reader| entry(&reader.stream, reader.events())));
        if let Err(error) = poll(&mut entries, Some(patience)) {
            log::error!("sink {}: cannot wait for its readers (poll): {error}", self.name);
            std::thread::sleep(Duration::from_millis(100));
            return;
        }
        wake_pipe.clear();
        for (reader, ready) in self.readers.iter_mut().zip(&entries[2..]) {
            if ready.revents & libc::POLLIN != 0 {
                reader.listen();
            }
            if ready.revents & libc::POLLOUT != 0 {
                reader.send();
            }
            // POLLHUP: both directions are closed. A reader that only closed its sending side does not raise it.
            if ready.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
                reader.gone = true;
            }
        }
        if entries[1].revents != 0 && accepts {
            self.accept_readers(counters);
        }
        self.remove_closed(counters);
    }

    fn accept_readers(&mut self, counters: &Counters) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if self.readers.len() < self.max_readers => match stream.set_nonblocking(true) {
                    Ok(()) => self.readers.push(ReaderConnection {
                        stream,
                        pending: VecDeque::new(),
                        pending_bytes: 0,
                        sent_of_first: 0,
                        mute: false,
                        gone: false,
                    }),
                    Err(error) => log::error!("sink {}: cannot serve a reader: {error}", self.name),
                },
                Ok(_) => {
                    Counters::add(&counters.readers_refused, 1);
                    if !std::mem::replace(&mut self.refusal_logged, true) {
                        log::warn!(
                            "sink {}: refused a reader, {} are connected; raise `max_readers` if more are intended",
                            self.name,
                            self.max_readers
                        );
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {
                }
                Err(error) => {
                    log::error!("sink {}: cannot accept readers for a second: {error}", self.name);
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn send_to_all(&mut self, message: &Arc<Published>, counters: &Counters) {
        let _trace = trace::work_on("write", message.topic(), message.sequence());
        for reader in &mut self.readers {
            Counters::add(&counters.reader_lost, reader.queue(message, self.reader_buffer_bytes));
            reader.send();
        }
        Counters::add(&counters.written, 1);
    }

    fn remove_closed(&mut self, counters: &Counters) {
        self.readers.retain(|reader| !reader.gone);
        if self.readers.len() < self.max_readers {
            self.refusal_logged = false;
        }
        counters.readers.store(self.readers.len() as u64, Ordering::Relaxed);
    }

    /// Sends the pending messages while the readers accept them and there is time.
    fn drain(&mut self, wake_pipe: &WakePipe, queue: &Queue) {
        // Accepts no new readers: they would get nothing.
        self.accept_again = Some(Instant::now() + Duration::from_secs(3600));
        let mut moved = Instant::now();
        let mut left = self.bytes_left();
        while left > 0 && moved.elapsed() < LAST_PATIENCE && !queue.is_overdue() {
            self.serve(wake_pipe, LAST_PATIENCE / 4, &queue.counters);
            if self.bytes_left() < left {
                moved = Instant::now();
            }
            left = self.bytes_left();
        }
        let lost: usize = self.readers.iter().map(|reader| reader.pending.len()).sum();
        Counters::add(&queue.counters.reader_lost, lost as u64);
        self.readers.clear();
        queue.counters.readers.store(0, Ordering::Relaxed);
    }

    fn bytes_left(&self) -> usize {
        self.readers.iter().map(|reader| reader.pending_bytes - reader.sent_of_first).sum()
    }
}

fn of_socket(error: SocketError) -> SinkError {
    SinkError { key: "path", reason: error.to_string(), certainty: error.certainty() }
}

impl Sink for UnixSink {
    fn run(mut self: Box<Self>, queue: &Queue) -> SinkEnd {
        let wake_pipe = match WakePipe::new() {
            Ok(wake_pipe) => queue.wake_by(wake_pipe),
            Err(error) => {
                log::error!("sink {}: cannot run: {error}", self.name);
                return SinkEnd::Closed;
            }
        };
        for round in 1_u64.. {
            match queue.pop(Some(Duration::ZERO)) {
                Popped::Message(message) => {
                    self.send_to_all(&message, &queue.counters);
                    // A queue that never runs empty must not keep readers out.
                    if round % 64 == 0 {
                        self.serve(wake_pipe, Duration::ZERO, &queue.counters);
                    }
                }
                Popped::Configured(config) => self.configure(*config),
                // Bounded, so that the sink notices the end of an accept pause without an event.
                Popped::TimedOut => {
                    let turn = queue.next_turn().map(|turn| turn.saturating_duration_since(Instant::now()));
                    self.serve(wake_pipe, turn.unwrap_or(ACCEPT_PAUSE).min(ACCEPT_PAUSE), &queue.counters);
                }
                Popped::Closed => break,
            }
        }
        self.drain(wake_pipe, queue);
        SinkEnd::Closed
    }
}

impl ReaderConnection {
    fn events(&self) -> libc::c_short {
        let listen = if self.mute { 0 } else { libc::POLLIN };
        let send = if self.pending.is_empty() { 0 } else { libc::POLLOUT };
        listen | send
    }

    /// Appends a message to the reader's buffer; returns how many whole messages were dropped for it.
    fn queue(&mut self, message: &Arc<Published>, buffer_bytes: usize) -> u64 {
        let line_bytes = message.line().len();
        let mut lost = 0;
        // A line that was sent in part must be completed.
        let begun = usize::from(self.sent_of_first > 0);
        while self.pending_bytes + line_bytes > buffer_bytes && self.pending.len() > begun {
            if let Some(oldest) = self.pending.remove(begun) {
                self.pending_bytes -= oldest.line().len();
                lost += 1;
            }
        }
        if self.pending_bytes + line_bytes > buffer_bytes && !self.pending.is_empty() {
            return lost + 1;
        }
        self.pending.push_back(Arc::clone(message));
        self.pending_bytes += line_bytes;
        lost
    }

    fn send(&mut self) {
        while let Some(first) = self.pending.front() {
            let line = first.line();
            match self.stream.write(&line[self.sent_of_first..]) {
                Ok(n) => self.sent_of_first += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.gone = true;
                    self.pending.clear();
                    (self.pending_bytes, self.sent_of_first) = (0, 0);
                    return;
                }
            }
            if self.sent_of_first == line.len() {
                self.pending_bytes -= line.len();
                self.sent_of_first = 0;
                self.pending.pop_front();
            }
        }
    }

    /// Reads and discards what the reader sends, at most 4 KiB a call, so that it does not accumulate.
    fn listen(&mut self) {
        match self.stream.read(&mut [0; 4096]) {
            Ok(0) => self.mute = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => self.gone = true,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead, BufReader};

    use visiond_message::testing::door_message;

    use super::*;

    fn reader() -> (ReaderConnection, UnixStream) {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (pending, pending_bytes, sent_of_first) = (VecDeque::new(), 0, 0);
        (ReaderConnection { stream, pending, pending_bytes, sent_of_first, mute: false, gone: false }, theirs)
    }

    fn message(sequence: u64) -> Arc<Published> {
        Arc::new(Published::new(door_message(sequence, 1)))
    }

    fn waiting(reader: &ReaderConnection) -> Vec<u64> {
        reader.pending.iter().map(|message| message.sequence()).collect()
    }

    #[test]
    fn a_full_buffer_drops_the_oldest_whole_messages() {
        let (mut reader, theirs) = reader();
        let three = 3 * message(1).line().len();
        let lost: u64 = (1..=3).map(|n| reader.queue(&message(n), three)).sum();
        assert_eq!((lost, waiting(&reader), reader.pending_bytes), (0, vec![1, 2, 3], three));
        assert_eq!((reader.queue(&message(4), three), waiting(&reader)), (1, vec![2, 3, 4]));
        // A line that was sent in part is completed.
        reader.sent_of_first = 1;
        assert_eq!((reader.queue(&message(5), three), waiting(&reader)), (1, vec![2, 4, 5]));
        assert_eq!(reader.pending_bytes, three);
        assert_eq!((reader.queue(&message(6), three / 3), waiting(&reader)), (3, vec![2]), "no room beside the first");
        reader.sent_of_first = 0;
        assert_eq!((reader.queue(&message(7), 1), waiting(&reader)), (1, vec![7]), "one may be larger than the buffer");
        reader.send();
        assert_eq!((reader.pending.len(), reader.pending_bytes, reader.sent_of_first), (0, 0, 0));
        let mut line = String::new();
        BufReader::new(theirs).read_line(&mut line).unwrap();
        assert_eq!(line.as_bytes(), message(7).line());
    }

    #[test]
    fn a_reader_is_asked_for_what_it_can_do() {
        let (mut reader, theirs) = reader();
        assert_eq!(reader.events(), libc::POLLIN);
        reader.queue(&message(1), 1 << 20);
        assert_eq!(reader.events(), libc::POLLIN | libc::POLLOUT);
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        reader.listen();
        assert_eq!((reader.events(), reader.mute, reader.gone), (libc::POLLOUT, true, false));
        drop(theirs);
        reader.send();
        assert!(reader.gone && reader.pending.is_empty() && reader.pending_bytes == 0);
    }

    #[test]
    fn a_line_that_a_reader_takes_in_parts_arrives_whole() {
        let (mut reader, theirs) = reader();
        let count = 2000;
        (0..count).for_each(|n| assert_eq!(reader.queue(&message(n), 1 << 30), 0));
        let all = reader.pending_bytes;
        reader.send();
        assert!(reader.pending_bytes < all && !reader.pending.is_empty(), "the socket's own buffer is full");
        let mut lines = BufReader::new(theirs).lines();
        for sequence in 0..count {
            reader.send();
            let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(line["sequence"], sequence);
        }
        assert_eq!((reader.pending_bytes, reader.sent_of_first, reader.gone), (0, 0, false));
    }
}
