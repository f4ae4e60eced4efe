//! Arguments that several commands of a fleet have.

use std::collections::BTreeSet;
use std::{env, fmt};

use visiond_bundle::check_followed;
use visiond_fleet::check_name;
use visiond_nats::Options;
use visiond_system::exit::{Exit, ExitError};

use super::failure::refuse;
use crate::fleet_buckets::{Buckets, check_servers};

/// Flags that select the servers.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerArgs {
    /// Connect to these NATS servers, nats://HOST or tls://HOST, several with commas [default: NATS_URL, otherwise nats://localhost:4222]
    #[arg(long, value_name = "SERVERS", value_parser = servers)]
    nats: Option<String>,
}

impl ServerArgs {
    /// Connects to the fleet.
    pub fn open(&self) -> Result<Buckets, ExitError> {
        let options = Options::from_env(self.nats.as_deref(), format!("visiond fleet of {}", operator()));
        let options = options.map_err(|error| ExitError::new(Exit::Config, error))?;
        Buckets::open(options).map(Buckets::warning).map_err(refuse)
    }
}

/// Flags that select the bundle of a group.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetArgs {
    /// Name of the bundle
    #[arg(value_name = "NAME", value_parser = bundle)]
    pub name: String,

    /// Group of devices
    #[arg(long, value_name = "GROUP", default_value = "default", value_parser = name)]
    pub group: String,
}

impl fmt::Display for TargetArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.name, self.group)
    }
}

/// Returns who runs the command, for records.
pub fn operator() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| env::var(name).ok());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let text = format!("{}@{host}", user.as_deref().unwrap_or("unknown"));
    text.chars().map(|one| if one.is_control() { ' ' } else { one }).take(100).collect()
}

/// Checks that the fleet has a group or bundle of this name.
pub fn check_known<'n>(what: &str, wanted: &str, known: impl IntoIterator<Item = &'n str>) -> Result<(), ExitError> {
    let known: BTreeSet<_> = known.into_iter().collect();
    if known.contains(wanted) {
        return Ok(());
    }
    let has = match known.len() {
        0 => "it has none".to_owned(),
        _ => format!("it has {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(ExitError::new(Exit::Input, format!("the fleet has no {what} {wanted}: check the name; {has}")))
}

/// Parses the name of a device or group.
pub fn name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

fn servers(text: &str) -> Result<String, String> {
    check_servers(text).map(|()| text.to_owned())
}

/// Parses the name of a bundle.
pub fn bundle(text: &str) -> Result<String, String> {
    check_followed(text).map(|()| text.to_owned())
}

/// Parses a version.
pub fn version(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|version| *version > 0)
        .ok_or_else(|| "expected a version: a whole number from 1".to_owned())
}
