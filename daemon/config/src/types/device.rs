//! `[device]`: this machine's name and time zone.

use jiff::tz::TimeZone;

use crate::kinds::{name, time_zone};
use crate::table_macros::section;

section! {
    /// The table `[device]`.
    pub struct DeviceConfig {
        /// Name of this machine in topics and subjects. Without it, the host name, with `-` for each invalid character.
        name: Option<String> as name() => optional(r#""gate-7""#),
        /// Time zone of the keys `active` and `reset` of lines and zones. Without it, the system's.
        time_zone: Option<TimeZone> as time_zone() => optional(r#""UTC""#),
    }
}

impl DeviceConfig {
    /// Returns the configured name, otherwise the host name.
    pub fn resolved(&self) -> String {
        self.name.clone().unwrap_or_else(|| as_name(&rustix::system::uname().nodename().to_string_lossy()))
    }
}

/// Returns `text` with `-` in place of each invalid character; "visiond" if nothing is left.
fn as_name(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let text: String = text.trim_matches('-').chars().take(64).collect();
    if text.is_empty() { "visiond".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_name_that_it_is_given_or_its_hosts() {
        let named = DeviceConfig { name: Some("gate-7".to_owned()), ..DeviceConfig::default() };
        assert_eq!(named.resolved(), "gate-7");
        let host = DeviceConfig::default().resolved();
        assert!(!host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{host}");
        assert_eq!(as_name("jetson.local"), "jetson-local");
        assert_eq!(as_name("...") + &as_name(""), "visiondvisiond");
        assert_eq!(as_name(&"a".repeat(70)).len(), 64);
    }
}
