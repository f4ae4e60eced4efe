//! One session with a server: the requests and their answers, keep-alive, and the packets of one stream.
//!
//! The caller moves the bytes: it puts received bytes into [`Client::space`], calls [`Client::received`], and sends
//! [`Client::output`]. It checks [`Client::phase`] and chooses the stream. Nothing here waits, and time comes only from
//! `now`.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::Url;

use crate::authentication::Authenticator;
use crate::message::{self, Answer, Headers, Item, MessageError, Reader, ServerRequest};
use crate::rtcp::{SenderReport, write_receiver_report};
use crate::rtp::{Delivery, Order, RtpCounts, RtpHeader, RtpPacket};
use crate::sdp::{Description, StreamDescription};
use crate::session_headers::{Carrier, SessionHeader, TransportHeader};

/// The maximum attempts of one request: without a login, with an old nonce, with fresh ones, and in other forms after a
/// refusal.
const MOST_ATTEMPTS: u8 = 8;

/// How long a session lasts without a request if the server does not state it (RFC 2326 section 12.37).
const USUAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A pause of this length ends a description of unknown length, or the wait for an announced body that does not arrive.
const BODY_PAUSE: Duration = Duration::from_millis(250);

/// How many unanswered requests to remember, so that late answers can be ignored.
const MOST_GIVEN_UP: usize = 8;

/// The longest interval between keep-alive requests. Some routers drop a connection that is silent for a minute.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The interval of receiver reports (RFC 3550 section 6.2).
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The most bytes that may wait to be sent. A server that sends requests but does not read gets no more answers.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

/// Characters that a request line and a quoted text may not contain: blanks, quotes (0x22), brackets, backslashes.
const NOT_IN_URLS: &AsciiSet = &CONTROLS.add(b' ').add(0x22).add(b'<').add(b'>').add(b'\\');

/// The user agent of requests, and the one for servers that only accept known players.
const USER_AGENT: &str = "visiond";
const PLAYER_AGENT: &str = "LibVLC/3.0.20 (visiond)";

/// Why a session cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The received bytes are not RTSP.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The camera asks for a login, and there is none.
    #[error("the camera requires a user and password (401): set `login`")]
    LoginRequired,
    /// A login was refused although it used the newest nonce.
    #[error("the camera refuses the user or password (401): correct `login`")]
    LoginRefused,
    /// The camera offers no Digest, which the login requires.
    #[error(
        "the camera offers no digest authentication, which `require_digest` demands: set it in the camera, or use rtsps:// in `url` \
         and remove `require_digest`"
    )]
    DigestRequired,
    /// The camera requests an unsupported kind of authentication.
    #[error(
        "the camera requires a kind of authentication that visiond does not know ({0}): set Digest or Basic in the camera"
    )]
    UnknownAuthentication(String),
    /// A request was refused.
    #[error("the camera refuses {method}: {status} {reason}")]
    Refused {
        /// The method of the request.
        method: &'static str,
        /// The status of the answer.
        status: u16,
        /// The text of the status line.
        reason: String,
    },
    /// The answer to DESCRIBE has no stream.
    #[error("the answer to DESCRIBE describes no stream: check the path in the URL")]
    NoStream,
    /// The camera sends by multicast.
    #[error("the camera sends by multicast: set unicast in the camera, or set `type = \"video\"`")]
    Multicast,
    /// The camera answers a request for TCP with datagrams.
    #[error("the camera sends by UDP only: set `transport = \"udp\"`")]
    UdpOnly,
    /// The camera answers a request for datagrams with TCP.
    #[error("the camera sends over TCP only: set `transport = \"tcp\"`")]
    TcpOnly,
}

impl ClientError {
    /// Returns the status of the answer, if that is what failed.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::LoginRequired | Self::LoginRefused | Self::DigestRequired | Self::UnknownAuthentication(_) => {
                Some(401)
            }
            Self::Refused { status, .. } => Some(*status),
            Self::Message(_) | Self::NoStream | Self::Multicast | Self::UdpOnly | Self::TcpOnly => None,
        }
    }
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Waits for the description.
    Describing,
    /// The description has arrived: [`Client::set_up`] chooses a stream.
    Described,
    /// Waits for the answer to SETUP.
    SettingUp,
    /// The stream is set up: [`Client::play`] begins it.
    Ready,
    /// Waits for the answer to PLAY. Packets may already arrive.
    Starting,
    /// The stream plays.
    Playing,
    /// Waits for the answer to TEARDOWN.
    Leaving,
    /// The server has answered TEARDOWN.
    Over,
    /// The server redirects to another URL: start over there.
    Redirected(Url),
}

/// The transport of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In the connection.
    Tcp,
    /// As datagrams, to this port for RTP and the next one for RTCP.
    Udp {
        /// The port of RTP.
        client_port: u16,
    },
}

/// An event while a stream plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media<'a> {
    /// A packet, in order.
    Packet(RtpPacket<'a>),
    /// A sender report.
    Report {
        /// An RTP timestamp without wraps.
        timestamp: i64,
        /// The camera's clock at that time, in NTP's format: 32.32 bits of seconds since 1900.
        ntp: u64,
    },
}

/// The counters of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the stream's packets.
    pub rtp: RtpCounts,
    /// How often bytes were skipped that are neither a packet nor an answer.
    pub skips: u64,
    /// Keep-alive requests that were not answered or were refused.
    pub keep_alives_failed: u64,
}

/// A session.
pub struct Client {
    reader: Reader,
    output: Vec<u8>,
    phase: Phase,
    /// The URL of requests until the description names another one. Without a user.
    url: Url,
    authenticator: Option<Authenticator>,
    user_agent: &'static str,
    sequence: u32,
    /// The request whose answer is awaited.
    pending: Option<Pending>,
    /// The numbers of the last requests whose answer is no longer awaited.
    given_up: VecDeque<u32>,
    /// When a description whose end is not known counts as whole.
    pause_at: Option<Instant>,
    offers_get_parameter: bool,
    /// Whether the server failed to answer GET_PARAMETER properly.
    refuses_get_parameter: bool,
    description: Description,
    /// The base of the description's relative URLs, and the URL for all streams together.
    base: String,
    /// The control attribute of the stream that was set up, and the resulting URL.
    control: String,
    stream_url: String,
    /// The first session id from the server.
    session: Option<SessionHeader>,
    /// A different one that it sent later.
    other_session: Option<SessionHeader>,
    transport: Transport,
    server_ports: Option<(u16, u16)>,
    media: Option<StreamState>,
    keep_alive_at: Option<Instant>,
    report_at: Option<Instant>,
    keep_alives_failed: u64,
}

/// A request.
#[derive(Debug, Clone)]
struct Pending {
    method: Method,
    url: String,
    headers: Vec<(&'static str, String)>,
    sequence: u32,
    attempts: u8,
    /// Whether its nonce comes from the last answer to this request.
    is_nonce_fresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Options,
    Describe,
    Setup,
    Play,
    KeepAlive { is_get_parameter: bool },
    Teardown,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Options | Self::KeepAlive { is_get_parameter: false } => "OPTIONS",
            Self::Describe => "DESCRIBE",
            Self::Setup => "SETUP",
            Self::Play => "PLAY",
            Self::KeepAlive { is_get_parameter: true } => "GET_PARAMETER",
            Self::Teardown => "TEARDOWN",
        }
    }
}

/// The stream that was set up.
#[derive(Debug)]
struct StreamState {
    order: Order,
    /// The channel of its RTP packets; the next one is RTCP's.
    channel: u8,
    payload_type: u8,
}

/// Leaves out requests, because they contain a login.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a session for `url`, which has no user; the first requests are in [`output`](Self::output).
    pub fn new(url: Url, authenticator: Option<Authenticator>) -> Self {
        let mut this = Self {
            reader: Reader::default(),
            output: Vec::new(),
            phase: Phase::Describing,
            base: url.to_string(),
            url,
            authenticator,
            user_agent: USER_AGENT,
            sequence: 0,
            pending: None,
            given_up: VecDeque::new(),
            pause_at: None,
            offers_get_parameter: false,
            refuses_get_parameter: false,
            description: Description::default(),
            control: String::new(),
            stream_url: String::new(),
            session: None,
            other_session: None,
            transport: Transport::Tcp,
            server_ports: None,
            media: None,
            keep_alive_at: None,
            report_at: None,
            keep_alives_failed: 0,
        };
        // Some cameras answer DESCRIBE only after OPTIONS.
        this.request(Method::Options, this.url.to_string(), Vec::new());
        this
    }

    /// Whether the server has sent any RTSP.
    pub const fn has_answered(&self) -> bool {
        self.reader.has_begun()
    }

    /// Returns the login for a new connection if the server closed this one instead of answering the first request with the
    /// login: some servers close each connection after a 401.
    pub fn take_unanswered_login(&mut self) -> Option<Authenticator> {
        let is_fresh = self.pending.as_ref().is_some_and(|request| request.is_nonce_fresh);
        if is_fresh && self.phase == Phase::Describing { self.authenticator.take() } else { None }
    }

    /// Whether requests contain the password unhashed.
    pub fn sends_password(&self) -> bool {
        self.authenticator.as_ref().is_some_and(Authenticator::sends_password)
    }

    /// Returns the phase of the session.
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Returns the streams that the server offers; none before [`Phase::Described`].
    pub fn streams(&self) -> &[StreamDescription] {
        &self.description.streams
    }

    /// Returns the ports from which the server sends datagrams, if it named them.
    pub const fn server_ports(&self) -> Option<(u16, u16)> {
        self.server_ports
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> Counts {
        Counts {
            rtp: self.media.as_ref().map(|media| media.order.counts).unwrap_or_default(),
            skips: self.reader.skips(),
            keep_alives_failed: self.keep_alives_failed,
        }
    }

    /// Returns the space for the next received bytes. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.reader.space()
    }

    /// Returns the bytes to send. The caller removes what it has sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Processes this many bytes in [`space`](Self::space); calls `give` with each event of the stream.
    ///
    /// # Errors
    /// The session is over.
    pub fn received(&mut self, bytes: usize, now: Instant, mut give: impl FnMut(Media<'_>)) -> Result<(), ClientError> {
        self.reader.received(bytes);
        while let Some(item) = self.reader.next()? {
            self.item(item, now, &mut give)?;
        }
        self.pause_at = self.reader.awaits_pause().then(|| now + BODY_PAUSE);
        Ok(())
    }

    /// Handles the bytes that arrived before the connection ended: an answer may lack its body.
    ///
    /// # Errors
    /// The session is over.
    pub fn ended(&mut self, now: Instant, mut give: impl FnMut(Media<'_>)) -> Result<(), ClientError> {
        self.reader.after_end()?.map_or(Ok(()), |item| self.item(item, now, &mut give))
    }

    fn item(&mut self, item: Item, now: Instant, give: &mut impl FnMut(Media<'_>)) -> Result<(), ClientError> {
        match item {
            Item::Packet(channel, range) => {
                if let Some(media) = &mut self.media {
                    media.packet(channel, self.reader.bytes(range), now, give);
                    // Some cameras play without an answer.
                    if self.phase == Phase::Starting && media.order.counts.received > 0 {
                        self.phase = Phase::Playing;
                    }
                }
            }
            Item::Answer(answer) => self.answer(&answer, now)?,
            Item::Request(request) => self.server_request(&request),
        }
        Ok(())
    }

    /// Processes a datagram that arrived at one of the ports. Some cameras send both kinds to one port.
    pub fn datagram(&mut self, datagram: &[u8], now: Instant, mut give: impl FnMut(Media<'_>)) {
        let Some(media) = &mut self.media else { return };
        match media.is_rtcp(datagram) {
            true => media.report(datagram, &mut give),
            false => media.order.push(datagram, now, |packet| give(Media::Packet(packet))),
        }
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        let held = self.media.as_ref().and_then(|media| media.order.due());
        [held, self.keep_alive_at, self.pause_at].into_iter().flatten().min()
    }

    /// Does the work that is due: sends keep-alive requests, releases packets that have waited for others, processes an
    /// answer that seems complete.
    ///
    /// # Errors
    /// The session is over.
    pub fn tick(&mut self, now: Instant, mut give: impl FnMut(Media<'_>)) -> Result<(), ClientError> {
        if let Some(media) = &mut self.media {
            media.order.tick(now, |packet| give(Media::Packet(packet)));
        }
        if self.keep_alive_at.is_some_and(|at| at <= now) {
            self.keep_alive(now);
        }
        if self.pause_at.is_some_and(|at| at <= now) {
            self.pause_at = None;
            if let Some(item) = self.reader.after_pause()? {
                self.item(item, now, &mut give)?;
            }
        }
        Ok(())
    }

    /// Returns a receiver report if one is due, for cameras that stop sending datagrams without reports.
    pub fn receiver_report(&mut self, now: Instant) -> Option<Vec<u8>> {
        let media = self.media.as_ref()?;
        if self.report_at.is_some_and(|at| at > now) {
            return None;
        }
        self.report_at = Some(now + REPORT_INTERVAL);
        let mut report = Vec::new();
        let lost = u32::try_from(media.order.counts.lost).unwrap_or(u32::MAX);
        write_receiver_report(&mut report, std::process::id(), media.order.last(), lost);
        Some(report)
    }

    /// Sets up the stream with this index in [`streams`](Self::streams).
    pub fn set_up(&mut self, stream: usize, transport: Transport) {
        let Some(described) = self.description.streams.get(stream) else { return };
        let (value, delivery) = match transport {
            Transport::Tcp => ("RTP/AVP/TCP;unicast;interleaved=0-1".to_owned(), Delivery::Reliable),
            Transport::Udp { client_port } => {
                let next = client_port.wrapping_add(1);
                (format!("RTP/AVP;unicast;client_port={client_port}-{next}"), Delivery::Lossy)
            }
        };
        let payload_type = described.payload_type;
        // Some cameras send audio in the video's channel.
        let beside = self.description.streams.iter().filter(|other| other.media != described.media);
        let beside = beside.flat_map(|other| [other.payload_type].into_iter().chain(other.other_types.iter().copied()));
        let foreign = described.other_types.iter().copied().chain(beside).filter(|other| *other != payload_type);
        let order = Order::new(delivery, payload_type, described.rate_hz).ignoring(foreign.collect());
        self.media = Some(StreamState { order, channel: 0, payload_type });
        self.transport = transport;
        self.control = described.control.clone().unwrap_or_else(|| "*".to_owned());
        self.stream_url = joined(&self.base, &self.control);
        self.phase = Phase::SettingUp;
        self.request(Method::Setup, self.stream_url.clone(), vec![("Transport", value)]);
    }

    /// Starts the stream that was set up.
    pub fn play(&mut self) {
        self.phase = Phase::Starting;
        self.request(Method::Play, self.base.clone(), vec![("Range", "npt=0.000-".to_owned())]);
    }

    /// Ends the session, if there is one.
    pub fn tear_down(&mut self) {
        self.keep_alive_at = None;
        if self.session.is_none() {
            self.phase = Phase::Over;
            return;
        }
        self.phase = Phase::Leaving;
        self.request(Method::Teardown, self.base.clone(), Vec::new());
    }

    fn keep_alive_interval(&self) -> Duration {
        let timeout = self.session.as_ref().and_then(|session| session.timeout).unwrap_or(USUAL_TIMEOUT);
        (timeout / 2).min(LONGEST_KEEP_ALIVE)
    }

    fn keep_alive(&mut self, now: Instant) {
        let interval = self.keep_alive_interval();
        self.keep_alive_at = Some(now + interval);
        if !matches!(self.phase, Phase::Ready | Phase::Playing) {
            return;
        }
        if let Some(pending) = &self.pending {
            self.keep_alives_failed += 1;
            self.refuses_get_parameter |= pending.method == Method::KeepAlive { is_get_parameter: true };
        }
        let is_get_parameter = self.offers_get_parameter && !self.refuses_get_parameter;
        if is_get_parameter {
            // If the server does not answer it, the other form is used for the rest of the session.
            self.keep_alive_at = Some(now + interval / 2);
        }
        self.request(Method::KeepAlive { is_get_parameter }, self.base.clone(), Vec::new());
    }

    fn request(&mut self, method: Method, url: String, headers: Vec<(&'static str, String)>) {
        if let Some(pending) = self.pending.take() {
            self.given_up.truncate(MOST_GIVEN_UP - 1);
            self.given_up.push_front(pending.sequence);
        }
        self.send(Pending { method, url, headers, sequence: 0, attempts: 0, is_nonce_fresh: false });
    }

    fn send(&mut self, mut request: Pending) {
        self.sequence += 1;
        request.sequence = self.sequence;
        request.attempts += 1;
        let (name, url) = (request.method.name(), request.url.as_str());
        let authorization = self.authenticator.as_mut().and_then(|login| login.authorization(name, url));
        let mut headers = vec![("User-Agent", self.user_agent.as_bytes())];
        headers.extend(authorization.as_deref().map(|value| ("Authorization", value)));
        if request.method == Method::Describe {
            headers.push(("Accept", b"application/sdp"));
        }
        headers.extend(self.session.as_ref().map(|session| ("Session", session.id.as_bytes())));
        headers.extend(request.headers.iter().map(|(name, value)| (*name, value.as_bytes())));
        let first = format!("{name} {url} RTSP/1.0");
        message::write(&mut self.output, &first, &self.sequence.to_string(), &headers);
        self.reader.expect_description(request.method == Method::Describe);
        self.pending = Some(request);
    }

    /// Sends a request again in another form, after a refusal that was not about the login.
    fn send_otherwise(&mut self, mut request: Pending) {
        request.is_nonce_fresh = false;
        self.send(request);
    }

    fn server_request(&mut self, request: &ServerRequest) {
        if self.output.len() > MOST_OUTPUT_BYTES {
            return;
        }
        let first = match request.method.as_str() {
            "OPTIONS" | "GET_PARAMETER" | "SET_PARAMETER" => "RTSP/1.0 200 OK",
            _ => "RTSP/1.0 501 Not Implemented",
        };
        // Only a number, so that no received text is sent as a line.
        let sequence = request.headers.sequence().unwrap_or(0).to_string();
        let session = self.session.as_ref().map(|session| ("Session", session.id.as_bytes()));
        message::write(&mut self.output, first, &sequence, session.as_slice());
    }

    /// Handles an answer. Only one request is open at a time, so an answer with a different number, or with none, belongs to
    /// it.
    fn answer(&mut self, answer: &Answer, now: Instant) -> Result<(), ClientError> {
        let sequence = answer.headers.sequence();
        let is_late = |given_up: &u32| sequence == Some(u64::from(*given_up));
        if let Some(at) = self.given_up.iter().position(is_late) {
            self.given_up.remove(at);
            return Ok(());
        }
        // Interim answers.
        if answer.status < 200 {
            return Ok(());
        }
        let Some(request) = self.pending.take() else { return Ok(()) };
        if answer.status < 300 {
            self.learn_session(&answer.headers);
        }
        match answer.status {
            200..=299 => self.accepted(&request, answer, now),
            401 => self.unauthorized(request, &answer.headers),
            300..=399 if !matches!(request.method, Method::KeepAlive { .. } | Method::Teardown) => {
                self.redirected(&request, answer)
            }
            _ => self.refused(request, answer, now),
        }
    }

    fn unauthorized(&mut self, mut request: Pending, headers: &Headers) -> Result<(), ClientError> {
        let failure = match &mut self.authenticator {
            None => ClientError::LoginRequired,
            Some(authenticator) => {
                let is_stale = headers.all("www-authenticate").any(|value| {
                    let text = String::from_utf8_lossy(value).to_ascii_lowercase().replace([' ', '"'], "");
                    text.contains("stale=true")
                });
                let may_repeat = request.attempts < MOST_ATTEMPTS && (!request.is_nonce_fresh || is_stale);
                let is_answerable = authenticator.challenge(headers.all("www-authenticate"));
                if may_repeat && is_answerable {
                    request.is_nonce_fresh = true;
                    self.send(request);
                    return Ok(());
                }
                match is_answerable {
                    true => ClientError::LoginRefused,
                    false if authenticator.is_digest_only() => ClientError::DigestRequired,
                    false => {
                        let schemes = headers.all("www-authenticate").map(|value| {
                            let text = String::from_utf8_lossy(value);
                            text.split_whitespace().next().unwrap_or_default().chars().take(20).collect::<String>()
                        });
                        ClientError::UnknownAuthentication(schemes.take(4).collect::<Vec<_>>().join(", "))
                    }
                }
            }
        };
        match request.method {
            Method::KeepAlive { .. } => {
                self.keep_alives_failed += 1;
                Ok(())
            }
            Method::Teardown => {
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(failure),
        }
    }

    fn redirected(&mut self, request: &Pending, answer: &Answer) -> Result<(), ClientError> {
        let location = answer.headers.text("location").and_then(|text| {
            let url = self.url.join(text.trim()).ok()?;
            is_of_rtsp(&url).then_some(url)
        });
        match location {
            Some(url) => {
                self.phase = Phase::Redirected(without_user(url));
                Ok(())
            }
            None => Err(refusal(request, answer)),
        }
    }

    fn accepted(&mut self, request: &Pending, answer: &Answer, now: Instant) -> Result<(), ClientError> {
        let headers = &answer.headers;
        match request.method {
            Method::Options => {
                self.learn_methods(headers);
                self.describe();
            }
            Method::Describe => {
                self.description = Description::parse(&answer.body);
                if self.description.streams.is_empty() {
                    return Err(ClientError::NoStream);
                }
                let bases = ["content-base", "content-location"].into_iter().filter_map(|name| headers.text(name));
                if let Some(base) = bases.filter_map(|text| absolute(&text)).next() {
                    self.base = base;
                }
                // For the session's own URL, only an absolute one counts, as in other clients.
                if let Some(url) = self.description.control.as_deref().and_then(absolute) {
                    self.base = url;
                }
                self.phase = Phase::Described;
            }
            Method::Setup => {
                let transport = headers.text("transport").map(|text| TransportHeader::parse(&text)).unwrap_or_default();
                if transport.is_multicast && transport.channel.is_none() {
                    return Err(ClientError::Multicast);
                }
                match (self.transport, transport.carrier) {
                    (Transport::Tcp, Some(Carrier::Udp)) => return Err(ClientError::UdpOnly),
                    (Transport::Udp { .. }, Some(Carrier::Tcp)) => return Err(ClientError::TcpOnly),
                    _ => {}
                }
                self.server_ports = transport.server_ports;
                if let (Some(media), Some(channel)) = (&mut self.media, transport.channel) {
                    media.channel = channel;
                }
                self.keep_alive_at = Some(now + self.keep_alive_interval());
                self.phase = Phase::Ready;
            }
            Method::Play => self.phase = Phase::Playing,
            Method::KeepAlive { .. } => {
                self.learn_methods(headers);
                self.keep_alive_at = Some(now + self.keep_alive_interval());
            }
            Method::Teardown => self.phase = Phase::Over,
        }
        Ok(())
    }

    fn learn_methods(&mut self, headers: &Headers) {
        if let Some(methods) = headers.text("public") {
            self.offers_get_parameter = methods.split(',').any(|one| one.trim().eq_ignore_ascii_case("GET_PARAMETER"));
        }
    }

    /// Takes the session id from any answer: some servers send it with DESCRIBE, some only with PLAY. The first one counts,
    /// as in ffmpeg, unless the server refuses it.
    fn learn_session(&mut self, headers: &Headers) {
        let Some(found) = headers.text("session").and_then(|text| SessionHeader::parse(&text)) else { return };
        match &mut self.session {
            None => self.session = Some(found),
            Some(session) if session.id == found.id => session.timeout = found.timeout.or(session.timeout),
            Some(_) => self.other_session = Some(found),
        }
    }

    fn describe(&mut self) {
        self.request(Method::Describe, self.url.to_string(), Vec::new());
    }

    /// Returns the URL of the stream resolved by RFC 3986; other clients append.
    fn other_stream_url(&self) -> String {
        let url = Url::parse(&self.base).and_then(|base| base.join(&self.control));
        match url.map(String::from) {
            Ok(url) if self.control != "*" => absolute(&url).unwrap_or_else(|| self.stream_url.clone()),
            _ => self.stream_url.clone(),
        }
    }

    /// Handles an error answer: some errors have a workaround.
    fn refused(&mut self, mut request: Pending, answer: &Answer, now: Instant) -> Result<(), ClientError> {
        let may_repeat = request.attempts < MOST_ATTEMPTS;
        match (request.method, answer.status) {
            // Some servers serve only known players.
            (Method::Options | Method::Describe, 400 | 403) if self.user_agent != PLAYER_AGENT && may_repeat => {
                self.user_agent = PLAYER_AGENT;
                self.send_otherwise(request);
                Ok(())
            }
            (Method::Options, _) => {
                self.describe();
                Ok(())
            }
            // It has a different number by now.
            (Method::Play | Method::KeepAlive { .. } | Method::Teardown, 454)
                if self.other_session.is_some() && may_repeat =>
            {
                self.session = self.other_session.take();
                self.send_otherwise(request);
                Ok(())
            }
            // The stream's URL is relative as the standard defines it.
            (Method::Setup, 400 | 404 | 451 | 454) if may_repeat && request.url != self.other_stream_url() => {
                self.stream_url = self.other_stream_url();
                request.url.clone_from(&self.stream_url);
                self.send_otherwise(request);
                Ok(())
            }
            // The stream does not support the range.
            (Method::Play, 400 | 451 | 456 | 457 | 500 | 501 | 551) if !request.headers.is_empty() && may_repeat => {
                request.headers.clear();
                self.send_otherwise(request);
                Ok(())
            }
            // PLAY must name the stream, not the session.
            (Method::Play, 400 | 404 | 405 | 451 | 454..=460 | 500 | 501 | 551)
                if request.url != self.stream_url && may_repeat =>
            {
                request.url.clone_from(&self.stream_url);
                self.send_otherwise(request);
                Ok(())
            }
            (Method::KeepAlive { is_get_parameter: true }, _) => {
                // Send it at once, because half of the session's timeout is over.
                self.refuses_get_parameter = true;
                self.keep_alive_at = Some(now);
                Ok(())
            }
            (Method::KeepAlive { .. }, _) => {
                self.keep_alives_failed += 1;
                Ok(())
            }
            (Method::Teardown, _) => {
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(refusal(&request, answer)),
        }
    }
}

impl StreamState {
    fn packet(&mut self, channel: u8, packet: &[u8], now: Instant, give: &mut impl FnMut(Media<'_>)) {
        if self.is_rtcp(packet) {
            // Also in RTP's channel, or in the previous one.
            if channel.abs_diff(self.channel) <= 1 {
                self.report(packet, give);
            }
            return;
        }
        if channel != self.channel {
            // Some cameras use another channel than they state.
            let is_stream = RtpHeader::parse(packet).is_some_and(|header| header.payload_type == self.payload_type);
            if self.order.counts.received > 0 || !is_stream {
                return;
            }
            self.channel = channel;
        }
        self.order.push(packet, now, |packet| give(Media::Packet(packet)));
    }

    /// Whether a packet is one of RTCP (RFC 5761 section 4). No camera uses the payload types that this excludes, unless it
    /// describes one.
    const fn is_rtcp(&self, packet: &[u8]) -> bool {
        matches!(packet, [_, 192..=195 | 200..=210, ..]) && !matches!(self.payload_type, 64..=95)
    }

    fn report(&mut self, packet: &[u8], give: &mut impl FnMut(Media<'_>)) {
        let Some(report) = SenderReport::find(packet) else { return };
        give(Media::Report { timestamp: self.order.report_time(report.timestamp), ntp: report.ntp });
    }
}

fn refusal(request: &Pending, answer: &Answer) -> ClientError {
    let reason = answer.reason.chars().take(200).collect();
    ClientError::Refused { method: request.method.name(), status: answer.status, reason }
}

/// Returns the URL of a control attribute: absolute, the session's own (`*`), or appended to the base, as in live555 and ffmpeg: the
/// base's query stays.
fn joined(base: &str, control: &str) -> String {
    if let Some(url) = absolute(control) {
        return url;
    }
    match control {
        "*" | "" => base.to_owned(),
        _ => {
            let control = utf8_percent_encode(control.trim_start_matches('/'), NOT_IN_URLS);
            format!("{}/{control}", base.trim_end_matches('/'))
        }
    }
}

/// Returns an absolute URL without a user; `None` if `text` is not an absolute URL.
fn absolute(text: &str) -> Option<String> {
    Url::parse(text).ok().filter(is_of_rtsp).map(|url| without_user(url).into())
}

/// Whether this is an RTSP URL. One without a host may contain blanks.
fn is_of_rtsp(url: &Url) -> bool {
    matches!(url.scheme(), "rtsp" | "rtsps") && url.has_host()
}

/// Returns a URL without user and password, which must not appear in a request line.
fn without_user(mut url: Url) -> Url {
    // Only a URL without a host has neither.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url
}

#[cfg(test)]
mod tests;
