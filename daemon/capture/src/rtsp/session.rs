//! One session with a camera: connects, logs in, plays, and delivers access units.
//!
//! The crate `visiond-rtsp` implements RTSP itself, without I/O. This module has the socket waits, the timeouts, and the end.

use std::array;
use std::io;
use std::iter;
use std::mem;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use url::Url;
use visiond_config::types::RtspTransport;
use visiond_frames::clock::{self, Clock};
use visiond_rtsp::authentication::Authenticator;
use visiond_rtsp::client::{Client, ClientError, Media, Phase, Transport};
use visiond_rtsp::sdp::StreamDescription;
use visiond_system::redact::redact_line;

use super::super::camera_address::warn_of_clear_login;
use super::super::camera_connection::{CameraConnection, Lookup, begin_connection, connection_result};
use super::super::camera_tls::CameraTls;
use super::datagram_ports::DatagramPorts;
use super::failure::Failure;
use super::reachability::{self, Absence, Reachability};
use super::reception::{ChosenStream, Received, Reception};
use super::session_target::SessionTarget;

/// How long the camera may take to answer TEARDOWN.
const TEARDOWN_WAIT: Duration = Duration::from_millis(500);

/// How much to read until then. Packets in flight arrive before the answer.
const MOST_TEARDOWN_BYTES: usize = 4 << 20;

/// How long to collect packets before reading them. This delays frames by the same time.
const GATHERING: Duration = Duration::from_micros(500);

/// How long a playing camera may be silent before visiond checks whether it is still reachable; at least three frame intervals.
const QUIET: Duration = Duration::from_secs(1);

/// The most bytes to read at once, before other tasks.
const MOST_READ: usize = 1 << 20;

/// How often to check a name that is being resolved.
const LOOKUP_STEP: Duration = Duration::from_millis(5);

/// How many redirects in a row to follow.
const MOST_REDIRECTS: u32 = 5;

/// The minimum size that a datagram counts with.
const LEAST_DATAGRAM_BYTES: usize = 64;

/// The largest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;

/// A session without a thread.
pub(super) struct Session {
    pub(super) target: SessionTarget,
    clock: Arc<dyn Clock>,
    stage: Stage,
    /// The deadline for the camera's answer or next frame; `None` while none is expected.
    deadline: Option<Instant>,
    /// The URL of the session, which differs from the target's after a redirect.
    url: Url,
    redirects: u32,
    /// The login in the form that a closed connection learned.
    challenged: Option<Authenticator>,
    /// Whether a connection was closed instead of answering the login.
    was_closed_at_login: bool,
    /// The address of the server before any redirect.
    camera: Option<IpAddr>,
    reachability: Option<Reachability>,
    next_try: Instant,
    /// Whether a connection attempt has found the camera absent while the session starts.
    was_absent: bool,
    /// Whether the camera accepts a second connection. One that does not would look absent at each pause.
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
    /// The connection failed.
    Over,
}

/// A session that is connected.
struct Talk {
    connection: CameraConnection,
    tls: Option<Arc<CameraTls>>,
    ports: Option<DatagramPorts>,
    client: Client,
    /// Whether this server may have the login.
    may_have_login: bool,
    /// Whether an unencrypted login was checked for.
    has_warned: bool,
    /// When the last bytes arrived.
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
            challenged: None,
            was_closed_at_login: false,
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

    /// Whether the stream is set up, and [`play`](Self::play) starts it.
    pub(super) fn is_ready(&self) -> bool {
        matches!(&self.stage, Stage::Talking(talk) if *talk.client.phase() == Phase::Ready)
    }

    /// Starts the stream.
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

    pub(super) fn keep_alives_failed(&self) -> u64 {
        match &self.stage {
            Stage::Talking(talk) => talk.client.counts().keep_alives_failed,
            _ => 0,
        }
    }

    /// Returns the camera's protocol violations, in words.
    pub(super) fn oddities(&self) -> Option<String> {
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
    pub(super) fn has_news(&self) -> bool {
        let Stage::Talking(talk) = &self.stage else { return false };
        let mut sockets = [PollFd::new(&talk.connection, PollFlags::IN)];
        self.has_more() || poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Whether the connection holds data that its socket does not show.
    pub(super) fn has_more(&self) -> bool {
        matches!(&self.stage, Stage::Talking(talk) if talk.connection.has_more())
    }

    /// Returns the socket that is readable when there is work, while the stream plays over it and all output is sent.
    pub(super) fn socket(&mut self) -> Option<BorrowedFd<'_>> {
        let Stage::Talking(talk) = &mut self.stage else { return None };
        let has_sent = talk.client.output().is_empty() && !talk.connection.wants_write();
        let is_alone = talk.ports.is_none() && !talk.connection.has_more();
        (*talk.client.phase() == Phase::Playing && has_sent && is_alone).then(|| talk.connection.as_fd())
    }

    /// Returns when there is work even if nothing arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        let Stage::Talking(talk) = &self.stage else { return None };
        talk.client.due()
    }

    /// Runs once: handles what is there, or waits for something, up to `until`.
    pub(super) fn turn(&mut self, until: Instant, mut receive: impl FnMut(Received)) -> Result<(), Failure> {
        self.look_for_camera(Instant::now())?;
        let until = self.deadline.map_or(until, |deadline| deadline.min(until));
        let worked = match &mut self.stage {
            Stage::Resolving(_) => self.resolve(until),
            Stage::Connecting { .. } => self.connect(until),
            Stage::Talking(_) => self.talk(until, &mut receive),
            Stage::Over => Ok(()),
        };
        let worked = worked.map_err(|failure| self.unanswered(failure));
        let is_ended = worked.as_ref().is_err_and(Failure::is_end);
        if is_ended && let Some(begun) = self.log_in_again() {
            return begun;
        }
        if is_ended && let Some(reachability) = &self.reachability {
            reachability.session_ended(Instant::now());
        }
        if is_ended || matches!(worked, Err(Failure::Connect(_) | Failure::Tls(_))) {
            // There is no connection left for a TEARDOWN.
            self.stage = Stage::Over;
        }
        worked?;
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(self.silence()),
            _ => Ok(()),
        }
    }

    /// Returns the failure of a session that timed out.
    pub(super) fn silence(&self) -> Failure {
        let Stage::Talking(talk) = &self.stage else { return Failure::NoAnswer };
        if talk.connection.is_handshaking() {
            return Failure::Tls("no TLS at that port: correct the port, or write rtsp://".to_owned());
        }
        if *talk.client.phase() != Phase::Playing {
            return Failure::NoAnswer;
        }
        let counts = talk.client.counts().rtp;
        // A camera that fell silent after some damage counts as silent.
        let is_recent = |last: Instant| last.elapsed() < self.target.timeout / 2;
        let reception = self.reception.as_ref();
        if reception.and_then(|reception| reception.damaged).is_some_and(is_recent) {
            return Failure::Damaged(reception.and_then(Reception::reason));
        }
        let what = match (counts.received, counts.foreign) {
            (0, 0) => None,
            (0, _) => {
                Some("packets of other kinds than it describes came: restart the camera, or set `type = \"video\"`")
            }
            _ if talk.last_bytes.elapsed() >= self.target.timeout / 2 => None,
            _ => Some("packets arrived, but no whole frame: restart the camera, or set another codec in it"),
        };
        Failure::NoVideo(what.map(str::to_owned))
    }

    /// Checks now and then whether the camera is reachable: repeatedly while the session starts, because an earlier connection may
    /// hang; once while video arrives; and repeatedly while none arrives.
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
            if !wants || now < self.next_try || reachability.is_harmful() {
                return Ok(());
            }
            reachability.begin();
            // Measured from start to start, because connecting to an absent address takes as long as that.
            self.next_try = now + reachability::INTERVAL;
        }
        let Some(absence) = reachability.outcome(now) else { return Ok(()) };
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

    /// Returns the failure of a connection that ended; if the server has sent no RTSP, the failure says so.
    fn unanswered(&self, failure: Failure) -> Failure {
        let is_closed = match &failure {
            Failure::Broken(error) => error.kind() == io::ErrorKind::ConnectionReset,
            failure => matches!(failure, Failure::Closed),
        };
        match &self.stage {
            Stage::Talking(talk) if is_closed && talk.tls.is_none() && !talk.client.has_answered() => {
                Failure::Unanswered
            }
            _ => failure,
        }
    }

    /// Reconnects once to a camera that closed the connection after its 401; `None` if it did not.
    fn log_in_again(&mut self) -> Option<Result<(), Failure>> {
        let Stage::Talking(talk) = &mut self.stage else { return None };
        if self.was_closed_at_login && *talk.client.phase() == Phase::Describing {
            self.stage = Stage::Over;
            return Some(Err(ClientError::LoginRefused.into()));
        }
        let login = talk.client.take_unanswered_login()?;
        log::debug!("{} closed the connection after a 401: connecting again with the login", self.target.shown);
        self.connect_to(self.url.clone());
        (self.challenged, self.was_closed_at_login) = (Some(login), true);
        Some(Ok(()))
    }

    /// Reconnects to a camera that is back.
    fn begin_again(&mut self) {
        log::debug!("{} can be reached again: connecting again", self.target.shown);
        self.connect_to(self.url.clone());
    }

    fn connect_to(&mut self, url: Url) {
        self.stage = Stage::Resolving(Lookup::of(&url));
        self.url = url;
        (self.reachability, self.was_absent) = (None, false);
        (self.chosen, self.reception) = (None, None);
        (self.challenged, self.was_closed_at_login) = (None, false);
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

    /// Starts a connection to the first address that accepts one.
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
        let login = self.target.login.clone().map(|login| {
            let (user, password) = login.into_parts();
            let mut login = Authenticator::new(user, password);
            if self.target.require_digest {
                login.require_digest();
            }
            login
        });
        let login = self.challenged.take().or(login).filter(|_| may_have_login);
        let client = Client::new(self.url.clone(), login);
        self.stage = Stage::Talking(Box::new(Talk {
            connection,
            tls,
            ports: None,
            client,
            may_have_login,
            has_warned: false,
            last_bytes: Instant::now(),
        }));
        Ok(())
    }

    /// Whether the server at this address may have the login. The login belongs to one host, which a redirect may name by its
    /// address; and a login meant for TLS is never sent without it.
    fn may_have_login(&self, address: Option<IpAddr>) -> bool {
        let (host, meant) = (self.url.host_str(), self.target.url.host_str());
        let is_same = host.zip(meant).is_some_and(|(host, meant)| host.eq_ignore_ascii_case(meant));
        let is_camera = is_same || address.is_some() && address == self.camera;
        is_camera && (self.url.scheme() == "rtsps" || self.target.url.scheme() != "rtsps")
    }

    fn talk(&mut self, until: Instant, receive: &mut dyn FnMut(Received)) -> Result<(), Failure> {
        let Stage::Talking(talk) = &mut self.stage else { return Ok(()) };
        if !talk.has_warned && talk.tls.is_none() && talk.client.sends_password() {
            talk.has_warned = true;
            warn_of_clear_login(&self.url);
        }
        talk.send()?;
        let is_playing = *talk.client.phase() == Phase::Playing;
        let until = talk.client.due().map_or(until, |due| due.min(until));
        let probe = self.reachability.as_ref().and_then(Reachability::connection);
        let began = Instant::now();
        let ready = talk.wait(probe, until);
        let now = Instant::now();
        // Packets that arrive during the collection belong to the first one.
        let arrival = clock::now(self.clock.as_ref());
        if ready.has_any() && is_playing && until > began && now - began > GATHERING / 8 {
            thread::sleep(GATHERING);
        }
        let reception = &mut self.reception;
        let mut give = |media: Media<'_>| {
            if let Some(reception) = reception {
                reception.take(&media, arrival, receive);
            }
        };
        let read = talk.read(ready, now, &mut self.buffer, &mut give);
        let is_over = read.as_ref().is_err_and(Failure::is_end);
        let ended = if is_over { talk.client.ended(now, &mut give) } else { Ok(()) };
        let ticked = talk.client.tick(now, &mut give);
        if let Some(reception) = reception
            && reception.count_units(now)
        {
            self.deadline = Some(now + self.target.timeout);
        }
        // The data that came before the end was delivered.
        let is_elsewhere = !talk.may_have_login;
        let worked = ended.map_err(Failure::Client).and(read).and(ticked.map_err(Failure::Client));
        worked.map_err(|failure| match failure {
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

    /// Continues after an answer.
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
            // The session waits for the decoder, not for the camera.
            Phase::Ready => self.deadline = None,
            _ => {}
        }
        talk.send()
    }

    /// Sends TEARDOWN, and waits a while for the camera's answer.
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

/// Which sockets are readable.
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

    /// Waits until a socket is readable, or writable if there is output, up to `until`; or until `probe` is connected.
    fn wait(&mut self, probe: Option<&TcpStream>, until: Instant) -> ReadySockets {
        let wants_write = !self.client.output().is_empty() || self.connection.wants_write();
        // Reading a socket shows as much as polling it.
        if until <= Instant::now() && self.ports.is_none() && probe.is_none() && !wants_write {
            return ReadySockets { connection: true, rtp: false, rtcp: false };
        }
        let interest = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let ports = self.ports.iter().flat_map(|ports| [&ports.rtp, &ports.rtcp]);
        let ports = ports.map(|socket| PollFd::new(socket, PollFlags::IN));
        let all = iter::once(PollFd::new(&self.connection, interest)).chain(ports).chain(probe.map(writable));
        // On the stack, because every wake-up runs this.
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

    /// Reads the data that has arrived, and returns how many bytes.
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
            // Reports first: they set the times of the frames.
            for (is_ready, socket) in [(ready.rtcp, &ports.rtcp), (ready.rtp, &ports.rtp)] {
                while is_ready
                    && read < MOST_READ
                    && let Some(datagram) = ports.receive(socket, buffer)
                {
                    // Empty datagrams count as well, so that the loop ends.
                    read += datagram.len().max(LEAST_DATAGRAM_BYTES);
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

    /// Opens ports, if the transport is UDP.
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

/// The most sockets in one wait: the connection, RTP, RTCP, and the reachability check.
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
