//! Splits an RTSP connection into its items: answers, requests of the server, and packets ("interleaved frames", RFC 2326 section
//! 10.12).

use std::io::Write;
use std::ops::Range;

use memchr::{memchr, memmem};

/// The longest head of an answer or a request: the lines up to the empty one.
const MOST_HEAD_BYTES: usize = 64 << 10;

/// The longest body.
const MOST_BODY_BYTES: usize = 512 << 10;

/// The most bytes in a row that are neither a packet nor an answer.
const MOST_JUNK_BYTES: usize = 64 << 10;

/// The longest first line of an answer or a request.
const MOST_LINE_BYTES: usize = 4 << 10;

/// How many bytes one read may return; the buffer grows beyond that for a longer answer.
const READ_BYTES: usize = 64 << 10;

/// The headers of a packet: `$`, its channel, its length in two bytes.
const FRAME_HEAD_BYTES: usize = 4;

/// Why received bytes are not RTSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// An answer is longer than any camera's.
    #[error("an answer of the server does not end: this is no camera, check its URL")]
    Endless,
    /// The bytes are not an answer.
    #[error("the server does not speak RTSP: check the port in the URL")]
    OtherProtocol,
}

/// One item of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A packet: the channel, and its range in [`Reader::bytes`].
    Packet(u8, Range<usize>),
    Answer(Answer),
    /// A request of the server.
    Request(ServerRequest),
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub reason: String,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// A request of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerRequest {
    pub method: String,
    pub headers: Headers,
}

/// The headers of an answer or a request, with their names in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// Returns the value of the first header of that name, in lower case, without blanks around it.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Returns the values of all headers of that name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(other, _)| other == name).map(|(_, value)| value.as_slice())
    }

    /// Returns the first header of that name as text; invalid UTF-8 is replaced.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    }

    /// Returns the number of the request that this answers.
    pub fn sequence(&self) -> Option<u64> {
        self.number("cseq")
    }
}

/// Reads a connection. Bytes go into [`Reader::space`], items come from [`Reader::next`].
///
/// Packets are read in place; only the start of an incomplete one is copied.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    /// The bytes that were not read yet.
    filled: Range<usize>,
    /// Bytes skipped in a row.
    junk: usize,
    /// Whether an item has arrived.
    has_begun: bool,
    /// How often bytes were skipped.
    skips: u64,
    /// How many bytes of a head were searched for its end: up to the start of a line.
    searched: usize,
    /// How many bytes must have arrived before the message that begins here is examined again.
    wanted: usize,
    /// Whether the next successful answer has a description as its body.
    expects_description: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            buffer: vec![0; READ_BYTES],
            filled: 0..0,
            junk: 0,
            has_begun: false,
            skips: 0,
            searched: 0,
            wanted: 0,
            expects_description: false,
        }
    }
}

impl Reader {
    /// Returns the space for the next bytes. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        // Room for a packet that has arrived in part.
        if self.buffer.len() - self.filled.end < READ_BYTES / 2 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
            if self.buffer.len() - self.filled.end < READ_BYTES / 2 {
                let larger = self.buffer.len() * 2;
                self.buffer.resize(larger, 0);
            }
        }
        &mut self.buffer[self.filled.end..]
    }

    /// Takes this many bytes that were written into [`Reader::space`].
    pub fn received(&mut self, bytes: usize) {
        self.filled.end = (self.filled.end + bytes).min(self.buffer.len());
    }

    /// Returns the bytes of a packet.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Returns how often bytes were skipped that belong to no item.
    pub const fn skips(&self) -> u64 {
        self.skips
    }

    /// Whether an item has arrived.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Sets whether the next successful answer has a description as its body, regardless of its headers.
    pub const fn expect_description(&mut self, expects: bool) {
        self.expects_description = expects;
    }

    /// Whether a message has begun whose body is shorter than its stated length, or has no length: [`Reader::after_pause`]
    /// returns it.
    pub fn awaits_pause(&self) -> bool {
        self.wanted > 0 && self.wanted > self.filled.len()
    }

    /// Returns the message that has arrived, if no more of it arrives: its length may be missing, or too large.
    ///
    /// # Errors
    /// The bytes are not RTSP.
    pub fn after_pause(&mut self) -> Result<Option<Item>, MessageError> {
        self.unfinished(Rest::Paused)
    }

    /// Returns the message that has arrived before the connection ended, even if its body is incomplete.
    ///
    /// # Errors
    /// The bytes are not RTSP.
    pub fn after_end(&mut self) -> Result<Option<Item>, MessageError> {
        self.unfinished(Rest::Lost)
    }

    fn unfinished(&mut self, rest: Rest) -> Result<Option<Item>, MessageError> {
        if !self.awaits_pause() {
            return Ok(None);
        }
        let Start::Head(head) = self.start() else { return Ok(None) };
        self.message(head, rest)
    }

    /// Returns the next item; `None` if more bytes are needed. Call it until it returns `None` before receiving more, because
    /// receiving may move the bytes of packets.
    ///
    /// # Errors
    /// The received bytes are not RTSP, or do not end.
    pub fn next(&mut self) -> Result<Option<Item>, MessageError> {
        loop {
            let rest = &self.buffer[self.filled.clone()];
            if rest.len() < self.wanted {
                return if rest.len() > MOST_HEAD_BYTES + MOST_BODY_BYTES {
                    Err(MessageError::Endless)
                } else {
                    Ok(None)
                };
            }
            let Some(&first) = rest.first() else { return Ok(None) };
            if first == b'$' {
                let Some(&[_, channel, high, low]) = rest.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
                let length = usize::from(u16::from_be_bytes([high, low]));
                // A dollar sign alone proves nothing: its channel must be a usual one or a packet must follow it; after junk,
                // both. RTCP has at least eight bytes.
                let is_version = |byte: &u8| byte >> 6 == 2;
                let is_packet = || length >= 8 && rest.get(FRAME_HEAD_BYTES).is_none_or(is_version);
                if (channel < 16 || is_packet()) && (self.junk == 0 || channel < 16 && is_packet()) {
                    if rest.len() < FRAME_HEAD_BYTES + length {
                        return Ok(None);
                    }
                    let start = self.filled.start + FRAME_HEAD_BYTES;
                    self.found(FRAME_HEAD_BYTES + length);
                    return Ok(Some(Item::Packet(channel, start..start + length)));
                }
            } else {
                match self.start() {
                    Start::Head(head) => return self.message(head, Rest::Coming),
                    Start::Unknown => return Ok(None),
                    Start::Endless => return Err(MessageError::Endless),
                    Start::OtherProtocol => return Err(MessageError::OtherProtocol),
                    Start::Junk => {}
                }
            }
            self.skip()?;
        }
    }

    /// Continues after an item of this many bytes.
    const fn found(&mut self, bytes: usize) {
        self.filled.start += bytes;
        (self.junk, self.has_begun) = (0, true);
        (self.searched, self.wanted) = (0, 0);
    }

    /// Skips to the next possible start of an item.
    fn skip(&mut self) -> Result<(), MessageError> {
        let rest = &self.buffer[self.filled.clone()];
        // Cameras put line ends and zeros between packets; only others send text.
        let is_start = |&byte: &u8| byte == b'$' || byte.is_ascii_uppercase() || byte == b'r';
        let skipped = rest.iter().skip(1).position(is_start).map_or(rest.len(), |at| at + 1);
        self.skips += u64::from(self.junk == 0);
        self.junk += skipped;
        self.filled.start += skipped;
        match self.junk > MOST_JUNK_BYTES {
            true if self.has_begun => Err(MessageError::Endless),
            true => Err(MessageError::OtherProtocol),
            false => Ok(()),
        }
    }

    /// Checks whether a message begins here. Bytes are searched only once, even if they arrive one by one.
    fn start(&mut self) -> Start {
        let rest = &self.buffer[self.filled.clone()];
        let searched = &rest[..rest.len().min(MOST_HEAD_BYTES)];
        if self.searched == 0 {
            let line_end = memchr(b'\n', &rest[..rest.len().min(MOST_LINE_BYTES)]);
            let line = &rest[..line_end.unwrap_or(rest.len().min(MOST_LINE_BYTES))];
            if !self.has_begun && line.starts_with(b"HTTP/1.") {
                return Start::OtherProtocol;
            }
            match (may_begin_message(line, line_end.is_some()), line_end) {
                (true, Some(end)) => self.searched = end + 1,
                (true, None) if rest.len() < MOST_LINE_BYTES => return Start::Unknown,
                _ => return Start::Junk,
            }
        }
        // Lines end with LF, with any CR before it.
        while let Some(end) = memchr(b'\n', searched.get(self.searched..).unwrap_or_default()) {
            let line = &searched[self.searched..self.searched + end];
            // A packet before the empty line ends the head.
            if line.starts_with(b"$") && line.get(1).is_none_or(|&channel| channel < 16) {
                break;
            }
            let behind = self.searched + end + 1;
            if line.iter().all(|&byte| byte == b'\r') {
                return Start::Head(behind);
            }
            self.searched = behind;
        }
        match searched.get(self.searched..) {
            Some([b'$', 0..16, ..]) => Start::Head(self.searched),
            _ if rest.len() > MOST_HEAD_BYTES => Start::Endless,
            _ => Start::Unknown,
        }
    }

    /// Reads the answer or request that begins here, with a head of this many bytes, if it is complete.
    fn message(&mut self, head_bytes: usize, rest_of_it: Rest) -> Result<Option<Item>, MessageError> {
        let rest = &self.buffer[self.filled.clone()];
        let (first, headers) = head(&rest[..head_bytes]);
        let answer = answer_line(&first);
        let came = &rest[head_bytes..];
        let said = headers.number("content-length").map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if said.is_some_and(|length| length > MOST_BODY_BYTES) {
            return Err(MessageError::Endless);
        }
        let is_description = self.expects_description && matches!(answer, Some((200..300, _)));
        // A 401, or an answer to a keep-alive request, may announce a body that never arrives.
        let has_paused = rest_of_it != Rest::Coming;
        let is_lost = rest_of_it == Rest::Lost || has_paused && came.is_empty();
        let has_no_body = !is_description && (matches!(came, [b'$', 0..16, ..]) || is_lost);
        let length = match said {
            Some(_) if has_no_body => 0,
            // The length may be less than the description's.
            Some(length) if length <= came.len() && is_description => length + length_of_rest(&came[length..]),
            Some(length) if length <= came.len() => length,
            None if !is_description => 0,
            Some(_) if has_paused && is_description && has_media(came) => length_of_rest(came),
            None if has_paused => length_of_rest(came),
            Some(length) => {
                self.wanted = head_bytes + length;
                return Ok(None);
            }
            None => {
                self.wanted = usize::MAX;
                return Ok(None);
            }
        };
        let item = match answer {
            Some((status, reason)) => Item::Answer(Answer { status, reason, headers, body: came[..length].to_vec() }),
            None => {
                let method = first.split(' ').next().unwrap_or_default().to_owned();
                Item::Request(ServerRequest { method, headers })
            }
        };
        self.found(head_bytes + length);
        self.expects_description &= !is_description;
        Ok(Some(item))
    }
}

/// How to handle a message whose rest has not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    Coming,
    /// Nothing has arrived for a while.
    Paused,
    /// The connection has ended.
    Lost,
}

/// The possible meaning of bytes that are not a packet.
enum Start {
    /// A message whose head has this many bytes, including the empty line.
    Head(usize),
    /// More bytes are needed.
    Unknown,
    /// The head of a message that does not end.
    Endless,
    /// An answer of HTTP.
    OtherProtocol,
    Junk,
}

/// Whether a first line, or its start, belongs to an answer or a request.
fn may_begin_message(line: &[u8], is_whole: bool) -> bool {
    const VERSION: &[u8] = b"RTSP/";
    /// The longest method.
    const MOST_METHOD: usize = 20;
    let compared = line.len().min(VERSION.len());
    if line[..compared].eq_ignore_ascii_case(&VERSION[..compared]) {
        return !is_whole || answer_line(&String::from_utf8_lossy(line)).is_some();
    }
    let is_of_method = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'_';
    let method = line.iter().take(MOST_METHOD + 1).take_while(|byte| is_of_method(byte)).count();
    if !line.first().is_some_and(u8::is_ascii_uppercase)
        || method > MOST_METHOD
        || line.get(method).is_some_and(|byte| *byte != b' ')
    {
        return false;
    }
    // "OPTIONS * RTSP/1.0"
    let has_control = || line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\r');
    match is_whole {
        true => line.len() > method && memmem::find(line, VERSION).is_some() && !has_control(),
        false => !has_control(),
    }
}

/// Returns the actual length of a description with a wrong `Content-Length`: everything up to the next packet or message.
fn length_of_rest(bytes: &[u8]) -> usize {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let own = lines.take_while(|line| {
        let text = line.trim_ascii_end();
        !line.starts_with(b"$") && (text.is_empty() || !may_begin_message(text, true))
    });
    own.map(<[u8]>::len).sum()
}

/// Whether an incomplete description has at least one whole media line.
fn has_media(bytes: &[u8]) -> bool {
    bytes.ends_with(b"\n") && bytes.split(|&byte| byte == b'\n').any(|line| line.starts_with(b"m="))
}

/// Returns the first line and the headers.
fn head(bytes: &[u8]) -> (String, Headers) {
    let mut lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        // A line that begins with a blank continues the previous value.
        if line[0] == b' ' || line[0] == b'\t' {
            if let Some((_, value)) = headers.last_mut() {
                value.push(b' ');
                value.extend_from_slice(line.trim_ascii());
            }
        } else if let Some(colon) = memchr(b':', line) {
            let name = String::from_utf8_lossy(line[..colon].trim_ascii()).to_ascii_lowercase();
            headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
        }
    }
    (first, Headers(headers))
}

/// Returns status and reason of an answer's first line: "RTSP/1.0 200 OK". The reason may be missing.
fn answer_line(line: &str) -> Option<(u16, String)> {
    let (version, rest) = line.trim_end().split_once([' ', '\t'])?;
    if !version.get(..5)?.eq_ignore_ascii_case("RTSP/") {
        return None;
    }
    let rest = rest.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let status = rest[..digits].parse().ok().filter(|status| (100..1000).contains(status))?;
    Some((status, rest[digits..].trim().to_owned()))
}

/// Writes a request, or an answer if `first` is an answer's first line. Text from the server that is repeated here can never
/// begin a line.
pub fn write(out: &mut Vec<u8>, first: &str, sequence: &str, headers: &[(&str, &[u8])]) {
    let put = |out: &mut Vec<u8>, text: &[u8]| {
        out.extend(text.iter().map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }));
    };
    put(out, first.as_bytes());
    // Writing to a vector cannot fail.
    let _ = write!(out, "\r\nCSeq: {sequence}\r\n");
    for (name, value) in headers {
        let _ = write!(out, "{name}: ");
        put(out, value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
