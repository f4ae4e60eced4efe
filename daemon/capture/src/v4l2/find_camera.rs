//! Finds the current node of a camera, whatever number the kernel gave it.
//!
//! The search covers the capture nodes in /sys/class/video4linux, by node, by USB ids, or by card name. visiond remembers what it
//! found as an [`Identity`]: a camera configured by its node is then known by its identity, and is found again when the kernel
//! gives it another number. A link in /dev/v4l/by-path names a port, not a camera: any camera plugged in there is the right one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use visiond_config::types::CameraName;

use super::device::Node;
use super::identity::{Identity, UsbIds, is_claimed_by_another};

/// A camera that is plugged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCamera {
    /// The node to open.
    pub node: PathBuf,
    /// The camera's identity; `None` for a node that is not in /sys.
    pub identity: Option<Identity>,
}

/// Why the camera cannot be found now. Every reason may pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No camera has this name.
    #[error("{name} is missing: plug the camera in, or correct `device` (`visiond probe` lists the cameras)")]
    Absent {
        /// The configured name.
        name: String,
    },
    /// Another camera has the camera's node, and the camera is missing.
    #[error(
        "{name} is now {there}, and {remembered} is missing: visiond switches to the new one if the other does not return"
    )]
    Replaced {
        /// The node.
        name: String,
        /// The camera that is there now.
        there: Box<Identity>,
        /// The camera that was there before.
        remembered: Box<Identity>,
    },
    /// More than one camera has this name.
    #[error("{} cameras are {name}: name one by its port, `device = \"{}\"`", places.len(), list(places))]
    Ambiguous {
        /// The configured name.
        name: String,
        /// Their ports.
        places: Vec<PathBuf>,
    },
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join("\" or \"")
}

/// Finds the camera on this machine. `remembered` is its identity when it was last open.
pub fn find(name: &CameraName, remembered: Option<&Identity>) -> Result<FoundCamera, NotFound> {
    SystemFolders::default().find(name, remembered)
}

/// A node in /dev, and its camera.
type NodeIdentity = (PathBuf, Identity);

/// Where to search, and how to query a node.
#[derive(Debug, Clone)]
pub(super) struct SystemFolders {
    pub sys: PathBuf,
    pub dev: PathBuf,
    pub ask: fn(&Path) -> Answer,
}

/// The result of querying a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It captures frames; the card's name.
    Camera(String),
    /// It captures none: a camera's metadata node, an output, a codec.
    Other,
    /// It does not answer: this user may not open it, or it has just been unplugged.
    Silent,
}

impl Default for SystemFolders {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), ask }
    }
}

fn ask(node: &Path) -> Answer {
    let Ok(node) = Node::open(node) else { return Answer::Silent };
    let capabilities = node.capabilities();
    if capabilities.api().is_some() { Answer::Camera(capabilities.card.clone()) } else { Answer::Other }
}

impl SystemFolders {
    pub(super) fn find(&self, name: &CameraName, remembered: Option<&Identity>) -> Result<FoundCamera, NotFound> {
        match name {
            CameraName::Node(path) => self.by_node(path, remembered),
            CameraName::Usb { vendor, product, serial } => {
                let fits = |(node, identity): &NodeIdentity| {
                    identity.usb.as_ref().is_some_and(|usb| {
                        (usb.vendor, usb.product) == (*vendor, *product) && (serial.is_none() || usb.serial == *serial)
                    }) && (self.ask)(node) != Answer::Other
                };
                self.only(name, self.nodes().into_iter().filter(fits).collect(), remembered)
            }
            CameraName::Card(card) => {
                let nodes = self.nodes();
                let called =
                    |(node, identity): &NodeIdentity| identity.card == *card && (self.ask)(node) != Answer::Other;
                let (mut fitting, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(called);
                if fitting.is_empty() {
                    // Some drivers name their nodes differently from their card.
                    let says = |(node, _): &NodeIdentity| (self.ask)(node) == Answer::Camera(card.clone());
                    fitting.extend(others.into_iter().filter(says));
                }
                self.only(name, fitting, remembered)
            }
        }
    }

    fn by_node(&self, path: &Path, remembered: Option<&Identity>) -> Result<FoundCamera, NotFound> {
        let absent = || NotFound::Absent { name: path.display().to_string() };
        let there = path.canonicalize().ok();
        let Some(remembered) = remembered.filter(|_| !self.is_place(path)) else {
            let node = there.ok_or_else(absent)?;
            let identity = self.identity(&node);
            // The path stays as configured, because messages show it.
            return Ok(FoundCamera { node: path.to_owned(), identity });
        };
        let there = there.map(|node| (self.identity(&node), node));
        if let Some((Some(identity), _)) = &there
            && identity == remembered
        {
            return Ok(FoundCamera { node: path.to_owned(), identity: Some(remembered.clone()) });
        }
        let nodes = self.nodes();
        let like = |(_, identity): &&NodeIdentity| {
            identity.is_like(remembered) && !is_claimed_by_another(identity, remembered)
        };
        let exact = nodes.iter().filter(|(_, identity)| identity == remembered).collect::<Vec<_>>();
        let found = match exact.as_slice() {
            [] => nodes.iter().filter(like).collect(),
            _ => exact,
        };
        match (found.as_slice(), there) {
            ([(node, identity)], _) => Ok(FoundCamera { node: node.clone(), identity: Some(identity.clone()) }),
            ([], None) => Err(absent()),
            // A node that is not in /sys has no identity to compare.
            ([], Some((None, _))) => Ok(FoundCamera { node: path.to_owned(), identity: None }),
            ([], Some((Some(there), _))) if is_claimed_by_another(&there, remembered) => Err(absent()),
            ([], Some((Some(there), _))) => Err(NotFound::Replaced {
                name: path.display().to_string(),
                there: Box::new(there),
                remembered: Box::new(remembered.clone()),
            }),
            (several, there) => match there {
                Some((Some(identity), node)) if several.iter().any(|(other, _)| *other == node) => {
                    Ok(FoundCamera { node: path.to_owned(), identity: Some(identity) })
                }
                _ => Err(self.ambiguous(remembered.to_string(), several.iter().map(|(node, _)| node.as_path()))),
            },
        }
    }

    /// Returns the only match, or among several the remembered camera.
    fn only(
        &self,
        name: &CameraName,
        fitting: Vec<NodeIdentity>,
        remembered: Option<&Identity>,
    ) -> Result<FoundCamera, NotFound> {
        let chosen = match fitting.as_slice() {
            [] => return Err(NotFound::Absent { name: name.to_string() }),
            [one] => one,
            several => several
                .iter()
                .find(|(_, identity)| Some(identity) == remembered)
                .ok_or_else(|| self.ambiguous(name.to_string(), several.iter().map(|(node, _)| node.as_path())))?,
        };
        Ok(FoundCamera { node: chosen.0.clone(), identity: Some(chosen.1.clone()) })
    }

    fn ambiguous<'a>(&self, name: String, nodes: impl Iterator<Item = &'a Path>) -> NotFound {
        NotFound::Ambiguous { name, places: nodes.map(|node| self.place(node)).collect() }
    }

    /// Whether the path is a link in /dev/v4l/by-path.
    fn is_place(&self, path: &Path) -> bool {
        path.starts_with(self.dev.join("v4l/by-path"))
    }

    /// Returns the link in /dev/v4l/by-path to `node`, or `node` itself.
    fn place(&self, node: &Path) -> PathBuf {
        let links = fs::read_dir(self.dev.join("v4l/by-path")).into_iter().flatten().flatten();
        let leading = links.map(|entry| entry.path()).filter(|link| link.canonicalize().is_ok_and(|to| to == node));
        leading.min().unwrap_or_else(|| node.to_owned())
    }

    /// Lists the video nodes in /sys that exist in /dev, by number.
    fn nodes(&self) -> Vec<NodeIdentity> {
        let entries = fs::read_dir(self.sys.join("class/video4linux")).into_iter().flatten().flatten();
        let numbered = entries.filter_map(|entry| {
            let name = entry.file_name();
            let number: u32 = name.to_str()?.strip_prefix("video")?.parse().ok()?;
            let node = self.dev.join(&name);
            let identity = self.identity(&node).filter(|_| node.exists())?;
            Some((number, (node, identity)))
        });
        numbered.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Reads the identity of a node's camera from /sys; `None` if the node is not there.
    fn identity(&self, node: &Path) -> Option<Identity> {
        let class = self.sys.join("class/video4linux").join(node.file_name()?);
        let read = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim_end_matches('\n').to_owned());
        let card = read(class.join("name"))?;
        let index = read(class.join("index")).and_then(|text| text.parse().ok()).unwrap_or(0);
        let devices = self.sys.join("devices").canonicalize().ok();
        let below = |folder: &Path| {
            devices.as_ref().and_then(|devices| folder.strip_prefix(devices).ok()).unwrap_or(folder).to_owned()
        };
        // A driver without hardware has no `device`.
        let Ok(device) = class.join("device").canonicalize() else {
            return Some(Identity { usb: None, port: "virtual".into(), part: (String::new(), index), card });
        };
        let hex = |path: PathBuf| read(path).and_then(|text| u16::from_str_radix(&text, 16).ok());
        for folder in device.ancestors() {
            let Some((vendor, product)) = hex(folder.join("idVendor")).zip(hex(folder.join("idProduct"))) else {
                continue;
            };
            let serial = read(folder.join("serial")).filter(|serial| !serial.is_empty());
            // An interface's folder is named after its device, `1-2:1.0`.
            let interface = device.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(':'));
            let interface = interface.map_or(String::new(), |(_, interface)| interface.to_owned());
            let usb = Some(UsbIds { vendor, product, serial });
            return Some(Identity { usb, port: below(folder), part: (interface, index), card });
        }
        Some(Identity { usb: None, port: below(&device), part: (String::new(), index), card })
    }
}

#[cfg(test)]
mod tests;
