//! A camera's pictures in a folder: complete files only, and a limited number of them.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use image::RgbImage;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use visiond_config::types::PictureFormat;
use visiond_ground::atomic_write::{create, write_atomically_by};
use visiond_system::preflight::may_make;

/// JPEG quality: the edges of letters stay clean, and a 1080p picture has about 500 KB.
const JPEG_QUALITY: u8 = 90;

/// Suffix of files that are still being written.
const TEMPORARY: &str = ".visiond-part";

/// The pictures of one camera.
#[derive(Debug)]
pub struct PictureFolder {
    directory: PathBuf,
    camera: String,
    format: PictureFormat,
    keep: usize,
    /// Stored pictures, oldest first; empty if all are kept.
    stored: VecDeque<PathBuf>,
    is_open: bool,
}

impl PictureFolder {
    /// Finds out whether [`PictureFolder::open`] would fail, without touching the folder.
    pub fn check(directory: &Path) -> io::Result<()> {
        may_make(directory)?;
        match fs::read_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Names a folder, which is not touched yet. `keep` 0 keeps all pictures.
    pub fn new(directory: &Path, camera: &str, format: PictureFormat, keep: usize) -> Self {
        let (directory, camera) = (directory.to_owned(), camera.to_owned());
        Self { directory, camera, format, keep, stored: VecDeque::new(), is_open: false }
    }

    /// Creates the folder if it is missing, and lists the pictures of this camera in it. Does nothing if that was done before.
    pub fn open(&mut self) -> io::Result<()> {
        if self.is_open {
            return Ok(());
        }
        fs::create_dir_all(&self.directory)?;
        self.try_writing()?;
        let mut found: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if self.keep == 0 || !self.has_picture(&entry.file_name()) {
                continue;
            }
            // Another program may have removed it.
            if let Ok(picture) = entry.metadata()
                && picture.is_file()
            {
                found.push((picture.modified()?, entry.path()));
            }
        }
        found.sort();
        self.stored = found.into_iter().map(|(_, path)| path).collect();
        self.remove_old();
        self.is_open = true;
        Ok(())
    }

    /// Returns the format of the pictures.
    pub fn format(&self) -> PictureFormat {
        self.format
    }

    /// Stores a picture, under a temporary name first, so that other programs see complete pictures only, even after a power cut.
    /// Costs two syncs: on a slow disk, fewer frames are drawn.
    pub fn store(&mut self, sequence: u64, encoded: &[u8]) -> io::Result<()> {
        self.open()?;
        let path = self.directory.join(format!("{}-{sequence:08}.{}", self.camera, extension(self.format)));
        write_atomically_by(&self.temporary(), &path, encoded)?;
        if self.keep > 0 {
            // After a restart the numbers start again, and a picture replaces the older one of the same name.
            self.stored.retain(|stored| *stored != path);
            self.stored.push_back(path);
            self.remove_old();
        }
        Ok(())
    }

    fn remove_old(&mut self) {
        while self.keep > 0 && self.stored.len() > self.keep {
            let Some(oldest) = self.stored.pop_front() else { return };
            match fs::remove_file(&oldest) {
                Ok(()) => {}
                // Another program has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => log::warn!("cannot remove {}: {error}", oldest.display()),
            }
        }
    }

    fn temporary(&self) -> PathBuf {
        self.directory.join(format!(".{}{TEMPORARY}", self.camera))
    }

    /// Makes a folder that cannot be written an error at the start, and removes a file that a killed process left.
    fn try_writing(&self) -> io::Result<()> {
        let temporary = self.temporary();
        match create(&temporary) {
            Ok(_) => fs::remove_file(&temporary),
            // A disk that is full now may have room later.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether `name` is the name of a picture of this camera.
    fn has_picture(&self, name: &OsStr) -> bool {
        let rest = name.to_str().and_then(|name| name.strip_prefix(&self.camera)?.strip_prefix('-'));
        let number = rest.and_then(|rest| rest.strip_suffix(".jpg").or_else(|| rest.strip_suffix(".png")));
        // "door-00000001.jpg" belongs to "door", "door-2-00000001.jpg" to "door-2".
        number.is_some_and(|number| number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Encodes a picture.
pub fn encode(picture: &RgbImage, format: PictureFormat) -> io::Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    let encoded = match format {
        PictureFormat::Jpeg => picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY)),
        // Annotated pictures are many and short-lived: time counts more than the last tenth of size.
        PictureFormat::Png => picture.write_with_encoder(PngEncoder::new_with_quality(
            &mut bytes,
            CompressionType::Fast,
            FilterType::Adaptive,
        )),
    };
    encoded.map_err(io::Error::other)?;
    Ok(bytes.into_inner())
}

/// Returns the extension of file names.
pub fn extension(format: PictureFormat) -> &'static str {
    match format {
        PictureFormat::Jpeg => "jpg",
        PictureFormat::Png => "png",
    }
}
