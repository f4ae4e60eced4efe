//! Remembers what was logged about each camera, so that one that reconnects again and again does not repeat it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_system::backoff::RateLimit;

/// How long to suppress further lines of the same kind about a camera.
const QUIET: Duration = Duration::from_secs(300);

/// Returns whether `description` differs from the last one for this URL of this camera, and stores it.
pub fn is_news(camera: &str, url: &str, description: &str) -> bool {
    // Bounded: cameras and their URLs come from the configuration.
    static DESCRIBED: Mutex<BTreeMap<(String, String), String>> = Mutex::new(BTreeMap::new());
    let key = (camera.to_owned(), url.to_owned());
    DESCRIBED.lock().insert(key, description.to_owned()).is_none_or(|last| last != description)
}

/// Returns whether to log a line of this `kind` about a camera: the first one, then one per [`QUIET`].
pub fn is_due(camera: &str, kind: &'static str, now: Instant) -> bool {
    // Bounded: cameras come from the configuration.
    static LOGGED: Mutex<BTreeMap<(String, &str), RateLimit>> = Mutex::new(BTreeMap::new());
    let mut logged = LOGGED.lock();
    logged.entry((camera.to_owned(), kind)).or_insert_with(|| RateLimit::new(QUIET)).pass(now).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_line_is_due_once_in_a_while_for_each_camera() {
        let now = Instant::now();
        assert!(is_due("due", "a", now) && !is_due("due", "a", now + QUIET / 2));
        assert!(is_due("due", "b", now) && is_due("other", "a", now) && is_due("due", "a", now + QUIET));
    }

    #[test]
    fn a_description_is_news_once_until_another_one_comes() {
        assert!(is_news("news", "rtsp://a/", "h264") && !is_news("news", "rtsp://a/", "h264"));
        assert!(is_news("news", "rtsp://a/preview", "h264") && !is_news("news", "rtsp://a/", "h264"));
        assert!(is_news("news", "rtsp://a/", "h265") && is_news("news", "rtsp://a/", "h264"));
    }
}
