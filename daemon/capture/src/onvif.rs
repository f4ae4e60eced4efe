//! Finds ONVIF cameras of the local networks, and asks them for their streams, for `visiond probe --discover`.
//!
//! The question goes out by multicast ([`ws_discovery`]). Each device that answers is asked over HTTP, without a login, at the
//! address that its answer came from and at no other ([`media`]). Nothing here runs unless a user asks for it.

#[cfg(feature = "fuzz")]
pub mod fuzz;
mod interfaces;
mod media;
mod soap;
mod ws_discovery;
mod xml;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::{sleep, timeout};

use self::media::MediaError;
pub use self::media::{Profile, StreamUrl};
use self::soap::SoapError;
use self::ws_discovery::Device;

/// How many devices are asked at a time.
const AT_A_TIME: usize = 16;

/// How long all questions to one device may take.
const DEVICE_TIME: Duration = Duration::from_secs(20);

/// Interval at which the end is looked for.
const STEP: Duration = Duration::from_millis(100);

/// The most networks that are searched.
const MOST_NETWORKS: usize = 32;

/// What a search found.
#[derive(Debug)]
pub struct Discovery {
    /// The interfaces that were searched, with their addresses: `eth0 (192.168.1.5)`.
    pub networks: Vec<String>,
    /// By address.
    pub cameras: Vec<NetworkCamera>,
    /// Answers that were none of ONVIF devices of these networks.
    pub ignored: u64,
    /// Whether there were more devices or answers than are read.
    pub are_too_many: bool,
}

/// A camera that answered.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkCamera {
    /// Where its answer came from.
    pub address: Ipv4Addr,
    /// What the camera calls itself.
    pub name: Option<String>,
    /// Its model, by its own words.
    pub model: Option<String>,
    /// The URL of its ONVIF service.
    pub service: Option<String>,
    /// Its streams: 16 at most.
    pub profiles: Vec<Profile>,
    /// Whether it shows its streams to known users only.
    pub requires_login: bool,
    /// Why its streams are not known.
    pub error: Option<String>,
}

/// Why nothing was searched.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The system does not list its interfaces.
    #[error("cannot list the network interfaces: {0}; see `ip address`")]
    Interfaces(io::Error),
    /// There is no interface to search by.
    #[error(
        "cannot discover cameras: no network interface is up, has an IPv4 address and can multicast; connect the network"
    )]
    NoNetwork,
    /// The question could not be sent.
    #[error("cannot discover cameras: {0}; check the network and the firewall")]
    Search(io::Error),
}

/// Asks the local networks, collects answers for `wait`, and asks the cameras that answered.
///
/// If `is_over` becomes set, the wait ends, and the flag is cleared. If it is set again, cameras that have not answered by then are
/// left out.
///
/// # Errors
/// There is no network to search.
pub fn discover(wait: Duration, is_over: &AtomicBool) -> Result<Discovery, DiscoverError> {
    let mut networks = interfaces::local_networks().map_err(DiscoverError::Interfaces)?;
    networks.truncate(MOST_NETWORKS);
    if networks.is_empty() {
        return Err(DiscoverError::NoNetwork);
    }
    let answers = ws_discovery::search(&networks, wait, is_over).map_err(DiscoverError::Search)?;
    is_over.store(false, Ordering::SeqCst);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DiscoverError::Search)?;
    let cameras = runtime.block_on(ask_all(answers.devices, is_over));
    Ok(Discovery {
        networks: networks.iter().map(|network| format!("{} ({})", network.interface, network.address)).collect(),
        cameras,
        ignored: answers.ignored,
        are_too_many: answers.are_too_many,
    })
}

async fn ask_all(devices: Vec<Device>, is_over: &AtomicBool) -> Vec<NetworkCamera> {
    let mut cameras = Vec::new();
    let mut asked = stream::iter(devices).map(ask).buffer_unordered(AT_A_TIME);
    let over = async {
        while !is_over.load(Ordering::SeqCst) {
            sleep(STEP).await;
        }
    };
    let mut over = std::pin::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => break,
            camera = asked.next() => match camera {
                Some(camera) => cameras.push(camera),
                None => break,
            },
        }
    }
    cameras.sort_by_key(|camera| camera.address);
    cameras
}

async fn ask(device: Device) -> NetworkCamera {
    let Device { address, name, model, service } = device;
    let mut camera = NetworkCamera {
        address,
        name,
        model,
        service: service.as_ref().ok().map(|url| crate::ffprobe::shown(url.as_str())),
        profiles: Vec::new(),
        requires_login: false,
        error: None,
    };
    let answer = match &service {
        Ok(service) => {
            let slow = SoapError::Slow(DEVICE_TIME.as_secs());
            timeout(DEVICE_TIME, media::profiles(address, service)).await.unwrap_or(Err(slow.into()))
        }
        Err(error) => Err(error.clone().into()),
    };
    match answer {
        Ok(profiles) => camera.profiles = profiles,
        Err(error) => {
            camera.requires_login = matches!(error, MediaError::Soap(SoapError::LoginRequired));
            camera.error = Some(error.to_string());
        }
    }
    camera
}
