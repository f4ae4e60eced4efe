//! Compresses answers with gzip for clients that accept it, such as Prometheus and browsers.

use std::io::Write;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;
use tokio::task::spawn_blocking;

/// The smallest answer to compress, in bytes: a smaller one fits into one network packet.
const LEAST: u64 = 1400;
/// From this size on, a separate thread compresses, because one thread serves all clients.
const LARGE: usize = 32 << 10;

/// Compresses text whose whole body is known. Streams and images pass as they are.
pub async fn compress(request: Request, next: Next) -> Response {
    let wants = accepts_gzip(request.headers());
    let mut answer = next.run(request).await;
    // A HEAD answer still has the header.
    if !is_text(answer.headers()) || answer.body().size_hint().exact().is_none_or(|size| size < LEAST) {
        return answer;
    }
    // For caches, because another client gets other bytes.
    answer.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    if !wants {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.remove(CONTENT_LENGTH);
    // A body of known size is in memory, and reading it does not fail.
    let plain = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let packed = match plain.len() {
        LARGE.. => {
            let bytes = plain.clone();
            spawn_blocking(move || gzip(&bytes)).await.ok().flatten()
        }
        _ => gzip(&plain),
    };
    let body = packed.unwrap_or_else(|| {
        parts.headers.remove(CONTENT_ENCODING);
        plain
    });
    Response::from_parts(parts, Body::from(body))
}

fn gzip(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether the answer is text that nothing has encoded yet.
fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_text = matches!(kind, "application/json" | "application/problem+json" | "application/openmetrics-text");
    let is_stream = kind == "text/event-stream";
    (is_text || kind.starts_with("text/")) && !is_stream && !headers.contains_key(CONTENT_ENCODING)
}

/// Whether `Accept-Encoding` allows gzip (RFC 9110, 12.5.3): its own entry decides before `*`.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    let mut any = false;
    for entry in values.flat_map(|value| value.split(',')) {
        let (coding, parameters) = entry.split_once(';').unwrap_or((entry, ""));
        let quality = parameters.split(';').find_map(|one| one.trim().strip_prefix("q="));
        let allowed = quality.is_none_or(|quality| quality.trim().parse::<f32>().is_ok_and(|quality| quality > 0.0));
        match coding.trim() {
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => return allowed,
            "*" => any = allowed,
            _ => {}
        }
    }
    any
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn gzip_is_used_only_where_the_client_allows_it() {
        for (value, wanted) in [
            ("gzip", true),
            ("GZIP;q=0.5, br", true),
            ("br, gzip;q=0", false),
            ("gzip;q=0, *", false),
            ("*", true),
            ("*;q=0", false),
            ("identity", false),
            ("gzip;q=nonsense", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap())]);
            assert_eq!(accepts_gzip(&headers), wanted, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn streams_pictures_and_encoded_answers_pass_as_they_are() {
        for (kind, wanted) in [
            ("text/html; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/event-stream", false),
            ("image/jpeg", false),
            ("multipart/x-mixed-replace; boundary=x", false),
        ] {
            let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_text(&headers), wanted, "{kind}");
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
            assert!(!is_text(&headers), "{kind}");
        }
    }
}
