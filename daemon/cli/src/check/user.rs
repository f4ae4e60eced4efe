//! The process that uses an address, a socket or a folder: perhaps the daemon that runs the configuration at hand.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use visiond_system::logging::escape;

/// Describes the process `number`, which uses a resource of the configuration at `config`: `Ok` if it may be the daemon that
/// runs this very configuration, `Err` if it is another program.
pub fn describe_user(number: Option<u32>, config: &Path) -> Result<String, String> {
    let Some(number) = number else {
        return Ok("this user may not see which one; it may be the visiond that runs this configuration".to_owned());
    };
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    let name = escape(name.trim_end());
    let user = format!("process {number}, {name},");
    let configs = if name == "visiond" { configurations(number) } else { Vec::new() };
    // systemd, process 1, opens the sockets that it passes to visiond.
    if configs.contains(&config.canonicalize().unwrap_or_default()) {
        Ok(format!("{user} uses it and runs this configuration"))
    } else if number == 1 || (name == "visiond" && configs.is_empty()) {
        Ok(format!("{user} uses it and may run this configuration"))
    } else {
        Err(format!("{user} uses it"))
    }
}

/// Returns the configurations that the command line of the process names.
fn configurations(number: u32) -> Vec<PathBuf> {
    let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    let folder = PathBuf::from(format!("/proc/{number}/cwd"));
    let arguments = line.split(|&byte| byte == 0).skip(1).map(|argument| folder.join(OsStr::from_bytes(argument)));
    let named = arguments.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    named.filter_map(|path| path.canonicalize().ok()).collect()
}
