//! The URLs of brokers.

/// Splits a broker URL into scheme, host and port; returns `None` if it has any other part.
pub fn split_broker(url: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    let port = match port {
        None => None,
        Some(port) => Some(port.parse().ok().filter(|&port| port != 0)?),
    };
    (!host.is_empty() && host.chars().all(fine)).then_some((scheme, host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brokers_url_is_scheme_host_and_port() {
        assert_eq!(split_broker("mqtt://localhost:1883"), Some(("mqtt", "localhost", Some(1883))));
        assert_eq!(split_broker("mqtts://10.0.0.5/"), Some(("mqtts", "10.0.0.5", None)));
        assert_eq!(split_broker("mqtt://[fd00::1]:1884"), Some(("mqtt", "fd00::1", Some(1884))));
        for wrong in ["localhost:1883", "mqtt://", "mqtt://host:0", "mqtt://host:99999", "mqtt://host/x", "mqtt://[::1"]
        {
            assert_eq!(split_broker(wrong), None, "{wrong}");
        }
    }
}
