//! The headers `Session` (RFC 2326 section 12.37) and `Transport` (12.39) of the answer to SETUP.

use std::time::Duration;

/// A session that the server has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHeader {
    /// Its number, to be repeated.
    pub id: String,
    /// How long it lasts without a request, if the server states it.
    pub timeout: Option<Duration>,
}

impl SessionHeader {
    /// Reads "12345678;timeout=60". A timeout of 0, which some cameras send, counts as none.
    pub fn parse(value: &str) -> Option<Self> {
        let mut parts = value.split(';').map(str::trim);
        let id = parts.next().filter(|id| !id.is_empty() && !id.contains(char::is_control))?.to_owned();
        let named = parts.filter_map(|part| part.split_once('='));
        let timeout = named.filter(|(name, _)| name.trim().eq_ignore_ascii_case("timeout")).find_map(|(_, value)| {
            let digits = value.trim().split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok().filter(|seconds| *seconds > 0)
        });
        Some(Self { id, timeout: timeout.map(|seconds: u32| Duration::from_secs(seconds.into())) })
    }
}

/// What carries packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// The connection.
    Tcp,
    /// Packets come as datagrams.
    Udp,
}

/// The transport that the server states. Its SSRC, source and destination are not read, because they are often wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransportHeader {
    /// The channel of RTP packets on the connection.
    pub channel: Option<u8>,
    /// The server's port of RTP packets, and of RTCP packets.
    pub server_ports: Option<(u16, u16)>,
    pub is_multicast: bool,
    /// The lower transport, if the header is clear. Many cameras leave out parts of it, or repeat those of the request.
    pub carrier: Option<Carrier>,
}

impl TransportHeader {
    /// Reads "RTP/AVP/TCP;unicast;interleaved=0-1", ignoring case and blanks. In a list, the first entry counts.
    pub fn parse(value: &str) -> Self {
        let first = value.split(',').next().unwrap_or_default();
        let mut this = Self::default();
        let (mut named, mut has_ports) = (None, false);
        for part in first.split(';').map(str::trim) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let mut numbers = value.split('-').map(|number| number.trim().parse::<u16>().ok());
            let (low, high) = (numbers.next().flatten(), numbers.next().flatten());
            match name.trim().to_ascii_lowercase().as_str() {
                "interleaved" => this.channel = low.and_then(|channel| channel.try_into().ok()),
                "client_port" => has_ports |= low.is_some_and(|port| port > 0),
                "server_port" => {
                    has_ports |= low.is_some_and(|port| port > 0);
                    this.server_ports = low.filter(|port| *port > 0).map(|port| (port, high.unwrap_or(port | 1)));
                }
                "multicast" => this.is_multicast = true,
                "rtp/avp/tcp" => named = Some(Carrier::Tcp),
                "rtp/avp/udp" => named = Some(Carrier::Udp),
                _ => {}
            }
        }
        this.carrier = match (this.channel.is_some(), has_ports, named) {
            (true, false, None | Some(Carrier::Tcp)) => Some(Carrier::Tcp),
            (false, true, None | Some(Carrier::Udp)) => Some(Carrier::Udp),
            (false, false, named) => named,
            _ => None,
        };
        this
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_cameras_are_read() {
        for (value, id, seconds) in [
            ("12345678;timeout=60", "12345678", Some(60)),
            ("12345678", "12345678", None),
            ("12345678;timeout=0", "12345678", None),
            ("12345678;timeout=", "12345678", None),
            ("12345678;", "12345678", None),
            ("12345678;Timeout=30", "12345678", Some(30)),
            (" 12345678 ; timeout = 30s ;x=1", "12345678", Some(30)),
            ("abc ;timeout=2", "abc", Some(2)),
            ("abc\t;timeout=2.5", "abc", Some(2)),
            ("1;timeout=99999999999", "1", None),
        ] {
            let found = SessionHeader::parse(value).unwrap();
            assert_eq!((found.id.as_str(), found.timeout.map(|timeout| timeout.as_secs())), (id, seconds), "{value}");
        }
        assert_eq!(SessionHeader::parse(";timeout=60"), None);
        assert_eq!(SessionHeader::parse(""), None);
    }

    #[test]
    fn transports_of_cameras_are_read() {
        let carrier = Some(Carrier::Tcp);
        let tcp = |channel| TransportHeader { channel: Some(channel), carrier, ..TransportHeader::default() };
        for value in [
            "RTP/AVP/TCP;unicast;interleaved=0-1",
            "RTP/AVP/TCP; unicast; Interleaved=0-1; ssrc=DEADBEEF",
            "rtp/avp/tcp;interleaved=0;ssrc=0x0;mode=\"PLAY\",RTP/AVP;unicast",
        ] {
            assert_eq!(TransportHeader::parse(value), tcp(0), "{value}");
        }
        assert_eq!(TransportHeader::parse("RTP/AVP/TCP;interleaved=4-5"), tcp(4));
        let without = TransportHeader { carrier, ..TransportHeader::default() };
        assert_eq!(TransportHeader::parse("RTP/AVP/TCP;unicast"), without);
        assert_eq!(TransportHeader::parse("RTP/AVP/TCP;interleaved=900-901"), without);
        let udp = TransportHeader::parse("RTP/AVP;unicast;source=cam.lan;client_port=5000-5001;server_port=6970-6971");
        assert_eq!(udp.server_ports, Some((6970, 6971)));
        assert_eq!(TransportHeader::parse("RTP/AVP;server_port=6970").server_ports, Some((6970, 6971)));
        assert_eq!(TransportHeader::parse("RTP/AVP;server_port=0-0").server_ports, None);
        assert!(TransportHeader::parse("RTP/AVP;multicast;port=1-2").is_multicast);
    }

    #[test]
    fn the_carrier_is_known_where_the_header_leaves_no_doubt() {
        let (tcp, udp) = (Some(Carrier::Tcp), Some(Carrier::Udp));
        for (value, carrier) in [
            ("RTP/AVP;unicast;interleaved=0-1", tcp),
            ("RTP/AVP/TCP;unicast", tcp),
            ("RTP/AVP/UDP;unicast;interleaved=0-1", None),
            ("RTP/AVP;unicast;client_port=5000-5001;server_port=6970-6971", udp),
            ("RTP/AVP;client_port=5000-5001", udp),
            ("rtp/avp/udp;unicast", udp),
            ("RTP/AVP/TCP;unicast;client_port=5000-5001", None),
            ("RTP/AVP/TCP;interleaved=0-1;server_port=6970-6971", None),
            ("RTP/AVP;unicast;client_port=0-0;server_port=0-0", None),
            ("RTP/AVP;unicast", None),
            ("", None),
        ] {
            assert_eq!(TransportHeader::parse(value).carrier, carrier, "{value}");
        }
    }
}
