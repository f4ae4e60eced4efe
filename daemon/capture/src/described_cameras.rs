//! What the log has said of each camera, so that one that connects again and again fills it with nothing that is known.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_system::backoff::RateLimit;

/// How often the same kind of line is logged of a camera.
const QUIET: Duration = Duration::from_secs(300);

/// Returns whether `description` differs from the last one of this URL of this camera, which it replaces.
pub fn is_news(camera: &str, url: &str, description: &str) -> bool {
    // Cameras and their URLs are those of the configuration, and few.
    static DESCRIBED: Mutex<BTreeMap<(String, String), String>> = Mutex::new(BTreeMap::new());
    let key = (camera.to_owned(), url.to_owned());
    DESCRIBED.lock().insert(key, description.to_owned()).is_none_or(|last| last != description)
}

/// Returns whether a line of this `kind` is to be logged of a camera: the first, and one in [`QUIET`].
pub fn is_due(camera: &str, kind: &'static str, now: Instant) -> bool {
    // Cameras are those of the configuration, and few.
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
