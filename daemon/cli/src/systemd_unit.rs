//! `visiond systemd-unit`: prints the packages' service unit, adapted to another program or configuration.

use std::path::{Path, PathBuf};
use std::{env, path};

use visiond_system::exit::{Exit, ExitError};

use crate::output::print;

/// Print the service's unit for systemd, as the packages install it
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Configuration that the service runs
    #[arg(value_name = "CONFIG", default_value = CONFIG)]
    config: PathBuf,

    /// Program that the service starts [default: this one]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
From a bare binary to a service:
  sudo install -m 755 visiond /usr/local/bin/
  id visiond || sudo useradd --system --user-group --groups video,render visiond
  sudo install -d -m 750 -g visiond /etc/visiond
  sudo install -m 640 -g visiond visiond.toml /etc/visiond/
  unit=/etc/systemd/system/visiond.service
  /usr/local/bin/visiond systemd-unit | sudo tee $unit
  sudo systemctl daemon-reload
  sudo systemctl enable --now visiond

visiond.toml is your configuration: `visiond probe` proposes one. The service needs the models that it names, too.

The packages for Debian and Ubuntu do all of this.

Examples:
  visiond systemd-unit
  visiond systemd-unit /etc/visiond/gate.toml
  visiond systemd-unit --program /opt/visiond/visiond /opt/visiond/gate.toml";

const UNIT: &str = include_str!("../../../systemd/visiond.service");
const PROGRAM: &str = "/usr/bin/visiond";
const CONFIG: &str = "/etc/visiond/visiond.toml";

/// Folders that the unit hides from the service (`ProtectHome=`, `PrivateTmp=`).
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Prints the unit.
pub fn run(args: Args) -> Result<Exit, ExitError> {
    let unknown = |error| failure(format!("cannot find this program's path: {error}; name it with --program"));
    let this = || env::current_exe().map_err(unknown);
    let program = args.program.map_or_else(this, Ok)?;
    print(&unit(&program, &args.config)?).map(|()| Exit::Success)
}

/// Returns the unit with this program and configuration.
fn unit(program: &Path, config: &Path) -> Result<String, ExitError> {
    let command = |program: &str, config: &str| format!("ExecStart={program} run {config}\n");
    let program = word(program, "name another with --program, or copy it to /usr/local/bin and run that one")?;
    let config = word(config, "put the configuration into /etc/visiond")?;
    Ok(UNIT.replace(&command(PROGRAM, CONFIG), &command(&program, &config)))
}

/// Returns a path as a word of a unit's command line.
fn word(path: &Path, remedy: &str) -> Result<String, ExitError> {
    let shown = path.display();
    let path = path::absolute(path).map_err(|error| failure(format!("cannot use {shown} in a unit: {error}")))?;
    if let Some(folder) = HIDDEN.iter().find(|folder| path.starts_with(folder)) {
        return Err(failure(format!("cannot use {shown} in a unit: the service does not see {folder}; {remedy}")));
    }
    // systemd gives spaces, quotes, `$`, `%` and `\` a meaning of their own.
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@:,=~".contains(c);
    match path.to_str().filter(|text| text.chars().all(is_plain)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(failure(format!("cannot use {shown} in a unit: it has a space or another sign; {remedy}"))),
    }
}

fn failure(message: String) -> ExitError {
    ExitError::new(Exit::Failure, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_program_and_configuration_differ_from_the_packages_unit() {
        assert_eq!(unit(PROGRAM.as_ref(), CONFIG.as_ref()).unwrap(), UNIT);
        let other = unit("/opt/v/visiond".as_ref(), "/opt/v/gate.toml".as_ref()).unwrap();
        let differ: Vec<_> = other.lines().zip(UNIT.lines()).filter(|(one, other)| one != other).collect();
        let packages = format!("ExecStart={PROGRAM} run {CONFIG}");
        assert_eq!(differ, [("ExecStart=/opt/v/visiond run /opt/v/gate.toml", packages.as_str())]);
        assert_eq!(other.lines().count(), UNIT.lines().count());
    }

    #[test]
    fn a_path_that_the_service_cannot_see_or_systemd_would_read_otherwise_is_refused() {
        for (program, config, words) in [
            ("/home/a/visiond", CONFIG, "the service does not see /home; name another with --program"),
            (PROGRAM, "/root/v.toml", "the service does not see /root; put the configuration into /etc/visiond"),
            (PROGRAM, "/opt/%i.toml", "it has a space or another sign"),
            ("/opt/my visiond", CONFIG, "it has a space or another sign"),
            (PROGRAM, "/opt/a\nExecStartPre=/bin/x", "it has a space or another sign"),
        ] {
            let message = unit(program.as_ref(), config.as_ref()).unwrap_err().message;
            assert!(message.contains(words), "{message}");
        }
    }
}
