//! Lists a camera's RTSP streams, and samples the one that visiond would play: for `visiond probe --rtsp`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::RtspConfig;
use visiond_frames::clock::Clock;
use visiond_rtsp::picture_size::picture_size;
use visiond_rtsp::sdp::StreamDescription;
use visiond_system::caught_panic::catch_panic;
use visiond_system::logging::escape;

use super::super::ffprobe::shown;
use super::super::source::SourceError;
use super::access_unit::Access;
use super::failure::Failure;
use super::reception::Received;
use super::running_session::session_ended;
use super::session::Session;
use super::session_target::SessionTarget;
use super::unit_queue::STEP;

/// How many streams the report lists at most, in addition to the one that visiond plays.
const MOST_STREAMS: usize = 16;

/// The streams that a camera offers.
#[derive(Debug, Clone, PartialEq)]
pub struct RtspOffer {
    /// The URL without its user and without parts that look like secrets.
    pub url: String,
    /// Whether `url` leaves out something after the host.
    pub has_secret: bool,
    /// SHA-256 of the certificate of a camera with TLS.
    pub certificate: Option<String>,
    /// The streams, in the camera's order: up to 16, and the one that visiond plays.
    pub streams: Vec<OfferedStream>,
    /// The reception of the stream that visiond plays.
    pub watched: Watched,
    /// Why the video ended early.
    pub ended: Option<String>,
}

/// One stream of a camera, by its session description.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedStream {
    /// `video`, `audio`, `application` or the camera's own word.
    pub media: String,
    /// Name of the encoding, such as `h264` or `pcma`.
    pub encoding: String,
    /// Width and height in pixels, if the description has them.
    pub size: Option<[u32; 2]>,
    /// Frames per second, if the description has them: above 0, at most 1000.
    pub announced_fps: Option<f32>,
    /// Whether visiond can read it.
    pub is_readable: bool,
    /// Whether this is the stream that visiond plays: the first that it can read.
    pub is_played: bool,
}

/// The reception of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Watched {
    /// Complete frames received.
    pub pictures: u32,
    /// How many of them decoding can start with.
    pub key_frames: u32,
    /// Frames that were damaged or lost in transit.
    pub damaged: u64,
    /// Frames whose time comes from a sender report.
    pub timed_by_reports: u32,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Seconds from the first to the last frame, by the camera's clock; by their arrival if that clock jumps.
    pub seconds: f64,
    /// Seconds from one key frame to the next; `None` if fewer than two arrived.
    pub key_frame_interval_s: Option<f64>,
}

impl RtspOffer {
    /// Connects to the camera, and plays the stream for a while.
    ///
    /// The error is the source's: no connection, a wrong password, no readable stream, no video.
    pub fn ask(config: &RtspConfig, watch: Duration, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let target = SessionTarget::new(config)?;
        let mut session = Session::new(target.clone(), clock);
        let offer = catch_panic(|| ask(&target, &mut session, watch));
        session.tear_down();
        offer.unwrap_or_else(|place| Err(Failure::Panic(place).error(&target)))
    }
}

fn ask(target: &SessionTarget, session: &mut Session, watch: Duration) -> Result<RtspOffer, SourceError> {
    let failed = |failure: &Failure| failure.error(target);
    let mut watch_of = Watch::default();
    while !session.is_ready() {
        session
            .turn(Instant::now() + STEP, |received| watch_of.receive(&received, Instant::now()))
            .map_err(|failure| failed(&failure))?;
    }
    let chosen = session.chosen().cloned().ok_or_else(session_ended)?;
    let certificate = session.seen_fingerprint();
    let streams = session.streams().iter().enumerate().filter(|(at, _)| *at < MOST_STREAMS || *at == chosen.index);
    let streams = streams.map(|(at, stream)| OfferedStream::new(stream, at == chosen.index)).collect();
    session.play();
    let until = Instant::now() + watch;
    let mut ended = None;
    while ended.is_none() && Instant::now() < until {
        ended = session.turn(until, |received| watch_of.receive(&received, Instant::now())).err();
    }
    if watch_of.watched.pictures == 0 {
        return Err(match &ended {
            Some(failure) => failed(failure),
            None => {
                let waited = SessionTarget { timeout: watch, ..target.clone() };
                SourceError::transient(session.silence().message(&waited))
            }
        });
    }
    let (url, ended) = (shown(target.url.as_str()), ended.map(|failure| failure.message(target)));
    let has_secret = url != target.url.as_str();
    Ok(RtspOffer { url, has_secret, certificate, streams, watched: watch_of.end(chosen.rate_hz), ended })
}

impl OfferedStream {
    fn new(stream: &StreamDescription, is_played: bool) -> Self {
        let short = |text: &str| escape(&text.chars().take(40).collect::<String>()).to_string();
        Self {
            media: short(&stream.media),
            encoding: short(&stream.encoding),
            size: picture_size(stream),
            announced_fps: stream.announced_fps,
            is_readable: stream.codec().is_some() && !stream.is_encrypted && !stream.is_interleaved,
            is_played,
        }
    }
}

/// How many seconds of video a camera may send at once, such as a buffered last minute. With more, its clock has jumped.
const MOST_AHEAD_S: f64 = 30.0;

/// The statistics of a stream while it plays. Times are in RTP time units.
#[derive(Debug, Default)]
struct Watch {
    watched: Watched,
    /// The first and the last frame in display order.
    shown: Option<(i64, i64)>,
    /// The first and the last key frame in display order.
    keys: Option<(i64, i64)>,
    /// When the first and the last of them arrived, and of the key frames.
    shown_arrived: Option<(Instant, Instant)>,
    keys_arrived: Option<(Instant, Instant)>,
    /// Why the stream cannot be read, if that is known.
    reason: Option<&'static str>,
}

impl Watch {
    fn receive(&mut self, received: &Received, now: Instant) {
        let watched = &mut self.watched;
        let unit = match received {
            Received::Vanished { units } => {
                self.watched.damaged += units;
                return;
            }
            Received::Damaged { units, reason } => {
                self.reason = *reason;
                watched.damaged += units;
                return;
            }
            Received::Unit { unit, is_timed_by_report } => {
                watched.timed_by_reports += u32::from(*is_timed_by_report);
                unit
            }
        };
        watched.pictures += 1;
        watched.bytes += unit.data.len() as u64;
        let at = unit.presentation;
        // Frames may arrive in a different order than they are shown.
        let (first, last) = self.shown.unwrap_or((at, at));
        self.shown = Some((first.min(at), last.max(at)));
        self.shown_arrived = Some((self.shown_arrived.map_or(now, |(first, _)| first), now));
        if unit.access == Access::Key {
            watched.key_frames += 1;
            let (first, last) = self.keys.unwrap_or((at, at));
            self.keys = Some((first.min(at), last.max(at)));
            self.keys_arrived = Some((self.keys_arrived.map_or(now, |(first, _)| first), now));
        }
    }

    fn end(self, rate_hz: u32) -> Watched {
        let by_clock = |span: Option<(i64, i64)>| {
            span.map(|(first, last)| last.saturating_sub(first) as f64 / f64::from(rate_hz.max(1)))
        };
        let by_arrival = |span: Option<(Instant, Instant)>| {
            span.map(|(first, last)| last.saturating_duration_since(first).as_secs_f64())
        };
        let (shown, arrived) =
            (by_clock(self.shown).unwrap_or_default(), by_arrival(self.shown_arrived).unwrap_or_default());
        let (seconds, keys) = match shown > arrived + MOST_AHEAD_S {
            true => (arrived, by_arrival(self.keys_arrived)),
            false => (shown, by_clock(self.keys)),
        };
        let between = self.watched.key_frames.saturating_sub(1);
        Watched {
            seconds,
            key_frame_interval_s: keys.filter(|_| between > 0).map(|keys| keys / f64::from(between)),
            ..self.watched
        }
    }
}

impl Watched {
    /// Returns the frames per second; `None` if fewer than two frames arrived.
    pub fn fps(&self) -> Option<f64> {
        (self.pictures > 1 && self.seconds > 0.0).then(|| f64::from(self.pictures - 1) / self.seconds)
    }

    /// Returns bits per second; `None` if fewer than two frames arrived.
    pub fn bits_per_s(&self) -> Option<f64> {
        self.fps().map(|fps| 8.0 * self.bytes as f64 / f64::from(self.pictures) * fps)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use visiond_frames::clock::{self, SystemClock};

    use super::super::access_unit::{AccessUnit, Codec, Fate};
    use super::*;

    #[test]
    fn a_clock_that_leaps_does_not_change_the_rate() {
        let began = Instant::now();
        let captured = clock::now(&SystemClock);
        for (leap, kept) in [(0, 0), (60, 0), (0, 20)] {
            let mut watch = Watch::default();
            for number in 0..=20_u32 {
                let unit = AccessUnit {
                    codec: Codec::H264,
                    data: Arc::new(vec![0; 100]),
                    access: if number % 10 == 0 { Access::Key } else { Access::Inter },
                    follows_loss: false,
                    position: None,
                    fate: Fate::Published,
                    presentation: i64::from(number) * 9000 + if number > 5 { leap * 90_000 } else { 0 },
                    captured,
                    generation: 1,
                };
                let arrival = if number < kept { 0 } else { number * 100 };
                let received = Received::Unit { unit, is_timed_by_report: false };
                watch.receive(&received, began + Duration::from_millis(arrival.into()));
            }
            let watched = watch.end(90_000);
            assert_eq!((watched.seconds, watched.key_frame_interval_s), (2.0, Some(1.0)), "{leap} {kept}");
            assert_eq!((watched.fps(), watched.bits_per_s()), (Some(10.0), Some(8_000.0)));
        }
        let one = Watched { pictures: 1, seconds: 2.0, ..Watched::default() };
        assert_eq!((one.fps(), one.bits_per_s()), (None, None), "one picture has no rate");
    }
}
