//! The streams that GStreamer does not decode. A trial may take seconds, so it is not repeated at each reconnection, but only for
//! another URL, codec or size, or after a restart.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::super::ffprobe::VideoInfo;
use super::stream_decoder::Stream;

/// After so many failures in a row it is not tried again.
const MAX_FAILURES: u32 = 2;

/// The failures of one camera's stream.
#[derive(Debug, Default)]
struct Trial {
    kind: String,
    failures: u32,
}

/// By camera and URL. Bounded, because both come from the configuration.
static TRIALS: Mutex<BTreeMap<(String, String), Trial>> = Mutex::new(BTreeMap::new());

/// Returns what decides, besides the camera, whether the engine decodes a stream.
pub fn kind(info: &VideoInfo) -> String {
    format!("{} {}, {}x{}", info.codec, info.pixel_format, info.width, info.height)
}

/// Whether another decoder is used for this camera's stream.
pub fn is_given_up(stream: &Stream, info: &VideoInfo) -> bool {
    let trials = TRIALS.lock();
    let trial = trials.get(&(stream.camera.clone(), stream.origin.clone()));
    trial.is_some_and(|trial| trial.kind == kind(info) && trial.failures >= MAX_FAILURES)
}

/// Notes that GStreamer does not decode it.
pub fn give_up(stream: &Stream, info: &VideoInfo) {
    note(stream, info, MAX_FAILURES);
}

/// Notes that GStreamer failed after its first frames.
pub fn note_failure(stream: &Stream, info: &VideoInfo) {
    note(stream, info, 1);
}

/// Notes that GStreamer decodes it.
pub fn note_success(stream: &Stream) {
    TRIALS.lock().remove(&(stream.camera.clone(), stream.origin.clone()));
}

fn note(stream: &Stream, info: &VideoInfo, failures: u32) {
    let mut trials = TRIALS.lock();
    let trial = trials.entry((stream.camera.clone(), stream.origin.clone())).or_default();
    if trial.kind != kind(info) {
        *trial = Trial { kind: kind(info), failures: 0 };
    }
    trial.failures += failures;
}
