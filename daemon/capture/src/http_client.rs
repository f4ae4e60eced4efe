//! An HTTP client for one camera, on the thread that waits for its images. It supports GET only.
//!
//! Every wait ends with [`Stop`] or a deadline, and a response takes bounded memory: heads are limited here, and bodies go to the
//! caller piece by piece. Redirects are followed; the login and cookies go only to the host of the configured URL.

mod body;
mod connection;
mod content_coding;
mod failure;
#[cfg(feature = "fuzz")]
pub mod fuzz;

use std::sync::Arc;
use std::time::{Duration, Instant};

use url::{Position, Url};
use visiond_config::types::{MjpegConfig, SnapshotConfig};
use visiond_frames::clock::{self, Clock};
use visiond_frames::timestamp::Timestamp;
use visiond_rtsp::authentication::Authenticator;
use visiond_system::redact::redact_line;
use visiond_system::stop::{Stop, Wake};

use self::body::Body;
use self::connection::{Connection, Received};
use self::content_coding::ContentCoding;
pub use self::failure::Failure;
use super::camera_address::{camera_address, check_login, check_url, warn_of_clear_login};
use super::camera_tls::{CameraTls, TlsKeys};
use super::ffprobe::shown;
use super::source::{SourceError, SourceFault};

/// The most bytes of a response head.
const MOST_HEAD_BYTES: usize = 16 << 10;

/// The most bytes of a body to read only so that its connection can be reused.
const MOST_UNUSED_BYTES: usize = 64 << 10;

/// How long to read a body that is not needed. A new connection costs less.
const UNUSED_BODY_TIME: Duration = Duration::from_millis(250);

/// The most redirects to follow in a row.
const MOST_REDIRECTS: usize = 5;

/// The most interim responses (100 Continue).
const MOST_INTERIM: usize = 8;

/// The most cookies to keep, and the most bytes of one.
const MOST_COOKIES: usize = 16;
const MOST_COOKIE_BYTES: usize = 1024;

/// The most characters to quote from a camera's response.
const MOST_CHARS: usize = 100;

/// The camera's settings from its source's configuration.
#[derive(Debug, Clone)]
pub struct HttpCamera<'a> {
    url: &'a str,
    login: Option<&'a std::path::Path>,
    require_digest: bool,
    keys: TlsKeys,
}

impl<'a> From<&'a MjpegConfig> for HttpCamera<'a> {
    fn from(config: &'a MjpegConfig) -> Self {
        let (login, require_digest) = (config.login.as_deref(), config.require_digest);
        Self { url: &config.url, login, require_digest, keys: config.into() }
    }
}

impl<'a> From<&'a SnapshotConfig> for HttpCamera<'a> {
    fn from(config: &'a SnapshotConfig) -> Self {
        let (login, require_digest) = (config.login.as_deref(), config.require_digest);
        Self { url: &config.url, login, require_digest, keys: config.into() }
    }
}

impl HttpCamera<'_> {
    /// Checks whether a client can be created, without connecting.
    pub fn check(&self) -> Vec<SourceFault> {
        let faults = [check_login(self.login), check_url("url", self.url), self.keys.check()];
        faults.into_iter().flatten().collect()
    }
}

/// A client for one camera. It keeps the connection for the next request if the camera does.
pub struct HttpClient {
    /// The requested URL, without a user.
    url: Url,
    /// The configured URL; the login goes to its host only.
    origin: Url,
    login: Option<Authenticator>,
    /// Names and values of the cookies that the host of `origin` set. Some cameras redirect a client until it sends them.
    cookies: Vec<(String, String)>,
    keys: TlsKeys,
    /// TLS with the host of this name.
    tls: Option<(String, Arc<CameraTls>)>,
    connection: Option<Connection>,
    clock: Arc<dyn Clock>,
    chunk: Box<[u8]>,
}

/// The head of a response, and the state for reading its body.
pub struct Answer {
    pub status: u16,
    /// When its first byte arrived.
    pub began: Timestamp,
    headers: Vec<(String, Vec<u8>)>,
    body: Body,
    coding: Option<ContentCoding>,
    /// The length that a stream's header states, which may be wrong.
    stated_length: Option<u64>,
    /// Whether the connection can be reused once the body is read.
    is_kept: bool,
    /// Body bytes that arrived together with the head.
    first: Vec<u8>,
}

/// The result of reading a part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Some,
    /// No data so far.
    Nothing,
    /// The body is complete.
    End,
    /// The camera closed the connection before the body was complete, or closing is the only end that the body has.
    Closed,
}

impl Answer {
    /// Returns the first header with this lower-case name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }

    /// Whether the camera states the body's length.
    pub fn has_length(&self) -> bool {
        matches!(self.body, Body::Length(_))
    }

    /// Returns the stream's length by its header. Some cameras put the length of one image there.
    pub const fn stated_length(&self) -> Option<u64> {
        self.stated_length
    }

    /// Whether the end of the connection ends the body.
    pub fn ends_with_connection(&self) -> bool {
        self.body == Body::UntilClose
    }

    /// Returns a header as text for a message.
    pub fn header_text(&self, name: &str) -> Option<String> {
        self.header(name).map(|value| own_words(&String::from_utf8_lossy(value)))
    }
}

/// Returns the camera's text as one short line without secrets.
pub fn own_words(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_CHARS).collect();
    redact_line(plain.trim())
}

impl HttpClient {
    /// Reads the login, which may be a file that has changed since. The first request connects.
    pub fn new(camera: &HttpCamera<'_>, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let (url, login) = camera_address(camera.url, camera.login)?;
        let login = login.map(|login| {
            let (user, password) = login.into_parts();
            let mut login = Authenticator::new(user, password);
            if camera.require_digest {
                login.require_digest();
            }
            login
        });
        let mut client = Self {
            origin: url.clone(),
            url,
            login,
            cookies: Vec::new(),
            keys: camera.keys.clone(),
            tls: None,
            connection: None,
            clock,
            chunk: vec![0; 64 << 10].into(),
        };
        if client.url.scheme() == "https" {
            client.tls(&client.url.clone())?;
        }
        Ok(client)
    }

    /// Requests the URL with extra `headers`, and waits for the response head. Follows redirects and logs in.
    pub fn get(&mut self, headers: &[(&str, &[u8])], stop: &Stop, deadline: Instant) -> Result<Answer, Failure> {
        let mut url = self.url.clone();
        let mut is_permanent = true;
        for _ in 0..=MOST_REDIRECTS {
            let mut answer = self.log_in(&url, headers, stop, deadline)?;
            let (301 | 302 | 303 | 307 | 308, Some(location)) = (answer.status, answer.header("location")) else {
                return match refusal(answer.status, self.login.is_some(), self.may_know(&url)) {
                    None => Ok(answer),
                    Some(failure) => {
                        self.connection = None;
                        Err(failure)
                    }
                };
            };
            let location = String::from_utf8_lossy(location).into_owned();
            let next = url.join(&location).ok().filter(|next| matches!(next.scheme(), "http" | "https"));
            let Some(mut next) = next else {
                let whither = own_words(&location);
                return Err(Failure::Refused(format!(
                    "the camera redirects to {whither}, which is no URL of HTTP: correct the path in `url`"
                )));
            };
            // No login comes from there either.
            let _ = next.set_username("").and_then(|()| next.set_password(None));
            self.skip_body(&mut answer, stop, deadline)?;
            is_permanent &= matches!(answer.status, 301 | 308);
            if is_permanent {
                self.url = next.clone();
            }
            url = next;
        }
        self.url = self.origin.clone();
        Err(Failure::Refused(format!(
            "the camera redirects more than {MOST_REDIRECTS} times: correct the path in `url`"
        )))
    }

    /// Reads the part of the body that has arrived, without waiting; `take` gets the bytes and the time when they were read.
    pub fn read(&mut self, answer: &mut Answer, mut take: impl FnMut(&[u8], Timestamp)) -> Result<Progress, Failure> {
        let Some(connection) = &mut self.connection else { return Ok(Progress::Closed) };
        let (first, now);
        let bytes = if answer.first.is_empty() {
            if answer.body.is_complete() {
                self.end_body(answer);
                return Ok(Progress::End);
            }
            match connection.receive(&mut self.chunk)? {
                Received::Bytes(read) => {
                    now = clock::now(self.clock.as_ref());
                    self.chunk.get(..read).unwrap_or_default()
                }
                Received::Nothing => return Ok(Progress::Nothing),
                Received::Closed => {
                    self.connection = None;
                    return Ok(Progress::Closed);
                }
            }
        } else {
            first = std::mem::take(&mut answer.first);
            now = answer.began;
            &first
        };
        let mut uncoded = Ok(());
        let decoded = answer.body.decode(bytes, |bytes| match &mut answer.coding {
            None => take(bytes, now),
            Some(_) if uncoded.is_err() => {}
            Some(coding) => uncoded = coding.decode(bytes, |bytes| take(bytes, now)),
        });
        if let Err(reason) = decoded.and(uncoded) {
            self.connection = None;
            return Err(Failure::Refused(reason.to_owned()));
        }
        if answer.body.is_complete() {
            self.end_body(answer);
            return Ok(Progress::End);
        }
        Ok(Progress::Some)
    }

    /// Waits until there is something to read; a closed connection counts as well.
    pub fn wait(&self, stop: &Stop, deadline: Instant) -> Result<Wake, Failure> {
        match &self.connection {
            Some(connection) => connection.wait(libc::POLLIN, stop, deadline),
            None => Ok(Wake::Ready),
        }
    }

    /// Closes the connection, for a response that is not read to its end.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// Returns the URL of the configuration, without a user.
    pub fn url(&self) -> &str {
        self.origin.as_str()
    }

    /// Returns the SHA-256 of the last certificate that the camera showed.
    pub fn seen_fingerprint(&self) -> Option<String> {
        self.tls.as_ref()?.1.seen_fingerprint()
    }

    fn end_body(&mut self, answer: &Answer) {
        if !answer.is_kept {
            self.connection = None;
        }
    }

    /// Reads a body that is not needed, so that the connection can be reused. Closes the connection if the body is long, late or
    /// broken.
    fn skip_body(&mut self, answer: &mut Answer, stop: &Stop, deadline: Instant) -> Result<(), Failure> {
        let deadline = deadline.min(Instant::now() + UNUSED_BODY_TIME);
        let mut left = MOST_UNUSED_BYTES;
        if matches!(answer.body, Body::Length(length) if length > left as u64) {
            self.connection = None;
        }
        while answer.is_kept && left > 0 {
            match self.read(answer, |bytes, _| left = left.saturating_sub(bytes.len())) {
                Ok(Progress::End | Progress::Closed) => return Ok(()),
                Ok(Progress::Some) if Instant::now() < deadline => {}
                Ok(Progress::Some) => break,
                Ok(Progress::Nothing) => match self.wait(stop, deadline)? {
                    Wake::Ready => {}
                    Wake::Stopped => return Err(Failure::Stopped),
                    Wake::TimedOut => break,
                },
                Err(failure) => {
                    log::debug!("opening another connection, because a body that is not needed is broken: {failure:?}");
                    break;
                }
            }
        }
        self.connection = None;
        Ok(())
    }

    /// Whether the login may be sent to the host of `url`.
    fn may_know(&self, url: &Url) -> bool {
        let is_weaker = self.origin.scheme() == "https" && url.scheme() != "https";
        url.host() == self.origin.host() && !is_weaker
    }

    /// Stores a response's cookies until the source is opened again; a cookie replaces the one of the same name.
    fn keep_cookies(&mut self, answer: &Answer) {
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let cookie = String::from_utf8_lossy(cookie);
            let pair = cookie.split(';').next().and_then(|pair| pair.split_once('='));
            let Some((name, value)) = pair.map(|(name, value)| (name.trim(), value.trim())) else { continue };
            if name.is_empty() || name.len() + value.len() > MOST_COOKIE_BYTES || value.contains(char::is_control) {
                continue;
            }
            self.cookies.retain(|(known, _)| known != name);
            if self.cookies.len() < MOST_COOKIES {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    /// Requests `url`; repeats the request with the login if the camera asks for it.
    fn log_in(
        &mut self,
        url: &Url,
        headers: &[(&str, &[u8])],
        stop: &Stop,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let uri = &url[Position::BeforePath..Position::AfterQuery];
        let may_know = self.may_know(url);
        // Whether this request already sent the login in answer to a challenge: then the login is wrong, unless the nonce is stale.
        let mut is_answered = false;
        for _ in 0..3 {
            let login = self.login.as_mut().filter(|_| may_know);
            let authorization = login.and_then(|login| login.authorization("GET", uri));
            let cookies =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
            let cookies = Some(("Cookie", cookies.as_bytes())).filter(|(_, cookies)| may_know && !cookies.is_empty());
            let headers: Vec<_> = headers.iter().copied().chain(cookies).collect();
            let mut answer = self.exchange(url, authorization.as_deref(), &headers, stop, deadline)?;
            if may_know {
                self.keep_cookies(&answer);
            }
            let Some(login) = self.login.as_mut().filter(|_| may_know && answer.status == 401) else {
                return Ok(answer);
            };
            let challenges = || answer.headers.iter().filter(|(name, _)| name == "www-authenticate");
            let is_stale = challenges().any(|(_, value)| {
                String::from_utf8_lossy(value).to_ascii_lowercase().replace(['"', ' '], "").contains("stale=true")
            });
            if is_answered && !is_stale {
                return Ok(answer);
            }
            if !login.challenge(challenges().map(|(_, value)| value.as_slice())) {
                let asked = answer.header_text("www-authenticate").unwrap_or_else(|| "nothing".to_owned());
                return Err(Failure::Refused(if login.is_digest_only() {
                    format!(
                        "the camera offers no digest authentication ({asked}), which `require_digest` demands: set it in the camera, or use \
                         https:// in `url` and remove `require_digest`"
                    )
                } else {
                    format!(
                        "the camera asks for an authentication that visiond does not have ({asked}): set it to digest or basic"
                    )
                }));
            }
            is_answered = true;
            if url.scheme() == "http" && login.sends_password() {
                warn_of_clear_login(url);
            }
            self.skip_body(&mut answer, stop, deadline)?;
        }
        Err(Failure::Refused("the camera refuses every nonce that it gives (401): restart it".to_owned()))
    }

    /// Sends one request and reads the response head. If the camera has closed a kept connection, connects again.
    fn exchange(
        &mut self,
        url: &Url,
        authorization: Option<&[u8]>,
        headers: &[(&str, &[u8])],
        stop: &Stop,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        let request = request(url, authorization, headers);
        // Bytes left after the last response would be taken for the next one.
        if let Some(mut kept) = self.connection.take_if(|kept| kept.is_to(url))
            && matches!(kept.receive(&mut self.chunk), Ok(Received::Nothing))
            && kept.send(&request, stop, deadline).is_ok()
        {
            match head(&mut kept, &mut self.chunk, self.clock.as_ref(), stop, deadline) {
                // Closed before it sent a response.
                Err(HeadFailure::NoByte) => {}
                Err(HeadFailure::Other(failure)) => return Err(failure),
                Ok(answer) => {
                    self.connection = Some(kept);
                    return Ok(answer);
                }
            }
        }
        if stop.is_raised() {
            return Err(Failure::Stopped);
        }
        let tls = match url.scheme() {
            "https" => Some(self.tls(url).map_err(|error| Failure::Refused(error.to_string()))?),
            _ => None,
        };
        let mut connection = Connection::open(url, tls, stop, deadline)?;
        connection.send(&request, stop, deadline)?;
        match head(&mut connection, &mut self.chunk, self.clock.as_ref(), stop, deadline) {
            Ok(answer) => {
                self.connection = Some(connection);
                Ok(answer)
            }
            Err(HeadFailure::NoByte) => {
                let hint = if url.scheme() == "https" { "" } else { "; if it speaks TLS there, use https:// in `url`" };
                Err(Failure::Absent(format!("the camera closed the connection without an answer{hint}")))
            }
            Err(HeadFailure::Other(failure)) => Err(failure),
        }
    }

    /// Returns TLS with the host of `url`: the same value as before, so that a warning is logged once.
    fn tls(&mut self, url: &Url) -> Result<Arc<CameraTls>, SourceError> {
        let host = url.host_str().unwrap_or_default();
        if let Some((_, tls)) = self.tls.as_ref().filter(|(known, _)| known == host) {
            return Ok(Arc::clone(tls));
        }
        let mut tls = CameraTls::new(&self.keys, host)?;
        if url.scheme() != self.origin.scheme() || url.host() != self.origin.host() {
            tls.set_redirect(shown(url.as_str()));
        }
        let tls = Arc::new(tls);
        self.tls = Some((host.to_owned(), Arc::clone(&tls)));
        Ok(tls)
    }
}

fn request(url: &Url, authorization: Option<&[u8]>, headers: &[(&str, &[u8])]) -> Vec<u8> {
    let (path, host) =
        (&url[Position::BeforePath..Position::AfterQuery], &url[Position::BeforeHost..Position::AfterPort]);
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: visiond\r\nAccept: */*\r\nConnection: keep-alive\r\n"
    )
    .into_bytes();
    let authorization = authorization.map(|value| ("Authorization", value));
    // The values come from the camera: none may start a new header line.
    let all = headers.iter().copied().chain(authorization);
    for (name, value) in all.filter(|(_, value)| !value.iter().any(u8::is_ascii_control)) {
        request.extend_from_slice(name.as_bytes());
        request.extend_from_slice(b": ");
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// Why a head could not be read.
enum HeadFailure {
    /// The connection was closed before its first byte.
    NoByte,
    Other(Failure),
}

impl From<Failure> for HeadFailure {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// Reads the head of a response.
fn head(
    connection: &mut Connection,
    chunk: &mut [u8],
    clock: &dyn Clock,
    stop: &Stop,
    deadline: Instant,
) -> Result<Answer, HeadFailure> {
    let mut bytes = Vec::new();
    let mut began = None;
    let (mut interim, mut blank_bytes) = (0, 0);
    loop {
        blank_bytes += skip_blank_lines(&mut bytes);
        while let Some(end) = head_end(&bytes) {
            let rest = bytes.split_off(end);
            let head = std::mem::replace(&mut bytes, rest);
            let began = began.unwrap_or_else(|| clock::now(clock));
            let mut answer = parse(&head, began).ok_or_else(|| no_http(&head))?;
            if answer.status < 200 {
                interim += 1;
                if interim > MOST_INTERIM {
                    return Err(endless().into());
                }
                blank_bytes += skip_blank_lines(&mut bytes);
                continue;
            }
            answer.first = bytes;
            return Ok(answer);
        }
        // Servers of other protocols may wait for an answer to their first line.
        if bytes.contains(&b'\n') && status_line(&bytes).is_none() {
            return Err(no_http(&bytes).into());
        }
        if bytes.len() + blank_bytes > MOST_HEAD_BYTES {
            return Err(endless().into());
        }
        match connection.receive(chunk)? {
            Received::Bytes(read) => {
                began.get_or_insert_with(|| clock::now(clock));
                bytes.extend_from_slice(chunk.get(..read).unwrap_or_default());
            }
            Received::Closed if bytes.is_empty() => return Err(HeadFailure::NoByte),
            Received::Closed => {
                let reason = "the camera closed the connection in the middle of its answer";
                return Err(Failure::Absent(reason.to_owned()).into());
            }
            Received::Nothing => match connection.wait(libc::POLLIN, stop, deadline)? {
                Wake::Ready => {}
                Wake::Stopped => return Err(Failure::Stopped.into()),
                Wake::TimedOut => {
                    return Err(Failure::Absent("no answer; check the camera and the network".to_owned()).into());
                }
            },
        }
    }
}

/// Returns why a response is not HTTP, and the remedy.
fn no_http(bytes: &[u8]) -> Failure {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let remedy = match line.trim_ascii_start().starts_with(b"RTSP/") {
        true => "write rtsp:// in `url` and set `type = \"rtsp\"`",
        false => "correct the port in `url`",
    };
    let line = own_words(&String::from_utf8_lossy(line));
    Failure::Refused(format!("the answer is not HTTP ({line}): {remedy}"))
}

fn endless() -> Failure {
    Failure::Refused("the head of the answer does not end: this is no camera, correct `url`".to_owned())
}

/// Removes blank lines before a status line, which some cameras send; returns their length in bytes.
fn skip_blank_lines(bytes: &mut Vec<u8>) -> usize {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    bytes.drain(..blank);
    blank
}

/// Returns where a head ends, at most [`MOST_HEAD_BYTES`] from its start.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let within = bytes.get(..MOST_HEAD_BYTES).unwrap_or(bytes);
    memchr::memchr_iter(b'\n', within).find_map(|at| match within.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Parses the status line: whether that version keeps connections by default, and the status. `None` if the line is not HTTP. Some
/// cameras write `ICY`, lower case or another version, and still speak HTTP/1.
fn status_line(head: &[u8]) -> Option<(bool, u16)> {
    let line = head.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let protocol = words.next()?.to_ascii_uppercase();
    let is_kept = match protocol.strip_prefix(b"HTTP/") {
        Some(version) => version.first().filter(|first| first.is_ascii_digit()).map(|_| version != b"1.0")?,
        None if protocol == b"ICY" => false,
        None => return None,
    };
    let status = str::from_utf8(words.next()?).ok()?.parse().ok().filter(|status| (100..1000).contains(status))?;
    Some((is_kept, status))
}

/// Parses a length, which some cameras and proxies write twice: "7, 7".
fn content_length(value: &str) -> Option<u64> {
    let mut lengths = value.split(',').map(|length| length.trim().parse().ok());
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// Parses a head; `None` if it is not HTTP.
fn parse(head: &[u8], began: Timestamp) -> Option<Answer> {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let (is_kept_by_default, status) = status_line(lines.next()?)?;
    let header = |line: &[u8]| {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = line.split_at_checked(colon)?;
        let name = String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase();
        Some((name, value.get(1..)?.trim_ascii().to_vec()))
    };
    let headers: Vec<_> = lines.filter_map(header).collect();
    let mut answer = Answer {
        status,
        began,
        headers,
        body: Body::UntilClose,
        coding: None,
        stated_length: None,
        is_kept: false,
        first: Vec::new(),
    };
    let text = |name| answer.header(name).map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
    let connection = text("connection").unwrap_or_default();
    let is_kept = if is_kept_by_default { !connection.contains("close") } else { connection.contains("keep-alive") };
    let is_multipart = text("content-type").is_some_and(|kind| kind.starts_with("multipart/"));
    let length = text("content-length").and_then(|length| content_length(&length));
    let body = match (status, text("transfer-encoding"), length) {
        (100..200 | 204 | 304, ..) => Body::Length(0),
        (_, Some(coding), _) if coding.contains("chunked") => Body::chunked(),
        // Some cameras state the length of one image, or 0, for a stream.
        (_, _, Some(length)) if !is_multipart => Body::Length(length),
        _ => Body::UntilClose,
    };
    let coding = text("content-encoding").and_then(|coding| ContentCoding::of(&coding));
    answer.is_kept = is_kept && !matches!(body, Body::UntilClose);
    // The length counts compressed bytes.
    let is_stated = body == Body::UntilClose && coding.is_none();
    answer.stated_length = length.filter(|length| *length > 0 && is_stated);
    (answer.body, answer.coding) = (body, coding);
    Some(answer)
}

/// Returns why a camera does not deliver the requested content, and the remedy; `None` if it does.
fn refusal(status: u16, has_login: bool, may_know: bool) -> Option<Failure> {
    let refused = |reason: &str| Some(Failure::Refused(reason.to_owned()));
    let absent = |reason: &str| Some(Failure::Absent(reason.to_owned()));
    match status {
        200 | 203 | 206 | 304 => None,
        401 if !may_know => refused(
            "the camera redirects to another host or away from TLS, where visiond does not send the login (401): write the new URL \
             in `url`",
        ),
        401 if has_login => refused("the camera refuses the user or password (401): correct `login`"),
        401 => refused("the camera requires a user and password (401): set `login`"),
        403 => refused("the camera forbids this to this user (403): check the user's rights in the camera"),
        404 => absent("the camera has no such path (404): correct the path in `url`"),
        503 => absent("the camera serves too many clients, or starts (503): close others if it stays"),
        500.. => absent(&format!("the camera reports an error of its own ({status}): restart it if it stays")),
        status => refused(&format!("the camera answers with HTTP status {status}: correct the path in `url`")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
