//! TensorRT's errors as values: an `IErrorRecorder` that keeps codes and texts until they are read.

use std::ffi::{CString, c_char, c_void};
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::callback::{self, InterfaceInfo, VTable, language_is_cpp, no_destructor, text, vtable};
use super::logger;
use super::version::Layout;

/// How many errors are kept until they are read; further ones only set the overflow flag.
const MOST_ERRORS: usize = 32;

/// `ErrorCode::kINVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;

/// One error that TensorRT reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// Its `ErrorCode`; `None` if only the logger received it.
    pub code: Option<i32>,
    /// TensorRT's message, without control characters.
    pub text: String,
}

impl Reported {
    /// Returns TensorRT's message without its source position and without the full stop.
    pub fn plain(&self) -> String {
        callback::plain(&self.text)
    }
}

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plain())
    }
}

/// An `IErrorRecorder`. The owner of the object that uses it keeps it alive until that object is deleted.
#[repr(C)]
pub struct ErrorRecorder {
    vtable: *const *const c_void,
    kept: Mutex<RecordedErrors>,
}

#[derive(Default)]
struct RecordedErrors {
    errors: Vec<(i32, CString)>,
    overflowed: bool,
}

// SAFETY: the table is constant; everything else is behind the lock.
unsafe impl Send for ErrorRecorder {}
// SAFETY: as above.
unsafe impl Sync for ErrorRecorder {}

impl ErrorRecorder {
    /// Creates a recorder whose virtual methods have this layout.
    pub fn new(layout: Layout) -> Arc<Self> {
        let vtable = match layout {
            Layout::V8 => PLAIN_TABLE.start(),
            Layout::V10 | Layout::V11 | Layout::Rtx => VERSIONED_TABLE.start(),
        };
        Arc::new(Self { vtable, kept: Mutex::default() })
    }

    /// Returns the pointer to pass to the library.
    pub fn as_ptr(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns and clears the errors reported on any thread, and those that this thread's logger received instead.
    pub fn take(&self) -> Vec<Reported> {
        let errors = std::mem::take(&mut *self.kept()).errors;
        let recorded = errors
            .into_iter()
            .map(|(code, text)| Reported { code: Some(code), text: text.to_string_lossy().into_owned() });
        let logged = logger::take_errors().into_iter().map(|text| Reported { code: None, text });
        recorded.chain(logged).collect()
    }

    fn kept(&self) -> MutexGuard<'_, RecordedErrors> {
        self.kept.lock()
    }
}

static PLAIN_TABLE: VTable<10> = vtable![
    no_destructor,
    no_destructor,
    count,
    code,
    description,
    has_overflowed,
    clear,
    report,
    reference,
    reference
];
static VERSIONED_TABLE: VTable<12> = vtable![
    language_is_cpp,
    interface_info,
    no_destructor,
    no_destructor,
    count,
    code,
    description,
    has_overflowed,
    clear,
    report,
    reference,
    reference
];

/// Returns the recorder behind a callback's `this`.
///
/// # Safety
/// `this` is a pointer that `ErrorRecorder::as_ptr` returned, to a living recorder.
unsafe fn recorder<'a>(this: *const c_void) -> &'a ErrorRecorder {
    // SAFETY: guaranteed by the caller; recorders are shared, and changed only under their lock.
    unsafe { &*this.cast::<ErrorRecorder>() }
}

unsafe extern "C" fn interface_info(_this: *const c_void) -> InterfaceInfo {
    InterfaceInfo { kind: c"IErrorRecorder".as_ptr(), major: 1, minor: 0 }
}

unsafe extern "C" fn count(this: *const c_void) -> i32 {
    // SAFETY: TensorRT calls with the recorder that it was given, while the recorder lives (`ErrorRecorder`).
    unsafe { recorder(this) }.kept().errors.len() as i32
}

unsafe extern "C" fn code(this: *const c_void, index: i32) -> i32 {
    // SAFETY: as in `count`.
    let kept = unsafe { recorder(this) }.kept();
    let found = usize::try_from(index).ok().and_then(|index| kept.errors.get(index));
    found.map_or(INVALID_ARGUMENT, |(code, _)| *code)
}

/// The text stays valid until the errors are cleared or taken, as the interface requires.
unsafe extern "C" fn description(this: *const c_void, index: i32) -> *const c_char {
    // SAFETY: as in `count`.
    let kept = unsafe { recorder(this) }.kept();
    let found = usize::try_from(index).ok().and_then(|index| kept.errors.get(index));
    found.map_or(c"".as_ptr(), |(_, text)| text.as_ptr())
}

unsafe extern "C" fn has_overflowed(this: *const c_void) -> bool {
    // SAFETY: as in `count`.
    unsafe { recorder(this) }.kept().overflowed
}

unsafe extern "C" fn clear(this: *mut c_void) {
    // SAFETY: as in `count`.
    *unsafe { recorder(this) }.kept() = RecordedErrors::default();
}

/// Always returns false: TensorRT itself decides whether the error is fatal to the caller.
unsafe extern "C" fn report(this: *mut c_void, code: i32, description: *const c_char) -> bool {
    // SAFETY: TensorRT passes a NUL-terminated text.
    let text = unsafe { text(description) };
    log::debug!(target: logger::TARGET, "reported ({code}): {text}");
    // SAFETY: as in `count`.
    let mut kept = unsafe { recorder(this) }.kept();
    if kept.errors.len() < MOST_ERRORS {
        // Cleaned text contains no NUL.
        kept.errors.push((code, CString::new(text).unwrap_or_default()));
    } else {
        kept.overflowed = true;
    }
    false
}

/// Reference counting does nothing: the owner decides how long the object lives.
unsafe extern "C" fn reference(_this: *mut c_void) -> i32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_code_and_text_until_they_are_taken() {
        let recorder = ErrorRecorder::new(Layout::V10);
        let this = recorder.as_ptr();
        logger::take_errors();
        // SAFETY: `this` belongs to a living recorder; the texts are static.
        unsafe {
            report(this, 6, c"Error Code 6: no\x02 such driver.\n".as_ptr());
            report(this, 99, c"of the future".as_ptr());
            assert_eq!(count(this), 2);
            assert_eq!(code(this, 0), 6);
            assert_eq!(text(description(this, 1)), "of the future");
            assert_eq!((code(this, 2), text(description(this, -1))), (3, String::new()));
        }
        let taken = recorder.take();
        assert_eq!(taken[0].code, Some(6));
        assert_eq!(taken[0].to_string(), "Error Code 6: no  such driver");
        assert_eq!(taken[1].code, Some(99));
        assert!(recorder.take().is_empty());
    }

    #[test]
    fn a_flood_of_errors_is_cut_and_told() {
        let recorder = ErrorRecorder::new(Layout::V8);
        let this = recorder.as_ptr();
        // SAFETY: as above.
        unsafe {
            for _ in 0..1000 {
                report(this, 1, c"again".as_ptr());
            }
            assert!(has_overflowed(this));
            assert_eq!(count(this), MOST_ERRORS as i32);
            clear(this);
            assert!(!has_overflowed(this));
        }
    }
}
