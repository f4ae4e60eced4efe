//! Writes a trace as JSON in Chrome's trace event format, which <https://ui.perfetto.dev> and chrome://tracing display.
//!
//! The work of a thread is a slice on its track. A frame with its stages is a nested asynchronous slice, so overlapping frames of
//! a camera appear below each other. Arrows follow a frame from thread to thread.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::{Event, FRAME, Kind, Trace};

/// One entry of `traceEvents`, with the field names of the format.
#[derive(Serialize)]
struct Entry<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: u32,
    /// Microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// End of an arrow: the enclosing slice, not the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Name { name: &'a str },
    Frame { camera: &'a str, frame: u64 },
}

/// Writes entries with commas between them.
struct Entries<'o> {
    out: &'o mut dyn Write,
    pid: u32,
    base_ns: u64,
    any: bool,
}

impl Entries<'_> {
    fn entry<'a>(&self, ph: &'static str, name: &'a str, tid: u32) -> Entry<'a> {
        Entry { ph, name, cat: None, pid: self.pid, tid, ts: None, dur: None, id: None, bp: None, args: None }
    }

    fn us(&self, ns: u64) -> Option<f64> {
        Some(ns.saturating_sub(self.base_ns) as f64 / 1e3)
    }

    fn put(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.out.write_all(if std::mem::replace(&mut self.any, true) { b",\n" } else { b"\n" })?;
        Ok(serde_json::to_writer(&mut *self.out, entry)?)
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
        for ((camera, frame), events) in self.frames() {
            write_stages(camera, frame, &events, &mut entries)?;
            write_arrows(camera, frame, &events, &mut entries)?;
        }
        out.write_all(b"\n]}\n")
    }

    fn write_names(&self, entries: &mut Entries<'_>) -> io::Result<()> {
        let mut process = entries.entry("M", "process_name", entries.pid);
        process.args = Some(Args::Name { name: "visiond" });
        entries.put(&process)?;
        for (thread, name) in &self.threads {
            let mut entry = entries.entry("M", "thread_name", *thread);
            entry.args = Some(Args::Name { name });
            entries.put(&entry)?;
        }
        Ok(())
    }

    /// Returns the events of each frame, in order of time.
    fn frames(&self) -> BTreeMap<(&Arc<str>, u64), Vec<&Event>> {
        let mut frames: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in &self.events {
            if let Some((camera, sequence)) = &event.frame {
                frames.entry((camera, *sequence)).or_default().push(event);
            }
        }
        // An enclosing event comes before the events in it.
        frames.values_mut().for_each(|events| events.sort_by_key(|event| (event.from_ns, u64::MAX - event.to_ns)));
        frames
    }
}

fn write_work(event: &Event, entries: &mut Entries<'_>) -> io::Result<()> {
    let mut entry = entries.entry("X", event.what, event.thread);
    entry.cat = Some("thread");
    entry.ts = entries.us(event.from_ns);
    entry.dur = Some(event.to_ns.saturating_sub(event.from_ns) as f64 / 1e3);
    entry.args = event.frame.as_ref().map(|(camera, frame)| Args::Frame { camera, frame: *frame });
    entries.put(&entry)
}

/// Writes the stages of a frame, each inside the stage that started before it and has not ended.
fn write_stages(camera: &str, frame: u64, events: &[&Event], entries: &mut Entries<'_>) -> io::Result<()> {
    let mut open: Vec<&Event> = Vec::new();
    let mut stages = events.iter().copied().filter(|event| event.kind == Kind::Stage);
    loop {
        let next = stages.next();
        while let Some(last) = open.pop_if(|last| next.is_none_or(|next| last.to_ns <= next.from_ns)) {
            write_edge("e", last, last.to_ns, camera, frame, entries)?;
        }
        let Some(next) = next else { return Ok(()) };
        write_edge("b", next, next.from_ns, camera, frame, entries)?;
        open.push(next);
    }
}

fn write_edge(
    ph: &'static str,
    event: &Event,
    at_ns: u64,
    camera: &str,
    frame: u64,
    entries: &mut Entries<'_>,
) -> io::Result<()> {
    let name = if event.what == FRAME { camera } else { event.what };
    let mut entry = entries.entry(ph, name, entries.pid);
    entry.cat = Some("frame");
    entry.ts = entries.us(at_ns);
    entry.id = Some(id(camera, frame));
    entry.args = (ph == "b").then_some(Args::Frame { camera, frame });
    entries.put(&entry)
}

/// Writes an arrow from each thread that had the frame to the next one.
fn write_arrows(camera: &str, frame: u64, events: &[&Event], entries: &mut Entries<'_>) -> io::Result<()> {
    let stops: Vec<_> = events.iter().filter(|event| event.kind != Kind::Stage).collect();
    let last = stops.len().saturating_sub(1);
    for (at, stop) in stops.iter().enumerate().filter(|_| last > 0) {
        let ph = match at {
            0 => "s",
            _ if at == last => "f",
            _ => "t",
        };
        let mut entry = entries.entry(ph, "frame", stop.thread);
        entry.cat = Some("flow");
        entry.ts = entries.us(stop.from_ns);
        entry.id = Some(id(camera, frame));
        entry.bp = (ph == "f").then_some("e");
        entries.put(&entry)?;
    }
    Ok(())
}

/// Returns an id that is practically unique to the frame and camera, in hexadecimal as the format requires.
fn id(camera: &str, frame: u64) -> String {
    format!("0x{:08x}{:08x}", crc32fast::hash(camera.as_bytes()), frame as u32)
}
