//! Names of V4L2 cameras, for the key `device`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::text::{filled, refuse_home, resolve};
use super::{Inline, quote};
use crate::schema::{At, Context, Item};

/// Name of a V4L2 camera.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CameraName {
    /// A device node, or a link to one.
    Node(PathBuf),
    /// USB ids.
    Usb {
        /// Vendor id.
        vendor: u16,
        /// Product id.
        product: u16,
        /// Serial number, if the device has one.
        serial: Option<String>,
    },
    /// Card name that the driver reports.
    Card(String),
}

impl fmt::Display for CameraName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(path) => path.display().fmt(f),
            Self::Usb { vendor, product, serial: None } => write!(f, "{vendor:04x}:{product:04x}"),
            Self::Usb { vendor, product, serial: Some(serial) } => write!(f, "{vendor:04x}:{product:04x}:{serial}"),
            Self::Card(card) => card.fmt(f),
        }
    }
}

impl Default for CameraName {
    fn default() -> Self {
        Self::Node(PathBuf::new())
    }
}

impl FromStr for CameraName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(format!("not {DESCRIPTION}"));
        }
        if text.starts_with('/') || text.starts_with("./") || text.starts_with("../") {
            return Ok(Self::Node(PathBuf::from(text)));
        }
        if let Some(node) = meant_node(text) {
            return Err(format!("not the full path of a node: write {node}"));
        }
        Ok(usb(text).unwrap_or_else(|| Self::Card(text.to_owned())))
    }
}

const DESCRIPTION: &str =
    "a camera: \"/dev/...\", USB ids such as \"046d:0825\" or \"046d:0825:SERIAL\", or the card's name";

/// Parses `046d:0825` or `046d:0825:SERIAL`.
fn usb(text: &str) -> Option<CameraName> {
    let id = |text: &str| {
        (text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .then(|| u16::from_str_radix(text, 16).ok())
            .flatten()
    };
    let mut parts = text.splitn(3, ':');
    let (vendor, product) = (id(parts.next()?)?, id(parts.next()?)?);
    let serial = match parts.next() {
        Some("") => return None,
        serial => serial.map(str::to_owned),
    };
    Some(CameraName::Usb { vendor, product, serial })
}

/// Returns the node that `video0` or `dev/video0` probably stands for.
fn meant_node(text: &str) -> Option<String> {
    let number = text.strip_prefix("video").filter(|rest| !rest.is_empty());
    if number.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())) {
        return Some(format!("/dev/{text}"));
    }
    text.starts_with("dev/").then(|| format!("/{text}"))
}

/// The kind of camera names.
#[derive(Debug)]
pub struct Camera;

/// Returns the kind of camera names. A relative path starts at the folder of the file.
pub fn camera() -> Camera {
    Camera
}

/// Parses `text` as in a file in the folder `base`.
pub fn camera_in(base: &Path, text: &str) -> Result<CameraName, String> {
    Ok(match text.parse()? {
        CameraName::Node(path) => CameraName::Node(resolve(base, &path.to_string_lossy())),
        name => name,
    })
}

impl Inline for Camera {
    type Value = CameraName;

    fn describe(&self) -> String {
        DESCRIPTION.to_owned()
    }

    fn read(&self, item: &Item<'_>, at: &At<'_>, context: &mut Context<'_>) -> Option<CameraName> {
        let Some(text) = filled(item) else { return self.refuse(item, at, context, "") };
        refuse_home(text, item, at, context)?;
        match camera_in(context.base, text) {
            Ok(name) => Some(name),
            Err(error) => {
                context.wrong(item, at, &format!("is {error}"));
                None
            }
        }
    }

    fn text(&self, value: &CameraName) -> String {
        let text = value.to_string();
        match value {
            // Without `./` it would be read as a card name.
            CameraName::Node(path) if path.is_relative() && !text.starts_with("./") && !text.starts_with("../") => {
                quote(&format!("./{text}"))
            }
            _ => quote(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_name_a_camera_reads_as_what_it_is() {
        let usb = |serial: Option<&str>| CameraName::Usb {
            vendor: 0x046d,
            product: 0x0825,
            serial: serial.map(str::to_owned),
        };
        for (text, expected) in [
            ("/dev/video0", CameraName::Node("/dev/video0".into())),
            (
                "/dev/v4l/by-path/pci-0:1.0-video-index0",
                CameraName::Node("/dev/v4l/by-path/pci-0:1.0-video-index0".into()),
            ),
            ("046d:0825", usb(None)),
            ("046D:0825", usb(None)),
            ("046d:0825:A:1", usb(Some("A:1"))),
            ("HD Pro Webcam C920", CameraName::Card("HD Pro Webcam C920".into())),
            ("vi-output, imx219 9-0010", CameraName::Card("vi-output, imx219 9-0010".into())),
            ("046d:82", CameraName::Card("046d:82".into())),
        ] {
            assert_eq!(text.parse::<CameraName>(), Ok(expected.clone()));
            assert_eq!(expected.to_string().parse(), Ok(expected));
        }
        assert_eq!("video0".parse::<CameraName>(), Err("not the full path of a node: write /dev/video0".to_owned()));
        assert!("".parse::<CameraName>().is_err());
    }
}
