//! Reads images as frames: one file, a folder in natural order, or either of them watched for new images.
//!
//! [`FolderWatch`] decides which images of a watched folder are complete. Each is read once, and again when it is replaced. Files
//! that exist at the start are complete.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use visiond_config::types::ImagesConfig;
use visiond_frames::clock::{self, Clock};
use visiond_frames::frame::{FramePool, LossCause};
use visiond_system::preflight::Certainty;
use visiond_system::stop::{Stop, Wake};

use self::folder_watch::FolderWatch;
use self::listing::{ENDINGS, list};
use super::buffers::Buffers;
use super::image_file::{self, Loader};
use super::pacer::SourcePacer;
use super::quarantine::Quarantine;
use super::source::{Next, Source, SourceError, SourceFault};

mod folder_watch;
mod listing;

pub use self::listing::images_in;

pub(crate) struct ImagesSource {
    config: ImagesConfig,
    is_folder: bool,
    pool: FramePool,
    loader: Loader,
    quarantine: Quarantine,
    pacer: Option<SourcePacer>,
    clock: Arc<dyn Clock>,
    /// Complete images to read.
    waiting: VecDeque<PathBuf>,
    watch: Option<FolderWatch>,
    sequence: u64,
    /// Images that were read in this round. A round without images is not repeated.
    round_read: u64,
    label: String,
}

impl ImagesSource {
    /// Checks whether [`ImagesSource::open`] would fail.
    pub fn check(config: &ImagesConfig) -> Option<SourceFault> {
        let fault = |error, certainty| Some(SourceFault { key: "path", error, certainty });
        let path = &config.path;
        let files = match fs::metadata(path) {
            Ok(found) if found.is_dir() => list(path, config.recursive, &mut || false),
            Ok(found) if found.is_file() => return image_file::check(path).err().and_then(|(e, c)| fault(e, c)),
            Ok(_) => return None,
            Err(error) => Err(error),
        };
        match files {
            Ok(files) if files.is_empty() && !config.watch => fault(no_image(path), Certainty::Certain),
            Ok(_) => None,
            Err(error) => fault(cannot_read(path, &error, config.watch), Certainty::of_reading(&error)),
        }
    }

    /// Checks the image, or lists a folder that is not watched. `state` is the folder that remembers images that crashed visiond.
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
                "cannot read {path} at {fps} images per second: fps must be above 0"
            )));
        }
        let mut source = Self {
            config: config.clone(),
            is_folder: metadata.is_dir(),
            // Images differ in size: each buffer grows as needed.
            pool: buffers.pool(0)?,
            loader: Loader::new(buffers),
            quarantine: Quarantine::open(state, name),
            pacer: config.fps.map(SourcePacer::new),
            clock,
            waiting: VecDeque::new(),
            watch: None,
            sequence: 0,
            round_read: 0,
            label: format!("camera {name}"),
        };
        if config.watch {
            source.watch = Some(source.start_watch().map_err(|error| cannot_read(&config.path, &error, true))?);
        } else {
            source.scan(None)?;
        }
        if source.waiting.is_empty() && !config.watch {
            return Err(if source.quarantine.is_empty() { no_image(&config.path) } else { none_left(&config.path) });
        }
        Ok(source)
    }

    fn start_watch(&self) -> io::Result<FolderWatch> {
        let ImagesConfig { path, recursive, watch_interval, .. } = &self.config;
        let (root, only) = match path.file_name().filter(|_| !self.is_folder) {
            Some(name) => (path.parent().filter(|parent| !parent.as_os_str().is_empty()), Some(name)),
            None => (Some(path.as_path()), None),
        };
        let root = root.unwrap_or(Path::new("."));
        FolderWatch::open(root, only, *recursive, *watch_interval, &self.label, self.clock.monotonic_ns())
    }

    /// Lists the images of a folder that is not watched.
    fn scan(&mut self, stop: Option<&Stop>) -> Result<(), SourceError> {
        let mut is_stopping = || {
            stop.is_some_and(|stop| {
                stop.mark_progress();
                stop.is_raised()
            })
        };
        let files = if self.is_folder {
            list(&self.config.path, self.config.recursive, &mut is_stopping)
                .map_err(|error| cannot_read(&self.config.path, &error, false))?
        } else {
            vec![self.config.path.clone()]
        };
        self.waiting.extend(files.into_iter().filter(|path| !self.quarantine.holds(path)));
        Ok(())
    }

    /// Handles the events of a watched folder. Returns what to report.
    fn refresh(&mut self) -> Option<Next> {
        let watch = self.watch.as_mut()?;
        match watch.refresh(self.clock.monotonic_ns()) {
            Ok(true) => log::info!("{}: {} is back", self.label, self.config.path.display()),
            Ok(false) => {}
            Err(error) => {
                let reason = cannot_read(&self.config.path, &error, true).message;
                return Some(Next::Waiting { reason });
            }
        }
        let frames = watch.take_lost();
        self.take_complete();
        (frames > 0).then_some(Next::Lost { frames, cause: LossCause::Overload })
    }

    fn take_complete(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let now_ns = self.clock.monotonic_ns();
        for path in watch.take_complete() {
            if self.quarantine.holds(&path) {
                // It counts as read until it is replaced.
                watch.begin(&path, now_ns);
            } else {
                self.waiting.push_back(path);
            }
        }
    }

    /// Waits for an event in the watched folder, or for the next scan; returns whether visiond is stopping.
    fn wait(&mut self, stop: &Stop) -> bool {
        self.pool.trim();
        let Some(watch) = &self.watch else { return stop.is_raised() };
        match watch.as_fd() {
            Some(fd) => self.clock.wait_readable_until(fd, watch.next_tick_ns(), stop) == Wake::Stopped,
            None => self.clock.sleep_until(watch.next_tick_ns(), stop),
        }
    }

    /// Whether to read the next image of the queue now.
    fn begin(&mut self, path: &Path) -> bool {
        let now_ns = self.clock.monotonic_ns();
        self.watch.as_mut().is_none_or(|watch| watch.begin(path, now_ns))
    }
}

impl Source for ImagesSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if let Some(watch) = &mut self.watch {
            watch.heed(stop);
        }
        let (path, buffer) = loop {
            stop.mark_progress();
            if stop.is_raised() {
                return Ok(Next::Stopped);
            }
            if let Some(report) = self.refresh() {
                return Ok(report);
            }
            if stop.is_raised() {
                return Ok(Next::Stopped);
            }
            if self.waiting.is_empty() {
                if self.watch.is_some() {
                    if self.wait(stop) {
                        return Ok(Next::Stopped);
                    }
                } else if self.config.repeat && std::mem::take(&mut self.round_read) > 0 {
                    self.scan(Some(stop))?;
                } else {
                    return Ok(Next::End);
                }
                continue;
            }
            let buffer = match &mut self.pacer {
                Some(pacer) => {
                    // A gap between images is not lateness: the next one is due now.
                    pacer.forgive(self.clock.monotonic_ns(), Duration::from_secs(1));
                    let due_ns = pacer.due_ns(self.clock.monotonic_ns());
                    if self.clock.sleep_until(due_ns, stop) {
                        return Ok(Next::Stopped);
                    }
                    self.pool.take()
                }
                None => match self.pool.take_wait(stop) {
                    Some(buffer) => Some(buffer),
                    None => return Ok(Next::Stopped),
                },
            };
            // Waiting took time: the image may have been replaced or removed.
            if let Some(path) = self.waiting.pop_front()
                && self.begin(&path)
            {
                break (path, buffer);
            }
        };
        if let Some(pacer) = &mut self.pacer {
            pacer.advance();
        }
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
            Err(_) if self.watch.is_some() && fs::symlink_metadata(&path).is_err() => {
                let now_ns = self.clock.monotonic_ns();
                let mut frames = 0;
                if let Some(watch) = &mut self.watch {
                    watch.vanished(&path, now_ns);
                    // None if it was renamed: it is read under its new name.
                    frames = watch.take_lost();
                }
                Ok(Next::Lost { frames, cause: LossCause::Overload })
            }
            Err(error) => {
                log::warn!("{}: {error}", self.label);
                Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt })
            }
        }
    }

    fn may_idle(&self) -> bool {
        self.watch.is_some()
    }

    fn copied_bytes(&self) -> u64 {
        self.loader.copied_bytes()
    }

    fn describe(&self) -> String {
        let path = self.config.path.display();
        let rate = self.config.fps.map_or(String::new(), |fps| format!(", {fps} a second"));
        let interval = self.config.watch_interval;
        let scan = match &self.watch {
            Some(watch) if watch.is_scanned() => format!(", scanned every {interval:?}"),
            _ => String::new(),
        };
        match (self.is_folder, self.config.watch) {
            (true, true) => format!("folder {path}, watched for new pictures{scan}{rate}"),
            (true, false) => format!("folder {path}, {} pictures{rate}", self.waiting.len()),
            (false, true) => format!("picture {path}, read again when it is replaced{scan}{rate}"),
            (false, false) => format!("picture {path}{rate}"),
        }
    }
}

fn no_image(folder: &Path) -> SourceError {
    let (folder, endings) = (folder.display(), ENDINGS.join(", "));
    SourceError::permanent(format!(
        "there is no image in the folder {folder} (file names ending in {endings}): add one, or set `watch = true`"
    ))
}

fn none_left(path: &Path) -> SourceError {
    SourceError::permanent(format!(
        "there is no image left in {}: see the skipped images above; replace them, or `touch` them to try again",
        path.display()
    ))
}

/// Returns the error for a path that cannot be read. A watched folder may appear later, for example when its disk is mounted.
fn cannot_read(path: &Path, error: &io::Error, may_come: bool) -> SourceError {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        _ => error.to_string(),
    };
    let message = format!("cannot read images from {}: {reason}", path.display());
    if may_come { SourceError::transient(message) } else { SourceError::permanent(message) }
}

#[cfg(test)]
mod tests;
