//! Programs in `PATH`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::preflight::Certainty;

/// Checks whether starting `program` would fail, without starting it.
pub fn check(program: &Path) -> Result<(), (io::Error, Certainty)> {
    let mut refusal = None;
    for candidate in candidates(program) {
        match may_run(&candidate) {
            Ok(()) => return Ok(()),
            // execvp(3) continues, and reports this if it finds no other.
            Err(error) if error.0.kind() == io::ErrorKind::PermissionDenied => refusal = Some(error),
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or((io::ErrorKind::NotFound.into(), Certainty::Certain)))
}

/// Returns the executable that a shell would run as `program`: the path itself if it has a slash, otherwise the first match
/// in `PATH`.
pub fn find_program(program: &Path) -> Option<PathBuf> {
    candidates(program).into_iter().find(|path| may_run(path).is_ok())
}

fn candidates(program: &Path) -> Vec<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(program)).collect()
}

fn may_run(path: &Path) -> Result<(), (io::Error, Certainty)> {
    let of = |error: io::Error| {
        let certainty = Certainty::of_reading(&error);
        (error, certainty)
    };
    let found = fs::metadata(path).map_err(of)?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        // No user may execute it.
        return Err((io::ErrorKind::PermissionDenied.into(), Certainty::Certain));
    }
    access(path, Access::EXEC_OK).map_err(|error| of(error.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_program_that_no_user_may_execute_is_a_certain_error() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let failed = |path: &Path| check(path).map_err(|(error, certainty)| (error.kind(), certainty)).unwrap_err();
        assert_eq!(failed(&program), (io::ErrorKind::NotFound, Certainty::Certain));
        fs::write(&program, "#!/bin/sh\n").unwrap();
        assert_eq!(failed(&program), (io::ErrorKind::PermissionDenied, Certainty::Certain));
        assert_eq!(failed(folder.path()), (io::ErrorKind::PermissionDenied, Certainty::Certain));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        check(&program).unwrap();
    }
}
