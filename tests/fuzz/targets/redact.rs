//! Texts that contain a secret: in a URL, after a key, after an option.
//!
//! The input is the text before and after the secret.

#![no_main]

use libfuzzer_sys::fuzz_target;
use visiond_system::redact::{redact, redact_arguments, redact_in_place, redact_line, redact_urls};

/// The secret, which differs from all added text.
const SECRET: &str = "8f2a0c6d1b7e";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let in_place = redact_in_place(text);
    assert_eq!(in_place.chars().count(), text.chars().count());
    assert_eq!(in_place.lines().count(), text.lines().count());
    let _ = (redact(text), redact_line(text), redact_urls(text), redact_arguments(text.split('\n')));
    if text.contains(&SECRET[..4]) {
        return;
    }
    let (before, after) = text.split_once('\n').unwrap_or((text, ""));
    let url = format!("{before} rtsp://user:{SECRET}@camera/{after}");
    for shown in [redact(&url), redact_line(&url), redact_urls(&url), redact_in_place(&url)] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let key = format!("{before} password={SECRET} {after}");
    for shown in [redact(&key), redact_line(&key), redact_in_place(&key)] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let shown = redact_arguments([before, "--token", SECRET, after]);
    assert!(!shown.iter().any(|argument| argument.contains(SECRET)), "{shown:?}");
});
