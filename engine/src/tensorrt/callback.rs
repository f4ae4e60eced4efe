//! Our objects that TensorRT calls: the parts of their vtables.

use std::ffi::{c_char, c_void};

/// A virtual method table as a C++ object points into it: the offset to the whole object and its type come before the entries.
#[repr(C)]
pub struct VTable<const N: usize> {
    /// Bytes from this table's object to the whole object.
    pub offset_to_top: isize,
    /// Run-time type information.
    pub type_info: *const c_void,
    /// The virtual methods.
    pub entries: [*const c_void; N],
}

// SAFETY: the table holds addresses of functions and constants, and nothing writes to it.
unsafe impl<const N: usize> Sync for VTable<N> {}

impl<const N: usize> VTable<N> {
    /// Returns the first word of an object with this table.
    pub const fn start(&'static self) -> *const *const c_void {
        self.entries.as_ptr()
    }
}

/// Creates a [`VTable`] of these functions; the caller imports that type. TensorRT never queries the type of our objects, so
/// there is none.
#[macro_export]
macro_rules! tensorrt_vtable {
    ($($function:expr),* $(,)?) => {
        VTable {
            offset_to_top: 0,
            type_info: std::ptr::null(),
            entries: [$($function as *const std::ffi::c_void),*],
        }
    };
}
pub use crate::tensorrt_vtable as vtable;

/// `nvinfer1::InterfaceInfo`.
#[repr(C)]
pub struct InterfaceInfo {
    /// The name of the interface.
    pub kind: *const c_char,
    /// Its major version.
    pub major: i32,
    /// Its minor version.
    pub minor: i32,
}

/// A destructor that does nothing: we delete our objects, TensorRT never does.
pub extern "C" fn no_destructor(_this: *mut c_void) {}

/// Implements `IVersionedInterface::getAPILanguage`: C++.
pub extern "C" fn language_is_cpp(_this: *const c_void) -> i32 {
    0
}

/// Copies the text at `text`, with invalid UTF-8 replaced; empty for null.
///
/// # Safety
/// `text` is null, or NUL-terminated and alive during the call.
pub unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; the caller guarantees the rest.
    clean(&unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy())
}

/// Returns `text` without line ends and without control characters, which TensorRT for RTX writes into its messages.
pub fn clean(text: &str) -> String {
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    printable.trim().to_owned()
}

/// Returns a message without its position in TensorRT's source and without the full stop: `Cuda Runtime (In ScopedCudaStream at
/// /_src/cudaResources.cpp:25 (cudaError 35: too old))` becomes `Cuda Runtime (cudaError 35: too old)`.
pub fn plain(message: &str) -> String {
    // `[checkMacros.cpp::catchCudaError::247] Error Code 1: ...`
    let message = match message.split_once("] ") {
        Some((place, rest)) if place.starts_with('[') && place.contains(".cpp::") => rest,
        _ => message,
    };
    let text = match message.rfind(" (In ").or_else(|| message.rfind(" In ")) {
        Some(at) if message[at..].contains(".cpp:") => match message[at..].find(" (cudaError") {
            Some(cuda) => format!("{}{})", &message[..at], message[at + cuda..].trim_end_matches(')')),
            None if message[..at].matches('(').count() > message[..at].matches(')').count() => {
                format!("{})", message[..at].trim_end_matches('.'))
            }
            None => message[..at].to_owned(),
        },
        _ => message.to_owned(),
    };
    text.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{clean, plain};

    #[test]
    fn places_in_tensorrts_source_are_left_out() {
        assert_eq!(
            plain(
                "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (In ScopedCudaStream at \
                 /_src/common/dispatch/cudaResources.cpp:25 (cudaError 35: CUDA driver version is insufficient for CUDA \
                 runtime version))"
            ),
            "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (cudaError 35: CUDA driver version is insufficient \
             for CUDA runtime version)"
        );
        assert_eq!(
            plain(
                "Error Code 1: Serialization (Serialization assertion header.magicTag failed.Check that it is a TRT engine \
                 file. In throwUnlessHeaderOk at /_src/runtime/dispatch/runtime.cpp:42)"
            ),
            "Error Code 1: Serialization (Serialization assertion header.magicTag failed.Check that it is a TRT engine file)"
        );
        assert_eq!(
            plain("[checkMacros.cpp::catchCudaError::247] Error Code 1: Cuda Runtime"),
            "Error Code 1: Cuda Runtime"
        );
        assert_eq!(plain("In all of it."), "In all of it");
    }

    #[test]
    fn control_characters_become_spaces() {
        assert_eq!(clean("\u{1b}[31mred\u{7}\n"), "[31mred");
        assert_eq!(clean("a\tb\r\nc — d\n"), "a b  c — d");
    }
}
