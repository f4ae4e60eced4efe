//! A camera's images in a folder: complete files only, and a limited number of them.

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
use visiond_message::Message;
use visiond_system::preflight::may_make;

/// JPEG quality: letters keep clean edges, and a 1080p image takes about 500 KB.
const JPEG_QUALITY: u8 = 90;

/// Suffix of files that are still being written.
const TEMPORARY: &str = ".visiond-part";

/// The images of one camera.
#[derive(Debug)]
pub struct PictureFolder {
    directory: PathBuf,
    camera: String,
    format: PictureFormat,
    keep: usize,
    /// Stored images, oldest first; empty if all are kept.
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

    /// Prepares to use a folder, without touching it yet. `keep` 0 keeps all images.
    pub fn new(directory: &Path, camera: &str, format: PictureFormat, keep: usize) -> Self {
        let (directory, camera) = (directory.to_owned(), camera.to_owned());
        Self { directory, camera, format, keep, stored: VecDeque::new(), is_open: false }
    }

    /// Creates the folder if it is missing, and lists the images of this camera in it. Does nothing if that was done before.
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

    /// Returns the format of the images.
    pub fn format(&self) -> PictureFormat {
        self.format
    }

    /// Stores an image, under a temporary name first, so that other programs see complete images only, even after a power cut.
    /// Costs two syncs: on a slow disk, fewer frames are drawn.
    ///
    /// The name has the model for each model of the camera but the first: `door-00000042.plates.jpg`.
    pub fn store(&mut self, message: &Message, encoded: &[u8]) -> io::Result<()> {
        let Message { topic, sequence, .. } = message;
        let model = topic.split_once('/').map_or(String::new(), |(_, model)| format!(".{model}"));
        self.store_as(format!("{}-{sequence:08}{model}.{}", self.camera, extension(self.format)), encoded)
    }

    /// Stores the image of an event, by its [`event_file`].
    pub fn store_event(&mut self, name: &str, encoded: &[u8]) -> io::Result<()> {
        self.store_as(name.to_owned(), encoded)
    }

    fn store_as(&mut self, name: String, encoded: &[u8]) -> io::Result<()> {
        self.open()?;
        let path = self.directory.join(name);
        write_atomically_by(&self.temporary(), &path, encoded)?;
        if self.keep > 0 {
            // After a restart the numbers start again, and an image replaces the older one of the same name.
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

    /// Makes an unwritable folder an error at the start, and removes a file that a killed process left.
    fn try_writing(&self) -> io::Result<()> {
        let temporary = self.temporary();
        match create(&temporary) {
            Ok(_) => fs::remove_file(&temporary),
            // A disk that is full now may have room later.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether `name` is the name of an image of this camera.
    fn has_picture(&self, name: &OsStr) -> bool {
        let rest = name.to_str().and_then(|name| name.strip_prefix(&self.camera)?.strip_prefix('-'));
        let number = rest.and_then(|rest| rest.strip_suffix(".jpg").or_else(|| rest.strip_suffix(".png")));
        if number.is_some_and(is_event) {
            return true;
        }
        let is_name = |model: &str| {
            !model.is_empty() && model.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        // Names of cameras and models have no dot. What has another part is a person's copy.
        let number = number.and_then(|number| match number.split_once('.') {
            Some((number, model)) => is_name(model).then_some(number),
            None => Some(number),
        });
        // "door-00000001.jpg" belongs to "door", "door-2-00000001.jpg" to "door-2".
        number.is_some_and(|number| number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Returns the name of the image or clip of an event: `door-5d0c9f3ab1e2774f-e7.jpg`.
pub fn event_file(camera: &str, event: &str, extension: &str) -> String {
    format!("{camera}-{event}.{extension}")
}

/// Whether a text has the form of an event's id: sixteen hexadecimal digits, and a number.
pub fn is_event(text: &str) -> bool {
    text.split_once("-e").is_some_and(|(process, number)| {
        process.len() == 16
            && process.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Encodes an image.
pub fn encode(picture: &RgbImage, format: PictureFormat) -> io::Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    let encoded = match format {
        PictureFormat::Jpeg => picture.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, JPEG_QUALITY)),
        // Annotated images are many and short-lived: time counts more than the last tenth of size.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn numbered(sequence: u64) -> Message {
        Message { sequence, ..visiond_message::testing::message("door", &[]) }
    }

    #[test]
    fn pictures_of_further_models_have_names_of_their_own_and_count_as_the_cameras() {
        let folder = tempfile::tempdir().unwrap();
        let plates = Message { topic: "door/plates".into(), ..numbered(7) };
        let mut pictures = PictureFolder::new(folder.path(), "door", PictureFormat::Jpeg, 2);
        [&numbered(7), &plates].into_iter().for_each(|message| pictures.store(message, b"jpeg").unwrap());
        assert_eq!(names(folder.path()), ["door-00000007.jpg", "door-00000007.plates.jpg"]);
        let mut later = PictureFolder::new(folder.path(), "door", PictureFormat::Jpeg, 2);
        later.store(&numbered(8), b"jpeg").unwrap();
        later.store(&numbered(9), b"jpeg").unwrap();
        assert_eq!(names(folder.path()), ["door-00000008.jpg", "door-00000009.jpg"]);
    }

    #[test]
    fn the_newest_pictures_of_the_camera_are_kept_and_nothing_else_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["door-2-00000001.jpg", "door-0000001.jpg", "door-00000001.gif", "notes.txt"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let others = names(folder.path());
        let mut pictures = PictureFolder::new(folder.path(), "door", PictureFormat::Jpeg, 2);
        (1..=5).for_each(|number| pictures.store(&numbered(number), b"jpeg").unwrap());
        let with = |kept: &[&str]| {
            let mut names: Vec<_> = kept.iter().map(|name| (*name).to_owned()).chain(others.clone()).collect();
            names.sort();
            names
        };
        assert_eq!(names(folder.path()), with(&["door-00000004.jpg", "door-00000005.jpg"]));
        // After a restart the numbers start again; existing images still count.
        let mut later = PictureFolder::new(folder.path(), "door", PictureFormat::Png, 2);
        later.store(&numbered(1), b"png").unwrap();
        assert_eq!(names(folder.path()).len(), others.len() + 2);
        assert_eq!(fs::read(folder.path().join("door-00000001.png")).unwrap(), b"png");
        let mut all = PictureFolder::new(&folder.path().join("new"), "door", PictureFormat::Jpeg, 0);
        (1..=5).for_each(|number| all.store(&numbered(number), b"jpeg").unwrap());
        assert_eq!(names(&folder.path().join("new")).len(), 5);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(format!(".door{TEMPORARY}"))).unwrap();
        let mut pictures = PictureFolder::new(folder.path(), "door", PictureFormat::Jpeg, 2);
        assert!(pictures.open().is_err() && pictures.store(&numbered(1), b"jpeg").is_err());
        // Images of another camera keep their names; files that a killed process left are removed.
        fs::write(folder.path().join(format!(".yard{TEMPORARY}")), "half a picture").unwrap();
        let mut other = PictureFolder::new(folder.path(), "yard", PictureFormat::Jpeg, 2);
        other.open().unwrap();
        assert_eq!(names(folder.path()), [format!(".door{TEMPORARY}")]);
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(PictureFolder::new(&file, "door", PictureFormat::Jpeg, 2).open().is_err());
        assert!(PictureFolder::check(&file).is_err() && PictureFolder::check(&folder.path().join("new")).is_ok());
    }

    #[test]
    fn pictures_are_encoded_in_their_format() {
        let picture = RgbImage::from_fn(16, 8, |x, y| image::Rgb([16 * x as u8, 30 * y as u8, 100]));
        for (format, kind) in
            [(PictureFormat::Jpeg, image::ImageFormat::Jpeg), (PictureFormat::Png, image::ImageFormat::Png)]
        {
            let bytes = encode(&picture, format).unwrap();
            let read = image::load_from_memory_with_format(&bytes, kind).unwrap().into_rgb8();
            let far = read.as_raw().iter().zip(picture.as_raw()).map(|(a, b)| a.abs_diff(*b)).max();
            assert!(read.dimensions() == (16, 8) && far <= Some(if format == PictureFormat::Png { 0 } else { 80 }));
        }
    }
}
