//! Finds ONVIF cameras on the local networks and queries their streams, for `visiond probe --discover`.
//!
//! The search goes out by multicast ([`ws_discovery`]). Each device that answers is queried over HTTP, without a login, only at the
//! address that its answer came from ([`media`]). Nothing here runs unless a user asks for it.

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

/// How many devices to query at a time.
const AT_A_TIME: usize = 16;

/// How long all queries to one device may take.
const DEVICE_TIME: Duration = Duration::from_secs(20);

/// How often to check whether to stop.
const STEP: Duration = Duration::from_millis(100);

/// The most networks to search.
const MOST_NETWORKS: usize = 32;

/// The result of a search.
#[derive(Debug)]
pub struct Discovery {
    /// The interfaces searched, with their addresses: `eth0 (192.168.1.5)`.
    pub networks: Vec<String>,
    /// The cameras, sorted by address.
    pub cameras: Vec<NetworkCamera>,
    /// Answers that did not come from ONVIF devices on these networks.
    pub ignored: u64,
    /// Whether there were more devices or answers than the limit.
    pub are_too_many: bool,
}

/// A camera that answered.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkCamera {
    /// The source address of its answer.
    pub address: Ipv4Addr,
    /// The name that the camera states.
    pub name: Option<String>,
    /// The model that the camera states.
    pub model: Option<String>,
    /// The URL of its ONVIF service.
    pub service: Option<String>,
    /// Its streams, at most 16.
    pub profiles: Vec<Profile>,
    /// Whether it lists its streams only after a login.
    pub requires_login: bool,
    /// Why its streams are unknown.
    pub error: Option<String>,
}

/// Why the search could not start.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The system does not list its interfaces.
    #[error("cannot list the network interfaces: {0}; see `ip address`")]
    Interfaces(io::Error),
    /// There is no interface to search on.
    #[error(
        "cannot discover cameras: no network interface is up, has an IPv4 address and can multicast; connect the network"
    )]
    NoNetwork,
    /// The search message could not be sent.
    #[error("cannot discover cameras: {0}; check the network and the firewall")]
    Search(io::Error),
}

/// Searches the local networks, collects answers for `wait`, and queries the cameras that answered.
///
/// Setting `is_over` ends the wait, and the flag is cleared. Setting it again leaves out cameras that have not answered by then.
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
