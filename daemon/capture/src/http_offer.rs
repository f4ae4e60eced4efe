//! Samples a camera's HTTP response and describes its content: for `visiond probe --http`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::MjpegConfig;
use visiond_frames::clock::Clock;
use visiond_frames::frame::LossCause;
use visiond_frames::timestamp::Timestamp;
use visiond_kernels::jpeg::JpegDecoder;
use visiond_system::stop::{Stop, Wake};

use super::buffers::Buffers;
use super::ffprobe::shown;
use super::http_client::{Answer, Failure, HttpCamera, HttpClient, Progress};
use super::image_file::Loader;
use super::mjpeg::JpegScanner;
use super::other_content::{EMPTY, HEAD_BYTES, OtherContent};
use super::source::SourceError;

/// The most bytes of an image.
const MOST_IMAGE_BYTES: usize = 64 << 20;

/// The most JPEGs in one image file, which may hold a smaller copy of itself.
const MOST_JPEGS: u64 = 2;

/// The content that a camera sends over HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpOffer {
    /// The URL without its user and without parts that look like secrets.
    pub url: String,
    /// Whether `url` leaves out something after the host.
    pub has_secret: bool,
    /// SHA-256 of the certificate of a camera with TLS.
    pub certificate: Option<String>,
    /// The media type that the camera states; it may be empty or wrong.
    pub media_type: String,
    /// The content as its bytes show it.
    pub content: HttpContent,
}

/// A kind of content.
#[derive(Debug, Clone, PartialEq)]
pub enum HttpContent {
    /// One JPEG after another.
    Mjpeg(WatchedParts),
    /// One image.
    Snapshot {
        /// Width and height in pixels.
        size: [u32; 2],
        /// Bytes of the image file.
        bytes: u64,
    },
    /// Another format that ffmpeg reads, in words.
    Video(String),
}

/// Statistics of a JPEG stream.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedParts {
    /// Whole images received.
    pub pictures: u64,
    /// Damaged images.
    pub damaged: u64,
    /// Width and height in pixels of the last image, if they can be read.
    pub size: Option<[u32; 2]>,
    /// Bytes received in total.
    pub bytes: u64,
    /// Frames per second; `None` if fewer than two images arrived.
    pub fps: Option<f64>,
    /// Seconds of observation.
    pub seconds: f64,
    /// Whether the camera ended the stream.
    pub has_ended: bool,
}

impl WatchedParts {
    /// Returns bits per second; `None` if the rate is not known.
    pub fn bits_per_s(&self) -> Option<f64> {
        self.fps.map(|fps| 8.0 * self.bytes as f64 / self.pictures.max(1) as f64 * fps)
    }
}

impl HttpOffer {
    /// Requests the URL of `config` and observes the response for a while.
    ///
    /// # Errors
    /// The errors of the sources `mjpeg` and `snapshot`: no connection, a wrong password, content that visiond cannot read.
    pub fn ask(config: &MjpegConfig, watch: Duration, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let mut client = HttpClient::new(&HttpCamera::from(config), clock)?;
        let stop = Stop::new().map_err(|error| SourceError::transient(format!("cannot make an eventfd: {error}")))?;
        let url = client.url().to_owned();
        let shown = shown(&url);
        let asked = ask(&mut client, &stop, config.timeout, watch).map_err(|failure| {
            let said = failure.error(|reason| format!("cannot read what {shown} sends: {reason}"));
            said.unwrap_or_else(|| SourceError::transient("the request was interrupted: run it again"))
        });
        let (media_type, content) = asked?;
        let has_secret = shown != url;
        Ok(Self { url: shown, has_secret, certificate: client.seen_fingerprint(), media_type, content })
    }
}

/// The data received so far.
#[derive(Default)]
struct Watch {
    scanner: JpegScanner,
    damaged: u64,
    /// The first bytes.
    head: Vec<u8>,
    /// All bytes, as long as they may be one image.
    file: Vec<u8>,
    bytes: u64,
    /// When the first and the last image began, and how many had arrived by then.
    times: Option<((Timestamp, u64), (Timestamp, u64))>,
    size: Option<[u32; 2]>,
    has_ended: bool,
}

fn ask(
    client: &mut HttpClient,
    stop: &Stop,
    timeout: Duration,
    watch: Duration,
) -> Result<(String, HttpContent), Failure> {
    let mut answer = client.get(&[], stop, Instant::now() + timeout)?;
    let media_type = answer.header_text("content-type").unwrap_or_default();
    let (began, until) = (Instant::now(), Instant::now() + watch);
    let mut seen = Watch::default();
    while !seen.has_ended && Instant::now() < until {
        if seen.scanner.found() == 0
            && let Some(OtherContent::Video(what)) = OtherContent::of(&media_type, &seen.head)
        {
            return Ok((media_type, HttpContent::Video(what)));
        }
        seen.read(client, &mut answer, stop, until)?;
    }
    client.close();
    seen.has_ended |= answer.stated_length() == Some(seen.bytes);
    let content = seen.content(&media_type, answer.began, began.elapsed())?;
    Ok((media_type, content))
}

impl Watch {
    fn read(
        &mut self,
        client: &mut HttpClient,
        answer: &mut Answer,
        stop: &Stop,
        until: Instant,
    ) -> Result<(), Failure> {
        let progress = client.read(answer, |bytes, now| {
            let missing = HEAD_BYTES.saturating_sub(self.head.len());
            self.head.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
            self.bytes += bytes.len() as u64;
            let room =
                if self.scanner.found() > MOST_JPEGS { 0 } else { MOST_IMAGE_BYTES.saturating_sub(self.file.len()) };
            self.file.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            self.scanner.push(bytes, now);
        })?;
        if progress != Progress::Some {
            self.scanner.rest();
        }
        while let Some((frames, cause)) = self.scanner.take_loss() {
            self.damaged += if cause == LossCause::Corrupt { frames } else { 0 };
        }
        if let Some(picture) = self.scanner.take() {
            let time = (picture.began, self.scanner.found());
            self.times = Some((self.times.map_or(time, |(first, _)| first), time));
            self.size = JpegDecoder::new().header(&picture.data).ok().map(|header| [header.width, header.height]);
        }
        match progress {
            Progress::Some => {}
            Progress::End | Progress::Closed => self.has_ended = true,
            Progress::Nothing => {
                if client.wait(stop, until)? == Wake::Stopped {
                    return Err(Failure::Stopped);
                }
            }
        }
        Ok(())
    }

    /// Describes the response that began at `began`, as observed for `watched`.
    fn content(mut self, media_type: &str, began: Timestamp, watched: Duration) -> Result<HttpContent, Failure> {
        let found = self.scanner.found();
        let is_multipart = media_type.to_ascii_lowercase().starts_with("multipart/");
        if found > MOST_JPEGS || found > 0 && (is_multipart || !self.has_ended) {
            return Ok(HttpContent::Mjpeg(self.parts(watched)));
        }
        if self.bytes == 0 {
            return Err(Failure::Absent(EMPTY.to_owned()));
        }
        match OtherContent::of(media_type, &self.head) {
            Some(OtherContent::Video(what)) => return Ok(HttpContent::Video(what)),
            Some(other) if found == 0 => return Err(Failure::Refused(other.sentence("image"))),
            _ => {}
        }
        let cannot = |reason: &dyn std::fmt::Display| Failure::Refused(format!("the answer is not an image: {reason}"));
        if !self.has_ended {
            let seconds = watched.as_secs_f64();
            return Err(cannot(&format!("there is no JPEG in what came in {seconds:.1} s: watch longer with --watch")));
        }
        let bytes = self.bytes;
        let buffers = Buffers::host(1);
        let pool = buffers.pool(0).map_err(|error| cannot(&error))?;
        let buffer = pool.take().ok_or_else(|| cannot(&"no memory for it"))?;
        let frame =
            Loader::new(&buffers).load_bytes(&mut self.file, 0, began, buffer).map_err(|reason| cannot(&reason))?;
        Ok(HttpContent::Snapshot { size: [frame.layout.width(), frame.layout.height()], bytes })
    }

    fn parts(&self, watched: Duration) -> WatchedParts {
        let fps = self.times.and_then(|((first, before), (last, after))| {
            let ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
            (ns > 0 && after > before).then(|| (after - before) as f64 * 1e9 / ns as f64)
        });
        WatchedParts {
            pictures: self.scanner.found(),
            damaged: self.damaged,
            size: self.size,
            bytes: self.bytes,
            fps,
            seconds: watched.as_secs_f64(),
            has_ended: self.has_ended,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::thread;

    use image::{ExtendedColorType, ImageEncoder};
    use visiond_frames::clock::SystemClock;
    use visiond_system::testing::{EVER, finishes};

    use super::*;
    use crate::http_client::tests::{Server, answer, closing, write};
    use crate::mjpeg::jpeg_scanner_tests::picture;
    use crate::mjpeg::tests::config;

    fn asked(server: &Server, path: &str, watch: Duration) -> Result<HttpOffer, SourceError> {
        let camera = config(&server.url(path));
        finishes("the answer", move || HttpOffer::ask(&camera, watch, Arc::new(SystemClock)))
    }

    #[test]
    fn a_stream_of_jpegs_is_one_whatever_frames_its_parts() {
        let jpeg = picture(9, 64, 48);
        let server = Server::start(move |request, client| {
            let kind = match request.path() {
                "/untyped" => "application/octet-stream",
                "/image" => "image/jpeg",
                _ => "multipart/x-mixed-replace; boundary=b",
            };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n");
            let part = [b"--b\r\n\r\n", &jpeg[..], b"\r\n"].concat();
            let count = if request.path() == "/once" { 1 } else { 5 };
            if request.path() == "/goes-on" {
                // All at once, because the observation time is short.
                write(client, &[head.as_bytes(), &part.repeat(count)].concat());
                thread::sleep(EVER);
                return false;
            }
            write(client, head.as_bytes());
            for _ in 0..count {
                write(client, &part);
                thread::sleep(Duration::from_millis(5));
            }
            false
        });
        for (path, pictures) in [("/", 5), ("/untyped", 5), ("/image", 5), ("/once", 1), ("/goes-on", 5)] {
            // Only a stream that continues is observed to the end of the time.
            let watch = if path == "/goes-on" { Duration::from_secs(1) } else { EVER };
            let offer = asked(&server, path, watch).unwrap();
            let HttpContent::Mjpeg(parts) = &offer.content else { panic!("{path}: {offer:?}") };
            assert_eq!((parts.pictures, parts.damaged, parts.size), (pictures, 0, Some([64, 48])), "{path}");
            assert_eq!(parts.has_ended, path != "/goes-on");
            // Several may have arrived at once.
            assert!(parts.fps.is_none_or(|fps| fps > 0.0) && parts.bits_per_s().is_some() == parts.fps.is_some());
        }
    }

    #[test]
    fn one_picture_of_any_format_is_a_snapshot() {
        let mut png = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut png);
        encoder.write_image(&[9; 8 * 4 * 3], 8, 4, ExtendedColorType::Rgb8).unwrap();
        let jpeg = picture(9, 64, 48);
        let server = Server::start(move |request, client| match request.path() {
            "/png" => answer(client, "200 OK", "", &png),
            // A smaller copy after the image.
            "/two" => closing(write(client, &[b"HTTP/1.0 200 OK\r\n\r\n", &jpeg[..], &jpeg].concat())),
            _ => answer(client, "200 OK", "Content-Type: image/jpeg\r\n", &jpeg),
        });
        for (path, expected) in [("/jpeg?token=hush", [64, 48]), ("/png", [8, 4]), ("/two", [64, 48])] {
            let offer = asked(&server, path, EVER).unwrap();
            assert!(
                matches!(offer.content, HttpContent::Snapshot { size, .. } if size == expected),
                "{path}: {offer:?}"
            );
            assert_eq!(offer.has_secret, path.contains("hush"));
            assert!(!offer.url.contains("hush"), "{}", offer.url);
        }
    }

    #[test]
    fn other_video_is_named_at_once_and_anything_else_is_an_error() {
        let server = Server::start(|request, client| {
            let (kind, body): (_, &[u8]) = match request.path() {
                "/hls" => ("application/vnd.apple.mpegurl", b"#EXTM3U"),
                "/untyped-hls" => ("", b"#EXTM3U\n"),
                "/ts" => ("video/mp2t", b"\x47@\0"),
                "/flv" => ("", b"FLV\x01\x05"),
                "/page" => ("text/html", b"<html>"),
                "/text" => ("text/plain", b"no such channel"),
                "/bytes" => ("", b"\x01\x02\x03"),
                "/login" => return answer(client, "401 No", "", b""),
                _ => ("image/jpeg", b""),
            };
            write(client, format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n").as_bytes());
            write(client, body);
            if matches!(request.path(), "/hls" | "/untyped-hls" | "/ts" | "/flv") {
                // A stream does not end.
                thread::sleep(EVER);
            }
            false
        });
        for (path, words) in
            [("/hls", "a playlist (HLS)"), ("/untyped-hls", "a playlist (HLS)"), ("/ts", "video/mp2t"), ("/flv", "FLV")]
        {
            let offer = asked(&server, path, EVER).unwrap();
            assert!(matches!(&offer.content, HttpContent::Video(what) if what.contains(words)), "{path}: {offer:?}");
        }
        for (path, words) in [
            ("/page", "the camera sends a page (HTML) and no image"),
            ("/text", "\"no such channel\" and no image: correct the path"),
            ("/bytes", "the answer is not an image: "),
            ("/login", "set `login`"),
            ("/empty", "the camera's answer is empty"),
        ] {
            let error = asked(&server, path, EVER).unwrap_err();
            assert!(error.to_string().contains(words), "{path}: {error}");
        }
    }
}
