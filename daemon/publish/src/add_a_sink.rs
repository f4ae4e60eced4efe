//! The sink of docs/contributing/add-a-sink.md, so that its code builds. The document shows the parts between the marks.

#![allow(clippy::unwrap_used)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use visiond_config::types::{SinkConfig, WhenFull};
use visiond_message::Published;
use visiond_message::testing::{door_message, sized_message};
use visiond_system::outage::{Outage, explain};
use visiond_system::stop::Stop;
use visiond_telemetry::trace;

use crate::queue::{Counters, Popped, Queue};
use crate::sink::{Opening, Sink, SinkEnd, SinkError, SinkType};

/// The struct that `section!` generates from the keys.
struct UdpSinkConfig {
    url: String,
    max_bytes: usize,
}

// Shown: the type.
impl SinkType for UdpSinkConfig {
    fn place(&self) -> String {
        self.url.clone()
    }

    fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        Ok(Box::new(UdpSink::new(&opening.sink.name, self)))
    }
}
// End.

struct UdpSink {
    to: String,
    max_bytes: usize,
    socket: Option<UdpSocket>,
    outage: Outage,
}

impl UdpSink {
    fn new(name: &str, config: &UdpSinkConfig) -> Self {
        let to = config.url.trim_start_matches("udp://").to_owned();
        Self { to, max_bytes: config.max_bytes, socket: None, outage: Outage::new(format!("sink {name}")) }
    }

    fn configure(&mut self, config: &SinkConfig) {
        self.outage.rename(format!("sink {}", config.name));
    }

    fn send(&mut self, line: &[u8]) -> io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            empty => {
                let to: SocketAddr = self.to.parse().map_err(io::Error::other)?;
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                socket.connect(to)?;
                socket.set_nonblocking(true)?;
                empty.insert(socket)
            }
        };
        socket.send(line).map(drop)
    }
}

// Shown: the sink.
impl Sink for UdpSink {
    fn run(mut self: Box<Self>, queue: &Queue) -> SinkEnd {
        loop {
            let message = match queue.pop(None) {
                Popped::Message(message) => message,
                Popped::Configured(config) => {
                    self.configure(&config);
                    continue;
                }
                Popped::TimedOut => continue,
                Popped::Closed => return SinkEnd::Closed,
            };
            if queue.is_overdue() {
                Counters::add(&queue.counters.unsent, 1);
                return SinkEnd::Closed;
            }
            let (line, now) = (message.line(), Instant::now());
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if line.len() > self.max_bytes {
                Counters::add(&queue.counters.failed, 1);
                continue;
            }
            if !self.outage.may_try(now) {
                self.outage.lost(1);
                Counters::add(&queue.counters.failed, 1);
                continue;
            }
            let _trace = trace::work_on("write", message.topic(), message.sequence());
            match self.send(line) {
                Ok(()) => {
                    self.outage.recovered(now);
                    Counters::add(&queue.counters.written, 1);
                }
                Err(error) => {
                    self.socket = None;
                    self.outage.failed(&explain(&error), now);
                    self.outage.lost(1);
                    Counters::add(&queue.counters.failed, 1);
                }
            }
            queue.counters.report_outage(&self.outage);
        }
    }
}
// End.

#[test]
fn each_message_is_a_datagram_and_one_that_is_too_large_has_failed() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let config = UdpSinkConfig { url: format!("udp://{}", receiver.local_addr().unwrap()), max_bytes: 2_000 };
    assert!(config.check().is_ok() && config.place().starts_with("udp://127"));
    let (queue, sink) = (Queue::new(8, WhenFull::DropOldest, &Stop::new().unwrap()), UdpSink::new("udp", &config));
    let messages = [door_message(1, 0), sized_message("door", 2, 10_000), door_message(3, 0)];
    for message in &messages {
        queue.push(&std::sync::Arc::new(Published::new(std::sync::Arc::clone(message))), || ());
    }
    queue.close(Instant::now() + Duration::from_secs(30));
    assert_eq!(Box::new(sink).run(&queue), SinkEnd::Closed);
    let mut bytes = [0; 4_000];
    for message in [&messages[0], &messages[2]] {
        let length = receiver.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], *message.to_line().strip_suffix(b"\n").unwrap());
    }
    let counts = queue.counters.shown.read(|counter| counter.load(std::sync::atomic::Ordering::Relaxed));
    assert_eq!((counts.queued, counts.written, counts.failed), (3, 2, 1));
}

#[test]
fn the_document_shows_this_code() {
    let document = include_str!("../../../docs/contributing/add-a-sink.md");
    let code = include_str!("add_a_sink.rs");
    let parts: Vec<_> = code.split("// Shown: ").skip(1).filter_map(|rest| rest.split_once("// End.")).collect();
    assert!(parts.len() >= 2);
    for (part, _) in &parts[..2] {
        let (title, shown) = part.split_once('\n').unwrap();
        assert!(document.contains(shown), "docs/contributing/add-a-sink.md does not show {title}\n{shown}");
    }
}
