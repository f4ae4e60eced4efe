//! What comes in an RTSP connection, one behind the other: answers, requests of the server, and packets ("interleaved frames", RFC 2326
//! section 10.12).

use std::io::Write;
use std::ops::Range;

use memchr::{memchr, memmem};

/// The longest head of an answer or a request: the lines up to the empty one.
const MOST_HEAD_BYTES: usize = 64 << 10;

/// The longest body.
const MOST_BODY_BYTES: usize = 512 << 10;

/// The most bytes in turn that are neither a packet nor an answer.
const MOST_JUNK_BYTES: usize = 64 << 10;

/// The bytes that one read may bring; the buffer grows beyond that for a longer answer.
const READ_BYTES: usize = 64 << 10;

/// The headers of a packet: `$`, its channel, its length in two bytes.
const FRAME_HEAD_BYTES: usize = 4;

/// What a server sends that is no RTSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// An answer is longer than any camera's.
    #[error("an answer of the server does not end: this is no camera, check its URL")]
    Endless,
    /// The bytes are no answer.
    #[error("the server does not speak RTSP: check the port in the URL")]
    OtherProtocol,
}

/// One item of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A packet: the channel, and where it lies in [`Reader::bytes`].
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

    /// Returns the first header of that name as text; bytes that are no UTF-8 are replaced.
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
/// A packet is read where it lies; nothing is copied but the start of one whose end is still to come.
#[derive(Debug)]
pub struct Reader {
    buffer: Vec<u8>,
    /// What was not read yet.
    filled: Range<usize>,
    /// Bytes in turn that were skipped.
    junk: usize,
    /// Whether an item has come.
    has_begun: bool,
    /// How often bytes were skipped.
    skips: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self { buffer: vec![0; READ_BYTES], filled: 0..0, junk: 0, has_begun: false, skips: 0 }
    }
}

impl Reader {
    /// Returns where the next bytes go. Never empty.
    pub fn space(&mut self) -> &mut [u8] {
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
        // Room for a packet that came in part.
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

    /// Takes that many bytes which were written into [`Reader::space`].
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

    /// Returns the next item; `None` if more bytes have to come. Call it until it returns `None` before more are received, because
    /// that may move the bytes of packets.
    ///
    /// # Errors
    /// What came is no RTSP, or does not end.
    pub fn next(&mut self) -> Result<Option<Item>, MessageError> {
        loop {
            let rest = &self.buffer[self.filled.clone()];
            let Some(&first) = rest.first() else { return Ok(None) };
            if first == b'$' {
                let Some(&[_, channel, high, low]) = rest.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
                let length = usize::from(u16::from_be_bytes([high, low]));
                // After junk, a dollar alone is no proof.
                if self.junk == 0 || rest.get(FRAME_HEAD_BYTES).is_none_or(|byte| byte >> 6 == 2) && channel < 16 {
                    if rest.len() < FRAME_HEAD_BYTES + length {
                        return Ok(None);
                    }
                    let start = self.filled.start + FRAME_HEAD_BYTES;
                    self.filled.start = start + length;
                    self.found();
                    return Ok(Some(Item::Packet(channel, start..start + length)));
                }
            } else {
                match start_of(rest) {
                    Start::Head(head) => return self.message(head),
                    Start::Unknown => return Ok(None),
                    Start::Endless => return Err(MessageError::Endless),
                    Start::OtherProtocol => return Err(MessageError::OtherProtocol),
                    Start::Junk => {}
                }
            }
            self.skip()?;
        }
    }

    fn found(&mut self) {
        self.junk = 0;
        self.has_begun = true;
    }

    /// Skips to where an item may begin.
    fn skip(&mut self) -> Result<(), MessageError> {
        let rest = &self.buffer[self.filled.clone()];
        // Cameras put line ends and zeros between packets; only others send text.
        let is_start = |&byte: &u8| byte == b'$' || byte.is_ascii_uppercase();
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

    /// Reads the answer or request that begins here, with a head of so many bytes, if all of it is there.
    fn message(&mut self, head_bytes: usize) -> Result<Option<Item>, MessageError> {
        let rest = &self.buffer[self.filled.clone()];
        let (first, headers) = head(&rest[..head_bytes]);
        let length = match headers.number("content-length") {
            Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
            // A camera that leaves out the length sends its description in one piece.
            None if headers.text("content-type").is_some_and(|kind| kind.to_ascii_lowercase().contains("sdp")) => {
                let length = description_length(&rest[head_bytes..]);
                if length == 0 && rest.len() <= head_bytes + MOST_HEAD_BYTES {
                    return Ok(None);
                }
                length
            }
            None => 0,
        };
        if length > MOST_BODY_BYTES {
            return Err(MessageError::Endless);
        }
        let Some(body) = rest.get(head_bytes..head_bytes + length) else { return Ok(None) };
        let item = match answer_line(&first) {
            Some((status, reason)) => Item::Answer(Answer { status, reason, headers, body: body.to_vec() }),
            None => {
                let method = first.split(' ').next().unwrap_or_default().to_owned();
                Item::Request(ServerRequest { method, headers })
            }
        };
        self.filled.start += head_bytes + length;
        self.found();
        Ok(Some(item))
    }
}

/// What bytes that begin with a letter may be.
enum Start {
    /// A message whose head has so many bytes, with the empty line.
    Head(usize),
    /// More bytes have to come.
    Unknown,
    /// The head of a message that does not end.
    Endless,
    /// An answer of HTTP.
    OtherProtocol,
    Junk,
}

/// Looks whether `bytes` begin with the head of a message.
fn start_of(bytes: &[u8]) -> Start {
    let line_end = memchr(b'\n', &bytes[..bytes.len().min(MOST_HEAD_BYTES)]);
    let line = &bytes[..line_end.unwrap_or(bytes.len())];
    if line.starts_with(b"HTTP/1.") {
        return Start::OtherProtocol;
    }
    if !may_begin_message(line, line_end.is_some()) {
        return Start::Junk;
    }
    match head_length(bytes) {
        Some(length) => Start::Head(length),
        None if bytes.len() > MOST_HEAD_BYTES => Start::Endless,
        None => Start::Unknown,
    }
}

/// Whether a first line, or its start, is that of an answer or a request.
fn may_begin_message(line: &[u8], is_whole: bool) -> bool {
    const VERSION: &[u8] = b"RTSP/";
    let compared = line.len().min(VERSION.len());
    if line[..compared].eq_ignore_ascii_case(&VERSION[..compared]) {
        return !is_whole || answer_line(&String::from_utf8_lossy(line)).is_some();
    }
    let method = line.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
    if method == 0 || method > 20 || line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\r') {
        return false;
    }
    // "OPTIONS * RTSP/1.0"
    match is_whole {
        true => line.get(method) == Some(&b' ') && memmem::find(line, b"RTSP/").is_some(),
        false => line.get(method).is_none_or(|&byte| byte == b' '),
    }
}

/// Returns the length of a head with the empty line that ends it. Lines end with LF, with or without CR.
fn head_length(bytes: &[u8]) -> Option<usize> {
    let searched = &bytes[..bytes.len().min(MOST_HEAD_BYTES)];
    let mut at = 0;
    while let Some(end) = memchr(b'\n', &searched[at..]) {
        let line = &searched[at..at + end];
        at += end + 1;
        if line.is_empty() || line == b"\r" {
            return Some(at);
        }
    }
    None
}

/// Returns the length of the lines of a description (`v=0`) that `bytes` begin with; 0 before one of its media is there.
fn description_length(bytes: &[u8]) -> usize {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let lines = lines.take_while(|line| line.ends_with(b"\n") && line.get(1) == Some(&b'='));
    let (length, has_media) =
        lines.fold((0, false), |(length, has_media), line| (length + line.len(), has_media || line[0] == b'm'));
    if has_media { length } else { 0 }
}

/// Returns the first line and the headers.
fn head(bytes: &[u8]) -> (String, Headers) {
    let mut lines = bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        // A line that begins with a blank goes on with the value before it.
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
    let (version, rest) = line.trim_end().split_once(' ')?;
    if !version.get(..5)?.eq_ignore_ascii_case("RTSP/") {
        return None;
    }
    let rest = rest.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let status = rest[..digits].parse().ok().filter(|status| (100..1000).contains(status))?;
    Some((status, rest[digits..].trim().to_owned()))
}

/// Writes a request, or an answer if `first` is an answer's first line.
pub fn write(out: &mut Vec<u8>, first: &str, sequence: &str, headers: &[(&str, &str)]) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{first}\r\nCSeq: {sequence}\r\n");
    for (name, value) in headers {
        let _ = write!(out, "{name}: {value}\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
