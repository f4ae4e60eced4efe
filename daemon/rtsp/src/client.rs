//! One session with a server: the requests and their answers, keep-alive, and the packets of one stream.
//!
//! The caller moves bytes: what came goes into [`Client::space`], then [`Client::received`] reads it; [`Client::output`] is what is to be
//! sent. It looks at [`Client::phase`] and chooses the stream. Nothing here waits, and `now` is all that is known of the time.

use std::time::{Duration, Instant};

use url::Url;

use crate::authentication::Authenticator;
use crate::message::{self, Answer, Headers, Item, MessageError, Reader, ServerRequest};
use crate::rtcp::{SenderReport, write_receiver_report};
use crate::rtp::{Delivery, Order, RtpCounts, RtpHeader, RtpPacket};
use crate::sdp::{Description, StreamDescription};
use crate::session_headers::{SessionHeader, TransportHeader};

/// How often one request is sent: without a login, with a nonce of before, with a fresh one, and once more if that is called stale.
const MOST_ATTEMPTS: u8 = 4;

/// The longest pause between two requests that keep the session. Some routers forget a connection that is silent for a minute.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The time from one receiver report to the next (RFC 3550 section 6.2).
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// The most bytes that wait to be sent. A server that asks and does not read gets no more answers.
const MOST_OUTPUT_BYTES: usize = 64 << 10;

/// The name that requests carry, and the one for servers that refuse any but known players.
const USER_AGENT: &str = "visiond";
const PLAYER_AGENT: &str = "LibVLC/3.0.20 (LIVE555 Streaming Media v2016.11.28; visiond)";

/// Why a session cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// What came is no RTSP.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The camera asks for a login, and there is none.
    #[error("the camera requires a user and password (401): set `login`")]
    LoginRequired,
    /// A login was refused with a nonce of that very answer.
    #[error("the camera refuses the user or password (401): correct `login`")]
    LoginRefused,
    /// The camera asks for a login in a way that is not known here.
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
        /// The words behind it.
        reason: String,
    },
    /// The answer to DESCRIBE has no stream.
    #[error("the answer to DESCRIBE describes no stream: check the path in the URL")]
    NoStream,
    /// The camera sends to a group.
    #[error("the camera sends by multicast: set unicast in the camera, or set `type = \"video\"`")]
    Multicast,
}

impl ClientError {
    /// Returns the status of the answer, if that is what failed.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::LoginRequired | Self::LoginRefused | Self::UnknownAuthentication(_) => Some(401),
            Self::Refused { status, .. } => Some(*status),
            Self::Message(_) | Self::NoStream | Self::Multicast => None,
        }
    }
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Waits for the description.
    Describing,
    /// The description is there: [`Client::set_up`] chooses a stream.
    Described,
    /// Waits for the answer to SETUP.
    SettingUp,
    /// The stream is set up: [`Client::play`] begins it.
    Ready,
    /// Waits for the answer to PLAY. Packets may come.
    Starting,
    /// The stream plays.
    Playing,
    /// Waits for the answer to TEARDOWN.
    Leaving,
    /// The server has answered TEARDOWN.
    Over,
    /// The server names another URL: begin there.
    Redirected(Url),
}

/// How packets are to come.
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

/// What comes while a stream plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media<'a> {
    /// A packet in its order.
    Packet(RtpPacket<'a>),
    /// A sender report.
    Report {
        /// An RTP timestamp without wraps.
        timestamp: i64,
        /// The camera's clock at that time, in NTP's format: 32.32 bits of seconds since 1900.
        ntp: u64,
    },
}

/// The ports of RTP and RTCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// That of packets.
    Rtp,
    /// That of reports.
    Rtcp,
}

/// What was counted in a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of the stream's packets.
    pub rtp: RtpCounts,
    /// How often bytes were skipped that are no packet and no answer.
    pub skips: u64,
    /// Requests that kept the session and were not answered, or refused.
    pub keep_alives_failed: u64,
}

/// A session.
#[derive(Debug)]
pub struct Client {
    reader: Reader,
    output: Vec<u8>,
    phase: Phase,
    /// What requests are about, until the description names another one. Without a user.
    url: Url,
    authenticator: Option<Authenticator>,
    user_agent: &'static str,
    sequence: u32,
    /// The request whose answer is awaited.
    pending: Option<Pending>,
    /// The number of a request whose answer is no longer awaited.
    given_up: Option<u32>,
    offers_get_parameter: bool,
    description: Description,
    /// What the description's URLs are relative to.
    base: String,
    /// The URL of the stream that was set up.
    stream_url: String,
    session: Option<SessionHeader>,
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
    /// Whether its nonce is from the answer to this very request.
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

impl Client {
    /// Makes a session for `url`, which has no user; the first requests are in [`output`](Self::output).
    pub fn new(url: Url, login: Option<(String, String)>) -> Self {
        let mut this = Self {
            reader: Reader::default(),
            output: Vec::new(),
            phase: Phase::Describing,
            base: url.to_string(),
            url,
            authenticator: login.map(|(user, password)| Authenticator::new(user, password)),
            user_agent: USER_AGENT,
            sequence: 0,
            pending: None,
            given_up: None,
            offers_get_parameter: false,
            description: Description::default(),
            stream_url: String::new(),
            session: None,
            transport: Transport::Tcp,
            server_ports: None,
            media: None,
            keep_alive_at: None,
            report_at: None,
            keep_alives_failed: 0,
        };
        // Some cameras describe nothing before they were asked for their methods.
        this.request(Method::Options, this.url.to_string(), Vec::new());
        this
    }

    /// Returns where the session is.
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

    /// Returns what was counted so far.
    pub fn counts(&self) -> Counts {
        Counts {
            rtp: self.media.as_ref().map(|media| media.order.counts).unwrap_or_default(),
            skips: self.reader.skips(),
            keep_alives_failed: self.keep_alives_failed,
        }
    }

    /// Returns where the bytes go that come next. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.reader.space()
    }

    /// Returns what is to be sent. The caller takes out what it has sent.
    pub const fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Reads so many bytes that came into [`space`](Self::space); calls `give` with what comes of the stream.
    ///
    /// # Errors
    /// The session is over.
    pub fn received(&mut self, bytes: usize, now: Instant, mut give: impl FnMut(Media<'_>)) -> Result<(), ClientError> {
        self.reader.received(bytes);
        while let Some(item) = self.reader.next()? {
            match item {
                Item::Packet(channel, range) => {
                    let Some(media) = &mut self.media else { continue };
                    media.packet(channel, self.reader.bytes(range), now, &mut give);
                }
                Item::Answer(answer) => self.answer(&answer, now)?,
                Item::Request(request) => self.server_request(&request),
            }
        }
        Ok(())
    }

    /// Reads a datagram that came to one of the ports.
    pub fn datagram(&mut self, port: Port, datagram: &[u8], now: Instant, mut give: impl FnMut(Media<'_>)) {
        let Some(media) = &mut self.media else { return };
        match port {
            Port::Rtp => media.order.push(datagram, now, |packet| give(Media::Packet(packet))),
            Port::Rtcp => media.report(datagram, &mut give),
        }
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    pub fn due(&self) -> Option<Instant> {
        let held = self.media.as_ref().and_then(|media| media.order.due());
        [held, self.keep_alive_at].into_iter().flatten().min()
    }

    /// Does what is due: keeps the session, gives packets that have waited for others.
    pub fn tick(&mut self, now: Instant, mut give: impl FnMut(Media<'_>)) {
        if let Some(media) = &mut self.media {
            media.order.tick(now, |packet| give(Media::Packet(packet)));
        }
        if self.keep_alive_at.is_some_and(|at| at <= now) {
            self.keep_alive_at = Some(now + self.keep_alive_interval());
            self.keep_alive();
        }
    }

    /// Returns a receiver report if one is due, for cameras that send datagrams only as long as somebody receives them.
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

    /// Sets up the stream at this place among [`streams`](Self::streams).
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
        let order = Order::new(delivery, payload_type, described.rate_hz);
        self.media = Some(StreamState { order, channel: 0, payload_type });
        self.transport = transport;
        let control = described.control.as_deref().unwrap_or("*");
        self.stream_url = joined(&self.base, control);
        self.phase = Phase::SettingUp;
        self.request(Method::Setup, self.stream_url.clone(), vec![("Transport", value)]);
    }

    /// Begins the stream that was set up.
    pub fn play(&mut self) {
        let control = self.description.control.as_deref().unwrap_or("*");
        self.phase = Phase::Starting;
        let url = joined(&self.base, control);
        self.request(Method::Play, url, vec![("Range", "npt=0.000-".to_owned())]);
    }

    /// Ends the session, if there is one.
    pub fn tear_down(&mut self) {
        self.keep_alive_at = None;
        if self.session.is_none() {
            self.phase = Phase::Over;
            return;
        }
        self.phase = Phase::Leaving;
        let control = self.description.control.as_deref().unwrap_or("*");
        let url = joined(&self.base, control);
        self.request(Method::Teardown, url, Vec::new());
    }

    fn keep_alive_interval(&self) -> Duration {
        let timeout = self.session.as_ref().map_or(LONGEST_KEEP_ALIVE, |session| session.timeout);
        (timeout / 2).min(LONGEST_KEEP_ALIVE)
    }

    fn keep_alive(&mut self) {
        if !matches!(self.phase, Phase::Ready | Phase::Playing) {
            return;
        }
        if self.pending.take().is_some() {
            self.keep_alives_failed += 1;
        }
        let method = Method::KeepAlive { is_get_parameter: self.offers_get_parameter };
        self.request(method, joined(&self.base, "*"), Vec::new());
    }

    fn request(&mut self, method: Method, url: String, headers: Vec<(&'static str, String)>) {
        self.given_up = self.pending.take().map(|pending| pending.sequence);
        self.send(Pending { method, url, headers, sequence: 0, attempts: 0, is_nonce_fresh: false });
    }

    fn send(&mut self, mut request: Pending) {
        self.sequence += 1;
        request.sequence = self.sequence;
        request.attempts += 1;
        let (name, url) = (request.method.name(), request.url.as_str());
        let authorization = self.authenticator.as_mut().and_then(|login| login.authorization(name, url));
        let mut headers = vec![("User-Agent", self.user_agent)];
        headers.extend(authorization.as_deref().map(|value| ("Authorization", value)));
        if request.method == Method::Describe {
            headers.push(("Accept", "application/sdp"));
        }
        headers.extend(self.session.as_ref().map(|session| ("Session", session.id.as_str())));
        headers.extend(request.headers.iter().map(|(name, value)| (*name, value.as_str())));
        let first = format!("{name} {url} RTSP/1.0");
        message::write(&mut self.output, &first, &self.sequence.to_string(), &headers);
        self.pending = Some(request);
    }

    fn server_request(&mut self, request: &ServerRequest) {
        if self.output.len() > MOST_OUTPUT_BYTES {
            return;
        }
        let first = match request.method.as_str() {
            "OPTIONS" | "GET_PARAMETER" | "SET_PARAMETER" => "RTSP/1.0 200 OK",
            _ => "RTSP/1.0 501 Not Implemented",
        };
        // A number alone, so that nothing that came is sent as a line.
        let sequence = request.headers.sequence().unwrap_or(0).to_string();
        let session = self.session.as_ref().map(|session| ("Session", session.id.as_str()));
        message::write(&mut self.output, first, &sequence, session.as_slice());
    }

    /// Takes an answer. There is one request at a time, so an answer with another number, or with none, is that request's.
    fn answer(&mut self, answer: &Answer, now: Instant) -> Result<(), ClientError> {
        let sequence = answer.headers.sequence();
        if sequence.is_some() && sequence == self.given_up.map(u64::from) {
            self.given_up = None;
            return Ok(());
        }
        // Interim answers.
        if answer.status < 200 {
            return Ok(());
        }
        let Some(request) = self.pending.take() else { return Ok(()) };
        match answer.status {
            200..=299 => self.accepted(&request, answer, now),
            401 => self.unauthorized(request, &answer.headers),
            300..=399 if matches!(request.method, Method::Options | Method::Describe) => {
                self.redirected(request, answer)
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

    fn redirected(&mut self, request: Pending, answer: &Answer) -> Result<(), ClientError> {
        let location = answer.headers.text("location").and_then(|text| {
            let url = self.url.join(text.trim()).ok()?;
            matches!(url.scheme(), "rtsp" | "rtsps").then_some(url)
        });
        match location {
            Some(url) => {
                self.phase = Phase::Redirected(without_user(url));
                Ok(())
            }
            None => Err(refusal(&request, answer)),
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
                let base = bases.filter_map(|text| self.url.join(text.trim()).ok().filter(|_| text.contains("://")));
                let mut known = base.filter(|url| matches!(url.scheme(), "rtsp" | "rtsps"));
                if let Some(base) = known.next() {
                    self.base = without_user(base).into();
                }
                self.phase = Phase::Described;
            }
            Method::Setup => {
                let transport = headers.text("transport").map(|text| TransportHeader::parse(&text)).unwrap_or_default();
                if transport.is_multicast && transport.channel.is_none() {
                    return Err(ClientError::Multicast);
                }
                self.session = headers.text("session").and_then(|text| SessionHeader::parse(&text));
                self.server_ports = transport.server_ports;
                if let (Some(media), Some(channel)) = (&mut self.media, transport.channel) {
                    media.channel = channel;
                }
                self.keep_alive_at = Some(now + self.keep_alive_interval());
                self.phase = Phase::Ready;
            }
            Method::Play => self.phase = Phase::Playing,
            Method::KeepAlive { .. } => self.learn_methods(headers),
            Method::Teardown => self.phase = Phase::Over,
        }
        Ok(())
    }

    fn learn_methods(&mut self, headers: &Headers) {
        if let Some(methods) = headers.text("public") {
            self.offers_get_parameter = methods.split(',').any(|one| one.trim().eq_ignore_ascii_case("GET_PARAMETER"));
        }
    }

    fn describe(&mut self) {
        self.request(Method::Describe, self.url.to_string(), Vec::new());
    }

    /// Handles an answer with an error: some have a way round.
    fn refused(&mut self, mut request: Pending, answer: &Answer, now: Instant) -> Result<(), ClientError> {
        let is_first_try = request.attempts < MOST_ATTEMPTS;
        match (request.method, answer.status) {
            // Some servers serve known players alone.
            (Method::Options | Method::Describe, 400 | 403) if self.user_agent != PLAYER_AGENT && is_first_try => {
                self.user_agent = PLAYER_AGENT;
                self.send(request);
                Ok(())
            }
            (Method::Options, _) => {
                self.describe();
                Ok(())
            }
            // The range is one that the stream does not have.
            (Method::Play, 400 | 457) if !request.headers.is_empty() && is_first_try => {
                request.headers.clear();
                self.send(request);
                Ok(())
            }
            // The stream, not the session, is to be played.
            (Method::Play, 455 | 459) if request.url != self.stream_url && is_first_try => {
                request.url.clone_from(&self.stream_url);
                self.send(request);
                Ok(())
            }
            (Method::KeepAlive { is_get_parameter: true }, _) => {
                self.keep_alives_failed += 1;
                // At once, because half of the session's time is over.
                self.offers_get_parameter = false;
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
        if channel == self.channel.wrapping_add(1) {
            return self.report(packet, give);
        }
        if channel != self.channel {
            // Some cameras send in another channel than they say.
            let is_stream = RtpHeader::parse(packet).is_some_and(|header| header.payload_type == self.payload_type);
            if self.order.counts.received > 0 || !is_stream {
                return;
            }
            self.channel = channel;
        }
        self.order.push(packet, now, |packet| give(Media::Packet(packet)));
    }

    fn report(&self, packet: &[u8], give: &mut impl FnMut(Media<'_>)) {
        let Some(report) = SenderReport::find(packet) else { return };
        give(Media::Report { timestamp: self.order.report_time(report.timestamp), ntp: report.ntp });
    }
}

fn refusal(request: &Pending, answer: &Answer) -> ClientError {
    let reason = answer.reason.chars().take(200).collect();
    ClientError::Refused { method: request.method.name(), status: answer.status, reason }
}

/// Returns the URL of a control attribute: absolute, the session's own (`*`), or behind the base, as live555 and ffmpeg have it: the
/// base's query stays.
fn joined(base: &str, control: &str) -> String {
    if let Ok(url) = Url::parse(control)
        && matches!(url.scheme(), "rtsp" | "rtsps")
    {
        return without_user(url).into();
    }
    match control {
        "*" | "" => base.to_owned(),
        _ => format!("{}/{}", base.trim_end_matches('/'), control.trim_start_matches('/')),
    }
}

/// Returns a URL without user and password, which belong into no request line.
fn without_user(mut url: Url) -> Url {
    // Only a URL without a host has neither.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url
}

#[cfg(test)]
mod tests;
