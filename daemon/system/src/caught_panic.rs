//! Calls code that may panic on a peer's data because of a bug.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// `Some` while this thread is in [`catch_panic`]: the first panic's place and message.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `work` and returns its result.
///
/// # Errors
/// A panic, as its place and message, which is empty before [`logging::start`](crate::logging::start). It is logged only at
/// `debug`, because the caller reports it.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = CAUGHT.replace(Some(String::new()));
    // State that a panic may have left half done is dropped with `work`.
    let result = catch_unwind(AssertUnwindSafe(work));
    // Calls may be nested.
    let noted = CAUGHT.replace(before).unwrap_or_default();
    result.map_err(|_| noted)
}

/// Keeps a panic's place and message for [`catch_panic`], for the panic hook; `false` if this thread is not in it.
pub(crate) fn note(place: &str, message: &str) -> bool {
    CAUGHT.with_borrow_mut(|caught| {
        if let Some(noted) = caught
            && noted.is_empty()
        {
            // A failed assertion puts its values on further lines.
            let message = message.lines().next().unwrap_or_default();
            *noted = format!("{}: {message}", without_registry(place));
        }
        caught.is_some()
    })
}

/// Returns the path of a file in Cargo's registry from its crate on; the rest describes the build machine.
fn without_registry(place: &str) -> &str {
    place.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/')).map_or(place, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_panic_is_returned_with_its_place_and_the_thread_goes_on() {
        assert!(!note("here", "not caught"));
        let place = "/home/me/.cargo/registry/src/index.crates.io-1949/h264-reader-0.8.0/src/nal/sps.rs:181:66";
        let caught = catch_panic(|| {
            assert!(note(place, "no value\nat all") && note("elsewhere", "while it unwinds"));
            panic!("for the test");
        });
        assert_eq!(caught.unwrap_err(), "h264-reader-0.8.0/src/nal/sps.rs:181:66: no value");
        assert_eq!(catch_panic(|| 5), Ok(5));
        assert!(!note("here", "not caught"));
    }
}
