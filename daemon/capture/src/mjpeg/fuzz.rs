//! Answers of hostile cameras, for `tests/fuzz`.

use visiond_frames::clock;
use visiond_frames::clock::simulated::SimulatedClock;

use super::JpegScanner;
use super::jpeg_scanner::MOST_JPEG_BYTES;
use crate::http_client::fuzz::body;

/// Reads a response with images, which arrives in pieces whose size is the first byte.
pub fn mjpeg(input: &[u8]) {
    let Some((&step, answer)) = input.split_first() else { return };
    let Some(stream) = body(answer, usize::from(step) + 1) else { return };
    assert!(stream.len() <= answer.len(), "{} bytes of {}", stream.len(), answer.len());
    let (last, all) = scan(&stream, usize::from(step) + 1);
    let (expected, most) = scan(&stream, 1);
    // Any split of the bytes yields the same newest image, and never an invented one.
    assert_eq!(last, expected);
    assert_eq!(all, most);
}

/// Returns the last image of a stream, and how many there were.
fn scan(stream: &[u8], step: usize) -> (Option<Vec<u8>>, u64) {
    let now = clock::now(&SimulatedClock::default());
    let (mut scanner, mut last) = (JpegScanner::default(), None);
    for piece in stream.chunks(step) {
        scanner.push(piece, now);
        if let Some(picture) = scanner.take() {
            assert!(picture.data.starts_with(b"\xff\xd8\xff"), "{:?}", picture.data.get(..9));
            assert!(picture.data.len() <= MOST_JPEG_BYTES, "{} bytes", picture.data.len());
            last = Some(picture.data);
        }
    }
    (last, scanner.found())
}
