//! Shared libraries that are opened at run time: the directories to search, and the loader's messages.

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use visiond_ground::loader_message;

/// Returns the directories to search after the loader's own: the architecture's, `system`, the executable's, `lib` beside that,
/// and the user's cache (`$XDG_CACHE_HOME/visiond/lib`).
pub(crate) fn search_directories(system: &[&str]) -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from(format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH))];
    directories.extend(system.iter().map(PathBuf::from));
    if let Some(beside) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        directories.push(beside.to_owned());
        directories.extend(beside.parent().map(|prefix| prefix.join("lib")));
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
    directories.extend(cache.map(|cache| cache.join("visiond/lib")));
    directories
}

/// Returns `path` in a form that the loader treats as a file: it searches its directories for a name without a slash.
pub(crate) fn as_file(path: &Path) -> Cow<'_, Path> {
    let is_bare = !path.as_os_str().as_bytes().contains(&b'/');
    if is_bare { Path::new(".").join(path).into() } else { path.into() }
}

/// Returns the loader's own message about the library `opened`, without `libloading`'s wrapping; if a library that `opened` needs is
/// missing, with the remedy.
pub(crate) fn loader_error(error: &libloading::Error, opened: &Path) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    loader_message::explain(&text, opened)
}

/// Returns the file from which the loader took `function`.
pub(crate) fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: an all-zero `Dl_info` is valid: it holds pointers only.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` takes any address and fills `info` when it returns non-zero.
    let found = unsafe { libc::dladdr(function, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `dli_fname` is NUL-terminated and lives as long as the library, which is open here.
    let name: &CStr = unsafe { CStr::from_ptr(info.dli_fname.cast::<c_char>()) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}
