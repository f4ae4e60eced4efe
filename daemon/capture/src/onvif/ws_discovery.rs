//! WS-Discovery: a multicast search on every local network, and the answers of devices.
//!
//! It follows OASIS WS-Discovery of April 2005, which ONVIF's core specification requires, and SOAP 1.2.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use percent_encoding::percent_decode_str;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};
use url::{Host, Url};

use super::interfaces::LocalNetwork;
use super::xml;

const GROUP: (Ipv4Addr, u16) = (Ipv4Addr::new(239, 255, 255, 250), 3702);

/// The interval after which the search is repeated, because a datagram may be lost.
const REPEAT_AFTER: Duration = Duration::from_millis(700);

/// How often a wait checks whether to end.
const STEP: Duration = Duration::from_millis(100);

/// The largest answer to read. Devices send 1 to 4 KB.
const MOST_BYTES: usize = 32 << 10;

/// The most answers to read from one sender, and in total.
const MOST_OF_SENDER: u32 = 32;
const MOST_ANSWERS: u32 = 4096;

/// The most devices at one address, and in total.
const MOST_AT_ADDRESS: usize = 4;
const MOST_DEVICES: usize = 256;

/// The most characters of a device's name or model.
const MOST_CHARS: usize = 64;

/// The types to search for. Older devices answer only to the first, newer ones that are not cameras only to the second.
const TYPES: [&str; 2] = ["dn:NetworkVideoTransmitter", "tds:Device"];

/// A device that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The source address of its answer.
    pub address: Ipv4Addr,
    pub name: Option<String>,
    pub model: Option<String>,
    /// Its device service, at `address`.
    pub service: Result<Url, ServiceError>,
}

/// Why a device cannot be queried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// The answer names no address.
    #[error("its reply has no device-service address: switch ONVIF on in the camera")]
    Missing,
    /// The answer names only other hosts.
    #[error("it answers from {address} and names another host, {named}: correct the camera's network settings")]
    OtherHost {
        address: Ipv4Addr,
        /// The host in the answer.
        named: String,
    },
    /// The answer names only addresses with TLS.
    #[error("its service needs HTTPS, which visiond does not speak: allow HTTP for ONVIF in the camera")]
    HttpsOnly,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Answers {
    pub devices: Vec<Device>,
    /// Datagrams that were not answers of ONVIF devices on these networks, or exceeded the limits.
    pub ignored: u64,
    /// Whether there were more devices or answers than the limit.
    pub are_too_many: bool,
}

/// Searches every network, and reads answers for `wait`, or until `is_over` is set.
///
/// # Errors
/// The search message could not be sent to any network.
pub fn search(networks: &[LocalNetwork], wait: Duration, is_over: &AtomicBool) -> io::Result<Answers> {
    let mut failure = None;
    let sockets: Vec<_> = networks
        .iter()
        .filter_map(|network| match open(network) {
            Ok(socket) => Some((network, socket)),
            Err(error) => {
                failure = Some(error);
                None
            }
        })
        .collect();
    let ids: [String; 2] = [message_id()?, message_id()?];
    let ask = || -> io::Result<()> {
        let mut sent = Err(io::ErrorKind::NetworkUnreachable.into());
        for (_, socket) in &sockets {
            for (id, types) in ids.iter().zip(TYPES) {
                match socket.send_to(question(id, types).as_bytes(), GROUP) {
                    Ok(_) => sent = Ok(()),
                    Err(error) if sent.is_err() => sent = Err(error),
                    Err(_) => {}
                }
            }
        }
        sent
    };
    if let (true, Some(error)) = (sockets.is_empty(), failure) {
        return Err(error);
    }
    ask()?;
    let start = Instant::now();
    let (mut collector, mut is_repeated) = (Collector::new(&ids), false);
    let mut buffer = vec![0; MOST_BYTES + 1];
    while start.elapsed() < wait && !is_over.load(Ordering::SeqCst) && !collector.is_full() {
        if !is_repeated && start.elapsed() >= REPEAT_AFTER {
            is_repeated = true;
            // The first one was sent.
            let _ = ask();
        }
        let mut events: Vec<_> = sockets.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        let left = STEP.min(wait.saturating_sub(start.elapsed()));
        let step = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut events, Some(&step)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Read one answer from each network in turn, so that a flood on one does not hide the others.
        for (network, socket) in &sockets {
            if let Ok((length, SocketAddr::V4(from))) = socket.recv_from(&mut buffer) {
                match buffer.get(..length) {
                    Some(datagram) if length <= MOST_BYTES && network.contains(*from.ip()) => {
                        collector.take(datagram, *from.ip());
                    }
                    _ => collector.answers.ignored += 1,
                }
            }
        }
    }
    let mut answers = collector.answers;
    answers.devices.sort_by_key(|device| device.address);
    Ok(answers)
}

/// Opens a socket that sends to the group by this network's interface, no farther than this network.
fn open(network: &LocalNetwork) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.bind(&SocketAddr::from((network.address, 0)).into())?;
    socket.set_multicast_if_v4(&network.address)?;
    socket.set_multicast_ttl_v4(1)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Makes a random UUID (RFC 9562, version 4): an answer must repeat it.
fn message_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let number = u128::from_be_bytes(bytes) & !(0xF << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{number:032x}");
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn question(id: &str, types: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <s:Envelope xmlns:s=\"http://www.w3.org/2003/05/soap-envelope\" \
         xmlns:a=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" \
         xmlns:d=\"http://schemas.xmlsoap.org/ws/2005/04/discovery\" \
         xmlns:dn=\"http://www.onvif.org/ver10/network/wsdl\" \
         xmlns:tds=\"http://www.onvif.org/ver10/device/wsdl\"><s:Header>\
         <a:Action s:mustUnderstand=\"1\">http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action>\
         <a:MessageID>urn:uuid:{id}</a:MessageID>\
         <a:To s:mustUnderstand=\"1\">urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To>\
         </s:Header><s:Body><d:Probe><d:Types>{types}</d:Types></d:Probe></s:Body></s:Envelope>"
    )
}

/// Turns answers into devices.
struct Collector<'i> {
    ids: &'i [String; 2],
    answers: Answers,
    of_sender: HashMap<Ipv4Addr, u32>,
    read: u32,
}

impl<'i> Collector<'i> {
    fn new(ids: &'i [String; 2]) -> Self {
        Self { ids, answers: Answers::default(), of_sender: HashMap::new(), read: 0 }
    }

    fn is_full(&self) -> bool {
        self.read >= MOST_ANSWERS
    }

    fn take(&mut self, datagram: &[u8], from: Ipv4Addr) {
        let count = self.of_sender.entry(from).or_default();
        *count += 1;
        if *count > MOST_OF_SENDER {
            self.answers.ignored += 1;
            return;
        }
        self.read += 1;
        self.answers.are_too_many |= self.is_full();
        let found = devices(datagram, from, self.ids);
        self.answers.ignored += u64::from(found.is_empty());
        for device in found {
            self.add(device);
        }
    }

    fn add(&mut self, device: Device) {
        let devices = &mut self.answers.devices;
        if devices.contains(&device) {
            return;
        }
        let here = devices.iter_mut().filter(|other| other.address == device.address);
        let mut count = 0;
        for other in here {
            count += 1;
            if other.service == device.service || other.service.is_err() {
                // The same device, or a better answer from it.
                other.service = device.service;
                other.name = other.name.take().or(device.name);
                other.model = other.model.take().or(device.model);
                return;
            }
            if device.service.is_err() {
                return;
            }
        }
        if count >= MOST_AT_ADDRESS || devices.len() >= MOST_DEVICES {
            self.answers.are_too_many = true;
        } else {
            devices.push(device);
        }
    }
}

/// Returns the ONVIF devices of an answer to one of the searches `ids`; none if it is anything else.
pub(super) fn devices(datagram: &[u8], from: Ipv4Addr, ids: &[String; 2]) -> Vec<Device> {
    let Ok(text) = str::from_utf8(datagram) else { return Vec::new() };
    let Ok(document) = xml::parse(text) else { return Vec::new() };
    let root = document.root();
    let relates_to = xml::text(root, "RelatesTo").unwrap_or_default().to_ascii_lowercase();
    if !ids.iter().any(|id| relates_to.ends_with(id.as_str())) {
        return Vec::new();
    }
    let matches = xml::all(root, "ProbeMatch").take(MOST_AT_ADDRESS).filter_map(|found| {
        let scopes = xml::text(found, "Scopes").unwrap_or_default();
        let scope = |kind: &str| {
            let values = scopes.split_whitespace().filter_map(|scope| scope.strip_prefix("onvif://www.onvif.org/"));
            let value =
                values.filter_map(|value| value.strip_prefix(kind)?.strip_prefix('/')).find(|v| !v.is_empty())?;
            Some(percent_decode_str(value).decode_utf8_lossy().chars().take(MOST_CHARS).collect())
        };
        // Printers and computers answer as well.
        let is_onvif = scopes.contains("onvif://www.onvif.org")
            || xml::text(found, "Types").unwrap_or_default().contains("NetworkVideoTransmitter");
        let service = service(xml::text(found, "XAddrs").unwrap_or_default(), from);
        is_onvif.then(|| Device { address: from, name: scope("name"), model: scope("hardware"), service })
    });
    matches.collect()
}

/// Returns the first of the device's addresses at `from`, the source of its answer.
fn service(addresses: &str, from: Ipv4Addr) -> Result<Url, ServiceError> {
    let mut error = ServiceError::Missing;
    for text in addresses.split_whitespace().take(16) {
        let Some(url) = Url::parse(text).ok().filter(|url| url.as_str().len() <= 512) else { continue };
        match at(&url, from) {
            Ok(()) => return Ok(url),
            Err(ServiceError::Missing) => {}
            // An address with TLS at least belongs to the device.
            Err(_) if error == ServiceError::HttpsOnly => {}
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Checks that `url` is HTTP and at `address`, as an IP address: no name is resolved.
pub fn at(url: &Url, address: Ipv4Addr) -> Result<(), ServiceError> {
    let host = match url.host() {
        Some(Host::Ipv4(host)) => IpAddr::V4(host).to_string(),
        Some(host) => host.to_string().chars().take(MOST_CHARS).collect(),
        None => return Err(ServiceError::Missing),
    };
    if host != address.to_string() {
        return Err(ServiceError::OtherHost { address, named: host });
    }
    match url.scheme() {
        "http" => Ok(()),
        "https" => Err(ServiceError::HttpsOnly),
        _ => Err(ServiceError::Missing),
    }
}

#[cfg(test)]
mod tests;
