//! Addresses to listen on, and host names.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::text::{filled, refuse_home, resolve};
use super::{Inline, quote};
use crate::schema::{At, Context, Item};

/// Address that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address with its port.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Returns whether only this machine can reach the address.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The kind of addresses with a port, or paths of Unix sockets.
#[derive(Debug)]
pub struct AddressKind;

/// Returns the kind of addresses with a port, or paths of Unix sockets. A relative path starts at the folder of the file.
pub fn address() -> AddressKind {
    AddressKind
}

impl Inline for AddressKind {
    type Value = Address;

    fn describe(&self) -> String {
        "an address such as \"127.0.0.1:8790\", \"[::1]:8790\" or \"unix:/run/visiond/http.sock\"".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<Address> {
        let text = filled(item).or_else(|| self.refuse(item, at, context, ""))?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            refuse_home(path, item, at, context)?;
            return Some(Address::Unix(resolve(context.base, path)));
        }
        let more = match (text.parse::<IpAddr>(), text.rsplit_once(':'), text) {
            (Ok(IpAddr::V4(ip)), ..) => format!(": write {}", quote(&format!("{ip}:8790"))),
            (Ok(IpAddr::V6(ip)), ..) => format!(": write {}", quote(&format!("[{ip}]:8790"))),
            (_, Some(("localhost", port)), _) if port.parse::<u16>().is_ok() => {
                format!(": write {}", quote(&format!("127.0.0.1:{port}")))
            }
            (_, _, path) if path.starts_with('/') => format!(": write {}", quote(&format!("unix:{path}"))),
            _ => String::new(),
        };
        text.parse().map(Address::Tcp).ok().or_else(|| self.refuse(item, at, context, &more))
    }

    fn text(&self, value: &Address) -> String {
        quote(&value.to_string())
    }
}

/// The kind of host names.
#[derive(Debug)]
pub struct HostName;

/// Returns the kind of host names, without a port.
pub fn host() -> HostName {
    HostName
}

impl Inline for HostName {
    type Value = String;

    fn describe(&self) -> String {
        "a host's name without a port, such as \"cameras.example.org\"".to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<String> {
        let is_host = |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        let text = filled(item).filter(is_host).map(str::to_ascii_lowercase);
        text.or_else(|| self.refuse(item, at, context, ""))
    }

    fn text(&self, value: &String) -> String {
        quote(value)
    }
}
