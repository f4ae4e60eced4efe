//! Annotated pictures of single files: named after them, never in their place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use visiond_annotate::draw::draw;
use visiond_annotate::picture_folder::{encode, extension, write_atomically};
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_config::types::PictureFormat;
use visiond_flow::message::Message;
use visiond_kernels::frame::FrameView;
use visiond_system::exit::{Exit, ExitError};
use visiond_system::outage::explain;

/// How they are stored.
const FORMAT: PictureFormat = PictureFormat::Jpeg;

/// A folder of annotated pictures.
pub struct AnnotatedPictures {
    folder: PathBuf,
    /// What each file's pictures are called.
    stems: Vec<String>,
    /// The files themselves, by what they really are.
    sources: BTreeSet<PathBuf>,
    maker: RgbConverter,
}

impl AnnotatedPictures {
    /// Makes the folder where it is missing.
    pub fn open(folder: &Path, files: &[PathBuf]) -> Result<Self, ExitError> {
        fs::create_dir_all(folder).map_err(|error| {
            ExitError::new(Exit::Output, format!("{} cannot be made: {}", folder.display(), explain(&error)))
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            stems: different_stems(files),
            sources: files.iter().filter_map(|file| file.canonicalize().ok()).collect(),
            maker: RgbConverter::default(),
        })
    }

    /// Draws and stores what was seen in a frame of a file; `sequence` is its number in a video.
    pub fn store(
        &mut self,
        file: usize,
        sequence: Option<u64>,
        frame: &FrameView<'_>,
        message: &Message,
    ) -> Result<(), String> {
        let path = self.path(file, sequence);
        let mut picture =
            self.maker.make(frame).map_err(|error| format!("{} cannot be drawn: {error}", path.display()))?;
        draw(&mut picture, &message.detections);
        encode(&picture, FORMAT)
            .and_then(|bytes| write_atomically(&path, &bytes))
            .map_err(|error| format!("{} cannot be written: {}", path.display(), explain(&error)))
    }

    fn path(&self, file: usize, sequence: Option<u64>) -> PathBuf {
        let stem = &self.stems[file];
        let number = sequence.map(|sequence| format!("-{sequence:08}")).unwrap_or_default();
        let mut path = self.folder.join(format!("{stem}-annotated{number}.{}", extension(FORMAT)));
        let mut attempt = 1;
        // A picture of an earlier run may be replaced, one that is being looked at never.
        while path.canonicalize().is_ok_and(|real| self.sources.contains(&real)) {
            attempt += 1;
            path = self.folder.join(format!("{stem}-annotated{number}-{attempt}.{}", extension(FORMAT)));
        }
        path
    }
}

/// A file's name without folder and ending.
pub fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The files' stems; those that come twice get a number.
fn different_stems(files: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let named = |file: &PathBuf| {
        let stem = stem(file);
        let numbered = (2..).map(|n| format!("{stem}-{n}"));
        let free = std::iter::once(stem.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
        // The numbers do not end.
        free.unwrap_or(stem)
    };
    files.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_of_the_same_stem_get_pictures_of_their_own() {
        let files = ["a/photo.jpg", "b/photo.png", "photo-2.jpg", "c/photo.jpg", "rtsp://10.0.0.1/live"];
        let stems = different_stems(&files.map(PathBuf::from));
        assert_eq!(stems, ["photo", "photo-2", "photo-2-2", "photo-3", "live"]);
    }

    #[test]
    fn a_source_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("photo-annotated.jpg");
        fs::write(&source, "precious").unwrap();
        let files = [folder.path().join("photo.jpg"), source.clone()];
        let pictures = AnnotatedPictures::open(folder.path(), &files).unwrap();
        assert_eq!(pictures.path(0, None), folder.path().join("photo-annotated-2.jpg"));
        assert_eq!(pictures.path(0, Some(7)), folder.path().join("photo-annotated-00000007.jpg"));
        assert_eq!(pictures.path(1, None), folder.path().join("photo-annotated-annotated.jpg"));
    }
}
