//! The image and the clip of an event, by the id of the event.
//!
//! The event names its file, so that no request can name another one. Long files are read in parts, and a client may ask for a range,
//! as browsers do when they play a video.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, IF_RANGE,
    RANGE,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use rustix::fs::OFlags;
use tokio::task::spawn_blocking;
use visiond_message::EventMessage;

use crate::errors::Problem;
use crate::state::AppState;

/// How much of a file is in memory for a client.
const PART_BYTES: u64 = 256 << 10;
/// Lets a browser show a file that it opened on its own; other pages cannot embed it.
const POLICY: &str =
    "default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// `GET /api/v1/events/{event}/image`: the stored image of an event.
pub async fn image(
    State(state): State<AppState>,
    Path(event): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (camera, name) = file_of(&state, &event, |event| event.image.clone()).ok_or_else(|| {
        Problem::not_found(
            "no kept event of this id has an image of frames with the current privacy masks: see /api/v1/events, and set \
             `on_event = true` in [camera.annotate]",
        )
    })?;
    // Also of a camera that is off.
    let config = state.service.commands().config();
    let annotate = config.cameras.iter().find(|known| *known.name == *camera).and_then(|known| known.annotate.as_ref());
    let folder = annotate
        .map(|annotate| &annotate.directory)
        .ok_or_else(|| Problem::not_found(format!("camera {camera} no longer stores images: see [camera.annotate]")))?;
    answer(folder.join(&*name), &headers).await
}

/// `GET /api/v1/events/{event}/clip`: the stored video of an event, once it is finished.
pub async fn clip(
    State(state): State<AppState>,
    Path(event): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (camera, name) = file_of(&state, &event, |event| event.clip.clone()).ok_or_else(|| {
        Problem::not_found(
            "no kept event of this id has a clip of frames with the current privacy masks: see /api/v1/events, and set \
             [camera.clips]",
        )
    })?;
    let config = state.service.commands().config();
    let clips = config.cameras.iter().find(|known| *known.name == *camera).and_then(|known| known.clips.as_ref());
    let folder = clips
        .map(|clips| &clips.directory)
        .ok_or_else(|| Problem::not_found(format!("camera {camera} no longer stores clips: see [camera.clips]")))?;
    answer(folder.join(&*name), &headers).await
}

/// Returns the camera of an event, and the name of its file.
fn file_of(
    state: &AppState,
    event: &str,
    file: impl Fn(&EventMessage) -> Option<Arc<str>>,
) -> Option<(Arc<str>, Arc<str>)> {
    state.live.messages().events().file_of(event, |event| Some((Arc::clone(&event.camera), file(event)?)))
}

/// Answers with a file, or with the range of it that the client asks for.
async fn answer(path: PathBuf, headers: &HeaderMap) -> Result<Response, Problem> {
    let kind = media_type(&path);
    // The name under which a browser saves it.
    let saved = path.file_name().and_then(|name| name.to_str()).map(|name| format!("inline; filename=\"{name}\""));
    let shown = path.display().to_string();
    let opened = spawn_blocking(move || open(&path)).await;
    // The panic hook has logged the panic.
    let opened = opened.map_err(|_| Problem::internal("internal error, see the log of visiond: please report it"))?;
    let (file, length) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Problem::not_found("the file is not written yet, or `keep` has removed it: ask again in a second")
        }
        _ => Problem::internal(format!("cannot open {shown}: {error}")),
    })?;
    // The range may be of another version of the file, so all of it is right.
    let range = headers.get(RANGE).filter(|_| !headers.contains_key(IF_RANGE)).and_then(|range| range.to_str().ok());
    let (status, part, place) = match range.map_or(Asked::All, |range| asked(range, length)) {
        Asked::All => (StatusCode::OK, 0..length, None),
        Asked::Part(part) => {
            let place = format!("bytes {}-{}/{length}", part.start, part.end - 1);
            (StatusCode::PARTIAL_CONTENT, part, Some([(CONTENT_RANGE, place)]))
        }
        Asked::Beyond => {
            let why = format!("the file has {length} bytes: ask for a range within them");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, why);
            return Ok(([(CONTENT_RANGE, format!("bytes */{length}"))], problem).into_response());
        }
    };
    let size = [(CONTENT_LENGTH, (part.end - part.start).to_string())];
    let fixed = [(CONTENT_TYPE, kind), (ACCEPT_RANGES, "bytes"), (CONTENT_SECURITY_POLICY, POLICY)];
    let saved = saved.map(|saved| [(CONTENT_DISPOSITION, saved)]);
    Ok((status, fixed, size, place, saved, Body::from_stream(parts(file, part))).into_response())
}

fn media_type(path: &FilePath) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jpg") => "image/jpeg",
        Some("png") => "image/png",
        Some("mp4") => "video/mp4",
        _ => "application/octet-stream",
    }
}

/// Opens a file, but follows no link that somebody put in its place. Returns its length as well.
fn open(path: &FilePath) -> io::Result<(File, u64)> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let facts = file.metadata()?;
    if facts.is_file() { Ok((file, facts.len())) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Reads a range of a file part by part, on other threads.
fn parts(file: File, range: Range<u64>) -> impl stream::Stream<Item = io::Result<Bytes>> {
    let file = Arc::new(file);
    stream::unfold(range, move |range| {
        let file = Arc::clone(&file);
        async move {
            if range.is_empty() {
                return None;
            }
            let end = range.end.min(range.start + PART_BYTES);
            let mut part = vec![0; (end - range.start) as usize];
            let read = spawn_blocking(move || file.read_exact_at(&mut part, range.start).map(|()| part.into())).await;
            let read = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
            let next = if read.is_ok() { end } else { range.end };
            Some((read, next..range.end))
        }
    })
}

/// The part of a file that a client asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    All,
    Part(Range<u64>),
    /// None of it is in the file.
    Beyond,
}

/// Reads the header Range (RFC 9110): one range of bytes. The whole file answers any other header.
fn asked(header: &str, length: u64) -> Asked {
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.trim().split_once('-')) else {
        return Asked::All;
    };
    let range = match (first, last) {
        ("", last) => number(last).map(|last| length.saturating_sub(last)..length),
        (first, "") => number(first).map(|first| first..length),
        (first, last) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| first..last.saturating_add(1).min(length)),
    };
    match range {
        None => Asked::All,
        Some(range) if range.is_empty() => Asked::Beyond,
        Some(range) => Asked::Part(range),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_range_is_within_the_file_or_refused() {
        for (header, wanted) in [
            ("bytes=0-", Asked::Part(0..10)),
            ("bytes=3-4", Asked::Part(3..5)),
            ("bytes=9-9", Asked::Part(9..10)),
            ("bytes=3-99", Asked::Part(3..10)),
            ("bytes=3-18446744073709551615", Asked::Part(3..10)),
            ("bytes=-3", Asked::Part(7..10)),
            ("bytes=-99", Asked::Part(0..10)),
            ("bytes=10-", Asked::Beyond),
            ("bytes=99-100", Asked::Beyond),
            ("bytes=-0", Asked::Beyond),
            ("bytes=4-3", Asked::All),
            ("bytes=0-1,3-4", Asked::All),
            ("bytes=a-", Asked::All),
            ("bytes=+1-", Asked::All),
            ("bytes=-", Asked::All),
            ("bytes=18446744073709551616-", Asked::All),
            ("lines=0-1", Asked::All),
            ("", Asked::All),
        ] {
            assert_eq!(asked(header, 10), wanted, "{header}");
        }
        assert_eq!(asked("bytes=0-", 0), Asked::Beyond);
    }

    #[test]
    fn only_a_file_itself_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["a.jpg", "b.jpg"].map(|name| folder.path().join(name));
        std::fs::write(&file, b"secret").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(open(&file).unwrap().1, 6);
        open(&link).unwrap_err();
        open(folder.path()).unwrap_err();
    }
}
