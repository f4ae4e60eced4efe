//! Programs in `PATH`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Finds out whether starting `program` would fail, without starting it.
pub fn check(program: &Path) -> io::Result<()> {
    let is_denied = || program.as_os_str().as_bytes().contains(&b'/') && program.exists();
    match find_program(program) {
        Some(_) => Ok(()),
        None if is_denied() => Err(io::ErrorKind::PermissionDenied.into()),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns the executable that a shell would run as `program`: the path itself if it has a slash, else the first match in
/// `PATH`.
pub fn find_program(program: &Path) -> Option<PathBuf> {
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.as_os_str().as_bytes().contains(&b'/') {
        return runs(program).then(|| program.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| runs(path))
}
