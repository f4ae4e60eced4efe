//! Writes JSON lines to a file, which is rotated by size and recreated after it was moved or deleted.
//!
//! Every line is one write(2) in append mode. If the system cuts a line short (a full disk), the sink truncates the file to the
//! last whole line, so that a reader never finds half a line; when it opens a file, it does the same for a line that a killed
//! process or a power cut left. A file that cannot be written delays nothing: its messages count as lost, and the sink
//! retries after 0.25 s, then at growing intervals up to 5 s.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use visiond_config::types::{FileSinkConfig, SinkConfig, SinkKind};
use visiond_system::outage::{IfUnusable, Outage, explain};
use visiond_system::preflight::{Certainty, is_special, may_open_or_create};
use visiond_telemetry::trace;

use super::queue::{Counters, Popped, Queue};
use super::sink::{Opening, Sink, SinkEnd, SinkError, SinkType};

/// How often the sink checks whether its file was moved, deleted or truncated.
const LOOK_UP_EVERY: Duration = Duration::from_secs(1);

/// The start of every line. If the end of a file starts like this and has no line feed, the line was cut short.
const OUR_LINE: &[u8] = b"{\"schema\":\"visiond/";

/// How many bytes at the end of a file the sink searches for a line that was cut short.
const LONGEST_LINE_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub struct FileSink {
    name: String,
    path: PathBuf,
    rotate_bytes: u64,
    rotate_keep: u32,
    /// `None` while the file cannot be written.
    log: Option<OpenLog>,
    outage: Outage,
    /// The size at which to rotate next. After a failed rotation it grows by `rotate_bytes`.
    rotate_at: u64,
}

/// The open file.
#[derive(Debug)]
struct OpenLog {
    file: File,
    /// Device and inode, which identify a file regardless of its name.
    id: (u64, u64),
    len_bytes: u64,
    /// Devices such as /dev/null have no length, so the sink neither truncates nor rotates them.
    regular: bool,
    looked_up: Instant,
}

impl SinkType for FileSinkConfig {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn check(&self) -> Result<(), SinkError> {
        let path = &self.path;
        let checked = may_open_or_create(path).and_then(|()| if is_special(path) { Err(no_file()) } else { Ok(()) });
        checked.or_else(|error| if is_passing(&error) { Ok(()) } else { Err(cannot_write(path, &error)) })
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Sink>, SinkError> {
        Ok(Box::new(FileSink::open(&opening.sink.name, self, opening.if_unusable)?))
    }
}

impl FileSink {
    /// Creates the sink, whose thread opens the file. With [`IfUnusable::Refuse`], opens it now, and fails if waiting cannot help.
    fn open(name: &str, config: &FileSinkConfig, if_unusable: IfUnusable) -> Result<Self, SinkError> {
        let mut sink = Self {
            name: name.to_owned(),
            path: config.path.clone(),
            rotate_bytes: config.rotate_bytes,
            rotate_keep: config.rotate_keep,
            log: None,
            outage: Outage::new(label(name, &config.path)),
            rotate_at: config.rotate_bytes,
        };
        if if_unusable == IfUnusable::Refuse {
            let now = Instant::now();
            match sink.opened(now) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => sink.outage.failed(&explain(&error), now),
                Err(error) => return Err(cannot_write(&config.path, &error)),
            }
        }
        Ok(sink)
    }

    /// Applies a new name and new rotation; the file stays open.
    fn configure(&mut self, config: SinkConfig) {
        let SinkKind::File(FileSinkConfig { rotate_bytes, rotate_keep, .. }) = config.kind else { return };
        (self.rotate_bytes, self.rotate_keep, self.rotate_at) = (rotate_bytes, rotate_keep, rotate_bytes);
        self.outage.rename(label(&config.name, &self.path));
        self.name = config.name;
    }

    /// Writes one whole line, or nothing.
    fn write(&mut self, line: &[u8], now: Instant) -> io::Result<()> {
        self.close_if_moved(now)?;
        let (rotates, rotate_at) = (self.rotate_bytes > 0, self.rotate_at);
        let log = self.opened(now)?;
        if rotates && log.regular && log.len_bytes > 0 && log.len_bytes + line.len() as u64 > rotate_at {
            self.rotate();
        }
        self.opened(now)?.append(line)
    }

    fn opened(&mut self, now: Instant) -> io::Result<&mut OpenLog> {
        match &mut self.log {
            Some(log) => Ok(log),
            empty => Ok(empty.insert(OpenLog::open(&self.path, &self.name, now)?)),
        }
    }

    /// Closes the file if its path no longer leads to it.
    fn close_if_moved(&mut self, now: Instant) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        if now.saturating_duration_since(log.looked_up) < LOOK_UP_EVERY {
            return Ok(());
        }
        log.looked_up = now;
        match fs::metadata(&self.path) {
            Ok(found) if id(&found) == log.id => log.len_bytes = found.len(),
            Ok(_) => self.log = None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.log = None,
            Err(error) => return Err(error),
        }
        if self.log.is_none() {
            log::info!("sink {}: {} was moved or deleted; started a new file", self.name, self.path.display());
        }
        Ok(())
    }

    /// Renames PATH to PATH.1, PATH.1 to PATH.2, up to the number of files to keep, and starts a new PATH.
    ///
    /// If a file cannot be renamed, the sink keeps appending to the current file.
    fn rotate(&mut self) {
        match self.shift_names() {
            Ok(()) => {
                self.rotate_at = self.rotate_bytes;
                self.log = None;
            }
            Err(error) => {
                let (name, path) = (&self.name, self.path.display());
                log::error!("sink {name}: cannot rotate {path}, which keeps growing: {}", explain(&error));
                let len_bytes = self.log.as_ref().map_or(0, |log| log.len_bytes);
                self.rotate_at = len_bytes.saturating_add(self.rotate_bytes);
            }
        }
    }

    fn shift_names(&self) -> io::Result<()> {
        if self.rotate_keep == 0 {
            return fs::remove_file(&self.path);
        }
        // The first free number ends the chain, so that a large `rotate_keep` costs nothing.
        let last = (1..self.rotate_keep).find(|&n| !numbered(&self.path, n).exists()).unwrap_or(self.rotate_keep);
        for n in (1..last).rev() {
            fs::rename(numbered(&self.path, n), numbered(&self.path, n + 1))?;
        }
        fs::rename(&self.path, numbered(&self.path, 1))
    }
}

impl Sink for FileSink {
    fn run(mut self: Box<Self>, queue: &Queue) -> SinkEnd {
        let now = Instant::now();
        if self.outage.may_try(now)
            && let Err(error) = self.opened(now)
        {
            self.outage.failed(&explain(&error), now);
        }
        queue.counters.report_outage(&self.outage);
        loop {
            let message = match queue.pop(None) {
                Popped::Message(message) => message,
                Popped::Configured(config) => {
                    self.configure(*config);
                    continue;
                }
                Popped::TimedOut => continue,
                Popped::Closed => return SinkEnd::Closed,
            };
            if queue.is_overdue() {
                Counters::add(&queue.counters.unsent, 1);
                return SinkEnd::Closed;
            }
            let now = Instant::now();
            if self.outage.may_try(now) {
                let _trace = trace::work_on("write", message.topic(), message.sequence());
                match self.write(message.line(), now) {
                    Ok(()) => {
                        self.outage.recovered(now);
                        queue.counters.report_outage(&self.outage);
                        Counters::add(&queue.counters.written, 1);
                        continue;
                    }
                    Err(error) => {
                        // The next attempt opens it again, and so finds a folder that was mounted in the meantime.
                        self.log = None;
                        self.outage.failed(&explain(&error), now);
                        queue.counters.report_outage(&self.outage);
                    }
                }
            }
            self.outage.lost(1);
            Counters::add(&queue.counters.failed, 1);
        }
    }
}

impl OpenLog {
    /// Opens `path` for appending, creates it if it is missing, and removes half a line at its end.
    fn open(path: &Path, sink: &str, now: Instant) -> io::Result<Self> {
        // Without O_NONBLOCK, opening a FIFO without a reader would block the thread.
        let file = OpenOptions::new().read(true).append(true).create(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        if !(found.is_file() || found.file_type().is_char_device()) {
            return Err(no_file());
        }
        let (id, regular) = (id(&found), found.is_file());
        let mut log = Self { id, len_bytes: found.len(), regular, looked_up: now, file };
        if regular {
            log.mend_end(path, sink)?;
        }
        Ok(log)
    }

    /// Appends `line`, with one write(2) unless the system cuts it short; truncates a line that cannot be completed.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < line.len() {
            let error = match self.file.write(&line[written..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    written += n;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            if self.regular && written > 0 {
                let len_bytes = self.file.metadata()?.len();
                self.file.set_len(len_bytes.saturating_sub(written as u64))?;
            }
            return Err(error);
        }
        self.len_bytes += written as u64;
        Ok(())
    }

    /// Removes a truncated line of visiond's from the end; ends any other unfinished line with a line feed.
    fn mend_end(&mut self, path: &Path, sink: &str) -> io::Result<()> {
        let looked_at = self.len_bytes.min(LONGEST_LINE_BYTES);
        let start = self.len_bytes - looked_at;
        // Most files end with a line feed: one byte is enough to know.
        let mut last = [b'\n'];
        if self.len_bytes > 0 {
            self.file.read_exact_at(&mut last, self.len_bytes - 1)?;
        }
        if last[0] == b'\n' {
            return Ok(());
        }
        let mut end = vec![0; looked_at as usize];
        self.file.read_exact_at(&mut end, start)?;
        let line_start = end.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let rest = &end[line_start..];
        let begins_as_ours = rest.starts_with(OUR_LINE) || OUR_LINE.starts_with(rest);
        if begins_as_ours && (line_start > 0 || start == 0) {
            log::warn!("sink {sink}: {} ended in half a line: removed {} bytes", path.display(), rest.len());
            self.len_bytes = start + line_start as u64;
            self.file.set_len(self.len_bytes)
        } else {
            self.append(b"\n")
        }
    }
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file; name another path")
}

fn cannot_write(path: &Path, error: &io::Error) -> SinkError {
    let reason = format!("cannot write {}: {}", path.display(), explain(error));
    SinkError { key: "path", reason, certainty: Certainty::of(error, path) }
}

fn label(name: &str, path: &Path) -> String {
    format!("sink {name}: {}", path.display())
}

fn id(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Appends `.n` to `path`.
pub(super) fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

/// Whether waiting can solve the problem.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    !matches!(
        error.kind(),
        NotFound | PermissionDenied | IsADirectory | InvalidInput | NotADirectory | ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn thirty_days_of_rotation_keep_every_line_once_in_files_of_their_size() {
        const KEEP: u32 = 5;
        const ROTATE_BYTES: u64 = 100_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let config = FileSinkConfig { path: path.clone(), rotate_bytes: ROTATE_BYTES, rotate_keep: KEEP };
        let mut sink = FileSink::open("test", &config, IfUnusable::Retry).unwrap();
        let start = Instant::now();
        let line = |number: u64| format!("{{\"schema\":\"visiond/1\",\"sequence\":{number:010}}}\n");
        let numbers = |path: &Path| -> Vec<u64> {
            let text = fs::read_to_string(path).unwrap_or_default();
            assert!(text.is_empty() || text.ends_with('\n'));
            text.lines().map(|line| line[line.len() - 11..line.len() - 1].parse().unwrap()).collect()
        };
        // A message every ten seconds. Rotation goes by size alone, so no name has a date: months, daylight saving time and
        // steps of the wall clock change nothing. Each day at noon another program (logrotate) moves the file away.
        let (mut moved, mut lines): (Vec<u64>, u64) = (Vec::new(), 0);
        for tick in 0..30 * 8640_u64 {
            let now = start + Duration::from_secs(10) * tick as u32;
            if tick % 8640 == 4320 {
                moved.extend(numbers(&path));
                fs::rename(&path, folder.path().join("moved")).unwrap();
            }
            sink.write(line(lines).as_bytes(), now).unwrap();
            lines += 1;
            if tick % 1440 == 1439 {
                let names = fs::read_dir(folder.path()).unwrap().count();
                assert!(names <= KEEP as usize + 2, "{names} files");
                let files = (1..=KEEP).rev().map(|n| numbered(&path, n)).chain([path.clone()]);
                let mut kept: Vec<u64> = Vec::new();
                for file in files.filter(|file| file.exists()) {
                    assert!(fs::metadata(&file).unwrap().len() <= ROTATE_BYTES);
                    kept.extend(numbers(&file));
                }
                // Oldest first, each once, up to the newest; the moved file is the only gap.
                let (first, last) = (kept[0], *kept.last().unwrap());
                assert!(kept.is_sorted_by(|a, b| a < b) && last == lines - 1);
                let gap = moved.iter().filter(|number| (first..last).contains(*number)).count() as u64;
                assert_eq!(kept.len() as u64 + gap, last - first + 1);
            }
        }
        assert_eq!(lines, 259_200);
    }
}
