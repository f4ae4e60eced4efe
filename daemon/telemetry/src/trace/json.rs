//! Writes a trace as JSON in Chrome's trace event format, which <https://ui.perfetto.dev> and chrome://tracing display.
//!
//! The work of a thread is a slice on its track. A frame with its stages is a nested asynchronous slice, so overlapping frames of
//! a camera appear below each other. Arrows follow a frame from thread to thread.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{DELIVER, Event, FRAME, Kind, Trace};

/// Writes entries of `traceEvents`, separated by commas.
struct Entries<'o> {
    out: &'o mut dyn Write,
    pid: u32,
    base_ns: u64,
    any: bool,
}

impl Entries<'_> {
    /// Returns the microseconds since the first event.
    fn us(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.base_ns) as f64 / 1e3
    }

    fn put(&mut self, entry: &Value) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}\n{entry}")
    }
}

impl Trace {
    /// Writes the trace as JSON.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let about = serde_json::json!({
            "program": "visiond",
            "version": env!("CARGO_PKG_VERSION"),
            "events_lost": self.lost,
        });
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
        let base_ns = self.events.iter().map(|event| event.from_ns).min().unwrap_or(0);
        let mut entries = Entries { out, pid: std::process::id(), base_ns, any: false };
        self.write_names(&mut entries)?;
        for event in self.events.iter().filter(|event| event.kind == Kind::Work) {
            write_work(event, &mut entries)?;
        }
        for ((topic, frame), events) in self.frames() {
            write_stages(topic, frame, &events, &mut entries)?;
            write_arrows(topic, frame, &events, &mut entries)?;
        }
        out.write_all(b"\n]}\n")
    }

    fn write_names(&self, entries: &mut Entries<'_>) -> io::Result<()> {
        let pid = entries.pid;
        let names = self.threads.iter().map(|(thread, name)| ("thread_name", *thread, name.as_str()));
        for (what, tid, name) in [("process_name", pid, "visiond")].into_iter().chain(names) {
            entries.put(&json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}))?;
        }
        Ok(())
    }

    /// Returns the events of each frame and model, in order of time. What delivers a frame to all models belongs to each.
    fn frames(&self) -> BTreeMap<(&Arc<str>, u64), Vec<&Event>> {
        let mut frames: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in &self.events {
            if let Some((topic, sequence)) = &event.frame {
                frames.entry((topic, *sequence)).or_default().push(event);
            }
        }
        let delivered: HashMap<_, _> =
            self.events.iter().filter(|event| event.what == DELIVER).filter_map(by_frame).collect();
        for ((topic, sequence), events) in &mut frames {
            if let Some((camera, _)) = topic.split_once('/') {
                events.extend(delivered.get(&(camera, *sequence)));
            }
        }
        // An enclosing event comes before the events in it.
        frames.values_mut().for_each(|events| events.sort_by_key(|event| (event.from_ns, u64::MAX - event.to_ns)));
        frames
    }
}

/// Returns an event with its frame.
fn by_frame(event: &Event) -> Option<((&str, u64), &Event)> {
    let (topic, sequence) = event.frame.as_ref()?;
    Some(((topic, *sequence), event))
}

/// Returns the facts of a frame, which a click on an event shows.
fn args(topic: &str, frame: u64) -> Value {
    match topic.split_once('/') {
        Some((camera, model)) => json!({"camera": camera, "model": model, "frame": frame}),
        None => json!({"camera": topic, "frame": frame}),
    }
}

fn write_work(event: &Event, entries: &mut Entries<'_>) -> io::Result<()> {
    let mut entry = json!({
        "ph": "X", "name": event.what, "cat": "thread", "pid": entries.pid, "tid": event.thread,
        "ts": entries.us(event.from_ns), "dur": event.to_ns.saturating_sub(event.from_ns) as f64 / 1e3,
    });
    if let Some((topic, frame)) = &event.frame {
        entry["args"] = args(topic, *frame);
    }
    entries.put(&entry)
}

/// Writes the stages of a frame, each inside the stage that started before it and has not ended.
fn write_stages(topic: &str, frame: u64, events: &[&Event], entries: &mut Entries<'_>) -> io::Result<()> {
    let mut open: Vec<&Event> = Vec::new();
    let mut stages = events.iter().copied().filter(|event| event.kind == Kind::Stage);
    loop {
        let next = stages.next();
        while let Some(last) = open.pop_if(|last| next.is_none_or(|next| last.to_ns <= next.from_ns)) {
            write_edge("e", last, last.to_ns, topic, frame, entries)?;
        }
        let Some(next) = next else { return Ok(()) };
        write_edge("b", next, next.from_ns, topic, frame, entries)?;
        open.push(next);
    }
}

fn write_edge(
    ph: &'static str,
    event: &Event,
    at_ns: u64,
    topic: &str,
    frame: u64,
    entries: &mut Entries<'_>,
) -> io::Result<()> {
    let name = if event.what == FRAME { topic } else { event.what };
    let mut entry = json!({
        "ph": ph, "name": name, "cat": "frame", "pid": entries.pid, "tid": entries.pid,
        "ts": entries.us(at_ns), "id": id(topic, frame),
    });
    if ph == "b" {
        entry["args"] = args(topic, frame);
    }
    entries.put(&entry)
}

/// Writes an arrow from each thread that had the frame to the next one.
fn write_arrows(topic: &str, frame: u64, events: &[&Event], entries: &mut Entries<'_>) -> io::Result<()> {
    let stops: Vec<_> = events.iter().filter(|event| event.kind != Kind::Stage).collect();
    let last = stops.len().saturating_sub(1);
    for (at, stop) in stops.iter().enumerate().filter(|_| last > 0) {
        let ph = match at {
            0 => "s",
            _ if at == last => "f",
            _ => "t",
        };
        let mut entry = json!({
            "ph": ph, "name": "frame", "cat": "flow", "pid": entries.pid, "tid": stop.thread,
            "ts": entries.us(stop.from_ns), "id": id(topic, frame),
        });
        if ph == "f" {
            // The arrow ends at the enclosing slice, not at the next one.
            entry["bp"] = json!("e");
        }
        entries.put(&entry)?;
    }
    Ok(())
}

/// Returns an id that is practically unique to the frame, camera and model, in hexadecimal as the format requires.
fn id(topic: &str, frame: u64) -> String {
    format!("0x{:08x}{:08x}", crc32fast::hash(topic.as_bytes()), frame as u32)
}
