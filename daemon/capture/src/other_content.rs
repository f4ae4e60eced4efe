//! Explains what an HTTP camera sends instead of images, and the remedy.

use super::http_client::own_words;

/// How many leading bytes identify the content.
pub const HEAD_BYTES: usize = 256;

/// Why a response without a body shows no image.
pub const EMPTY: &str = "the camera's answer is empty: it may be starting; check the path in `url`";

/// Why a stream is no snapshot.
pub const STREAM: &str = "the camera sends a stream and no single image: set `type = \"mjpeg\"`";

/// A kind of content that is not an image.
pub enum OtherContent {
    /// A page of this kind.
    Page(&'static str),
    /// Video that `type = "video"` reads, of this kind.
    Video(String),
    /// Text of this media type, with this wording.
    Text(String, String),
}

impl OtherContent {
    /// Recognises content by its media type and its first bytes; `None` if it is not known.
    pub fn of(kind: &str, head: &[u8]) -> Option<Self> {
        let kind = kind.to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let is_video = kind.starts_with("video/") && !kind.contains("jpeg");
        let video = |what: &str| Some(Self::Video(what.to_owned()));
        match (kind, head) {
            ("text/html" | "application/xhtml+xml", _) => Some(Self::Page("a page (HTML)")),
            ("application/vnd.apple.mpegurl" | "application/x-mpegurl" | "audio/mpegurl" | "audio/x-mpegurl", _)
            | (_, [b'#', b'E', b'X', b'T', b'M', b'3', b'U', ..]) => video("a playlist (HLS)"),
            ("application/dash+xml", _) => video("a playlist (DASH)"),
            (_, [0, 0, 0, 1, ..] | [0, 0, 1, ..]) => video("H.264 or H.265"),
            // AVIF and HEIF begin alike, but are images.
            (_, [_, _, _, _, b'f', b't', b'y', b'p', ..]) if !kind.starts_with("image/") => video("MP4"),
            (_, [b'F', b'L', b'V', 1, ..]) => video("FLV"),
            (_, [0x47, rest @ ..]) if !rest.starts_with(b"IF8") => video("an MPEG transport stream"),
            (_, head) if is_page(head) => Some(Self::Page("a page (HTML or XML)")),
            _ if is_video => video(kind),
            (_, head) => {
                let kind = if kind.is_empty() { "text" } else { kind };
                Some(Self::Text(kind.to_owned(), text(kind, head)?))
            }
        }
    }

    /// Returns the sentence: the content sent instead of the one that is `wanted`, and the remedy.
    pub fn sentence(&self, wanted: &str) -> String {
        match self {
            Self::Page(what) => format!(
                "the camera sends {what} and no {wanted}: correct the path in `url`: it must be that of the camera's images, not of \
                 the page that shows them"
            ),
            Self::Video(what) => format!("the camera sends {what} and no {wanted}: set `type = \"video\"`"),
            Self::Text(kind, text) => {
                format!("the camera sends {kind}: \"{text}\" and no {wanted}: correct the path in `url`")
            }
        }
    }
}

/// Returns the content that the camera sends instead of the one that is `wanted`, with the remedy; `None` if it is unknown.
pub fn other_content(kind: &str, head: &[u8], wanted: &str) -> Option<String> {
    OtherContent::of(kind, head).map(|other| other.sentence(wanted))
}

/// Whether bytes begin like HTML or XML.
fn is_page(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    matches!(head, [b'<', b'!' | b'?' | b'h' | b'H', ..])
}

/// Returns the camera's text, if the bytes are text; a part's boundary is not.
fn text(kind: &str, head: &[u8]) -> Option<String> {
    let head = head.trim_ascii_start();
    let is_binary = head.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    if head.is_empty() || is_binary || head.starts_with(b"--") || kind.starts_with("multipart/") {
        return None;
    }
    // The last character may be cut.
    let valid = head.utf8_chunks().next()?.valid();
    (head.len() - valid.len() < 4).then(|| own_words(valid)).filter(|words| !words.is_empty())
}
