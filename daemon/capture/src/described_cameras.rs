//! What the log has said of each camera, so that one that connects again and again fills it with nothing that is known.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Returns whether `description` differs from the last one of this URL of this camera, which it replaces.
pub fn is_news(camera: &str, url: &str, description: &str) -> bool {
    // Cameras and their URLs are those of the configuration, and few.
    static DESCRIBED: Mutex<BTreeMap<(String, String), String>> = Mutex::new(BTreeMap::new());
    let key = (camera.to_owned(), url.to_owned());
    DESCRIBED.lock().insert(key, description.to_owned()).is_none_or(|last| last != description)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_news_once_until_another_one_comes() {
        assert!(is_news("news", "rtsp://a/", "h264") && !is_news("news", "rtsp://a/", "h264"));
        assert!(is_news("news", "rtsp://a/preview", "h264") && !is_news("news", "rtsp://a/", "h264"));
        assert!(is_news("news", "rtsp://a/", "h265") && is_news("news", "rtsp://a/", "h264"));
    }
}
