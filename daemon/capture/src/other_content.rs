//! What an HTTP camera sends instead of pictures, and what to do about it.

use super::http_client::own_words;

/// How many first bytes show what it is.
pub const HEAD_BYTES: usize = 256;

/// Why there is nothing to see in an answer without a body.
pub const EMPTY: &str = "the camera's answer is empty: it may be starting; check the path in `url`";

/// Why a stream is no snapshot.
pub const STREAM: &str = "the camera sends a stream and no single picture: set `type = \"mjpeg\"`";

/// Returns what a camera sends instead of what is `wanted`, by its media type and its first bytes, and what to do; `None` if that is not
/// known.
pub fn other_content(kind: &str, head: &[u8], wanted: &str) -> Option<String> {
    let kind = kind.to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_video = kind.starts_with("video/") && !kind.contains("jpeg");
    let (what, is_page) = match (kind, head) {
        ("text/html" | "application/xhtml+xml", _) => ("a page (HTML)", true),
        ("application/vnd.apple.mpegurl" | "application/x-mpegurl" | "audio/mpegurl" | "audio/x-mpegurl", _)
        | (_, [b'#', b'E', b'X', b'T', b'M', b'3', b'U', ..]) => ("a playlist (HLS)", false),
        ("application/dash+xml", _) => ("a playlist (DASH)", false),
        (_, [0, 0, 0, 1, ..] | [0, 0, 1, ..]) => ("H.264 or H.265", false),
        // AVIF and HEIF begin alike, but are pictures.
        (_, [_, _, _, _, b'f', b't', b'y', b'p', ..]) if !kind.starts_with("image/") => ("MP4", false),
        (_, [b'F', b'L', b'V', 1, ..]) => ("FLV", false),
        (_, [0x47, rest @ ..]) if !rest.starts_with(b"IF8") => ("an MPEG transport stream", false),
        (_, head) if is_page(head) => ("a page (HTML or XML)", true),
        _ if is_video => (kind, false),
        (_, head) => {
            let text = text(kind, head)?;
            let kind = if kind.is_empty() { "text" } else { kind };
            return Some(format!("the camera sends {kind}: \"{text}\" and no {wanted}: correct the path in `url`"));
        }
    };
    let remedy = if is_page {
        "correct the path in `url`: it is that of the camera's pictures, not of the page that shows them"
    } else {
        "set `type = \"video\"`"
    };
    Some(format!("the camera sends {what} and no {wanted}: {remedy}"))
}

/// Whether bytes begin as HTML or XML.
fn is_page(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    matches!(head, [b'<', b'!' | b'?' | b'h' | b'H', ..])
}

/// Returns the camera's words, if the bytes are such; the border of a part is none.
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
