//! Decodes images and videos into frames on another thread.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use visiond_capture::images::images_in;
use visiond_capture::source::SourceError;
use visiond_capture::{Buffers, image_file};
use visiond_config::types::{BufferConfig, FfmpegConfig, Pace, SourceConfig, VideoConfig};
use visiond_frames::frame::{Frame, LossCause};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;
use visiond_system::redact::redact_line;
use visiond_system::stop::Stop;

use crate::next_frame::next_frame;
use crate::output::thread_error;
use crate::value_parsers::size;

/// Number of leading bytes that identify an image.
const HEAD_BYTES: u64 = 64;

/// How many names to try for a temporary folder.
const MAX_ATTEMPTS: usize = 100;

/// Flags that select frames of videos.
#[derive(Debug, clap::Args)]
pub struct VideoArgs {
    /// Use every N-th frame of a video
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,

    /// Stop after N frames of each video, skipped ones included [default: all]
    #[arg(long, value_name = "N")]
    max_frames: Option<u64>,

    /// Limit the memory for reading an image or video, and that of ffmpeg, to SIZE each
    #[arg(long, value_name = "SIZE", default_value = INPUT_MEMORY, value_parser = size)]
    input_memory: u64,

    /// Run ffmpeg without the sandbox, with all of visiond's permissions: for an ffmpeg that requires more
    #[arg(long)]
    unconfined: bool,
}

/// The default of `--input-memory`: enough for 4K videos; 8K needs 1 GiB.
const INPUT_MEMORY: &str = "384MiB";

impl VideoArgs {
    /// Returns the limits on frames.
    pub fn buffers(&self) -> BufferConfig {
        BufferConfig { max_picture_bytes: self.input_memory, ..BufferConfig::default() }
    }
}

/// An item that the decoder passes on, in the order of the files.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are frames, which would be allocated for the sake of the others"
)]
pub enum MediaItem {
    /// The decoder opens the file with this index.
    Begun { file: usize },
    /// A frame of a file, named after the file.
    Frame { file: usize, is_video: bool, frame: Frame },
    /// The file, or the rest of it, cannot be decoded.
    Failed { reason: String },
    /// A part of the file cannot be decoded; the source has logged it.
    Damaged,
}

/// Returns the images in `folder`, at least one.
pub fn images_of(folder: &Path) -> Result<Vec<PathBuf>, ExitError> {
    let folder_name = folder.display();
    let message = match images_in(folder) {
        Ok(files) if !files.is_empty() => return Ok(files),
        Ok(_) => format!("the folder {folder_name} has no images: name another"),
        Err(error) => format!("cannot read images from {folder_name}: {error}"),
    };
    Err(ExitError::new(Exit::Input, message))
}

/// Decodes `files` on another thread, one frame ahead of `take`, which gets the frames and runs on this thread.
pub fn decode<T>(
    files: &[PathBuf],
    video: &VideoArgs,
    buffers: &Buffers,
    take: impl FnOnce(&Receiver<MediaItem>) -> Result<T, ExitError>,
) -> Result<T, ExitError> {
    let stop = Stop::new().map_err(ExitError::system)?;
    std::thread::scope(|scope| {
        let (out, items) = sync_channel(1);
        let decoder = MediaDecoder { video, buffers, stop: &stop, out };
        let thread = std::thread::Builder::new().name("read".to_owned());
        thread.spawn_scoped(scope, move || decoder.run(files)).map_err(thread_error)?;
        let result = take(&items);
        // The decoder may be waiting for a frame, or for this thread to take one.
        stop.raise();
        drop(items);
        result
    })
}

/// Decodes files until all are done or the receiver is dropped; the functions of the receiver then return `None`.
struct MediaDecoder<'a> {
    video: &'a VideoArgs,
    buffers: &'a Buffers,
    stop: &'a Stop,
    out: SyncSender<MediaItem>,
}

impl MediaDecoder<'_> {
    fn run(&self, files: &[PathBuf]) {
        for (file, path) in files.iter().enumerate() {
            if self.stop.is_raised() || self.read(file, path).is_none() {
                return;
            }
        }
    }

    fn read(&self, file: usize, path: &Path) -> Option<()> {
        self.send(MediaItem::Begun { file })?;
        let is_url = path.to_str().is_some_and(|path| path.contains("://")) && !path.exists();
        let error = if !is_url && is_image(path) {
            match image_file::load(path, self.buffers) {
                Ok(frame) => return self.send(MediaItem::Frame { file, is_video: false, frame }),
                Err(error) => error.message.to_string(),
            }
        } else {
            match self.read_video(file, path)? {
                Ok(()) => return Some(()),
                Err(error) if is_url => error.message.to_string(),
                Err(error) => format!("{}; it is not an image either", error.message),
            }
        };
        self.send(MediaItem::Failed { reason: escape(&error) })
    }

    fn read_video(&self, file: usize, path: &Path) -> Option<Result<(), SourceError>> {
        let VideoArgs { every, max_frames, input_memory, unconfined } = *self.video;
        let name: Arc<str> = shown(path).into();
        // ffmpeg gets its input as UTF-8, so a file with another name needs an alias.
        let link = match path.to_str() {
            Some(_) => None,
            None => match NamedLink::to(path) {
                Ok(link) => Some(link),
                Err(error) => {
                    let message = format!(
                        "cannot open the video {name}: its name is not UTF-8, and it cannot be linked in the temporary folder: {error}; rename it"
                    );
                    return Some(Err(SourceError::permanent(message)));
                }
            },
        };
        let url = link.as_ref().map_or_else(|| path.to_string_lossy().into_owned(), |link| link.url.clone());
        let with_name = |error: SourceError| match &link {
            Some(link) => SourceError { message: error.message.replace(&link.url, &name).into(), ..error },
            None => error,
        };
        let video = VideoConfig {
            url,
            pace: Pace::Fastest,
            max_frames,
            ffmpeg: FfmpegConfig { confined: !unconfined, max_memory_bytes: input_memory, ..FfmpegConfig::default() },
            ..VideoConfig::default()
        };
        let mut source = match visiond_capture::open(&SourceConfig::Video(video), Vec::new(), &name, self.buffers) {
            Ok(source) => source,
            Err(error) => return Some(Err(with_name(error))),
        };
        let lost = |_, cause| {
            // If the receiver is gone, sending the next frame shows it.
            if cause == LossCause::Corrupt {
                let _ = self.send(MediaItem::Damaged);
            }
            Ok(())
        };
        loop {
            match next_frame(source.as_mut(), self.stop, lost) {
                Ok(Some(mut frame)) => {
                    if frame.sequence % every == 0 {
                        frame.name = Some(Arc::clone(&name));
                        self.send(MediaItem::Frame { file, is_video: true, frame })?;
                    }
                }
                Ok(None) => return (!self.stop.is_raised()).then_some(Ok(())),
                Err(error) => return Some(Err(with_name(error))),
            }
        }
    }

    fn send(&self, item: MediaItem) -> Option<()> {
        self.out.send(item).ok()
    }
}

/// A link to a file in its own folder, under a UTF-8 name. Dropping it removes both.
struct NamedLink {
    url: String,
    folder: PathBuf,
}

impl NamedLink {
    fn to(path: &Path) -> io::Result<Self> {
        let folder = new_folder(&std::env::temp_dir(), clock_number)?;
        let ending = path.extension().and_then(|ending| ending.to_str()).map(|ending| format!(".{ending}"));
        let link = folder.join(format!("video{}", ending.unwrap_or_default()));
        let made = Self { url: link.to_string_lossy().into_owned(), folder };
        symlink(std::path::absolute(path)?, &link)?;
        Ok(made)
    }
}

/// Creates a folder that only this user can access; `number` determines its name. Uses another name if the path exists, for
/// example from an earlier process.
fn new_folder(parent: &Path, mut number: impl FnMut() -> u64) -> io::Result<PathBuf> {
    let mut attempts = 0;
    loop {
        let folder = parent.join(format!("visiond-{:016x}", number()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < MAX_ATTEMPTS => attempts += 1,
            result => return result.map(|()| folder),
        }
    }
}

/// A number that differs between calls and between processes.
fn clock_number() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64).rotate_left(32) ^ u64::from(std::process::id())
}

impl Drop for NamedLink {
    fn drop(&mut self) {
        // A leftover temporary folder does no harm.
        let _ = (fs::remove_file(&self.url), fs::remove_dir(&self.folder));
    }
}

/// The name of a file in messages and tables; a URL without its secrets.
pub fn shown(path: &Path) -> String {
    let name = path.to_string_lossy();
    if name.contains("://") { redact_line(&name) } else { name.into_owned() }
}

/// Returns whether the file is an image by its first bytes, or the image decoder has the better error for it: missing,
/// empty, a folder, a device or a pipe.
fn is_image(path: &Path) -> bool {
    if !path.is_file() {
        return true;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    matches!(read, Ok(0) | Err(_)) || image_file::begins_as_image(&head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn leftovers_in_the_temporary_folder_are_passed_over() {
        let parent = tempfile::TempDir::new().unwrap();
        fs::create_dir(parent.path().join(format!("visiond-{:016x}", 7))).unwrap();
        symlink("elsewhere", parent.path().join(format!("visiond-{:016x}", 8))).unwrap();
        let mut numbers = 7..;
        let folder = new_folder(parent.path(), || numbers.next().unwrap()).unwrap();
        assert_eq!(folder, parent.path().join(format!("visiond-{:016x}", 9)));
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(new_folder(parent.path(), || 7).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(new_folder(&parent.path().join("missing"), || 7).unwrap_err().kind(), io::ErrorKind::NotFound);
        // Two videos at once.
        let (a, b) = (NamedLink::to(Path::new("a.mp4")).unwrap(), NamedLink::to(Path::new("b.mp4")).unwrap());
        assert_ne!(a.folder, b.folder);
    }

    fn all_of_videos(input_memory: u64) -> VideoArgs {
        VideoArgs { every: 1, max_frames: None, input_memory, unconfined: false }
    }

    #[test]
    fn pictures_come_in_the_order_of_their_files_and_what_cannot_be_read_is_said() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, width) in [("a.png", 32), ("c.png", 48)] {
            image::RgbImage::new(width, 16).save(at(name)).unwrap();
        }
        fs::write(at("empty"), "").unwrap();
        let files = [at("a.png"), at("missing.png"), at("empty"), at("c.png")];
        let told = |item| match item {
            MediaItem::Begun { file } => format!("begun {file}"),
            MediaItem::Frame { file, is_video, frame } => format!("frame {file} {is_video} {}", frame.layout.width()),
            MediaItem::Failed { reason } => format!("failed {}", reason.contains(folder.path().to_str().unwrap())),
            MediaItem::Damaged => "damaged".to_owned(),
        };
        let decoded = decode(&files, &all_of_videos(1 << 26), &Buffers::default(), |items| {
            Ok(items.iter().map(told).collect::<Vec<_>>())
        });
        assert_eq!(
            decoded.unwrap(),
            [
                "begun 0",
                "frame 0 false 32",
                "begun 1",
                "failed true",
                "begun 2",
                "failed true",
                "begun 3",
                "frame 3 false 48"
            ]
        );
        let early = decode(&files, &all_of_videos(1 << 26), &Buffers::default(), |items| {
            items.recv().map(drop).unwrap();
            Err::<(), _>(ExitError::new(Exit::Model, "enough"))
        });
        assert_eq!(early.unwrap_err().message, "enough");
        assert_eq!(all_of_videos(777).buffers().max_picture_bytes, 777);
    }

    #[test]
    fn a_file_is_a_picture_by_its_first_bytes() {
        let folder = tempfile::TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, bytes) in [("film.png", &b"no picture"[..]), ("picture.mp4", b"\x89PNG\r\n\x1a\n"), ("empty", b"")] {
            fs::write(at(name), bytes).unwrap();
        }
        let of = |name: &str| is_image(&at(name));
        assert_eq!([of("film.png"), of("picture.mp4")], [false, true]);
        // Of these, the picture decoder has the better error.
        assert_eq!([of("empty"), of("missing"), of(".")], [true; 3]);
        assert_eq!(shown(Path::new("a:b/c@d.mp4")), "a:b/c@d.mp4");
        assert!(!shown(Path::new("rtsp://admin:hush@camera/a")).contains("hush"));
    }
}
