//! Connects to a broker: address, TCP, TLS, and CONNECT.

use std::io;

use bytes::BytesMut;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use visiond_config::types::{MqttProtocol, MqttSinkConfig};
use visiond_system::broker_tls::{self, TlsFiles};
use visiond_system::broker_url::split_broker;

use super::codec::{Codec, Connect, Packet, SessionRefusal};
use super::session::{MqttSession, describe_io_error};
use crate::broker::TcpOrTls;

/// Why there is no session.
#[derive(Debug)]
pub enum NoSession {
    /// The broker does not accept this will.
    Will(SessionRefusal),
    /// The broker closed the connection without an answer: MQTT 3.1.1 brokers do that if they do not accept the will.
    Closed(String),
    Other(String),
}

impl From<String> for NoSession {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

impl From<&str> for NoSession {
    fn from(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }
}

impl NoSession {
    /// Returns the reason as a sentence that names the broker.
    pub fn describe(self, url: &str) -> String {
        match self {
            Self::Will(SessionRefusal::Retain) => format!("{url}: the broker retains nothing"),
            Self::Will(_) => format!("{url}: the broker has a lower maximum QoS than 1"),
            Self::Closed(reason) | Self::Other(reason) => format!("{url}: {reason}"),
        }
    }
}

/// Returns the port of a URL without one.
pub fn default_port(scheme: &str) -> u16 {
    if scheme == "mqtts" { 8883 } else { 1883 }
}

/// Returns the files for TLS that a sink's configuration names.
pub fn tls_files(MqttSinkConfig { ca, certificate, key, .. }: &MqttSinkConfig) -> TlsFiles<'_> {
    TlsFiles { ca: ca.as_deref(), certificate: certificate.as_deref(), key: key.as_deref() }
}

/// Starts a session.
pub async fn open(config: &MqttSinkConfig, connect: &Connect) -> Result<MqttSession, NoSession> {
    let (scheme, host, port) = split_broker(&config.url).ok_or("is not a broker's URL")?;
    let encrypted = scheme == "mqtts";
    let port = port.unwrap_or(default_port(scheme));
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error, host, port))?;
    // A small message must not wait for the acknowledgement of the previous one.
    let _ = tcp.set_nodelay(true);
    let broken = |error: io::Error| broken(&error, config, host);
    let mut stream: Box<dyn TcpOrTls> = if encrypted {
        let client = broker_tls::client(&tls_files(config)).map_err(|error| error.reason)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| "has no valid host name for TLS")?;
        Box::new(TlsConnector::from(client).connect(name, tcp).await.map_err(broken)?)
    } else {
        Box::new(tcp)
    };
    let codec = Codec(config.protocol);
    let mut out = BytesMut::new();
    codec.connect(connect, &mut out)?;
    stream.write_all(&out).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let other_version = match config.protocol {
        MqttProtocol::V5 => "if it speaks only MQTT 3.1.1, set `protocol = \"3.1.1\"`",
        MqttProtocol::V3 => "if it speaks only MQTT 5, set `protocol = \"5\"`",
    };
    let mut input = BytesMut::new();
    loop {
        match codec.decode(&mut input) {
            Ok(Some(Packet::ConnAck(limits))) => {
                return Ok(MqttSession::new(stream, codec, limits, config.keep_alive, input));
            }
            Ok(Some(Packet::Refused(refusal @ (SessionRefusal::Retain | SessionRefusal::Qos)))) => {
                return Err(NoSession::Will(refusal));
            }
            Ok(Some(Packet::Refused(refusal))) => return Err(refused(refusal, config, other_version).into()),
            Ok(Some(_)) => return Err("the server is not an MQTT broker: check the port".into()),
            Err(error) => {
                return Err(NoSession::Other(format!(
                    "the server is not an MQTT broker, or speaks another version ({error}): {other_version}"
                )));
            }
            Ok(None) => {}
        }
        if stream.read_buf(&mut input).await.map_err(broken)? == 0 {
            let closed = format!("the broker closed the connection without an answer: {other_version}");
            return Err(NoSession::Closed(closed));
        }
    }
}

fn refused(refusal: SessionRefusal, config: &MqttSinkConfig, other_version: &str) -> String {
    match refusal {
        SessionRefusal::Login => match &config.login {
            Some(login) => {
                format!("the broker rejects the user and password of the login {}: correct them", login.display())
            }
            None => "the broker requires a user and a password: set `login`".to_owned(),
        },
        SessionRefusal::ClientId if config.protocol == MqttProtocol::V3 => {
            // Some brokers report this for a keep-alive that exceeds their limit.
            "the broker rejects the client id: set another `client_id`, or a shorter `keep_alive`".to_owned()
        }
        SessionRefusal::ClientId => "the broker rejects the client id: set another `client_id`".to_owned(),
        SessionRefusal::Version => format!("the broker does not speak this version of MQTT: {other_version}"),
        SessionRefusal::Retain | SessionRefusal::Qos => "the broker does not accept the will".to_owned(),
        SessionRefusal::Other(words) => format!("the broker refuses the session: {words}"),
    }
}

fn unreachable(error: &io::Error, host: &str, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("connection refused at port {port} of {host}: check that the broker runs, and the port")
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            format!("cannot reach {host}: {error}; check the network and the host")
        }
        _ if host.ends_with(".local") => format!(
            "cannot connect to {host}: {error}; check the name: those in .local need Avahi on this machine, with libnss-mdns"
        ),
        _ => format!("cannot connect to {host}: {error}; check the network and the host"),
    }
}

/// Returns what went wrong before the session started.
fn broken(error: &io::Error, config: &MqttSinkConfig, host: &str) -> String {
    let other = if config.url.starts_with("mqtts") {
        "if that port has no TLS, use mqtt:// in `url`"
    } else {
        "if that port requires TLS, use mqtts:// in `url`"
    };
    broker_tls::explain(error, host, "mqtt").unwrap_or_else(|| format!("{}; {other}", describe_io_error(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_local_network_that_is_not_resolved_has_its_own_remedy() {
        let text = |host| unreachable(&io::Error::other("no such name"), host, 1883);
        assert!(text("homeassistant.local").ends_with("those in .local need Avahi on this machine, with libnss-mdns"));
        assert!(text("broker.example.org").ends_with("check the network and the host"));
    }
}
