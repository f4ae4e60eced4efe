//! One session with a camera: connects, logs in, plays, and puts access units into a queue. On the thread that waits for these, or
//! on one of its own.
//!
//! RTSP itself is the crate `visiond-rtsp`, which does no I/O. Here are the sockets' waits, the timeouts, and the end.

use std::array;
use std::io;
use std::iter;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use url::Url;
use visiond_config::types::RtspTransport;
use visiond_flow::clock::{self, Clock};
use visiond_flow::timestamp::Timestamp;
use visiond_rtsp::RtpPacket;
use visiond_rtsp::client::{Client, ClientError, Media, Phase, Transport};
use visiond_rtsp::codec::Codec;
use visiond_rtsp::sdp::StreamDescription;
use visiond_system::caught_panic::catch_panic;
use visiond_system::credentials::Login;
use visiond_system::logging::escape;
use visiond_system::redact::redact_line;
use visiond_system::stop::Stop;

use super::super::camera_connection::{CameraConnection, ConnectionError, Lookup, begin_connection, connection_result};
use super::super::camera_tls::{CameraTls, TlsKeys};
use super::super::source::SourceError;
use super::access_unit::{self, Access, AccessUnit, Assembler};
use super::datagram_ports::DatagramPorts;
use super::frame_times::CameraClock;
use super::jpeg_payload::JpegAssembler;
use super::reachability::{self, Absence, Reachability};
use super::unit_queue::{Description, First, STEP, Taken, UnitQueue};

/// How long the camera may take to answer that the session is over.
const TEARDOWN_WAIT: Duration = Duration::from_millis(500);

/// How much is read until then. Packets that are under way come before the answer.
const MOST_TEARDOWN_BYTES: usize = 4 << 20;

/// How long packets gather before they are read. Frames are late by that.
const GATHERING: Duration = Duration::from_micros(500);

/// How long a camera that plays may send nothing before visiond looks whether it can still be reached; three frame intervals, if they
/// are longer.
const QUIET: Duration = Duration::from_secs(1);

/// How long a session that is set up waits for a decoder: less than any camera keeps one that does not play.
const DECODER_WAIT: Duration = Duration::from_secs(20);

/// How long what has come may take to be read before a unit is taken. Packets may come without end.
const LONGEST_READING: Duration = Duration::from_millis(20);

/// The most that is read at once, before other things are looked at.
const MOST_READ: usize = 1 << 20;

/// How often a name that is being resolved is looked at.
const LOOKUP_STEP: Duration = Duration::from_millis(5);

/// How often in turn a server may name another URL.
const MOST_REDIRECTS: u32 = 5;

/// The largest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;

/// What a session needs.
#[derive(Clone)]
pub struct SessionTarget {
    /// Without a user.
    pub url: Url,
    /// The URL as errors and the log show it.
    pub shown: String,
    pub login: Option<Login>,
    pub tls: TlsKeys,
    pub transport: RtspTransport,
    pub key_frames_only: bool,
    pub timeout: Duration,
}

/// A running session. It works while somebody waits for what it gives, on the thread that waits: so no other thread is woken for a
/// picture, and what was read is still in the core's cache when it is decoded. For those who do not wait often, it can have a thread
/// of its own. It ends when it is dropped, which takes [`TEARDOWN_WAIT`] at most.
pub struct RunningSession {
    queue: Arc<UnitQueue>,
    /// `None` once it has a thread.
    worker: Option<Mutex<Worker>>,
    /// Its thread, which ends when the flag is set.
    thread: Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>,
}

impl RunningSession {
    /// Makes a session that connects while it is waited for. It puts units into `queue`, and its end, which is always an error.
    pub fn start(
        target: SessionTarget,
        camera: &str,
        queue: Arc<UnitQueue>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SourceError> {
        let transport = target.transport;
        let worker = Worker {
            key_frames_only: target.key_frames_only,
            session: Session::new(target, clock),
            camera: camera.to_owned(),
            queue: Arc::clone(&queue),
            ready_since: None,
            given: 0,
            is_over: false,
            has_warned: false,
        };
        let mut session = Self { queue, worker: Some(Mutex::new(worker)), thread: None };
        match transport {
            RtspTransport::Tcp => {}
            // The kernel keeps some 200 KiB of datagrams, and drops what comes then.
            RtspTransport::Udp => session.run_apart()?,
        }
        Ok(session)
    }

    /// Gives the session a thread of its own, if it has none.
    pub fn run_apart(&mut self) -> Result<(), SourceError> {
        let Some(worker) = self.worker.take() else { return Ok(()) };
        let ends = Arc::new(AtomicBool::new(false));
        let run = {
            let ends = Arc::clone(&ends);
            move || worker.into_inner().run_until(&ends)
        };
        let thread = thread::Builder::new().name("rtsp".to_owned()).spawn(run);
        let thread = thread.map_err(|error| SourceError::transient(format!("cannot start a thread: {error}")))?;
        self.thread = Some((ends, thread));
        Ok(())
    }

    /// Calls `work`, which takes long: the session has a thread of its own meanwhile.
    pub fn work_beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(worker) = &self.worker else { return work() };
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            let run = || worker.lock().run_until(&ends);
            if let Err(error) = thread::Builder::new().name("rtsp".to_owned()).spawn_scoped(scope, run) {
                log::debug!("cannot start a thread, so packets are read only after the decoder is made: {error}");
            }
            let done = work();
            ends.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Waits for the stream's description or a unit: [`UnitQueue::first`].
    pub fn first(&self, stop: &Stop, deadline: Instant) -> First {
        let Some(worker) = &self.worker else { return self.queue.first(stop, deadline, None) };
        self.queue.first(stop, deadline, Some(&|| worker.lock().give_something()))
    }

    /// Takes the next unit: [`UnitQueue::take`].
    pub fn take(&self, generation: u64, deadline: Instant, is_over: impl Fn() -> bool) -> Taken {
        let Some(worker) = &self.worker else { return self.queue.take(generation, Some(deadline), is_over, None) };
        if self.queue.is_behind() {
            // So that the queue can drop what gets old.
            worker.lock().read_all();
        }
        self.queue.take(generation, Some(deadline), is_over, Some(&|| worker.lock().give_something()))
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        if let Some((ends, thread)) = self.thread.take() {
            ends.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
    }
}

/// Has a session work, and puts what it gives into the queue.
struct Worker {
    session: Session,
    camera: String,
    queue: Arc<UnitQueue>,
    key_frames_only: bool,
    /// When the stream was described to the queue.
    ready_since: Option<Instant>,
    /// How often it has given something.
    given: u64,
    is_over: bool,
    /// Whether it has warned that the camera does not answer what keeps the session.
    has_warned: bool,
}

impl Worker {
    /// Has the session work once: until something has come, up to `until`.
    fn turn(&mut self, until: Instant) {
        if self.is_over {
            return;
        }
        let Self { session, queue, key_frames_only, given, .. } = self;
        let receive = |received: Received| {
            match received {
                Received::Unit { unit, .. } if unit.access == Access::Key || !*key_frames_only => queue.push(unit),
                Received::Unit { .. } => {}
                Received::Damaged { units, .. } => queue.count_corrupt(units),
            }
            *given += 1;
        };
        // The code that reads what a camera sends is ours; if it has a bug, one camera is lost, not the process.
        let worked = catch_panic(|| session.turn(until, receive)).unwrap_or_else(|place| Err(Failure::Panic(place)));
        if let Err(failure) = worked {
            self.end(&failure);
            return;
        }
        if self.session.is_ready() {
            self.wait_for_decoder();
        }
        if self.session.keep_alives_failed() > 0 && !mem::replace(&mut self.has_warned, true) {
            log::warn!(
                "camera {}: the camera does not answer the requests that keep the session, and may end it",
                self.camera
            );
        }
    }

    /// Plays the stream once there is a decoder for it, or after [`DECODER_WAIT`]. The camera sends nothing before, so that nothing is
    /// lost.
    fn wait_for_decoder(&mut self) {
        let Some(since) = self.ready_since else {
            if let Some(stream) = self.session.chosen() {
                self.queue.describe(Description { codec: stream.codec, sets: stream.sets.clone() });
            }
            self.given += 1;
            self.ready_since = Some(Instant::now());
            return;
        };
        if self.queue.accepts_units() || since.elapsed() >= DECODER_WAIT {
            self.session.play();
        }
    }

    fn end(&mut self, failure: &Failure) {
        self.is_over = true;
        self.given += 1;
        if let Some(counts) = self.session.oddities() {
            log::info!("camera {}: in this session {counts}", self.camera);
        }
        self.queue.end(failure.error(&self.session.target));
        if !matches!(failure, Failure::Absent(_) | Failure::Client(ClientError::Message(_)) | Failure::Panic(_)) {
            self.session.tear_down();
        }
    }

    /// Has the session work until it has given something, for [`STEP`] at most.
    fn give_something(&mut self) {
        let (until, before) = (Instant::now() + STEP, self.given);
        while self.given == before && !self.is_over && Instant::now() < until {
            self.turn(until);
        }
    }

    /// Has the session read what has come, for [`LONGEST_READING`] at most.
    fn read_all(&mut self) {
        let now = Instant::now();
        while !self.is_over && self.session.has_news() && now.elapsed() < LONGEST_READING {
            self.turn(now);
        }
    }

    fn run_until(&mut self, ends: &AtomicBool) {
        while !self.is_over && !ends.load(Ordering::Relaxed) {
            self.turn(Instant::now() + STEP);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_over {
            self.session.tear_down();
        }
    }
}

/// Returns the error of a session that has ended without one of its own.
pub fn session_ended() -> SourceError {
    SourceError::transient("the RTSP session has ended by a bug: see the error above it in the log")
}

/// Why a session failed.
#[derive(Debug)]
pub(super) enum Failure {
    Client(ClientError),
    /// A name cannot be resolved, or no connection is made.
    Connect(io::Error),
    /// A connection broke.
    Broken(io::Error),
    /// TLS refuses the camera, for this reason.
    Tls(String),
    /// The host that a redirect names requires a login. That of the configuration is for another host.
    LoginElsewhere(String),
    /// Something on this side is wrong or missing.
    Local(SourceError),
    /// No ports for datagrams.
    Ports(io::Error),
    NoAnswer,
    /// The camera plays, and no picture came for too long: this is known of what came.
    NoVideo(Option<String>),
    /// The camera plays, and every picture was damaged for too long: for this reason, if it is known.
    Damaged(Option<&'static str>),
    Closed,
    /// The camera plays, sends nothing any more, and cannot be reached.
    Absent(Absence),
    /// The server names one URL after the other.
    Redirects,
    /// visiond panicked at this place.
    Panic(String),
    /// There is no video of a known codec; these are offered.
    OtherCodec(Vec<String>),
    /// The video is encrypted in a way that is not known here.
    Encrypted,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Closed => Self::Closed,
            ConnectionError::Failed(error) => Self::Broken(error),
            ConnectionError::Tls(reason) => Self::Tls(reason),
        }
    }
}

impl Failure {
    /// Returns the error of the source.
    pub(super) fn error(&self, target: &SessionTarget) -> SourceError {
        if let Self::Local(error) = self {
            return error.clone();
        }
        let message = self.message(target);
        if self.may_pass() { SourceError::absent(message) } else { SourceError::transient(message) }
    }

    /// Whether the camera may serve again at any moment. If it refuses this client or stream, somebody has to act, and some cameras
    /// lock out a client that tries again and again.
    fn may_pass(&self) -> bool {
        match self {
            Self::Client(ClientError::Message(_)) => false,
            // While it starts, a camera may not know its stream yet (404), nor any session of before (454).
            Self::Client(error) => error.status().is_none_or(|status| matches!(status, 404 | 454 | 500..)),
            Self::NoAnswer
            | Self::NoVideo(_)
            | Self::Damaged(_)
            | Self::Closed
            | Self::Broken(_)
            | Self::Absent(_)
            | Self::Connect(_) => true,
            Self::Tls(_)
            | Self::LoginElsewhere(_)
            | Self::Local(_)
            | Self::Ports(_)
            | Self::Redirects
            | Self::Panic(_)
            | Self::OtherCodec(_)
            | Self::Encrypted => false,
        }
    }

    pub(super) fn message(&self, target: &SessionTarget) -> String {
        let shown = &target.shown;
        let seconds = target.timeout.as_secs_f64();
        let reason = match self {
            Self::Client(error) => refusal(error, target),
            Self::Connect(error) => format!("cannot connect: {error}; check the address and the network"),
            Self::Broken(error) => format!("the connection broke: {error}; check the camera and the network"),
            Self::Tls(reason) => reason.clone(),
            Self::LoginElsewhere(url) => {
                format!("the camera names another host, {url}, which requires a login: set `url` to that")
            }
            Self::Local(error) => error.to_string(),
            Self::Ports(error) => format!("cannot open UDP ports: {error}; set `transport = \"tcp\"`"),
            Self::NoAnswer => {
                return format!("no answer from {shown} for {seconds} s; check the camera and the network");
            }
            Self::Damaged(reason) => return damaged(shown, target.timeout, target.transport, *reason),
            Self::NoVideo(Some(what)) => return format!("no video from {shown} for {seconds} s: {what}"),
            Self::NoVideo(None) => {
                let hint = match target.transport {
                    RtspTransport::Tcp => "",
                    RtspTransport::Udp => ", or set `transport = \"tcp\"` where a firewall keeps UDP out",
                };
                return format!("no video from {shown} for {seconds} s; check the camera and the network{hint}");
            }
            Self::Closed => "the camera closed the connection".to_owned(),
            Self::Absent(Absence::Unreachable) => {
                "the camera sends nothing and cannot be reached; check its power and the network".to_owned()
            }
            Self::Absent(Absence::Moved) => {
                "the camera sends nothing, and its name has another address now; connecting there".to_owned()
            }
            Self::Redirects => "the server names one URL after the other (301, 302): correct its URL".to_owned(),
            Self::Panic(place) => {
                let place: String = redact_line(place).chars().take(300).collect();
                return format!(
                    "cannot play {shown}: a bug at what this server sends ({place}): please report it, and set `type = \"video\"` \
                     until then"
                );
            }
            Self::OtherCodec(offered) => format!(
                "the camera offers {}, and only H.264, H.265 and JPEG are read: change its codec, or set `type = \"video\"`",
                offered.join(" and ")
            ),
            Self::Encrypted => {
                "the camera encrypts its video (SRTP): switch that off in the camera, or set `type = \"video\"`"
                    .to_owned()
            }
        };
        format!("cannot play {shown}: {reason}")
    }
}

/// Returns what the server says, and what to do.
fn refusal(error: &ClientError, target: &SessionTarget) -> String {
    let remedy = match error.status() {
        Some(403) => "the camera forbids this stream to this user (403): check the user's rights in the camera",
        Some(404) => "the camera has no such stream (404): correct the path in its URL",
        Some(453) => "the camera serves too many clients already (453): close others",
        Some(503) => "the camera serves too many clients, or starts (503): close others if it stays",
        Some(461) => match target.transport {
            RtspTransport::Tcp => "the camera does not send over TCP (461): set `transport = \"udp\"`",
            RtspTransport::Udp => "the camera does not send over UDP (461): set `transport = \"tcp\"`",
        },
        _ => {
            let text: String = error.to_string().chars().take(300).collect();
            return escape(&redact_line(text.trim_end())).to_string();
        }
    };
    remedy.to_owned()
}

/// What comes while a stream plays.
pub(super) enum Received {
    Unit {
        unit: AccessUnit,
        /// Whether a sender report gives its time, at least that of its last packet.
        is_timed_by_report: bool,
    },
    /// So many units were damaged on their way, or, for this reason, could not be read.
    Damaged { units: u64, reason: Option<&'static str> },
}

/// The stream to play.
#[derive(Debug, Clone)]
pub(super) struct ChosenStream {
    /// Its place among the streams that the camera offers.
    pub index: usize,
    pub codec: Codec,
    /// Units of RTP's timestamps per second.
    pub rate_hz: u32,
    /// Parameter sets of the session's description, in Annex B.
    pub sets: Vec<u8>,
    /// Width and height of JPEG pictures, if the description has them.
    pub size: Option<(u16, u16)>,
}

impl ChosenStream {
    /// Chooses the first stream that can be read.
    fn of(streams: &[StreamDescription]) -> Result<Self, Failure> {
        let mut known = streams.iter().enumerate().filter_map(|(at, stream)| Some((at, stream, stream.codec()?)));
        let Some((index, stream, codec)) = known.find(|(_, stream, _)| !stream.is_encrypted) else {
            if streams.iter().any(|stream| stream.codec().is_some()) {
                return Err(Failure::Encrypted);
            }
            let name = |stream: &StreamDescription| {
                let name = format!("{}/{}", stream.media, stream.encoding);
                escape(&name.chars().take(40).collect::<String>()).to_string()
            };
            return Err(Failure::OtherCodec(streams.iter().take(4).map(name).collect()));
        };
        let mut sets = Vec::new();
        stream.sets.iter().for_each(|set| access_unit::put(&mut sets, set));
        Ok(Self { index, codec, rate_hz: stream.rate_hz, sets, size: stream.size.map(<(u16, u16)>::from) })
    }
}

/// A session without a thread.
pub(super) struct Session {
    pub(super) target: SessionTarget,
    clock: Arc<dyn Clock>,
    stage: Stage,
    /// Until when the camera must answer, or send a picture; `None` while nothing is asked of it.
    deadline: Option<Instant>,
    /// Where the session is played, which differs from the target's URL after a redirect.
    url: Url,
    redirects: u32,
    /// The address of the server before any redirect.
    camera: Option<IpAddr>,
    reachability: Option<Reachability>,
    next_try: Instant,
    /// Whether a try has found the camera absent while the session begins.
    was_absent: bool,
    /// Whether the camera accepts a connection beside the session's. One that does not would look absent at each pause.
    accepts_others: bool,
    chosen: Option<ChosenStream>,
    reception: Option<Reception>,
    /// For datagrams.
    buffer: Vec<u8>,
}

enum Stage {
    Resolving(Lookup),
    Connecting {
        stream: TcpStream,
        others: Vec<SocketAddr>,
    },
    Talking(Box<Talk>),
    /// It has failed.
    Over,
}

/// A session that is connected.
struct Talk {
    connection: CameraConnection,
    tls: Option<Arc<CameraTls>>,
    ports: Option<DatagramPorts>,
    client: Client,
    /// Whether the login is meant for this server.
    may_have_login: bool,
    /// When bytes came last.
    last_bytes: Instant,
}

impl Session {
    pub(super) fn new(target: SessionTarget, clock: Arc<dyn Clock>) -> Self {
        let (now, url) = (Instant::now(), target.url.clone());
        Self {
            stage: Stage::Resolving(Lookup::of(&url)),
            deadline: Some(now + target.timeout),
            url,
            redirects: 0,
            camera: None,
            reachability: None,
            next_try: now + reachability::INTERVAL,
            was_absent: false,
            accepts_others: false,
            chosen: None,
            reception: None,
            buffer: Vec::new(),
            target,
            clock,
        }
    }

    /// Returns the stream to play, once it is known.
    pub(super) const fn chosen(&self) -> Option<&ChosenStream> {
        self.chosen.as_ref()
    }

    /// Returns the streams that the camera offers.
    pub(super) fn streams(&self) -> &[StreamDescription] {
        match &self.stage {
            Stage::Talking(talk) => talk.client.streams(),
            _ => &[],
        }
    }

    /// Returns the SHA-256 of the certificate that the camera showed.
    pub(super) fn seen_fingerprint(&self) -> Option<String> {
        match &self.stage {
            Stage::Talking(talk) => talk.tls.as_ref()?.seen_fingerprint(),
            _ => None,
        }
    }

    /// Whether the stream is set up, and [`play`](Self::play) begins it.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.stage, Stage::Talking(talk) if *talk.client.phase() == Phase::Ready)
    }

    /// Begins the stream.
    pub(super) fn play(&mut self) {
        let now = Instant::now();
        if let Stage::Talking(talk) = &mut self.stage {
            if let (Some(ports), Some(camera)) = (&talk.ports, talk.client.server_ports()) {
                let report = talk.client.receiver_report(now).unwrap_or_default();
                ports.open_way(camera, &report);
            }
            talk.client.play();
            talk.last_bytes = now;
        }
        self.deadline = Some(now + self.target.timeout);
    }

    fn keep_alives_failed(&self) -> u64 {
        match &self.stage {
            Stage::Talking(talk) => talk.client.counts().keep_alives_failed,
            _ => 0,
        }
    }

    /// Returns what the camera did that it should not, in words.
    fn oddities(&self) -> Option<String> {
        let Stage::Talking(talk) = &self.stage else { return None };
        let counts = talk.client.counts();
        let known = [
            (counts.rtp.restarts, "new counts of packets"),
            (counts.rtp.late, "packets late or twice"),
            (counts.rtp.foreign, "packets of no stream"),
            (counts.skips, "gaps between packets with other bytes"),
            (counts.keep_alives_failed, "requests to keep it without an answer"),
        ];
        let texts: Vec<_> =
            known.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Whether there is something to read.
    fn has_news(&self) -> bool {
        let Stage::Talking(talk) = &self.stage else { return false };
        let mut sockets = [PollFd::new(&talk.connection, PollFlags::IN)];
        talk.connection.has_more() || poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Works once: goes on with what is there, or waits for something, up to `until`.
    pub(super) fn turn(&mut self, until: Instant, mut receive: impl FnMut(Received)) -> Result<(), Failure> {
        self.look_for_camera(Instant::now())?;
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        let worked = match &mut self.stage {
            Stage::Resolving(_) => self.resolve(until),
            Stage::Connecting { .. } => self.connect(until),
            Stage::Talking(_) => self.talk(until, &mut receive),
            Stage::Over => Ok(()),
        };
        if matches!(worked, Err(Failure::Closed | Failure::Broken(_) | Failure::Connect(_) | Failure::Tls(_))) {
            // There is nobody to say good-bye to.
            self.stage = Stage::Over;
        }
        worked?;
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(self.silence()),
            _ => Ok(()),
        }
    }

    /// Returns the failure of a session in which nothing came for too long.
    pub(super) fn silence(&self) -> Failure {
        let Stage::Talking(talk) = &self.stage else { return Failure::NoAnswer };
        if talk.connection.is_handshaking() {
            return Failure::Tls("no TLS at that port: correct the port, or write rtsp://".to_owned());
        }
        if *talk.client.phase() != Phase::Playing {
            return Failure::NoAnswer;
        }
        let counts = talk.client.counts().rtp;
        // A camera that fell silent after some damage is silent.
        let is_recent = |last: Instant| last.elapsed() < self.target.timeout / 2;
        let reception = self.reception.as_ref();
        if reception.and_then(|reception| reception.damaged).is_some_and(is_recent) {
            return Failure::Damaged(reception.and_then(|reception| reception.assembler.reason()));
        }
        let what = match (counts.received, counts.foreign) {
            (0, 0) => None,
            (0, _) => {
                Some("packets of other kinds than it describes came: restart the camera, or set `type = \"video\"`")
            }
            _ if talk.last_bytes.elapsed() >= self.target.timeout / 2 => None,
            _ => Some("packets came, and no whole picture: restart the camera, or set another codec in it"),
        };
        Failure::NoVideo(what.map(str::to_owned))
    }

    /// Tries now and then whether the camera can be reached: while the session begins, because a connection that was begun before may
    /// wait for long; once while video comes; and while none comes.
    fn look_for_camera(&mut self, now: Instant) -> Result<(), Failure> {
        let (is_playing, is_quiet) = match &self.stage {
            Stage::Talking(talk) => {
                let interval = self.reception.as_ref().map_or(Duration::ZERO, |reception| reception.interval);
                let is_quiet = now.saturating_duration_since(talk.last_bytes) >= QUIET.max(interval * 3);
                (*talk.client.phase() == Phase::Playing, is_quiet)
            }
            _ => (false, false),
        };
        let has_units = self.reception.as_ref().is_some_and(|reception| reception.last_units.is_some());
        let wants = match is_playing {
            true => has_units && (is_quiet || !self.accepts_others),
            false => self.deadline.is_some(),
        };
        let Some(reachability) = &mut self.reachability else { return Ok(()) };
        if !reachability.is_trying() {
            if !wants || now < self.next_try {
                return Ok(());
            }
            reachability.begin();
        }
        let Some(absence) = reachability.outcome(now) else { return Ok(()) };
        self.next_try = now + reachability::INTERVAL;
        match (is_playing, absence) {
            (false, Some(Absence::Unreachable)) => self.was_absent = true,
            (false, Some(Absence::Moved)) => self.begin_again(),
            (false, None) if self.was_absent => self.begin_again(),
            (false, None) => {}
            (true, None) => self.accepts_others = true,
            (true, Some(_)) if !self.accepts_others => self.next_try = now + reachability::PAUSE,
            (true, Some(absence)) if is_quiet => return Err(Failure::Absent(absence)),
            (true, Some(_)) => {}
        }
        Ok(())
    }

    /// Connects again, to a camera that is back.
    fn begin_again(&mut self) {
        log::debug!("{} can be reached again: connecting again", self.target.shown);
        self.connect_to(self.url.clone());
    }

    fn connect_to(&mut self, url: Url) {
        self.stage = Stage::Resolving(Lookup::of(&url));
        self.url = url;
        (self.reachability, self.was_absent) = (None, false);
        (self.chosen, self.reception) = (None, None);
    }

    fn resolve(&mut self, until: Instant) -> Result<(), Failure> {
        let Stage::Resolving(lookup) = &self.stage else { return Ok(()) };
        let Some(addresses) = lookup.answer() else {
            thread::sleep(LOOKUP_STEP.min(until.saturating_duration_since(Instant::now())));
            return Ok(());
        };
        let addresses = addresses.map_err(Failure::Connect)?;
        self.reachability = Some(Reachability::new(&self.url, addresses.clone()));
        self.begin_connection(addresses)
    }

    /// Begins a connection with the first address that takes one.
    fn begin_connection(&mut self, mut addresses: Vec<SocketAddr>) -> Result<(), Failure> {
        let mut failure = io::Error::other("its name has no address");
        while !addresses.is_empty() {
            match begin_connection(addresses.remove(0)) {
                Ok(stream) => {
                    self.stage = Stage::Connecting { stream, others: addresses };
                    return Ok(());
                }
                Err(error) => failure = error,
            }
        }
        Err(Failure::Connect(failure))
    }

    fn connect(&mut self, until: Instant) -> Result<(), Failure> {
        let Stage::Connecting { stream, .. } = &self.stage else { return Ok(()) };
        let mut sockets = vec![PollFd::new(stream, PollFlags::OUT)];
        sockets.extend(self.reachability.as_ref().and_then(Reachability::connection).map(writable));
        wait(&mut sockets, until);
        let Some(result) = connection_result(stream) else { return Ok(()) };
        let Stage::Connecting { stream, others } = mem::replace(&mut self.stage, Stage::Over) else { return Ok(()) };
        match result {
            Ok(()) => self.begin_talk(stream),
            Err(error) if others.is_empty() => Err(Failure::Connect(error)),
            Err(_) => self.begin_connection(others),
        }
    }

    fn begin_talk(&mut self, stream: TcpStream) -> Result<(), Failure> {
        let host = self.url.host_str().unwrap_or_default();
        let tls = (self.url.scheme() == "rtsps").then(|| CameraTls::new(&self.target.tls, host).map(Arc::new));
        let tls = tls.transpose().map_err(Failure::Local)?;
        let address = stream.peer_addr().map(|address| address.ip().to_canonical()).ok();
        let connection = CameraConnection::new(stream, tls.clone()).map_err(Failure::Local)?;
        if self.redirects == 0 {
            self.camera = address;
        }
        let may_have_login = self.may_have_login(address);
        let login = self.target.login.clone().filter(|_| may_have_login);
        self.stage = Stage::Talking(Box::new(Talk {
            connection,
            tls,
            ports: None,
            client: Client::new(self.url.clone(), login.map(Login::into_parts)),
            may_have_login,
            last_bytes: Instant::now(),
        }));
        Ok(())
    }

    /// Whether the server at this address may have the login. It is for the host that it was given for, which a redirect may name by
    /// its address; and what was meant for TLS goes nowhere without.
    fn may_have_login(&self, address: Option<IpAddr>) -> bool {
        let (host, meant) = (self.url.host_str(), self.target.url.host_str());
        let is_same = host.zip(meant).is_some_and(|(host, meant)| host.eq_ignore_ascii_case(meant));
        let is_camera = is_same || address.is_some() && address == self.camera;
        is_camera && (self.url.scheme() == "rtsps" || self.target.url.scheme() != "rtsps")
    }

    fn talk(&mut self, until: Instant, receive: &mut dyn FnMut(Received)) -> Result<(), Failure> {
        let Stage::Talking(talk) = &mut self.stage else { return Ok(()) };
        talk.send()?;
        let is_playing = *talk.client.phase() == Phase::Playing;
        let until = talk.client.due().map_or(until, |due| due.min(until));
        let probe = self.reachability.as_ref().and_then(Reachability::connection);
        let began = Instant::now();
        let ready = talk.wait(probe, until);
        let now = Instant::now();
        // Those that come while packets gather belong to the first.
        let arrival = clock::now(self.clock.as_ref());
        if ready.has_any() && is_playing && now - began > GATHERING / 8 {
            thread::sleep(GATHERING);
        }
        let reception = &mut self.reception;
        let mut give = |media: Media<'_>| {
            if let Some(reception) = reception {
                reception.take(&media, arrival, receive);
            }
        };
        let read = talk.read(ready, now, &mut self.buffer, &mut give);
        let ticked = talk.client.tick(now, &mut give);
        if let Some(reception) = reception
            && reception.count_units(now)
        {
            self.deadline = Some(now + self.target.timeout);
        }
        // What came before the end has been given.
        let is_elsewhere = !talk.may_have_login;
        read.and(ticked.map_err(Failure::Client)).map_err(|failure| match failure {
            Failure::Client(ClientError::LoginRequired) if is_elsewhere => {
                Failure::LoginElsewhere(redact_line(self.url.as_str()))
            }
            failure => failure,
        })?;
        if let Some(ports) = &talk.ports
            && let Some((_, rtcp)) = talk.client.server_ports()
            && is_playing
            && let Some(report) = talk.client.receiver_report(now)
        {
            ports.send_report(rtcp, &report);
        }
        self.go_on()
    }

    /// Goes on after an answer.
    fn go_on(&mut self) -> Result<(), Failure> {
        let Stage::Talking(talk) = &mut self.stage else { return Ok(()) };
        match talk.client.phase() {
            Phase::Described => {
                let chosen = ChosenStream::of(talk.client.streams())?;
                let transport = talk.open_ports(self.target.transport)?;
                self.reception = Some(Reception::new(&chosen));
                talk.client.set_up(chosen.index, transport);
                self.chosen = Some(chosen);
            }
            Phase::Redirected(url) => {
                self.redirects += 1;
                if self.redirects > MOST_REDIRECTS {
                    return Err(Failure::Redirects);
                }
                let url = url.clone();
                log::debug!("{}: the server names another URL: {}", self.target.shown, redact_line(url.as_str()));
                self.connect_to(url);
                return Ok(());
            }
            // The decoder is waited for, not the camera.
            Phase::Ready => self.deadline = None,
            _ => {}
        }
        talk.send()
    }

    /// Tells the camera that the session is over, and waits for its answer for a while.
    pub(super) fn tear_down(&mut self) {
        let Stage::Talking(mut talk) = mem::replace(&mut self.stage, Stage::Over) else { return };
        talk.client.tear_down();
        let until = Instant::now() + TEARDOWN_WAIT;
        let mut read = 0;
        while *talk.client.phase() == Phase::Leaving && Instant::now() < until && read < MOST_TEARDOWN_BYTES {
            let told = talk.send().and_then(|()| {
                let ready = talk.wait(None, until);
                talk.read(ready, Instant::now(), &mut self.buffer, &mut |_| {})
            });
            match told {
                Ok(bytes) => read += bytes,
                Err(_) => return,
            }
        }
    }
}

/// What can be read.
#[derive(Debug, Clone, Copy)]
struct ReadySockets {
    connection: bool,
    rtp: bool,
    rtcp: bool,
}

impl ReadySockets {
    const fn has_any(self) -> bool {
        self.connection || self.rtp || self.rtcp
    }
}

impl Talk {
    fn send(&mut self) -> Result<(), Failure> {
        Ok(self.connection.send(self.client.output())?)
    }

    /// Waits until something can be read, or sent if something is to be, up to `until`; or until `probe` is connected.
    fn wait(&mut self, probe: Option<&TcpStream>, until: Instant) -> ReadySockets {
        let wants_write = !self.client.output().is_empty() || self.connection.wants_write();
        let interest = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let ports = self.ports.iter().flat_map(|ports| [&ports.rtp, &ports.rtcp]);
        let ports = ports.map(|socket| PollFd::new(socket, PollFlags::IN));
        let all = iter::once(PollFd::new(&self.connection, interest)).chain(ports).chain(probe.map(writable));
        // On the stack, because every wake passes here.
        let mut sockets: [_; MOST_SOCKETS] = array::from_fn(|_| PollFd::new(&self.connection, PollFlags::empty()));
        let used = sockets.iter_mut().zip(all).map(|(place, socket)| *place = socket).count();
        let has_more = self.connection.has_more();
        wait(&mut sockets[..used], if has_more { Instant::now() } else { until });
        let is_ready = |socket: &PollFd<'_>| socket.revents().intersects(!PollFlags::OUT);
        let has_ports = self.ports.is_some();
        ReadySockets {
            connection: is_ready(&sockets[0]) || has_more,
            rtp: has_ports && is_ready(&sockets[1]),
            rtcp: has_ports && is_ready(&sockets[2]),
        }
    }

    /// Reads what has come, and returns how many bytes.
    fn read(
        &mut self,
        ready: ReadySockets,
        now: Instant,
        buffer: &mut Vec<u8>,
        give: &mut dyn FnMut(Media<'_>),
    ) -> Result<usize, Failure> {
        let mut read = 0;
        if let Some(ports) = self.ports.as_ref().filter(|_| ready.rtp || ready.rtcp) {
            buffer.resize(DATAGRAM_BYTES, 0);
            // Reports first: they time the pictures.
            for (is_ready, socket) in [(ready.rtcp, &ports.rtcp), (ready.rtp, &ports.rtp)] {
                while is_ready
                    && read < MOST_READ
                    && let Some(datagram) = ports.receive(socket, buffer)
                {
                    read += datagram.len();
                    self.client.datagram(datagram, now, &mut *give);
                }
            }
        }
        while ready.connection && read < MOST_READ {
            let space = self.client.space();
            let room = space.len();
            let received = self.connection.receive(space)?;
            if received == 0 {
                break;
            }
            read += received;
            self.client.received(received, now, &mut *give)?;
            if received < room && !self.connection.has_more() {
                break;
            }
        }
        if read > 0 {
            self.last_bytes = now;
        }
        Ok(read)
    }

    /// Opens ports, if datagrams are asked for.
    fn open_ports(&mut self, transport: RtspTransport) -> Result<Transport, Failure> {
        match transport {
            RtspTransport::Tcp => Ok(Transport::Tcp),
            RtspTransport::Udp => {
                let (own, camera) = self.connection.addresses().map_err(Failure::Connect)?;
                let ports = DatagramPorts::open(own.ip(), camera.ip()).map_err(Failure::Ports)?;
                let client_port = ports.port().map_err(Failure::Ports)?;
                self.ports = Some(ports);
                Ok(Transport::Udp { client_port })
            }
        }
    }
}

/// The most sockets of one wait: the connection, RTP, RTCP, and the one that tries whether the camera is there.
const MOST_SOCKETS: usize = 4;

fn writable(stream: &TcpStream) -> PollFd<'_> {
    PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::OUT)
}

/// Waits for one of the sockets, up to `until`.
fn wait(sockets: &mut [PollFd<'_>], until: Instant) {
    let timeout = until.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // A signal ends the wait; the caller waits again.
    let _ = poll(sockets, Some(&timeout));
}

/// The assembler of the stream's codec.
enum StreamAssembler {
    Nal(Assembler),
    Jpeg(JpegAssembler),
}

impl StreamAssembler {
    fn new(stream: &ChosenStream) -> Self {
        match stream.codec {
            Codec::H264 | Codec::H265 => Self::Nal(Assembler::new(stream.codec, &stream.sets)),
            Codec::Jpeg => Self::Jpeg(JpegAssembler::new(stream.size)),
        }
    }

    fn push(&mut self, packet: &RtpPacket<'_>, time: (i64, Timestamp), give: impl FnMut(AccessUnit)) {
        let &RtpPacket { payload, marker, lost, extension, .. } = packet;
        match self {
            Self::Nal(assembler) => assembler.push(payload, time, marker, lost, give),
            Self::Jpeg(assembler) => assembler.push(payload, time, marker, lost, extension, give),
        }
    }

    fn take_damaged(&mut self) -> u64 {
        match self {
            Self::Nal(assembler) => assembler.take_damaged(),
            Self::Jpeg(assembler) => assembler.take_damaged(),
        }
    }

    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Nal(assembler) => assembler.reason(),
            Self::Jpeg(assembler) => assembler.reason(),
        }
    }
}

/// Returns the sentence about a stream of which every picture is damaged.
pub(super) fn damaged(
    shown: &str,
    timeout: Duration,
    transport: RtspTransport,
    reason: Option<&'static str>,
) -> String {
    let reason = match (reason, transport) {
        (Some(reason), _) => reason,
        (None, RtspTransport::Tcp) => "every picture is damaged: restart the camera, or update its firmware",
        (None, RtspTransport::Udp) => {
            "every picture is damaged: packets are lost on the way: set `transport = \"tcp\"`, or check the network"
        }
    };
    format!("no usable frame from {shown} for {} s: {reason}", timeout.as_secs_f64())
}

/// Assembles a stream's packets and gives its units away.
struct Reception {
    assembler: StreamAssembler,
    camera_clock: CameraClock,
    /// How many units came since they were last counted.
    units: u32,
    /// When the last damaged one came, if none was whole since.
    damaged: Option<Instant>,
    /// When the last units came, and how long one takes to come on average.
    last_units: Option<Instant>,
    interval: Duration,
}

impl Reception {
    fn new(stream: &ChosenStream) -> Self {
        Self {
            assembler: StreamAssembler::new(stream),
            camera_clock: CameraClock::new(stream.rate_hz),
            units: 0,
            damaged: None,
            last_units: None,
            interval: Duration::ZERO,
        }
    }

    /// Takes what came at `arrival`.
    fn take(&mut self, media: &Media<'_>, arrival: Timestamp, receive: &mut dyn FnMut(Received)) {
        let packet = match media {
            Media::Packet(packet) => packet,
            Media::Report { timestamp, ntp } => return self.camera_clock.report(*timestamp, *ntp),
        };
        let captured = self.camera_clock.captured(packet.timestamp, arrival);
        let is_timed_by_report = captured != arrival;
        self.assembler.push(packet, (packet.timestamp, captured), |unit| {
            self.units += 1;
            receive(Received::Unit { unit, is_timed_by_report });
        });
        match self.assembler.take_damaged() {
            0 => {}
            units => {
                self.damaged = Some(Instant::now());
                receive(Received::Damaged { units, reason: self.assembler.reason() });
            }
        }
    }

    /// Returns whether units came since the last call.
    fn count_units(&mut self, now: Instant) -> bool {
        let units = mem::take(&mut self.units);
        if units == 0 {
            return false;
        }
        self.damaged = None;
        if let Some(last) = self.last_units.replace(now) {
            self.interval = (self.interval * 7 + now.saturating_duration_since(last) / units) / 8;
        }
        true
    }
}
