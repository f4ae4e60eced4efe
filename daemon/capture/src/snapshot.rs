//! Requests a camera's current image at intervals over HTTP.
//!
//! The requests have absolute deadlines, so the interval does not drift. A camera that takes longer than an interval gets the next
//! request after its response; deadlines that passed meanwhile are skipped. A frame's time is the arrival of the response's first
//! byte.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::SnapshotConfig;
use visiond_frames::clock::Clock;
use visiond_frames::frame::{FramePool, LossCause};
use visiond_frames::timestamp::Timestamp;
use visiond_system::stop::{Stop, Wake};

use super::buffers::Buffers;
use super::ffprobe::shown;
use super::http_client::{Answer, Failure, HttpCamera, HttpClient, Progress};
use super::image_file::Loader;
use super::mjpeg::JpegScanner;
use super::other_content::{EMPTY, HEAD_BYTES, STREAM, other_content};
use super::pacer::SourcePacer;
use super::source::{Next, Source, SourceError, SourceFault};

/// The most bytes of a response.
const MOST_BYTES: u64 = 64 << 20;

/// The most JPEGs in one image file.
const MOST_JPEGS: u64 = 2;

/// How much older than its response an image must be for its date to distinguish it from the next one: dates have whole seconds.
const LEAST_AGE: Duration = Duration::from_secs(2);

pub struct SnapshotSource {
    config: SnapshotConfig,
    client: HttpClient,
    pool: FramePool,
    loader: Loader,
    most_bytes: usize,
    pacer: SourcePacer,
    clock: Arc<dyn Clock>,
    /// The URL as errors and the log show it.
    origin: String,
    /// The image file; its memory is reused.
    file: Vec<u8>,
    /// The media type of the response.
    kind: String,
    /// The response header that identifies an unchanged image.
    validator: Option<(&'static str, Vec<u8>)>,
    sequence: u64,
    /// When the camera last responded, on CLOCK_MONOTONIC; `None` before its first image.
    answered_ns: Option<u64>,
    /// Whether the last request failed and the failure was reported.
    is_failing: bool,
    /// Failed requests that are not counted yet.
    lost: u64,
}

impl SnapshotSource {
    /// Checks whether [`SnapshotSource::open`] would fail, without connecting to the camera.
    pub fn check(config: &SnapshotConfig) -> Vec<SourceFault> {
        HttpCamera::from(config).check()
    }

    /// Reads login and certificates. Connects while [`Source::next`] waits.
    pub fn open(config: &SnapshotConfig, buffers: &Buffers, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        Ok(Self {
            config: config.clone(),
            client: HttpClient::new(&HttpCamera::from(config), Arc::clone(&clock))?,
            // Each buffer takes the size of its image.
            pool: buffers.pool(0)?,
            loader: Loader::new(buffers),
            most_bytes: usize::try_from(buffers.max_picture_bytes.min(MOST_BYTES)).unwrap_or(usize::MAX),
            pacer: SourcePacer::new(1.0 / config.interval.as_secs_f64()),
            clock,
            origin: shown(&config.url),
            file: Vec::new(),
            kind: String::new(),
            validator: None,
            sequence: 0,
            answered_ns: None,
            is_failing: false,
            lost: 0,
        })
    }

    /// Requests the image into `file`; returns when the response began, or `None` if the image is unchanged.
    fn request(&mut self, stop: &Stop) -> Result<Option<Timestamp>, Failure> {
        let deadline = Instant::now() + self.config.timeout;
        let headers: Vec<_> = self.validator.iter().map(|(name, value)| (*name, value.as_slice())).collect();
        let mut answer = self.client.get(&headers, stop, deadline)?;
        self.kind = answer.header_text("content-type").unwrap_or_default();
        if answer.status != 304 && self.kind.to_ascii_lowercase().starts_with("multipart/") {
            self.client.close();
            return Err(Failure::Refused(STREAM.to_owned()));
        }
        let (file, most) = (&mut self.file, self.most_bytes);
        file.clear();
        // Only a response without a length can be a stream, whatever its type.
        let mut pictures = (!answer.has_length()).then(JpegScanner::default);
        loop {
            stop.mark_progress();
            let progress = self.client.read(&mut answer, |bytes, now| {
                if let Some(pictures) = &mut pictures {
                    pictures.push(bytes, now);
                }
                // One byte more than the limit shows that there are too many.
                let room = (most + 1).saturating_sub(file.len());
                file.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
            })?;
            let found = pictures.as_ref().map_or(0, JpegScanner::found);
            // Some images are followed by smaller JPEG copies of themselves (MPF).
            if found > MOST_JPEGS {
                self.client.close();
                return Err(Failure::Refused(STREAM.to_owned()));
            }
            if file.len() > most {
                self.client.close();
                let other = other_content(&self.kind, first(file), "image");
                return Err(Failure::Refused(other.unwrap_or_else(|| {
                    format!("the answer has more than {most} bytes and is not an image: correct `url`")
                })));
            }
            match progress {
                Progress::Some => {}
                Progress::End => break,
                // Some cameras state a length that is too large.
                Progress::Closed if answer.ends_with_connection() || ends_as_jpeg(file) => break,
                Progress::Closed => {
                    let reason = "the camera closed the connection in the middle of the image";
                    return Err(Failure::Absent(reason.to_owned()));
                }
                Progress::Nothing => match self.client.wait(stop, deadline)? {
                    Wake::Ready => {}
                    Wake::Stopped => return Err(Failure::Stopped),
                    Wake::TimedOut => {
                        self.client.close();
                        // A single image may also come from a camera that neither states its length nor ends the response.
                        if found > 1 {
                            return Err(Failure::Refused(STREAM.to_owned()));
                        }
                        if let Some(other) = other_content(&self.kind, first(file), "image") {
                            return Err(Failure::Refused(other));
                        }
                        let seconds = self.config.timeout.as_secs_f64();
                        return Err(Failure::Absent(format!(
                            "the image takes more than {seconds} s; check the network"
                        )));
                    }
                },
            }
        }
        if answer.status == 304 {
            return Ok(None);
        }
        if self.file.is_empty() {
            return Err(Failure::Absent(EMPTY.to_owned()));
        }
        // Some cameras send a line end first.
        let blank = self.file.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.file.drain(..blank);
        self.validator = validator(&answer);
        Ok(Some(answer.began))
    }

    /// Handles a failed request. Reports the first after a success; the source ends if requests fail for too long.
    fn failed(&mut self, failure: Failure) -> Result<Next, SourceError> {
        let is_refused = matches!(failure, Failure::Refused(_));
        let Some(error) = failure.error(|reason| format!("cannot get an image from {}: {reason}", self.origin)) else {
            return Ok(Next::Stopped);
        };
        // Request the next image in full, because it shows that the camera is back.
        self.validator = None;
        let silence =
            Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(self.answered_ns.unwrap_or_default()));
        let limit = self.config.timeout.max(2 * self.config.interval);
        if is_refused || self.answered_ns.is_none() || silence >= limit {
            return Err(error);
        }
        self.lost += 1;
        if std::mem::replace(&mut self.is_failing, true) {
            return Ok(self.take_lost());
        }
        Ok(Next::Waiting { reason: error.message })
    }

    fn take_lost(&mut self) -> Next {
        let frames = std::mem::take(&mut self.lost);
        self.sequence += frames;
        Next::Lost { frames, cause: LossCause::Driver }
    }

    /// Decodes the image in `file`.
    fn decode(&mut self, began: Timestamp) -> Result<Next, SourceError> {
        let sequence = self.sequence;
        let Some(buffer) = self.pool.take() else {
            // Request the same image again.
            self.validator = None;
            self.sequence += 1;
            return Ok(Next::Lost { frames: 1, cause: LossCause::Overload });
        };
        match self.loader.load_bytes(&mut self.file, sequence, began, buffer) {
            Ok(frame) => {
                self.sequence += 1;
                (self.answered_ns, self.is_failing) = (Some(self.clock.monotonic_ns()), false);
                Ok(Next::Frame(frame))
            }
            Err(reason) => {
                let other = other_content(&self.kind, first(&self.file), "image");
                let reason = other.unwrap_or_else(|| format!("the answer is not an image: {reason}"));
                self.failed(Failure::Absent(reason))
            }
        }
    }
}

impl Source for SnapshotSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        if self.lost > 0 {
            return Ok(self.take_lost());
        }
        loop {
            let now_ns = self.clock.monotonic_ns();
            // Deadlines that passed while the camera responded.
            self.pacer.skip_missed(now_ns);
            let due_ns = self.pacer.due_ns(now_ns);
            if self.clock.sleep_until(due_ns, stop) {
                return Ok(Next::Stopped);
            }
            self.pacer.advance();
            match self.request(stop) {
                Ok(Some(began)) => return self.decode(began),
                Ok(None) => self.answered_ns = Some(self.clock.monotonic_ns()),
                Err(failure) => return self.failed(failure),
            }
        }
    }

    fn copied_bytes(&self) -> u64 {
        self.loader.copied_bytes()
    }

    fn describe(&self) -> String {
        format!("snapshot {}, every {:?}", self.origin, self.config.interval)
    }
}

/// Returns the header that requests the image only if it differs from the one of `answer`.
fn validator(answer: &Answer) -> Option<(&'static str, Vec<u8>)> {
    // A value that a header cannot hold is not sent.
    let plain = |name| answer.header(name).filter(|value| !value.iter().any(u8::is_ascii_control));
    if let Some(etag) = plain("etag") {
        return Some(("If-None-Match", etag.to_vec()));
    }
    let modified = plain("last-modified")?;
    let time = |value| httpdate::parse_http_date(str::from_utf8(value).ok()?).ok();
    let age = time(plain("date")?)?.duration_since(time(modified)?).ok()?;
    (age >= LEAST_AGE).then(|| ("If-Modified-Since", modified.to_vec()))
}

/// Whether a file begins and ends like a JPEG. The decoder checks whether it is complete.
fn ends_as_jpeg(file: &[u8]) -> bool {
    file.starts_with(b"\xFF\xD8") && file.ends_with(b"\xFF\xD9")
}

/// Returns the leading bytes that identify a file.
fn first(file: &[u8]) -> &[u8] {
    file.get(..HEAD_BYTES).unwrap_or(file)
}

#[cfg(test)]
pub(crate) mod tests;
