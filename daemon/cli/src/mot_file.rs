//! The tracks of a video in the format of MOTChallenge results, which TrackEval reads.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use visiond_frames::frame::Frame;
use visiond_message::{BoxMessage, DetectionMessage, Message, TrackMessage, TrackMessageState};
use visiond_system::exit::{Exit, ExitError};
use visiond_system::logging::escape;
use visiond_system::outage::explain;

/// Writes a row for each detection that has a confirmed track.
///
/// A row is `frame,id,left,top,width,height,score,-1,-1,-1`. Frames count from 1. As trackers usually do, it has the box as it is: the
/// left edge of the frame is 0.
#[derive(Debug)]
pub struct MotFile {
    path: PathBuf,
    file: File,
    /// Whether the older tracks are gone.
    begun: bool,
    /// The rows of a frame.
    rows: String,
}

impl MotFile {
    /// Creates the file at `path` for the tracks in `inputs`, which must be one video. Older tracks stay in it until the first frame, so
    /// that a model that does not load costs nothing.
    pub fn create(path: &Path, inputs: &[PathBuf]) -> Result<Self, ExitError> {
        let usage = |message: String| Err(ExitError::new(Exit::Usage, message));
        let [input] = inputs else {
            return usage(format!(
                "--mot writes the tracks of one video, but there are {} inputs: run the command once for each video",
                inputs.len()
            ));
        };
        if path.canonicalize().is_ok_and(|path| input.canonicalize().is_ok_and(|input| input == path)) {
            return usage(format!("--mot would replace the video {}: name another file", path.display()));
        }
        // `--mot a.mp4 b.mp4` would replace a video, and names a model by mistake as easily.
        if path.is_file() && !may_be_tracks(path) {
            let path = path.display();
            return usage(format!("--mot would replace {path}, which has no tracks: name another file, or remove it"));
        }
        let file = File::options().write(true).create(true).truncate(false).open(path).map_err(|error| {
            ExitError::new(Exit::Output, format!("cannot create {}: {}", path.display(), explain(&error)))
        })?;
        Ok(Self { path: path.to_owned(), file, begun: false, rows: String::new() })
    }

    /// Returns the error for an input that is an image.
    pub fn refuse_picture(frame: &Frame) -> ExitError {
        let name = escape(frame.name.as_deref().unwrap_or_default());
        let message = format!("{name} is an image, but --mot writes the tracks of a video: name a video");
        ExitError::new(Exit::Input, message)
    }

    /// Writes the rows of the video's next frame; the file always ends with a whole frame.
    pub fn frame(&mut self, message: &Message) -> Result<(), ExitError> {
        self.rows.clear();
        let frame = message.sequence.saturating_add(1);
        for DetectionMessage { score, bounds, track, .. } in &message.detections {
            if let Some(BoxMessage { x, y, width, height }) = bounds
                && let Some(TrackMessage { id, state: TrackMessageState::Confirmed, .. }) = track
            {
                // Writing into a String cannot fail.
                let _ = writeln!(self.rows, "{frame},{id},{x},{y},{width},{height},{score},-1,-1,-1");
            }
        }
        // What is no file on a disk, as a pipe, has no length.
        let emptied = if self.begun || !self.path.is_file() { Ok(()) } else { self.file.set_len(0) };
        self.begun = true;
        emptied.and_then(|()| self.file.write_all(self.rows.as_bytes())).map_err(|error| {
            ExitError::new(Exit::Output, format!("cannot write {}: {}", self.path.display(), explain(&error)))
        })
    }
}

/// Whether a file can be replaced by tracks: it is empty, or begins with the number of a frame.
fn may_be_tracks(path: &Path) -> bool {
    let mut first = [0_u8];
    let read = File::open(path).and_then(|mut file| file.read(&mut first));
    read.is_ok_and(|read| read == 0 || first[0].is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_message::testing::message;

    use super::*;

    /// A message of frame 4 whose detections have these tracks.
    fn tracked(tracks: &[Option<(u64, TrackMessageState)>]) -> Message {
        let mut message = Message { sequence: 4, ..message("door", &vec!["person"; tracks.len()]) };
        for (detection, track) in message.detections.iter_mut().zip(tracks) {
            (detection.score, detection.bounds) =
                (0.875, Some(BoxMessage { x: 0.0, y: 1.5, width: 20.25, height: 40.125 }));
            detection.track = track.map(|(id, state)| TrackMessage { id, state, age_ms: 100, velocity: [1.0, 0.0] });
        }
        message
    }

    #[test]
    fn a_confirmed_track_has_a_row_in_each_of_its_frames() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tracks.txt");
        std::fs::write(&path, "1,1,0,0,1,1,1,-1,-1,-1\n").unwrap();
        let mut file = MotFile::create(&path, &["a.mp4".into()]).unwrap();
        let (sure, perhaps) = (TrackMessageState::Confirmed, TrackMessageState::Tentative);
        let mut first = tracked(&[Some((7, sure)), None, Some((8, perhaps)), Some((9, sure)), Some((10, sure))]);
        first.detections[3].bounds = None;
        file.frame(&first).unwrap();
        file.frame(&Message { sequence: 5, ..tracked(&[None]) }).unwrap();
        file.frame(&Message { sequence: 9, ..tracked(&[Some((8, sure))]) }).unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "5,7,0,1.5,20.25,40.125,0.875,-1,-1,-1\n\
             5,10,0,1.5,20.25,40.125,0.875,-1,-1,-1\n\
             10,8,0,1.5,20.25,40.125,0.875,-1,-1,-1\n"
        );
    }

    #[test]
    fn it_replaces_no_file_that_has_no_tracks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp4");
        for (content, replaces) in
            [(&b"\0\0\0\x18ftypmp42"[..], false), (b"RIFF", false), (b"1,7,0", true), (b"", true)]
        {
            std::fs::write(&path, content).unwrap();
            let created = MotFile::create(&path, &["b.mp4".into()]);
            assert_eq!(created.is_ok(), replaces, "{content:?}");
            let error = created.err().map(|error| (error.exit, error.message.contains("which has no tracks")));
            assert_eq!(error, (!replaces).then_some((Exit::Usage, true)));
            assert_eq!(std::fs::read(&path).unwrap(), content, "older tracks stay until there are new ones");
        }
    }

    #[test]
    fn it_has_one_video_and_never_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, video) = (folder.path().join("tracks.txt"), folder.path().join("a.mp4"));
        std::fs::write(&video, "precious").unwrap();
        let error = MotFile::create(&path, &["a.mp4".into(), "b.mp4".into()]).unwrap_err();
        assert_eq!((error.exit, path.exists()), (Exit::Usage, false));
        assert!(error.message.contains("there are 2 inputs: run the command once for each"), "{}", error.message);
        let error = MotFile::create(&folder.path().join(".").join("a.mp4"), std::slice::from_ref(&video)).unwrap_err();
        assert_eq!((error.exit, std::fs::read_to_string(&video).unwrap().as_str()), (Exit::Usage, "precious"));
        let error = MotFile::create(&folder.path().join("none/tracks.txt"), &[video]).unwrap_err();
        assert_eq!(error.exit, Exit::Output);
    }

    #[test]
    fn a_full_disk_is_an_error_with_the_files_name() {
        let mut full = MotFile::create(Path::new("/dev/full"), &["a.mp4".into()]).unwrap();
        full.frame(&tracked(&[None])).unwrap();
        let error = full.frame(&tracked(&[Some((1, TrackMessageState::Confirmed))])).unwrap_err();
        assert_eq!(error.exit, Exit::Output);
        assert!(error.message.starts_with("cannot write /dev/full: "), "{}", error.message);
    }
}
