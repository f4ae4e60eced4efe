//! Reads pictures as frames: one file, a folder in natural order, or a folder that is watched for new files.
//!
//! visiond scans a watched folder every `watch_interval`. A file counts as complete when two scans found the same size and
//! time, so that a file that is still being written is not read half. Each file is read once, and again when it is replaced.
//! Files that were there at the start are complete.

use std::cmp::Ordering;
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use visiond_config::types::ImagesConfig;
use visiond_flow::clock::{self, Clock};
use visiond_flow::frame::FramePool;
use visiond_flow::metrics::LossCause;
use visiond_system::preflight::Certainty;
use visiond_system::stop::Stop;

use super::buffers::Buffers;
use super::pacer::SourcePacer;
use super::picture::{self, Loader};
use super::quarantine::Quarantine;
use super::source::{Next, Source, SourceError, SourceFault};

/// File name extensions to read from a folder, in lower case. The content decides the format.
const ENDINGS: [&str; 14] =
    ["png", "jpg", "jpeg", "jpe", "bmp", "dib", "gif", "tif", "tiff", "webp", "pbm", "pgm", "ppm", "pnm"];

pub(crate) struct ImagesSource {
    config: ImagesConfig,
    is_folder: bool,
    pool: FramePool,
    loader: Loader,
    quarantine: Quarantine,
    pacer: Option<SourcePacer>,
    clock: Arc<dyn Clock>,
    /// Complete pictures to read.
    waiting: VecDeque<PathBuf>,
    /// Every file of a watched folder at the last scan.
    known: HashMap<PathBuf, KnownFile>,
    /// Whether the first scan of a watched folder, whose files all count as complete, is over.
    is_watching: bool,
    sequence: u64,
    /// Pictures that were read in this round. A round without any must not repeat forever.
    round_read: u64,
    label: String,
}

/// A file of a watched folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownFile {
    bytes: u64,
    modified: Option<SystemTime>,
    handed_out: bool,
}

impl ImagesSource {
    /// Finds out whether [`ImagesSource::open`] would fail.
    pub fn check(config: &ImagesConfig) -> Option<SourceFault> {
        let fault = |error, certainty| Some(SourceFault { key: "path", error, certainty });
        let path = &config.path;
        let files = match fs::metadata(path) {
            Ok(found) if found.is_dir() => list(path),
            Ok(found) if found.is_file() => return picture::check(path).err().and_then(|(e, c)| fault(e, c)),
            Ok(_) => return None,
            Err(error) => Err(error),
        };
        match files {
            Ok(files) if files.is_empty() && !config.watch => fault(no_picture(path), Certainty::Certain),
            Ok(_) => None,
            Err(error) => fault(cannot_read(path, &error, config.watch), Certainty::of_reading(&error)),
        }
    }

    /// Checks the picture, or scans the folder. `state` is the folder that remembers pictures which ended visiond.
    pub fn open(
        config: &ImagesConfig,
        name: &str,
        buffers: &Buffers,
        state: Option<&Path>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let path = config.path.display();
        let metadata = fs::metadata(&config.path).map_err(|error| cannot_read(&config.path, &error, config.watch))?;
        if let Some(fps) = config.fps.filter(|fps| !(fps.is_finite() && *fps > 0.0)) {
            return Err(SourceError::permanent(format!(
                "cannot read {path} at {fps} pictures per second: fps must be above 0"
            )));
        }
        let mut source = Self {
            config: config.clone(),
            is_folder: metadata.is_dir(),
            // Pictures differ in size: each buffer grows as needed.
            pool: buffers.pool(0)?,
            loader: Loader::new(buffers),
            quarantine: Quarantine::open(state, name),
            pacer: config.fps.map(SourcePacer::new),
            clock,
            waiting: VecDeque::new(),
            known: HashMap::new(),
            is_watching: false,
            sequence: 0,
            round_read: 0,
            label: format!("camera {name}"),
        };
        source.scan()?;
        if source.waiting.is_empty() && !(source.is_folder && config.watch) {
            return Err(if source.quarantine.is_empty() { no_picture(&config.path) } else { none_left(&config.path) });
        }
        Ok(source)
    }

    fn scan(&mut self) -> Result<(), SourceError> {
        if !self.is_folder {
            if !self.quarantine.holds(&self.config.path) {
                self.waiting.push_back(self.config.path.clone());
            }
            return Ok(());
        }
        let is_watched = self.config.watch;
        let files = list(&self.config.path).map_err(|error| cannot_read(&self.config.path, &error, is_watched))?;
        if !is_watched {
            self.waiting.extend(files.into_iter().map(|(path, _)| path).filter(|path| !self.quarantine.holds(path)));
            return Ok(());
        }
        let mut now = HashMap::with_capacity(files.len());
        for (path, mut file) in files {
            let before = self.known.get(&path);
            let is_same = before.is_some_and(|before| before.bytes == file.bytes && before.modified == file.modified);
            let was_handed_out = is_same && before.is_some_and(|before| before.handed_out);
            // An empty file is about to be written.
            let is_complete = is_same || (!self.is_watching && file.bytes > 0);
            if is_complete && !was_handed_out && file.bytes > 0 {
                if !self.quarantine.holds(&path) {
                    self.waiting.push_back(path.clone());
                }
                file.handed_out = true;
            } else {
                file.handed_out = was_handed_out;
            }
            now.insert(path, file);
        }
        self.known = now;
        self.is_watching = true;
        Ok(())
    }
}

impl Source for ImagesSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        let path = loop {
            stop.mark_progress();
            if stop.is_raised() {
                return Ok(Next::Stopped);
            }
            if let Some(path) = self.waiting.pop_front() {
                break path;
            }
            if self.is_folder && self.config.watch {
                self.pool.trim();
                let wake_ns = self.clock.monotonic_ns() + self.config.watch_interval.as_nanos() as u64;
                if self.clock.sleep_until(wake_ns, stop) {
                    return Ok(Next::Stopped);
                }
            } else if !self.config.repeat || std::mem::take(&mut self.round_read) == 0 {
                return Ok(Next::End);
            }
            self.scan()?;
        };
        let buffer = match &mut self.pacer {
            Some(pacer) => {
                // A gap between pictures is not lateness: the next one is due now.
                pacer.forgive(self.clock.monotonic_ns(), std::time::Duration::from_secs(1));
                let due_ns = pacer.due_ns(self.clock.monotonic_ns());
                if self.clock.sleep_until(due_ns, stop) {
                    return Ok(Next::Stopped);
                }
                pacer.advance();
                self.pool.take()
            }
            None => match self.pool.take_wait(stop) {
                Some(buffer) => Some(buffer),
                None => return Ok(Next::Stopped),
            },
        };
        let sequence = self.sequence;
        self.sequence += 1;
        let Some(buffer) = buffer else {
            self.round_read += 1;
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        self.quarantine.begin(&path);
        let loaded = self.loader.load(&path, sequence, buffer);
        self.quarantine.end();
        match loaded {
            Ok(mut frame) => {
                self.round_read += 1;
                frame.timestamp = clock::now(self.clock.as_ref());
                Ok(Next::Frame(frame))
            }
            Err(error) => {
                log::warn!("{}: {error}", self.label);
                Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt })
            }
        }
    }

    fn copied_bytes(&self) -> u64 {
        self.loader.copied_bytes()
    }

    fn describe(&self) -> String {
        let path = self.config.path.display();
        let rate = self.config.fps.map_or(String::new(), |fps| format!(", {fps} a second"));
        match (self.is_folder, self.config.watch) {
            (true, true) => format!("folder {path}, watched for new pictures{rate}"),
            (true, false) => format!("folder {path}, {} pictures{rate}", self.waiting.len()),
            (false, _) => format!("picture {path}{rate}"),
        }
    }
}

fn no_picture(folder: &Path) -> SourceError {
    let (folder, endings) = (folder.display(), ENDINGS.join(", "));
    SourceError::permanent(format!(
        "there is no picture in the folder {folder} (file names ending in {endings}): add one, or set `watch = true`"
    ))
}

fn none_left(path: &Path) -> SourceError {
    SourceError::permanent(format!(
        "there is no picture left in {}: see the skipped pictures above; replace them, or `touch` them to try again",
        path.display()
    ))
}

/// Returns the error for a path that cannot be read. A watched folder may appear later (a disk that is mounted later).
fn cannot_read(path: &Path, error: &io::Error, may_come: bool) -> SourceError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot read pictures from {}: {reason}", path.display());
    if may_come { SourceError::transient(message) } else { SourceError::permanent(message) }
}

/// Returns a folder's pictures in natural order.
pub fn pictures_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(list(folder)?.into_iter().map(|(path, _)| path).collect())
}

/// Lists a folder's pictures in natural order. Leaves out hidden files, and files that disappear meanwhile.
fn list(folder: &Path) -> io::Result<Vec<(PathBuf, KnownFile)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_hidden || !ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str())) {
            continue;
        }
        // Follows links: the picture matters.
        if let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            let file = KnownFile { bytes: metadata.len(), modified: metadata.modified().ok(), handed_out: false };
            files.push((path, file));
        }
    }
    files.sort_by(|(a, _), (b, _)| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

/// Compares names with numbers by value: img2 comes before img10. Otherwise compares bytes.
fn natural(a: &str, b: &str) -> Ordering {
    /// Each byte; of a number its length without leading zeros, then its digits.
    fn parts(name: &str) -> impl Iterator<Item = (u8, usize, &[u8])> {
        let chunks = name.as_bytes().chunk_by(|left, right| left.is_ascii_digit() && right.is_ascii_digit());
        chunks.map(|chunk| {
            if !chunk[0].is_ascii_digit() {
                return (chunk[0], 0, &[][..]);
            }
            let zeros = chunk.iter().take_while(|&&digit| digit == b'0').count();
            (b'0', chunk.len() - zeros, &chunk[zeros..])
        })
    }
    parts(a).cmp(parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests;
