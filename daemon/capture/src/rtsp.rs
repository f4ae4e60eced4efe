//! Plays a network camera over RTSP.
//!
//! There are three stages with narrow interfaces: a session (`session`) connects and yields access units, a queue (`unit_queue`)
//! holds a few of them, and a decoder (chosen by `choose_decoder`) makes frames. The session outlives the decoder when the stream
//! changes its parameters, such as its size. When the session ends, the source ends, and the camera's thread opens another.
//!
//! A frame's time is its capture time by the camera's sender reports, if that is within the second before its arrival, and
//! otherwise the arrival of its first packet (`frame_times`).

mod access_unit;
mod cadence;
mod child_decoder;
mod choose_decoder;
mod coded_tap;
mod continuity;
mod datagram_ports;
mod failure;
mod ffmpeg_decoder;
mod frame_times;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gdp;
mod gstreamer_decoder;
mod gstreamer_trials;
mod jpeg_decoder;
mod jpeg_payload;
mod numbering;
mod nvdec_decoder;
mod offer;
mod picture_order;
mod reachability;
mod reception;
mod running_session;
mod session;
mod session_target;
mod stream_decoder;
mod unit_queue;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use visiond_config::types::{RtspConfig, StreamDecoding};
use visiond_frames::clock::Clock;
use visiond_frames::coded_ring::CodedRing;
use visiond_frames::frame::LossCause;
use visiond_ground::jetson::is_jetson;
use visiond_kernels::nvdec::VideoDecoder;
use visiond_system::find_program;
use visiond_system::stop::Stop;

pub use self::offer::{OfferedStream, RtspOffer, Watched};
use self::running_session::RunningSession;
use self::session_target::SessionTarget;
use self::stream_decoder::{DecoderEnd, KEY_FRAME_WAIT, Stream, StreamDecoder};
use self::unit_queue::{First, UnitQueue};
use super::buffers::Buffers;
use super::camera_address::{camera_address, check_login, check_url};
use super::camera_tls::TlsKeys;
use super::damage_watch::DamageWatch;
use super::decoder_process;
use super::described_cameras;
use super::ffprobe::{self, shown};
use super::pipe::ReadError;
use super::source::{Next, Source, SourceError, SourceFault, Worked};

pub struct RtspSource {
    stream: Arc<Stream>,
    /// `None` before the first key frame, and between two sets of parameters.
    decoder: Option<Box<dyn StreamDecoder>>,
    /// Created before the stream plays, for its first key frame.
    prepared: Option<VideoDecoder>,
    /// Dropped after the decoder.
    session: RunningSession,
    sequence: u64,
    /// How many decoders in a row ended without a frame because the parameters changed.
    fruitless: u32,
    damage: DamageWatch,
}

/// How many decoders in a row may end without a frame because the parameters changed. Each costs two processes.
const MOST_FRUITLESS: u32 = 5;

impl RtspSource {
    /// Checks whether [`RtspSource::open`] would fail, without starting a program or connecting to a camera.
    pub fn check(config: &RtspConfig) -> Vec<SourceFault> {
        let login = check_login(config.login.as_deref());
        let preview = config.preview_url.as_deref().and_then(|url| check_url("preview_url", url));
        let address = check_url("url", &config.url);
        let programs = [ffprobe::beside(&config.ffmpeg.program), config.ffmpeg.program.clone()];
        let needed = match config.decoder {
            StreamDecoding::Nvdec => &[][..],
            StreamDecoding::Gstreamer => &programs[..1],
            StreamDecoding::Auto | StreamDecoding::Ffmpeg => &programs[..],
        };
        let program = needed.iter().find_map(|program| Some((program, find_program::check(program).err()?)));
        let program = program.map(|(program, (error, certainty))| SourceFault {
            key: "ffmpeg",
            error: decoder_process::cannot_start(program, &error),
            certainty,
        });
        let gst_launch = Path::new(gstreamer_decoder::PROGRAM);
        let gstreamer = find_program::check(gst_launch).err().filter(|_| config.decoder == StreamDecoding::Gstreamer);
        let gstreamer = gstreamer.map(|(error, certainty)| SourceFault {
            key: "decoder",
            error: decoder_process::cannot_start_gstreamer(gst_launch, &error),
            certainty,
        });
        [login, address, preview, TlsKeys::from(config).check(), program, gstreamer].into_iter().flatten().collect()
    }

    /// Starts the session, which connects while [`Source::next`] waits.
    pub fn open(
        config: &RtspConfig,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let may_be_gstreamer = match config.decoder {
            StreamDecoding::Auto => is_jetson(Path::new("/")),
            StreamDecoding::Gstreamer => true,
            StreamDecoding::Nvdec | StreamDecoding::Ffmpeg => false,
        };
        let gstreamer = may_be_gstreamer.then(|| gstreamer_decoder::PROGRAM.into());
        Self::open_with(config, name, buffers, clock, gstreamer)
    }

    /// Does the same, and tries `gstreamer` before ffmpeg.
    fn open_with(
        config: &RtspConfig,
        name: &str,
        buffers: &Buffers,
        clock: Arc<dyn Clock>,
        gstreamer: Option<PathBuf>,
    ) -> Result<Self, SourceError> {
        let target = SessionTarget::new(config)?;
        let stream = Arc::new(Stream {
            config: config.clone(),
            buffers: buffers.clone(),
            queue: Arc::new(UnitQueue::new(Arc::clone(&clock), config.damaged)),
            camera: name.to_owned(),
            origin: target.shown.clone(),
            clock: Arc::clone(&clock),
            gstreamer,
        });
        let session = RunningSession::start(target, name, Arc::clone(&stream.queue), clock)?;
        Ok(Self {
            stream,
            decoder: None,
            prepared: None,
            session,
            sequence: 0,
            fruitless: 0,
            damage: DamageWatch::default(),
        })
    }

    /// Puts the stream into `coded` as well, as the camera sends it.
    pub fn recording_to(self, coded: Option<Arc<CodedRing>>) -> Self {
        coded.into_iter().for_each(|coded| self.stream.queue.record_to(coded));
        self
    }

    /// Waits for a key frame and starts a decoder for it.
    fn start_decoder(&mut self, stop: &Stop) -> Result<Box<dyn StreamDecoder>, ReadError> {
        let Stream { config, queue, camera, origin, .. } = self.stream.as_ref();
        // While units arrive, the session does not time out; when the camera is silent, it does.
        let wait: Duration = config.timeout.max(KEY_FRAME_WAIT);
        let mut deadline = Instant::now() + wait;
        loop {
            match self.session.first(stop, deadline) {
                First::Description(description) => {
                    let prepare = || choose_decoder::prepare(&self.stream, &description);
                    self.prepared = self.session.work_beside(prepare);
                    queue.accept_units();
                    deadline = Instant::now() + wait;
                }
                First::Unit(unit) => {
                    let decoder =
                        choose_decoder::start(&self.stream, &unit, self.prepared.take(), &mut self.session, stop)?;
                    let described = decoder.describe();
                    // After a loss or a reconnection, the next decoder may have the same parameters.
                    if described_cameras::is_news(camera, origin, &described) {
                        log::info!("camera {camera}: {described}");
                    }
                    return Ok(decoder);
                }
                First::Stopped => return Err(ReadError::Stopped),
                First::Ended(error) => return Err(error.into()),
                First::TimedOut => {
                    return Err(ReadError::Failed(SourceError::transient(format!(
                        "no key frame from {origin} for {} s: shorten the interval of key frames (GOP) in the camera",
                        wait.as_secs_f64()
                    ))));
                }
            }
        }
    }

    /// Waits for the next frame; starts a decoder if there is none.
    fn decode_next(&mut self, stop: &Stop) -> Result<Next, DecoderEnd> {
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            None => match self.start_decoder(stop) {
                Ok(decoder) => self.decoder.insert(decoder),
                Err(ReadError::Stopped) => return Err(DecoderEnd::Stopped),
                Err(ReadError::Failed(error)) => return Err(DecoderEnd::Failed(error)),
                Err(ReadError::Ended(_)) => return Err(DecoderEnd::SessionEnded),
            },
        };
        decoder.next(&self.session, self.sequence, stop)
    }

    /// Returns `next`, or an error if everything has been damaged for as long as a frame may take.
    fn watched(&mut self, next: Next) -> Result<Next, SourceError> {
        let Stream { clock, .. } = self.stream.as_ref();
        if !matches!(next, Next::Lost { cause: LossCause::Corrupt, .. }) {
            self.damage.reset();
        } else if self.damage.is_over(clock.monotonic_ns(), self.stream.frame_timeout()) {
            let stream = self.stream.as_ref();
            return Err(if stream.queue.awaits_entry() { stream.no_frame() } else { stream.damaged() });
        }
        Ok(next)
    }

    /// Removes a decoder that has ended. Returns the result, or `None` if another decoder is to be started.
    fn end_decoder(&mut self, end: DecoderEnd) -> Result<Option<Next>, SourceError> {
        if let Some(decoder) = self.decoder.take() {
            self.fruitless = if decoder.decoded() > 0 { 0 } else { self.fruitless + 1 };
        }
        match end {
            DecoderEnd::OtherParameters if self.fruitless >= MOST_FRUITLESS => Err(SourceError::transient(format!(
                "the parameters of {} change with every key frame, before a decoder gives a frame: set the camera to one \
                 resolution and codec",
                self.stream.origin
            ))),
            DecoderEnd::OtherParameters => {
                let camera = &self.stream.camera;
                log::debug!("camera {camera}: starting another decoder, for other parameters or after a loss");
                Ok(None)
            }
            DecoderEnd::SessionEnded => match self.stream.queue.take_loss() {
                Some((frames, cause)) => {
                    self.sequence += frames;
                    Ok(Some(Next::Lost { frames, cause }))
                }
                None => Err(self.stream.queue.ended().unwrap_or_else(running_session::session_ended)),
            },
            DecoderEnd::Stopped => Ok(Some(Next::Stopped)),
            DecoderEnd::Failed(error) => Err(error),
        }
    }
}

impl Source for RtspSource {
    fn next(&mut self, stop: &Stop) -> Result<Next, SourceError> {
        loop {
            stop.mark_progress();
            if let Some((frames, cause)) = self.stream.queue.take_loss() {
                self.sequence += frames;
                return self.watched(Next::Lost { frames, cause });
            }
            match self.decode_next(stop) {
                Ok(next) => {
                    self.sequence += 1;
                    return self.watched(next);
                }
                Err(end) => {
                    if let Some(next) = self.end_decoder(end)? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    fn shares_thread(&mut self) -> Option<BorrowedFd<'_>> {
        let is_shared = self.decoder.as_ref().is_some_and(|decoder| decoder.shares_thread());
        if is_shared { self.session.socket() } else { None }
    }

    fn work(&mut self, is_readable: bool, stop: &Stop) -> Result<Worked, SourceError> {
        stop.mark_progress();
        if stop.is_raised() {
            return Ok(Worked::Next(Next::Stopped));
        }
        if let Some((frames, cause)) = self.stream.queue.take_loss() {
            self.sequence += frames;
            return self.watched(Next::Lost { frames, cause }).map(Worked::Next);
        }
        let Some(decoder) = &mut self.decoder else { return Ok(Worked::NeedsThread) };
        match decoder.work(&self.session, self.sequence, is_readable) {
            Ok(Worked::Next(next)) => {
                self.sequence += 1;
                self.watched(next).map(Worked::Next)
            }
            worked => worked,
        }
    }

    fn describe(&self) -> String {
        let Stream { config, origin, .. } = self.stream.as_ref();
        let played = format!("rtsp {origin} over {}", config.transport.name());
        let Some(decoder) = &self.decoder else { return played };
        let which = if config.key_frames_only { "key frames only" } else { "live" };
        format!("{played}, {}, {which}", decoder.describe())
    }

    fn decoder(&self) -> Option<&'static str> {
        self.decoder.as_ref().map(|decoder| decoder.name())
    }
}

impl SessionTarget {
    /// Reads the login, which may be a file that has changed since.
    fn new(config: &RtspConfig) -> Result<Self, SourceError> {
        let (url, login) = camera_address(&config.url, config.login.as_deref())?;
        Ok(Self {
            url,
            shown: shown(&config.url),
            login,
            tls: config.into(),
            require_digest: config.require_digest,
            transport: config.transport,
            key_frames_only: config.key_frames_only,
            timeout: config.timeout,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
