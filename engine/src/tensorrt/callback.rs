//! Objects of ours that TensorRT calls: what their tables of virtuals are made of.

use std::ffi::{c_char, c_void};

/// A table of virtuals as a C++ object points into it: the offset to the whole object and its type come before the entries.
#[repr(C)]
pub(crate) struct VTable<const N: usize> {
    pub(crate) offset_to_top: isize,
    pub(crate) type_info: *const c_void,
    pub(crate) entries: [*const c_void; N],
}

// SAFETY: the table holds addresses of functions and constants, and nobody writes to it.
unsafe impl<const N: usize> Sync for VTable<N> {}

impl<const N: usize> VTable<N> {
    /// What an object's first word is.
    pub(crate) const fn start(&'static self) -> *const *const c_void {
        self.entries.as_ptr()
    }
}

/// A table of these functions. TensorRT asks no object of ours for its type, so that there is none.
macro_rules! vtable {
    ($($function:expr),* $(,)?) => {
        $crate::tensorrt::callback::VTable {
            offset_to_top: 0,
            type_info: std::ptr::null(),
            entries: [$($function as *const std::ffi::c_void),*],
        }
    };
}
pub(crate) use vtable;

/// `nvinfer1::InterfaceInfo`.
#[repr(C)]
pub(crate) struct InterfaceInfo {
    pub(crate) kind: *const c_char,
    pub(crate) major: i32,
    pub(crate) minor: i32,
}

/// Destructors: our objects are deleted by us, never by TensorRT.
pub(crate) unsafe extern "C" fn no_destructor(_this: *mut c_void) {}

/// `IVersionedInterface::getAPILanguage`: C++.
pub(crate) unsafe extern "C" fn language_is_cpp(_this: *const c_void) -> i32 {
    0
}

/// The text at `text`, whatever bytes it has; empty where there is none.
///
/// # Safety
/// `text` is null or ends in zero and lives during the call.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the rest is the caller's promise.
    clean(&unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy())
}

/// `text` without control characters, which TensorRT for RTX writes into its messages, and without the ends of lines.
pub(crate) fn clean(text: &str) -> String {
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    printable.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(clean("\u{1b}[31mred\u{7}\n"), "[31mred");
        assert_eq!(clean("a\tb\r\nc — d\n"), "a b  c — d");
    }
}
