//! Programs in `PATH`, and what this user may do with a file.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the executable that a shell would run as `program`: the path itself if it has a slash, else the first match in
/// `PATH`.
pub fn find_program(program: &Path) -> Option<PathBuf> {
    let runs = |path: &Path| path.is_file() && allowed(path, libc::X_OK);
    if program.as_os_str().as_bytes().contains(&b'/') {
        return runs(program).then(|| program.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| runs(path))
}

/// Returns whether this process may access `path` as `mode` (`R_OK`, `W_OK`, `X_OK` of access(2)) says.
pub fn allowed(path: &Path, mode: i32) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a string that ends in NUL and lives through the call, which keeps no pointer.
    unsafe { libc::access(path.as_ptr(), mode) == 0 }
}
