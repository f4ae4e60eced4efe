//! Forwards TensorRT's messages to our log, under the target `tensorrt`.
//!
//! Errors and warnings keep their level. Information, which TensorRT writes at each load, becomes `debug`, and verbose messages
//! become `trace`. A repeated message is written three times, then each time its count doubles.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::callback::{InterfaceInfo, VTable, language_is_cpp, no_destructor, plain, text, vtable};
use super::version::Layout;

/// The log target of the messages.
pub(crate) const TARGET: &str = "tensorrt";

/// How many errors are kept per thread for the caller.
const MOST_ERRORS: usize = 8;

/// How many different messages are counted.
const MOST_COUNTED: usize = 512;

/// An `ILogger`. There is one per layout for the whole process: TensorRT keeps the first that it is given.
#[repr(C)]
pub(crate) struct TrtLogger {
    vtable: *const *const c_void,
}

// SAFETY: the table is constant, and its functions use no state of the object.
unsafe impl Sync for TrtLogger {}

impl TrtLogger {
    /// Returns the logger for a layout.
    pub(crate) fn of(layout: Layout) -> &'static Self {
        match layout {
            Layout::V8 | Layout::V10 => &PLAIN,
            Layout::V11 | Layout::Rtx => &VERSIONED,
        }
    }

    /// Returns the pointer to pass to the library.
    pub(crate) fn as_ptr(&'static self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

static PLAIN: TrtLogger = TrtLogger { vtable: PLAIN_TABLE.start() };
static VERSIONED: TrtLogger = TrtLogger { vtable: VERSIONED_TABLE.start() };
static PLAIN_TABLE: VTable<3> = vtable![log_message, no_destructor, no_destructor];
static VERSIONED_TABLE: VTable<5> = vtable![language_is_cpp, interface_info, no_destructor, no_destructor, log_message];

unsafe extern "C" fn interface_info(_this: *const c_void) -> InterfaceInfo {
    InterfaceInfo { kind: c"ILogger".as_ptr(), major: 1, minor: 0 }
}

unsafe extern "C" fn log_message(_this: *mut c_void, severity: i32, message: *const c_char) {
    let level = match severity {
        // kINTERNAL_ERROR, kERROR, kWARNING, kINFO
        ..=1 => log::Level::Error,
        2 => log::Level::Warn,
        3 => log::Level::Debug,
        _ => log::Level::Trace,
    };
    if level != log::Level::Error && !log::log_enabled!(target: TARGET, level) {
        return;
    }
    // SAFETY: TensorRT passes a NUL-terminated text.
    write(level, unsafe { text(message) });
}

fn write(level: log::Level, message: String) {
    if message.is_empty() {
        return;
    }
    if let Some(count) = REPETITIONS.lock().worth_telling(&message) {
        match count {
            ..=3 => log::log!(target: TARGET, level, "{message}"),
            _ => log::log!(target: TARGET, level, "{message} ({count} times)"),
        }
    }
    if level == log::Level::Error {
        ERRORS.with_borrow_mut(|errors| {
            if errors.len() < MOST_ERRORS {
                errors.push(message);
            }
        });
    }
}

thread_local! {
    static ERRORS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Returns and clears the errors that were logged on this thread.
pub(crate) fn take_errors() -> Vec<String> {
    ERRORS.take()
}

/// Returns the first message in plain words, because later ones follow from it.
pub(crate) fn first_message(messages: &[String]) -> String {
    messages.first().map(|text| plain(text)).unwrap_or_default()
}

static REPETITIONS: LazyLock<Mutex<Repetitions>> = LazyLock::new(Mutex::default);

/// Counts each message.
#[derive(Default)]
struct Repetitions {
    hasher: RandomState,
    counts: HashMap<u64, u64>,
}

impl Repetitions {
    /// Counts a message and returns its count if it should be written.
    fn worth_telling(&mut self, message: &str) -> Option<u64> {
        if self.counts.len() >= MOST_COUNTED {
            self.counts.clear();
        }
        let count = self.counts.entry(self.hasher.hash_one(message)).or_default();
        *count += 1;
        (*count <= 3 || count.is_power_of_two()).then_some(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_repeats_is_written_ever_more_rarely() {
        let mut repetitions = Repetitions::default();
        let counts: Vec<u64> = (0..100).filter_map(|_| repetitions.worth_telling("the same")).collect();
        assert_eq!(counts, [1, 2, 3, 4, 8, 16, 32, 64]);
        assert_eq!(repetitions.worth_telling("another"), Some(1));
    }

    #[test]
    fn counting_messages_takes_no_more_than_so_much_memory() {
        let mut repetitions = Repetitions::default();
        for number in 0..10_000 {
            repetitions.worth_telling(&number.to_string());
        }
        assert!(repetitions.counts.len() <= MOST_COUNTED);
    }

    #[test]
    fn an_error_can_be_asked_for_on_the_thread_it_came_on() {
        take_errors();
        // SAFETY: the function uses nothing of the object, and the text is static.
        unsafe { log_message(std::ptr::null_mut(), 1, c"no \x01such thing\n".as_ptr()) };
        assert_eq!(take_errors(), ["no  such thing"]);
        assert!(take_errors().is_empty());
    }
}
