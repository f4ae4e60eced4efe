//! Plays a network camera that sends a series of JPEGs over HTTP (MJPEG), without another program.
//!
//! The thread that waits for frames reads everything that has arrived, so a slow reader gets the newest image, and older ones count
//! as lost by overload. A frame's time is the arrival of its first byte.

#[cfg(feature = "fuzz")]
pub mod fuzz;
mod jpeg_scanner;

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::MjpegConfig;
use visiond_frames::clock::Clock;
use visiond_frames::coded_ring::{CodedFrame, CodedRing};
use visiond_frames::frame::LossCause;
use visiond_frames::timestamp::Timestamp;
use visiond_system::logging::events;
use visiond_system::stop::{Stop, Wake};

pub use self::jpeg_scanner::{FoundJpeg, JpegScanner};
use super::buffers::Buffers;
use super::damage_watch::DamageWatch;
use super::ffprobe::shown;
use super::http_client::{Answer, Failure, HttpCamera, HttpClient, Progress};
use super::jpeg_frames::{DECODER, JpegFrames};
use super::other_content::{EMPTY, HEAD_BYTES, OtherContent, other_content};
use super::source::{Next, Source, SourceError, SourceFault};

/// How much to read before decoding an image that has arrived. The camera may send faster than visiond reads.
const MOST_BYTES_IN_TURN: usize = 4 << 20;

/// How long the camera must be silent at the stated length before that counts as the end. Some cameras state the length of one
/// image and continue.
const END_PAUSE: Duration = Duration::from_millis(500);

/// The shortest interval between requests, for cameras whose responses end.
const SHORTEST_ANSWER: Duration = Duration::from_millis(100);

/// The last bytes of a multipart response: the two hyphens of its last boundary, and a line end.
const TAIL_BYTES: usize = 4;

pub struct MjpegSource {
    config: MjpegConfig,
    client: HttpClient,
    buffers: Buffers,
    clock: Arc<dyn Clock>,
    /// The URL as errors and the log show it.
    origin: String,
    /// `None` before the first wait for a frame.
    stream: Option<PlayedStream>,
    frames: JpegFrames,
    damage: DamageWatch,
    sequence: u64,
    /// Gets the images as they are, for clips.
    coded: Option<Arc<CodedRing>>,
    /// The camera's name until its first image is logged: nothing is known about it before that.
    unannounced: Option<Arc<str>>,
}

/// One response of the camera.
struct PlayedStream {
    answer: Answer,
    content: Content,
    began: Instant,
    /// When the last image was complete, or the stream began.
    last: Instant,
    /// Whether the response looks like a single image; a second image refutes that.
    may_be_snapshot: bool,
    /// `None` while it continues.
    end: Option<StreamEnd>,
}

/// How a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// At the end that the camera stated. The next request yields more images.
    Complete,
    /// The connection was closed.
    Closed,
}

/// The progress of a response.
#[derive(Default)]
struct Content {
    scanner: JpegScanner,
    /// Its first bytes.
    head: Vec<u8>,
    /// Its last bytes.
    tail: Vec<u8>,
    received_bytes: u64,
}

impl Content {
    fn push(&mut self, bytes: &[u8], now: Timestamp) {
        let missing = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or(bytes));
        self.tail.extend_from_slice(bytes.get(bytes.len().saturating_sub(TAIL_BYTES)..).unwrap_or_default());
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
        self.received_bytes += bytes.len() as u64;
        self.scanner.push(bytes, now);
    }

    /// Whether the last boundary has arrived (RFC 2046 section 5.1.1).
    fn is_at_last_border(&self) -> bool {
        self.tail.trim_ascii_end().ends_with(b"--")
    }
}

impl PlayedStream {
    /// Returns the losses, or, if there are none, the newest image.
    fn event(&mut self) -> Option<StreamEvent> {
        let scanner = &mut self.content.scanner;
        if let Some((frames, cause)) = scanner.take_loss() {
            return Some(StreamEvent::Lost(frames, cause));
        }
        // If a snapshot URL's image counted as a success, every retry would look like a camera that is back.
        if self.has_jpegs() { self.content.scanner.take().map(StreamEvent::Jpeg) } else { None }
    }

    /// Whether images arrived, and more than the single one of a snapshot.
    fn has_jpegs(&self) -> bool {
        self.content.scanner.found() > u64::from(self.may_be_snapshot)
    }

    /// Whether as much has arrived as the camera stated.
    fn is_at_stated_length(&self) -> bool {
        self.answer.stated_length() == Some(self.content.received_bytes)
    }

    /// Returns how the response ended, if it did, given the result `progress` of reading.
    fn end_after(&self, progress: Progress) -> Option<StreamEnd> {
        let (is_at_length, is_at_border) = (self.is_at_stated_length(), self.content.is_at_last_border());
        match progress {
            Progress::End => Some(StreamEnd::Complete),
            Progress::Nothing if is_at_length && is_at_border => Some(StreamEnd::Complete),
            Progress::Closed if is_at_length || is_at_border => Some(StreamEnd::Complete),
            Progress::Closed => Some(StreamEnd::Closed),
            Progress::Some | Progress::Nothing => None,
        }
    }

    /// Until when to wait for more data.
    fn deadline(&self, timeout: Duration) -> Instant {
        let picture = self.last + timeout;
        if self.is_at_stated_length() { picture.min(Instant::now() + END_PAUSE) } else { picture }
    }
}

impl MjpegSource {
    /// Checks whether [`MjpegSource::open`] would fail, without connecting to the camera.
    pub fn check(config: &MjpegConfig) -> Vec<SourceFault> {
        HttpCamera::from(config).check()
    }

    /// Reads login and certificates. Connects while [`Source::next`] waits. Logs the first image if `announced` names the camera:
    /// the pipeline logs those after a failure.
    pub fn open(
        config: &MjpegConfig,
        announced: Option<Arc<str>>,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            config: config.clone(),
            client: HttpClient::new(&HttpCamera::from(config), Arc::clone(&clock))?,
            buffers: buffers.clone(),
            clock,
            origin: shown(&config.url),
            stream: None,
            frames: JpegFrames::new(),
            damage: DamageWatch::default(),
            sequence: 0,
            coded: None,
            unannounced: announced,
        })
    }

    /// Puts the images that it decodes into `coded` as well. Each then has memory of its own, which costs an allocation.
    pub fn recording_to(mut self, coded: Option<Arc<CodedRing>>) -> Self {
        coded.iter().for_each(|coded| coded.begin_stream());
        self.coded = coded;
        self
    }

    /// Requests the stream.
    fn play(&mut self, stop: &Stop) -> Result<PlayedStream, Failure> {
        let deadline = Instant::now() + self.config.timeout;
        let answer = self.client.get(&[], stop, deadline)?;
        let kind = answer.header_text("content-type").unwrap_or_default();
        // Some cameras send JPEGs with the type of a page, but none with that of a video.
        if let Some(other @ OtherContent::Video(_)) = OtherContent::of(&kind, &[]) {
            return Err(Failure::Refused(other.sentence("MJPEG")));
        }
        Ok(PlayedStream {
            may_be_snapshot: answer.has_length() || kind.to_ascii_lowercase().starts_with("image/"),
            answer,
            content: Content::default(),
            began: Instant::now(),
            last: Instant::now(),
            end: None,
        })
    }

    /// Reads everything that has arrived.
    fn read(&mut self, stop: &Stop) -> Result<(), Failure> {
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.end.is_none()) else { return Ok(()) };
        let found = stream.content.scanner.found();
        let mut bytes = 0;
        let progress = loop {
            stop.mark_progress();
            let content = &mut stream.content;
            let progress = self.client.read(&mut stream.answer, |piece, now| {
                bytes += piece.len();
                content.push(piece, now);
            })?;
            match progress {
                Progress::Some if bytes < MOST_BYTES_IN_TURN && !stop.is_raised() => {}
                Progress::Some => break progress,
                Progress::Nothing | Progress::End | Progress::Closed => {
                    content.scanner.rest();
                    break progress;
                }
            }
        };
        if stream.content.scanner.found() != found {
            stream.last = Instant::now();
        }
        stream.end = stream.end_after(progress);
        Ok(())
    }

    /// Ends a complete response, so that the next one is requested. Returns whether visiond is stopping.
    fn end_answer(&mut self, stop: &Stop) -> bool {
        self.client.close();
        let Some(stream) = self.stream.take() else { return false };
        let pictures = stream.content.scanner.found();
        log::debug!("{}: the camera's answer ended after {pictures} images: requesting more", self.origin);
        let since = stream.began.elapsed();
        since < SHORTEST_ANSWER && stop.sleep(SHORTEST_ANSWER - since)
    }

    /// Returns the error for a stream that ended or yields no image: `what` happened, and the camera's remedy if it has one.
    fn no_jpeg(&self, what: &str, remedy: &str) -> Failure {
        let absent = Failure::Absent(format!("{what}{remedy}"));
        let Some(PlayedStream { answer, content: Content { scanner, head, .. }, may_be_snapshot, .. }) = &self.stream
        else {
            return absent;
        };
        let kind = answer.header_text("content-type").unwrap_or_default().to_ascii_lowercase();
        match scanner.found() {
            0 if head.is_empty() => absent,
            0 => Failure::Refused(other_content(&kind, head, "MJPEG").unwrap_or_else(|| {
                let kind = if kind.is_empty() { "without a type" } else { &kind };
                format!("{what}, and there is no JPEG in what the camera sent ({kind}): correct the path in `url`")
            })),
            1 if *may_be_snapshot => {
                Failure::Refused("the camera sends one image and no stream: set `type = \"snapshot\"`".to_owned())
            }
            _ => absent,
        }
    }

    fn wait_for_event(&mut self, stop: &Stop) -> Result<StreamEvent, Failure> {
        loop {
            stop.mark_progress();
            if stop.is_raised() {
                return Err(Failure::Stopped);
            }
            // Return the image that came with a loss before reading more; otherwise a camera that sends without pause would yield
            // none.
            if let Some(event) = self.stream.as_mut().and_then(|stream| stream.event()) {
                return Ok(event);
            }
            if self.stream.is_none() {
                self.stream = Some(self.play(stop)?);
            }
            self.read(stop)?;
            let Some(stream) = &mut self.stream else { continue };
            if let Some(event) = stream.event() {
                return Ok(event);
            }
            match stream.end {
                None => {}
                Some(StreamEnd::Complete) if stream.has_jpegs() => {
                    if self.end_answer(stop) {
                        return Err(Failure::Stopped);
                    }
                    continue;
                }
                Some(_) if stream.content.head.is_empty() => return Err(Failure::Absent(EMPTY.to_owned())),
                Some(_) => return Err(self.no_jpeg("the camera closed the connection", "")),
            }
            match self.client.wait(stop, stream.deadline(self.config.timeout))? {
                Wake::Ready => {}
                Wake::Stopped => return Err(Failure::Stopped),
                Wake::TimedOut if stream.is_at_stated_length() => stream.end = Some(StreamEnd::Complete),
                Wake::TimedOut => {
                    let what = format!("no image for {} s", self.config.timeout.as_secs_f64());
                    return Err(self.no_jpeg(&what, "; check the camera and the network"));
                }
            }
        }
    }

    /// Returns `next`, or an error if everything has been damaged for as long as an image may take.
    fn watched(&mut self, next: Next) -> Result<Next, SourceError> {
        // Images that a newer one replaced may have been damaged as well.
        if matches!(next, Next::Frame(_)) {
            self.damage.reset();
            if let Some(camera) = self.unannounced.take() {
                log::info!(message_id = events::CAMERA_STREAMING; "camera {camera}: {}", self.describe());
            }
        } else if matches!(next, Next::Lost { cause: LossCause::Corrupt, .. })
            && self.damage.is_over(self.clock.monotonic_ns(), self.config.timeout)
        {
            let (origin, seconds) = (&self.origin, self.config.timeout.as_secs_f64());
            return Err(SourceError::absent(format!(
                "every frame from {origin} was damaged for {seconds} s: restart the camera, and check the network"
            )));
        }
        Ok(next)
    }
}

/// The data that a stream yielded.
enum StreamEvent {
    Jpeg(FoundJpeg),
    /// The number of images lost.
    Lost(u64, LossCause),
}

impl Source for MjpegSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        let next = match self.wait_for_event(stop) {
            Ok(StreamEvent::Lost(frames, cause)) => {
                self.sequence += frames;
                Next::Lost { frames, cause }
            }
            Ok(StreamEvent::Jpeg(picture)) => {
                let sequence = self.sequence;
                self.sequence += 1;
                let decoded = self.frames.decode(&picture.data, sequence, picture.began, &self.buffers, &self.origin);
                match (&self.coded, &mut self.stream) {
                    (Some(coded), _) if !matches!(decoded, Ok(Next::Lost { cause: LossCause::Corrupt, .. })) => {
                        let time = Duration::from_nanos(picture.began.monotonic_ns);
                        coded.push(CodedFrame::jpeg(Arc::new(picture.data), time));
                    }
                    (_, Some(stream)) => stream.content.scanner.reuse(picture),
                    (_, None) => {}
                }
                decoded?
            }
            Err(failure) => match failure.error(|reason| format!("cannot play {}: {reason}", self.origin)) {
                Some(error) => return Err(error),
                None => return Ok(Next::Stopped),
            },
        };
        self.watched(next)
    }

    fn describe(&self) -> String {
        match self.stream {
            None if self.sequence == 0 => format!("mjpeg {}: connecting", self.origin),
            _ => format!("mjpeg {}, {}, live", self.origin, self.frames.describe()),
        }
    }

    fn decoder(&self) -> Option<&'static str> {
        self.stream.as_ref().map(|_| DECODER)
    }
}

#[cfg(test)]
pub(crate) use self::jpeg_scanner::tests as jpeg_scanner_tests;

#[cfg(test)]
pub(crate) mod tests;
