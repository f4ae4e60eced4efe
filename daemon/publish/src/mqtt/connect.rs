//! The way to a broker: address, connection, TLS, and the agreement that begins a session.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::ready;

use bytes::{Buf, BytesMut};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use visiond_config::split_broker;
use visiond_config::types::{MqttProtocol, MqttSinkConfig};

use super::codec::{Codec, Connect, Limits, Packet, Refusal};
use super::session::{Session, Stream, describe_io_error};
use crate::broker::tls;

/// Begins a session. The error is a sentence that names the broker.
pub async fn open(config: &MqttSinkConfig, connect: &Connect) -> Result<Session, String> {
    let url = &config.url;
    let named = |reason: String| format!("{url}: {reason}");
    let (scheme, host, port) = split_broker(url).ok_or_else(|| named("is no broker's URL".to_owned()))?;
    let encrypted = scheme == "mqtts";
    let port = port.unwrap_or(if encrypted { 8883 } else { 1883 });
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| named(unreachable(&error, host, port)))?;
    // A small message must not wait for the answer to the one before.
    let _ = tcp.set_nodelay(true);
    let mut stream: Box<dyn Stream> = if encrypted {
        let client = tls::client(config).map_err(named)?;
        let name = ServerName::try_from(host.to_owned()).map_err(|_| named("has no host that TLS knows".to_owned()))?;
        let connected = TlsConnector::from(client).connect(name, tcp).await;
        Box::new(connected.map_err(|error| named(broken(&error, config, host)))?)
    } else {
        Box::new(tcp)
    };
    let codec = Codec::new(config.protocol);
    let mut out = BytesMut::new();
    codec.connect(connect, &mut out).map_err(named)?;
    write_all(&mut *stream, out).await.map_err(|error| named(broken(&error, config, host)))?;
    let mut input = BytesMut::new();
    let limits = welcome(&mut *stream, codec, &mut input, config, host).await.map_err(named)?;
    Ok(Session::new(stream, codec, limits, config.keep_alive, input))
}

/// Waits for the broker's answer to our begin.
async fn welcome(
    stream: &mut dyn Stream,
    codec: Codec,
    input: &mut BytesMut,
    config: &MqttSinkConfig,
    host: &str,
) -> Result<Limits, String> {
    let other_version = match config.protocol {
        MqttProtocol::V5 => "does it speak MQTT 3.1.1 only? Then set `protocol = \"3.1.1\"`",
        MqttProtocol::V3 => "does it speak MQTT 5 only? Then set `protocol = \"5\"`",
    };
    loop {
        match codec.decode(input) {
            Ok(Some(Packet::ConnAck(limits))) => return Ok(limits),
            Ok(Some(Packet::Refused(refusal))) => return Err(refused(refusal, config, other_version)),
            Ok(Some(_)) => return Err("what answers there is no broker of MQTT: is the port right?".to_owned()),
            Err(error) => {
                return Err(format!(
                    "what answers there is no broker of MQTT, or of another version ({error}); {other_version}"
                ));
            }
            Ok(None) => {}
        }
        let n = read(stream, input).await.map_err(|error| broken(&error, config, host))?;
        if n == 0 {
            return Err(format!("the broker closes the connection without an answer: {other_version}"));
        }
    }
}

fn refused(refusal: Refusal, config: &MqttSinkConfig, other_version: &str) -> String {
    match refusal {
        Refusal::Login => match &config.login {
            Some(login) => {
                format!(
                    "the broker does not accept the user and password of the login {}: correct them",
                    login.display()
                )
            }
            None => "the broker wants a user and a password: name them with `login`".to_owned(),
        },
        Refusal::ClientId => "the broker does not accept the client id: set another `client_id`".to_owned(),
        Refusal::Version => format!("the broker does not speak this version of MQTT: {other_version}"),
        Refusal::Other(words) => format!("the broker refuses: {words}"),
    }
}

fn unreachable(error: &io::Error, host: &str, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("nobody listens at port {port} of {host}: is the broker running, and is the port right?")
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::TimedOut => {
            format!("{host} cannot be reached: {error}; is the network up, and the host on?")
        }
        _ => format!("no connection to {host}: {error}"),
    }
}

/// What went wrong before the session began.
fn broken(error: &io::Error, config: &MqttSinkConfig, host: &str) -> String {
    let other = if config.url.starts_with("mqtts") {
        "is there TLS at that port? If not, write mqtt:// into `url`"
    } else {
        "does that port want TLS? Then write mqtts:// into `url`"
    };
    tls::explain(error, host, "mqtt").unwrap_or_else(|| format!("{}; {other}", describe_io_error(error)))
}

async fn write_all(stream: &mut dyn Stream, mut bytes: BytesMut) -> io::Result<()> {
    poll_fn(|context| {
        while !bytes.is_empty() {
            let n = ready!(Pin::new(&mut *stream).poll_write(context, &bytes))?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into()).into();
            }
            bytes.advance(n);
        }
        Pin::new(&mut *stream).poll_flush(context)
    })
    .await
}

async fn read(stream: &mut dyn Stream, input: &mut BytesMut) -> io::Result<usize> {
    let mut chunk = [0; 1024];
    let n = poll_fn(|context| {
        let mut buffer = tokio::io::ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer))?;
        std::task::Poll::Ready(io::Result::Ok(buffer.filled().len()))
    })
    .await?;
    input.extend_from_slice(&chunk[..n]);
    Ok(n)
}
