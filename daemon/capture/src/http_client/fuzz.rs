//! Answers of hostile cameras, for `tests/fuzz`.

use visiond_frames::clock;
use visiond_frames::clock::simulated::SimulatedClock;

use super::{MOST_HEAD_BYTES, head_end, parse};

/// Reads an answer, whose body comes in pieces of `step` bytes; returns the content. `None` if it is not HTTP.
pub fn body(answer: &[u8], step: usize) -> Option<Vec<u8>> {
    let end = head_end(answer)?;
    assert!(end <= MOST_HEAD_BYTES && end <= answer.len(), "a head of {end} bytes");
    let (head, rest) = answer.split_at_checked(end)?;
    let mut parsed = parse(head, clock::now(&SimulatedClock::default()))?;
    let mut content = Vec::new();
    for piece in rest.chunks(step) {
        if let Err(reason) = parsed.body.decode(piece, |bytes| content.extend_from_slice(bytes)) {
            assert!(!reason.is_empty());
            break;
        }
    }
    Some(content)
}
