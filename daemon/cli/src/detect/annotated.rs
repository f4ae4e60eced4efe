//! Annotated pictures, named after their source files, which they never overwrite.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use visiond_annotate::draw::draw;
use visiond_annotate::picture_folder::{encode, extension};
use visiond_annotate::rgb_converter::RgbConverter;
use visiond_config::types::PictureFormat;
use visiond_ground::atomic_write::write_atomically;
use visiond_kernels::frame::FrameView;
use visiond_message::Message;
use visiond_system::exit::ExitError;
use visiond_system::outage::explain;

use crate::media_decoder::shown;
use crate::output::create_folder;
use crate::sample_model::stem;

/// The file format of annotated pictures.
const FORMAT: PictureFormat = PictureFormat::Jpeg;

/// Writes annotated pictures to a folder.
pub struct AnnotatedPictures {
    folder: PathBuf,
    /// The start of the picture names of each file.
    stems: Vec<String>,
    /// The canonical paths of the source files.
    sources: BTreeSet<PathBuf>,
    maker: RgbConverter,
}

impl AnnotatedPictures {
    /// Creates the folder if it does not exist.
    pub fn open(folder: &Path, files: &[PathBuf]) -> Result<Self, ExitError> {
        create_folder(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            stems: different_stems(files),
            sources: files.iter().filter_map(|file| file.canonicalize().ok()).collect(),
            maker: RgbConverter::default(),
        })
    }

    /// Draws the detections of a frame and writes the picture; `sequence` is the frame's number in a video. The error is a
    /// sentence; the command prints it and continues without pictures.
    pub fn store(
        &mut self,
        file: usize,
        sequence: Option<u64>,
        frame: &FrameView<'_>,
        message: &Message,
    ) -> Result<(), String> {
        let path = self.path(file, sequence);
        let mut picture = self.maker.make(frame).map_err(|error| format!("cannot draw {}: {error}", path.display()))?;
        draw(&mut picture, message);
        encode(&picture, FORMAT)
            .and_then(|bytes| write_atomically(&path, &bytes))
            .map_err(|error| format!("cannot write {}: {}", path.display(), explain(&error)))
    }

    fn path(&self, file: usize, sequence: Option<u64>) -> PathBuf {
        let stem = &self.stems[file];
        let number = sequence.map(|sequence| format!("-{sequence:08}")).unwrap_or_default();
        let mut path = self.folder.join(format!("{stem}-annotated{number}.{}", extension(FORMAT)));
        let mut attempt = 1;
        // Replaces a picture from an earlier run, but never a source file.
        while path.canonicalize().is_ok_and(|real| self.sources.contains(&real)) {
            attempt += 1;
            path = self.folder.join(format!("{stem}-annotated{number}-{attempt}.{}", extension(FORMAT)));
        }
        path
    }
}

/// Returns the files' stems, with a number where a stem repeats.
fn different_stems(files: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let named = |file: &PathBuf| {
        // The stem of a URL comes without its secrets.
        let stem = stem(Path::new(&shown(file))).replace('*', "_");
        let numbered = (2..).map(|n| format!("{stem}-{n}"));
        let free = std::iter::once(stem.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
        // Always found, because the numbers do not end.
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
        let files =
            ["a/photo.jpg", "b/photo.png", "photo-2.jpg", "c/photo.jpg", "rtsp://10.0.0.1/live", "rtsp://a:b@cam"];
        let stems = different_stems(&files.map(PathBuf::from));
        assert_eq!(stems, ["photo", "photo-2", "photo-2-2", "photo-3", "live", "___@cam"]);
    }

    #[test]
    fn a_source_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("photo-annotated.jpg");
        std::fs::write(&source, "precious").unwrap();
        let files = [folder.path().join("photo.jpg"), source.clone()];
        let pictures = AnnotatedPictures::open(folder.path(), &files).unwrap();
        assert_eq!(pictures.path(0, None), folder.path().join("photo-annotated-2.jpg"));
        assert_eq!(pictures.path(0, Some(7)), folder.path().join("photo-annotated-00000007.jpg"));
        assert_eq!(pictures.path(1, None), folder.path().join("photo-annotated-annotated.jpg"));
    }
}
