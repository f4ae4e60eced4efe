//! The journal's native protocol: each line of the log, with its fields, is one datagram to journald.
//!
//! A field is `NAME=value\n`. If the value has line ends: `NAME\n`, its length as 64 bits little-endian, the value, `\n`
//! (systemd.journal-fields(7), "Native Journal Protocol").

use std::fmt::Write as _;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, Record};

use super::subject;

/// Socket of journald.
const SOCKET: &str = "/run/systemd/journal/socket";

/// How long a journald that does not read may delay a thread that logs.
const PATIENCE: Duration = Duration::from_millis(100);

/// Connection to journald.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
    /// Number of lines that journald did not accept and that were not reported yet.
    lost: AtomicU64,
}

impl Journal {
    /// Connects to this machine's journald; returns `None` if there is none.
    pub fn connect() -> Option<Self> {
        Self::at(Path::new(SOCKET)).ok()
    }

    /// Connects to the journald that listens at `path`.
    fn at(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        // Each datagram is addressed to the path, so that a restarted journald also gets them. journald ignores this empty
        // one; it only shows whether journald listens.
        socket.send_to(&[], path)?;
        Ok(Self { socket, path: path.to_owned(), lost: AtomicU64::new(0) })
    }

    /// Writes `message` with the fields of `record`; returns `false` if journald is gone or the line is too long for a
    /// datagram.
    ///
    /// If journald does not read, the line is lost; the next accepted line reports the number of lost ones.
    pub fn write(&self, record: &Record<'_>, message: &str) -> bool {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let mut fields = Vec::new();
            let warning = format!("the journal did not take {lost} lines before this one");
            common_fields(&mut fields, Level::Warn, &warning);
            if self.socket.send_to(&fields, &self.path).is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
        match self.socket.send_to(&fields(record, message), &self.path) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(_) => false,
        }
    }
}

/// Returns the journal's priority for a level.
pub fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Returns the datagram.
fn fields(record: &Record<'_>, message: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + message.len());
    common_fields(&mut out, record.level(), message);
    field(&mut out, "TARGET", record.target());
    if let Some(file) = record.file() {
        field(&mut out, "CODE_FILE", file);
    }
    if let Some(line) = record.line() {
        field(&mut out, "CODE_LINE", &line.to_string());
    }
    let mut own = OwnFields { out: &mut out, names: Vec::new() };
    // Fails only if a value cannot be written into a String.
    let _ = record.key_values().visit(&mut own);
    let names = own.names;
    subject::with(|name, value| {
        if !names.iter().any(|named| named == name) {
            field(&mut out, name, value);
        }
    });
    out
}

fn common_fields(out: &mut Vec<u8>, level: Level, message: &str) {
    field(out, "MESSAGE", message);
    field(out, "PRIORITY", &priority(level).to_string());
    field(out, "SYSLOG_IDENTIFIER", "visiond");
}

fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value.as_bytes());
    out.push(b'\n');
}

/// Writes a record's key-values as fields: `camera` becomes CAMERA.
struct OwnFields<'a> {
    out: &'a mut Vec<u8>,
    names: Vec<String>,
}

impl<'kvs> VisitSource<'kvs> for OwnFields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        if let Some(name) = field_name(key.as_str()) {
            let mut text = String::new();
            write!(text, "{value}")?;
            field(self.out, &name, &text);
            self.names.push(name);
        }
        Ok(())
    }
}

/// Returns the name of a field: capitals, digits and `_`, first a letter, at most 64 bytes. journald drops any other.
fn field_name(key: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.len() <= 64 && key.chars().all(fits);
    good.then(|| key.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::logging::subject::{Subject, about};

    fn journald() -> (tempfile::TempDir, UnixDatagram, Journal) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journald = UnixDatagram::bind(&path).unwrap();
        journald.set_read_timeout(Some(crate::testing::HANG)).unwrap();
        let journal = Journal::at(&path).unwrap();
        assert_eq!(heard(&journald), "", "the question whether it listens");
        (folder, journald, journal)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    }

    #[test]
    fn a_line_has_its_fields_and_those_of_the_thread_that_wrote_it() {
        let (_folder, journald, journal) = journald();
        let pairs = [("model", Value::from("m")), ("frame", Value::from(7)), ("_hidden", Value::from(1))];
        let record = Record::builder()
            .args(format_args!(""))
            .level(Level::Warn)
            .target("visiond_pipeline::camera")
            .file(Some("camera.rs"))
            .line(Some(12))
            .key_values(&pairs)
            .build();
        about(Subject::Camera, "door");
        about(Subject::Model, "hidden by the record's own");
        assert!(journal.write(&record, "it is\ngone"));
        let text = heard(&journald);
        assert_eq!(
            text,
            "MESSAGE\n\u{a}\0\0\0\0\0\0\0it is\ngone\nPRIORITY=4\nSYSLOG_IDENTIFIER=visiond\n\
             TARGET=visiond_pipeline::camera\nCODE_FILE=camera.rs\nCODE_LINE=12\nMODEL=m\nFRAME=7\nCAMERA=door\n"
        );
    }

    #[test]
    fn a_journal_that_does_not_read_costs_lines_and_says_so_later() {
        let (_folder, journald, journal) = journald();
        let record = Record::builder().args(format_args!("")).level(Level::Info).build();
        let mut sent = 0;
        while journal.lost.load(Ordering::Relaxed) == 0 {
            assert!(journal.write(&record, "line"));
            sent += 1;
        }
        for _ in 1..sent {
            assert!(heard(&journald).starts_with("MESSAGE=line\n"));
        }
        assert!(journal.write(&record, "again"));
        assert!(heard(&journald).starts_with("MESSAGE=the journal did not take 1 lines before this one\nPRIORITY=4\n"));
        assert!(heard(&journald).starts_with("MESSAGE=again\n"));
    }

    #[test]
    fn a_restarted_journald_is_found_and_a_missing_one_is_reported() {
        let (folder, journald, journal) = journald();
        let record = Record::builder().args(format_args!("")).level(Level::Info).build();
        drop(journald);
        assert!(!journal.write(&record, "lost"));
        std::fs::remove_file(folder.path().join("socket")).unwrap();
        assert!(!journal.write(&record, "lost"));
        let journald = UnixDatagram::bind(folder.path().join("socket")).unwrap();
        assert!(journal.write(&record, "found"));
        assert!(heard(&journald).starts_with("MESSAGE=found\n"));
        assert!(Journal::at(Path::new("/nowhere/socket")).is_err());
    }
}
