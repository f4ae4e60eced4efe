//! Finds the process that uses an address, a socket or a folder: it may be the daemon that runs the checked configuration.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use visiond_system::logging::escape;
use visiond_system::preflight::Resource;

/// The process that uses a resource of a configuration.
pub enum User {
    /// The daemon that runs this very configuration, with its process id.
    This(String),
    /// Perhaps that daemon.
    Unknown(String),
    /// Another program.
    Other(String),
}

/// Describes the process that uses a resource of the configuration at `config`.
pub fn user_of(resource: &Resource, config: &Path) -> User {
    let mut number = resource.user();
    for _ in 0..5 {
        let user = describe_user(number, config);
        // A forked process has its parent's sockets until it starts its own program, whose name it has by now.
        let after = resource.user();
        if after == number {
            return user;
        }
        number = after;
    }
    describe_user(number, config)
}

/// Describes the process with the id `number`, which uses a resource of the configuration at `config`.
fn describe_user(number: Option<u32>, config: &Path) -> User {
    let Some(number) = number else {
        let user = "this user may not see which one; it may be the visiond that runs this configuration";
        return User::Unknown(user.to_owned());
    };
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    let name = escape(name.trim_end());
    let user = format!("process {number}, {name},");
    let configs = if name == "visiond" { configurations(number) } else { Vec::new() };
    // systemd, process 1, opens the sockets that it passes to visiond.
    if configs.contains(&config.canonicalize().unwrap_or_default()) {
        User::This(format!("process {number}"))
    } else if number == 1 || (name == "visiond" && configs.is_empty()) {
        User::Unknown(format!("{user} uses it and may run this configuration"))
    } else {
        User::Other(format!("{user} uses it"))
    }
}

/// Returns the configurations on the command line of the process.
fn configurations(number: u32) -> Vec<PathBuf> {
    let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
    let folder = PathBuf::from(format!("/proc/{number}/cwd"));
    let arguments = line.split(|&byte| byte == 0).skip(1).map(|argument| folder.join(OsStr::from_bytes(argument)));
    let named = arguments.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    named.filter_map(|path| path.canonicalize().ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_daemon_is_known_by_its_name_and_the_configuration_on_its_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.toml", "b.toml"] {
            fs::write(at(name), "").unwrap();
        }
        // A shell that waits for its input, under two names.
        symlink("/bin/sh", at("visiond")).unwrap();
        symlink("/bin/sh", at("other")).unwrap();
        let told = |program: &str, arguments: &[&str]| {
            let mut child = Command::new(at(program))
                .args(["-c", "echo; read line", "run"])
                .args(arguments)
                .current_dir(folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            // Only once it runs has it its name and its arguments.
            child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            let user = describe_user(Some(child.id()), &at("a.toml"));
            let number = child.id().to_string();
            drop(child.stdin.take());
            child.wait().unwrap();
            let (kind, text) = match user {
                User::This(text) => ("this", text),
                User::Unknown(text) => ("unknown", text),
                User::Other(text) => ("other", text),
            };
            format!("{kind}: {}", text.replace(&number, "N"))
        };
        assert_eq!(told("visiond", &["a.toml"]), "this: process N");
        assert_eq!(told("visiond", &["b.toml"]), "other: process N, visiond, uses it");
        assert_eq!(told("visiond", &[]), "unknown: process N, visiond, uses it and may run this configuration");
        assert_eq!(told("other", &["a.toml"]), "other: process N, other, uses it");
        assert!(
            matches!(describe_user(None, &at("a.toml")), User::Unknown(text) if text.contains("may not see which one"))
        );
        assert!(
            matches!(describe_user(Some(1), &at("a.toml")), User::Unknown(text) if text.starts_with("process 1, "))
        );
    }
}
