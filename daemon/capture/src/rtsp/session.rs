//! One session with a camera: connects, logs in, plays, and puts access units into a queue. On the thread that waits for these, or
//! on one of its own.
//!
//! RTSP itself is the crate `retina`: requests, authentication, keep-alive, RTP's headers and their order. It puts no bound on an
//! answer of the server, so every wait for it may read only so much ([`few_reads`]). It panics at some answers, which ends the
//! session as any other error does.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::mem;
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures_util::Stream;
use parking_lot::Mutex;
use retina::client::{
    Credentials, Described, PacketItem, PlayOptions, Session, SessionGroup, SessionOptions, SetupOptions,
    TcpTransportOptions, Transport, UdpTransportOptions,
};
use retina::codec::{ParametersRef, VideoParametersCodec};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::coop::has_budget_remaining;
use tokio::task::{JoinHandle, consume_budget, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use url::Url;
use visiond_config::types::RtspTransport;
use visiond_flow::clock::{self, Clock};
use visiond_flow::timestamp::Timestamp;
use visiond_system::caught_panic::catch_panic;
use visiond_system::credentials::Login;
use visiond_system::redact::redact_line;
use visiond_system::stop::Stop;

use super::super::source::SourceError;
use super::access_unit::{self, Access, AccessUnit, Assembler, Codec};
use super::frame_times::CameraClock;
use super::jpeg_payload::JpegAssembler;
use super::reachability::{Absence, Reachability};
use super::unit_queue::{Description, First, STEP, Taken, UnitQueue};

/// How long the camera may take to answer that the session is over.
const TEARDOWN_WAIT: Duration = Duration::from_millis(500);

/// How much may be read for one answer or packet before the server counts as hostile. A packet has 64 KiB at most, an answer a few
/// KiB; data of streams that were not asked for may come before.
const MOST_READ: u64 = 512 << 10;

/// How often a wait is woken before visiond counts what it reads. Counting costs more than reading a packet.
const FREE_WAKES: u32 = 2;

/// How often a wait for one answer or packet may be woken where the kernel does not count what is read. A packet of 64 KiB, in a
/// connection that is read one small segment at a time, takes 46. Each look at whether a silent camera can be reached takes two or
/// three more.
const MOST_WAKES: u32 = 256;

/// How long packets gather before they are read. Frames are late by that.
const GATHERING: Duration = Duration::from_micros(500);

/// How often a wait looks again by itself. retina forgets to be woken when the server sends a request of its own.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long a camera that plays may send nothing before visiond looks whether it can still be reached; three frame intervals, if they
/// are longer.
const QUIET: Duration = Duration::from_secs(1);

/// How long a session that is set up waits for a decoder: less than any camera keeps one that does not play.
const DECODER_WAIT: Duration = Duration::from_secs(20);

/// How long what has come may take to be read before a unit is taken. Packets may come without end.
const LONGEST_READING: Duration = Duration::from_millis(20);

/// What tokio lets a task do before it must yield, less the few reads that one wake may make.
const SPENT_BUDGET: u32 = 124;

/// What a session needs.
#[derive(Clone)]
pub struct SessionTarget {
    /// Without a user.
    pub url: Url,
    /// The URL as errors and the log show it.
    pub shown: String,
    /// Becomes the RTSP library's credentials, whose `Debug` shows the password, only where a session starts.
    pub login: Option<Login>,
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
    worker: Option<Worker>,
    /// Its thread, which ends with the sender.
    thread: Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>,
}

impl RunningSession {
    /// Makes a session that connects while it is waited for. It puts units into `queue`, and its end, which is always an error.
    pub fn start(target: SessionTarget, queue: Arc<UnitQueue>, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let transport = target.transport;
        let worker = Some(Worker::new(target, Arc::clone(&queue), clock)?);
        let mut session = Self { queue, worker, thread: None };
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
        let (end, ended) = oneshot::channel();
        let run = move || worker.run(ended);
        self.thread = Some((end, thread::Builder::new().name("rtsp".to_owned()).spawn(run).map_err(cannot_start)?));
        Ok(())
    }

    /// Calls `work`, which takes long: the session has a thread of its own meanwhile.
    pub fn work_beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(worker) = &self.worker else { return work() };
        thread::scope(|scope| {
            let (end, ended) = oneshot::channel::<()>();
            let beside = thread::Builder::new().name("rtsp".to_owned()).spawn_scoped(scope, move || worker.run(ended));
            if let Err(error) = beside {
                log::debug!("cannot start a thread, so packets are read only after the decoder is made: {error}");
            }
            let done = work();
            drop(end);
            done
        })
    }

    /// Waits for the stream's description or a unit: [`UnitQueue::first`].
    pub fn first(&self, stop: &Stop, deadline: std::time::Instant) -> First {
        let Some(worker) = &self.worker else { return self.queue.first(stop, deadline, None) };
        self.queue.first(stop, deadline, Some(&|| worker.give_something()))
    }

    /// Takes the next unit: [`UnitQueue::take`].
    pub fn take(&self, generation: u64, deadline: std::time::Instant, is_over: impl Fn() -> bool) -> Taken {
        let Some(worker) = &self.worker else { return self.queue.take(generation, Some(deadline), is_over, None) };
        if self.queue.is_behind() {
            // So that the queue can drop what gets old.
            worker.read_all();
        }
        self.queue.take(generation, Some(deadline), is_over, Some(&|| worker.give_something()))
    }
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// A session's task, and the runtime that it works on while a thread runs it.
struct Worker {
    /// `Some` until the drop, and so is the task.
    runtime: Option<Runtime>,
    task: Option<JoinHandle<()>>,
    queue: Arc<UnitQueue>,
    group: Arc<SessionGroup>,
    meter: Arc<ReadMeter>,
    /// Closed once the session has ended and has said so to the camera, as far as that is there. What retina does behind that is not
    /// waited for.
    over: watch::Receiver<()>,
}

impl Worker {
    fn new(target: SessionTarget, queue: Arc<UnitQueue>, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot_start)?;
        let (group, meter) = <(Arc<SessionGroup>, Arc<ReadMeter>)>::default();
        let (ends, over) = watch::channel(());
        let task = {
            let (queue, group, meter) = (Arc::clone(&queue), Arc::clone(&group), Arc::clone(&meter));
            async move {
                let _ends = ends;
                let failure = {
                    let mut play = pin!(play(&target, &group, &meter, &queue, clock.as_ref()));
                    poll_fn(|context| match catch_panic(|| play.as_mut().poll(context)) {
                        Ok(poll) => poll,
                        Err(place) => Poll::Ready(Failure::Panic(place)),
                    })
                    .await
                };
                queue.end(failure.error(&target));
                // The session was dropped, and retina says so to the camera if it is there.
                if !matches!(failure, Failure::Absent(_) | Failure::Endless) {
                    await_teardown(&group, &meter).await;
                }
            }
        };
        let task = Some(runtime.spawn(task));
        Ok(Self { runtime: Some(runtime), task, queue, group, meter, over })
    }

    fn is_over(&self) -> bool {
        self.over.has_changed().is_err()
    }

    /// Has the session work on this thread until `enough`, or until it is over.
    fn run(&self, enough: impl Future) {
        let mut over = self.over.clone();
        let work = |runtime: &Runtime| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = over.changed() => {}
                    _ = enough => {}
                }
            });
        };
        let runtime = self.runtime.as_ref().filter(|_| !self.is_over());
        let worked = catch_panic(|| runtime.map(work));
        // What the thread reads from now on is not the session's.
        self.meter.pause();
        if let Err(place) = &worked {
            log::error!("a bug in the runtime of an RTSP session ({}): please report it", redact_line(place));
        }
        if worked.is_err() || self.is_over() {
            // It has said why it ended, if it could.
            self.queue.end(session_ended());
        }
    }

    /// Has the session work until it has given something, for [`STEP`] at most.
    fn give_something(&self) {
        self.run(async { timeout(STEP, self.queue.news()).await });
    }

    /// Has the session read what has come, for [`LONGEST_READING`] at most.
    fn read_all(&self) {
        self.run(async {
            let until = Instant::now() + LONGEST_READING;
            loop {
                // tokio looks for packets at the first, and has the session read them before the second is over.
                yield_now().await;
                yield_now().await;
                if !self.meter.is_reading() || Instant::now() > until {
                    return;
                }
            }
        });
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let is_over = self.is_over();
        let (Some(runtime), Some(task)) = (self.runtime.take(), self.task.take()) else { return };
        if !is_over {
            let _ = catch_panic(|| {
                runtime.block_on(async {
                    task.abort();
                    // The session is dropped, and retina says so to the camera.
                    let _ = task.await;
                    await_teardown(&self.group, &self.meter).await;
                });
            });
        }
        // A name that is still being resolved must not delay the end.
        runtime.shutdown_background();
    }
}

fn cannot_start(error: std::io::Error) -> SourceError {
    SourceError::transient(format!("cannot start a thread: {error}"))
}

/// Returns the error of a session that has ended without one of its own.
pub fn session_ended() -> SourceError {
    SourceError::transient("the RTSP session has ended by a bug: see the error above it in the log")
}

/// Plays the stream until it fails.
async fn play(
    target: &SessionTarget,
    group: &Arc<SessionGroup>,
    meter: &ReadMeter,
    queue: &UnitQueue,
    clock: &dyn Clock,
) -> Failure {
    let connected = timeout(target.timeout, connect(target, group, meter)).await;
    match connected {
        Err(_) => Failure::NoAnswer,
        Ok(Err(failure)) => failure,
        Ok(Ok((session, stream))) => {
            // The camera sends nothing meanwhile, so that nothing is lost.
            let description = Description { codec: stream.codec, sets: stream.sets.clone() };
            let _ = timeout(DECODER_WAIT, queue.describe(description)).await;
            // It has a new budget.
            meter.has_spent.store(false, Ordering::Relaxed);
            let receive = |received: Received| match received {
                Received::Unit { unit, .. } if unit.access == Access::Key || !target.key_frames_only => {
                    queue.push(unit)
                }
                Received::Unit { .. } => {}
                Received::Damaged { units, .. } => queue.count_corrupt(units),
            };
            match session.await_units(target, &stream, meter, clock, receive).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            }
        }
    }
}

/// Why a session failed.
#[derive(Debug)]
pub(super) enum Failure {
    Rtsp(retina::Error),
    NoAnswer,
    /// The camera plays, and no picture came for too long.
    NoVideo,
    /// The camera plays, and every picture was damaged for too long: for this reason, if it is known.
    Damaged(Option<&'static str>),
    Closed,
    /// The camera plays, sends nothing any more, and cannot be reached.
    Absent(Absence),
    /// An answer or packet is larger than any camera's.
    Endless,
    /// retina panicked at this place, or visiond.
    Panic(String),
    /// There is no video of a known codec; these are offered.
    OtherCodec(Vec<String>),
}

impl From<retina::Error> for Failure {
    fn from(error: retina::Error) -> Self {
        Self::Rtsp(error)
    }
}

impl Failure {
    /// Returns the error of the source.
    pub(super) fn error(&self, target: &SessionTarget) -> SourceError {
        let message = self.message(target);
        if self.may_pass() { SourceError::absent(message) } else { SourceError::transient(message) }
    }

    /// Whether the camera may serve again at any moment. If it refuses this client or stream, somebody has to act, and some cameras
    /// lock out a client that tries again and again.
    fn may_pass(&self) -> bool {
        match self {
            // While it starts, a camera may not know its stream yet (404), nor any session of before (454).
            Self::Rtsp(error) => error.status_code().is_none_or(|status| matches!(status, 404 | 454 | 500..)),
            Self::NoAnswer | Self::NoVideo | Self::Damaged(_) | Self::Closed | Self::Absent(_) => true,
            Self::Endless | Self::Panic(_) | Self::OtherCodec(_) => false,
        }
    }

    pub(super) fn message(&self, target: &SessionTarget) -> String {
        let shown = &target.shown;
        let seconds = target.timeout.as_secs_f64();
        let reason = match self {
            Self::Rtsp(error) => refusal(error, target),
            Self::NoAnswer => {
                return format!("no answer from {shown} for {seconds} s; check the camera and the network");
            }
            Self::Damaged(reason) => return damaged(shown, target.timeout, target.transport, *reason),
            Self::NoVideo => {
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
            Self::Endless => "an answer of the server does not end: this is no camera, check its URL".to_owned(),
            Self::Panic(place) => {
                let place: String = redact_line(place).chars().take(300).collect();
                return format!(
                    "cannot play {shown}: a bug at what this server sends ({place}): please report it, and set `type = \"video\"` \
                     until then"
                );
            }
            Self::OtherCodec(offered) if offered.is_empty() => {
                "the server offers no stream: check the path in its URL".to_owned()
            }
            Self::OtherCodec(offered) => format!(
                "the camera offers {}, and only H.264, H.265 and JPEG are read: change its codec, or set `type = \"video\"`",
                offered.join(" and ")
            ),
        };
        format!("cannot play {shown}: {reason}")
    }
}

/// Returns what the server, or the connection, says, and what to do.
fn refusal(error: &retina::Error, target: &SessionTarget) -> String {
    let remedy = match error.status_code() {
        Some(401) if target.login.is_some() => "the camera refuses the user or password (401): correct `login`",
        Some(401) => "the camera requires a user and password (401): set `login`",
        Some(403) => "the camera forbids this stream to this user (403): check the user's rights in the camera",
        Some(404) => "the camera has no such stream (404): correct the path in its URL",
        Some(453) => "the camera serves too many clients already (453): close others",
        Some(503) => "the camera serves too many clients, or starts (503): close others if it stays",
        Some(461) => match target.transport {
            RtspTransport::Tcp => "the camera does not send over TCP (461): set `transport = \"udp\"`",
            RtspTransport::Udp => "the camera does not send over UDP (461): set `transport = \"tcp\"`",
        },
        _ => {
            // What follows an empty line are addresses and times, which differ each time.
            let text = error.to_string();
            let first: String = text.lines().next().unwrap_or_default().chars().take(300).collect();
            let first = redact_line(&first);
            return match first.strip_prefix("Unable to connect to RTSP server: ") {
                Some(reason) => format!("cannot connect: {reason}; check the address and the network"),
                None => first,
            };
        }
    };
    remedy.to_owned()
}

/// A session that was set up, with the stream to play.
pub(super) struct Connected {
    session: Session<Described>,
    reachability: Reachability,
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
pub(super) struct ChosenStream {
    /// Its place among the streams that the camera offers.
    pub index: usize,
    pub codec: Codec,
    /// Units of RTP's timestamps per second.
    pub rate_hz: u32,
    /// Parameter sets of the session's description, in Annex B.
    sets: Vec<u8>,
}

/// Connects, and asks for the first stream that can be read. Begins again when the camera is back.
pub(super) async fn connect(
    target: &SessionTarget,
    group: &Arc<SessionGroup>,
    meter: &ReadMeter,
) -> Result<(Connected, ChosenStream), Failure> {
    loop {
        let reachability = Reachability::of(&target.url).await;
        tokio::select! {
            // The session first: it leaves little of tokio's budget, and the other needs little.
            biased;
            set_up = set_up(target, group, meter) => {
                let (session, chosen) = set_up?;
                return Ok((Connected { session, reachability }, chosen));
            }
            () = reachability.returned() => log::debug!("{} can be reached again: connecting again", target.shown),
        }
    }
}

async fn set_up(
    target: &SessionTarget,
    group: &Arc<SessionGroup>,
    meter: &ReadMeter,
) -> Result<(Session<Described>, ChosenStream), Failure> {
    let credentials = target.login.clone().map(Login::into_parts);
    let options = SessionOptions::default()
        .creds(credentials.map(|(username, password)| Credentials { username, password }))
        .user_agent("visiond".to_owned())
        .session_group(Arc::clone(group));
    let mut session = few_reads(meter, Session::describe(target.url.clone(), options)).await??;
    let codec_of = |stream: &retina::client::Stream| match stream.media() {
        "video" => Codec::of_encoding(stream.encoding_name()),
        _ => None,
    };
    let found = session.streams().iter().enumerate().find_map(|(at, stream)| Some((at, stream, codec_of(stream)?)));
    let Some((at, stream, codec)) = found else {
        let name = |stream: &retina::client::Stream| {
            let name = format!("{}/{}", stream.media(), stream.encoding_name());
            visiond_system::logging::escape(&name.chars().take(40).collect::<String>()).to_string()
        };
        return Err(Failure::OtherCodec(session.streams().iter().take(4).map(name).collect()));
    };
    let mut sets = Vec::new();
    if let Some(ParametersRef::Video(parameters)) = stream.parameters() {
        let described: &[&[u8]] = match parameters.codec_params() {
            VideoParametersCodec::H264 { sps, pps } => &[sps, pps],
            VideoParametersCodec::H265 { vps, sps, pps } => &[vps, sps, pps],
            _ => &[],
        };
        described.iter().for_each(|set| access_unit::put(&mut sets, set));
    }
    let chosen = ChosenStream { index: at, codec, rate_hz: stream.clock_rate_hz(), sets };
    let transport = match target.transport {
        RtspTransport::Tcp => Transport::Tcp(TcpTransportOptions::default()),
        RtspTransport::Udp => Transport::Udp(UdpTransportOptions::default()),
    };
    few_reads(meter, session.setup(at, SetupOptions::default().transport(transport))).await??;
    Ok((session, chosen))
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
            Codec::Jpeg => Self::Jpeg(JpegAssembler::new(None)),
        }
    }

    fn push(&mut self, payload: &[u8], time: (i64, Timestamp), marker: bool, lost: u16, give: impl FnMut(AccessUnit)) {
        match self {
            Self::Nal(assembler) => assembler.push(payload, time, marker, lost, give),
            Self::Jpeg(assembler) => assembler.push(payload, time, marker, lost, None, give),
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

impl Connected {
    /// Returns the streams that the camera offers.
    pub(super) fn streams(&self) -> &[retina::client::Stream] {
        self.session.streams()
    }

    /// Plays the stream and assembles its units.
    pub(super) async fn await_units(
        self,
        target: &SessionTarget,
        stream: &ChosenStream,
        meter: &ReadMeter,
        clock: &dyn Clock,
        receive: impl FnMut(Received),
    ) -> Result<std::convert::Infallible, Failure> {
        let play = few_reads(meter, self.session.play(PlayOptions::default()));
        let playing = timeout(target.timeout, play).await.map_err(|_| Failure::NoAnswer)???;
        let mut packets = pin!(playing);
        let mut reception = Reception {
            assembler: StreamAssembler::new(stream),
            camera_clock: CameraClock::new(stream.rate_hz),
            arrival: clock::now(clock),
            units: 0,
            damaged: None,
            receive,
        };
        let mut deadline = Instant::now() + target.timeout;
        // A camera that fell silent after some damage is silent.
        let no_video = |damaged: Option<Instant>, reason| match damaged {
            Some(last) if last.elapsed() < target.timeout / 2 => Failure::Damaged(reason),
            _ => Failure::NoVideo,
        };
        // When the last units came, and how long one takes to come on average.
        let (mut last_units, mut interval) = (None, Duration::ZERO);
        // A camera that accepts no connection beside this one would look absent at each pause.
        let (mut accepts, mut accepts_others) = (pin!(self.reachability.accepts_others()), false);
        loop {
            // Where packets never stop, the timer below may never be looked at.
            let now = Instant::now();
            if now >= deadline {
                return Err(no_video(reception.damaged, reception.assembler.reason()));
            }
            let absence = async {
                sleep_until(now + QUIET.max(interval * 3)).await;
                self.reachability.lost().await
            };
            let gathered = few_reads(meter, gather(packets.as_mut(), &mut reception, clock));
            tokio::select! {
                biased;
                gathered = timeout_at(deadline, gathered) => match gathered {
                    Ok(gathered) => gathered??,
                    Err(_) => return Err(no_video(reception.damaged, reception.assembler.reason())),
                },
                () = &mut accepts, if last_units.is_some() && !accepts_others => accepts_others = true,
                absence = absence, if accepts_others => return Err(Failure::Absent(absence)),
            }
            let units = mem::take(&mut reception.units);
            if units > 0 {
                let now = Instant::now();
                deadline = now + target.timeout;
                reception.damaged = None;
                if let Some(last) = last_units.replace(now) {
                    interval = (interval * 7 + now.duration_since(last) / units) / 8;
                }
            }
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
struct Reception<F> {
    assembler: StreamAssembler,
    camera_clock: CameraClock,
    /// When the packets came.
    arrival: Timestamp,
    /// How many units came since they were last counted.
    units: u32,
    /// When the last damaged one came, if none was whole since.
    damaged: Option<Instant>,
    receive: F,
}

impl<F: FnMut(Received)> Reception<F> {
    fn take(&mut self, packet: PacketItem) {
        match packet {
            PacketItem::Rtp(packet) => {
                let rtp = packet.timestamp().timestamp();
                let captured = self.camera_clock.captured(rtp, self.arrival);
                let is_timed_by_report = captured != self.arrival;
                self.assembler.push(packet.payload(), (rtp, captured), packet.mark(), packet.loss(), |unit| {
                    self.units += 1;
                    (self.receive)(Received::Unit { unit, is_timed_by_report });
                });
                match self.assembler.take_damaged() {
                    0 => {}
                    units => {
                        self.damaged = Some(Instant::now());
                        (self.receive)(Received::Damaged { units, reason: self.assembler.reason() });
                    }
                }
            }
            PacketItem::Rtcp(packet) => {
                let report = packet.pkts().next().and_then(|first| first.as_sender_report().ok().flatten());
                if let (Some(rtp), Some(report)) = (packet.rtp_timestamp(), report) {
                    self.camera_clock.report(rtp.timestamp(), report.ntp_timestamp().0);
                }
            }
            _ => {}
        }
    }
}

/// Waits for packets, and takes all that are there. When one has come, gives those behind it [`GATHERING`] to arrive: then one wake
/// reads a whole picture, and wakes are most of what a session costs. The thread sleeps, because it has nothing else to do; a decoder
/// that is behind waits, too.
///
/// Each packet is freed before the next one is made, so that they share memory that is in the core's cache. Collecting them first takes
/// more time than it saves.
async fn gather(
    mut packets: Pin<&mut impl Stream<Item = Result<PacketItem, retina::Error>>>,
    reception: &mut Reception<impl FnMut(Received)>,
    clock: &dyn Clock,
) -> Result<(), Failure> {
    let mut has_waited = false;
    poll_fn(|context| {
        // Those that gather came soon after the first, however late this thread reads them. If packets never stop, it never waits:
        // then their time is renewed now and then.
        let now = clock::now(clock);
        let waited_ns = now.monotonic_ns.saturating_sub(reception.arrival.monotonic_ns);
        if has_waited || Duration::from_nanos(waited_ns) >= GATHERING * 8 {
            reception.arrival = now;
        }
        if has_waited {
            thread::sleep(GATHERING);
        }
        let mut has_taken = false;
        loop {
            match packets.as_mut().poll_next(context) {
                Poll::Ready(Some(packet)) => reception.take(packet?),
                Poll::Ready(None) => return Poll::Ready(Err(Failure::Closed)),
                Poll::Pending if has_taken => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
            has_taken = true;
        }
        // Without budget, there is more to read.
        has_waited = has_budget_remaining();
        Poll::Pending
    })
    .await
}

/// Waits for `future`, which reads from the server, as long as it reads no more than [`MOST_READ`]. Polls it every
/// [`LOOK_AGAIN`] even if nothing wakes it.
///
/// A wake makes few reads, because each takes one unit of tokio's budget, of which most is spent before.
async fn few_reads<F: Future>(meter: &ReadMeter, future: F) -> Result<F::Output, Failure> {
    let (mut future, mut again) = (pin!(future), pin!(None));
    let mut wakes = 0;
    meter.begin();
    poll_fn(|context| {
        if wakes >= FREE_WAKES {
            let is_endless = match meter.count() {
                Some(read) => read > MOST_READ,
                None => wakes > MOST_WAKES,
            };
            if is_endless {
                return Poll::Ready(Err(Failure::Endless));
            }
        }
        if !meter.has_spent.swap(true, Ordering::Relaxed) {
            for _ in 0..SPENT_BUDGET {
                // When it is used up, the task is woken again at once.
                if pin!(consume_budget()).poll(context).is_pending() {
                    break;
                }
            }
        }
        let poll = future.as_mut().poll(context);
        // The task gets a new budget then.
        if poll.is_pending() || !has_budget_remaining() {
            meter.has_spent.store(false, Ordering::Relaxed);
        }
        meter.is_reading.store(poll.is_ready() || !has_budget_remaining(), Ordering::Relaxed);
        if poll.is_pending() {
            // Made when it is needed, which it is not while there are packets to read.
            if again.is_none() {
                again.set(Some(sleep(LOOK_AGAIN)));
            }
            let mut was_woken = true;
            // Until it is pending, which is when it will wake this task.
            while let Some(mut again) = again.as_mut().as_pin_mut()
                && again.as_mut().poll(context).is_ready()
            {
                again.reset(Instant::now() + LOOK_AGAIN);
                was_woken = false;
            }
            wakes += u32::from(was_woken);
        }
        poll.map(Ok)
    })
    .await
}

/// Waits until the camera has answered that the session is over, for [`TEARDOWN_WAIT`] at most and for as long as it sends no more
/// than [`MOST_READ`]: retina reads all of it on a task of its own, which ends with the runtime.
pub(super) async fn await_teardown(group: &SessionGroup, meter: &ReadMeter) {
    /// The time from one look at what was read to the next.
    const STEP: Duration = Duration::from_millis(5);
    meter.begin();
    meter.count();
    let is_over = timeout(TEARDOWN_WAIT, group.await_teardown());
    let is_endless = async {
        while meter.count().is_none_or(|read| read <= MOST_READ) {
            sleep(STEP).await;
        }
    };
    tokio::select! {
        biased;
        () = is_endless => {}
        _ = is_over => {}
    }
}

/// Counts what a session reads from TCP connections, on whatever thread it works; datagrams, which are small, are in no account.
#[derive(Debug, Default)]
pub(super) struct ReadMeter {
    account: Mutex<Account>,
    /// Whether the task has spent its budget since its last wake, but for a few reads.
    has_spent: AtomicBool,
    /// Whether the session has stopped before it had read everything.
    is_reading: AtomicBool,
}

#[derive(Debug, Default)]
struct Account {
    /// The kernel's accounts of the thread that was counted last. No file if it keeps none; then [`MOST_WAKES`] is the only bound.
    kernels: Option<(ThreadId, Option<File>)>,
    /// The bytes that were read since [`ReadMeter::begin`], as far as they were counted.
    read: u64,
    /// What the thread had read in all when they were.
    then: Option<u64>,
}

impl ReadMeter {
    /// Counts from 0 on.
    fn begin(&self) {
        let mut account = self.account.lock();
        (account.read, account.then) = (0, None);
    }

    /// Returns how many bytes the session has read since it began to be counted: since the first call, without what the thread read
    /// after [`pause`](Self::pause). `None` without accounts.
    fn count(&self) -> Option<u64> {
        let mut account = self.account.lock();
        let (now, own) = account.bytes()?;
        account.read += account.then.map_or(0, |then| now.saturating_sub(then));
        account.then = Some(now + own);
        Some(account.read)
    }

    /// Does not count what the thread reads until the next [`count`](Self::count).
    fn pause(&self) {
        if self.account.lock().then.is_some() {
            self.count();
            self.account.lock().then = None;
        }
    }

    fn is_reading(&self) -> bool {
        self.is_reading.load(Ordering::Relaxed)
    }
}

impl Account {
    /// Returns how many bytes this thread has read so far, and how many it has read now to learn that; `None` without accounts.
    fn bytes(&mut self) -> Option<(u64, u64)> {
        let this = thread::current().id();
        let (_, file) = match self.kernels.take_if(|(thread, _)| *thread == this) {
            Some(kernels) => self.kernels.insert(kernels),
            None => self.kernels.insert((this, File::open("/proc/thread-self/io").ok())),
        };
        let mut text = [0; 64];
        let read = file.as_ref()?.read_at(&mut text, 0).ok()?;
        // The first line is "rchar: NUMBER".
        let line = text[..read].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let bytes = str::from_utf8(line).ok()?.strip_prefix("rchar: ")?.parse().ok()?;
        Some((bytes, read as u64))
    }
}

#[cfg(test)]
mod tests;
