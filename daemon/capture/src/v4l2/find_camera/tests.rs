//! Cameras of a machine whose /sys and /dev are temporary folders.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::super::identity::CameraClaim;
use super::*;

struct Desk {
    folder: tempfile::TempDir,
    machine: SystemFolders,
}

/// A simulated node answers with the text of its file.
fn ask(node: &Path) -> Answer {
    match fs::read_to_string(node).unwrap_or_default().split_once(' ') {
        Some(("camera", card)) => Answer::Camera(card.to_owned()),
        Some(_) => Answer::Other,
        None => Answer::Silent,
    }
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = SystemFolders { sys: folder.path().join("sys"), dev: folder.path().join("dev"), ask };
        for made in ["sys/class/video4linux", "sys/devices", "dev/v4l/by-path"] {
            fs::create_dir_all(folder.path().join(made)).unwrap();
        }
        Self { folder, machine }
    }

    fn dev(&self, name: &str) -> PathBuf {
        self.folder.path().join("dev").join(name)
    }

    /// Adds the node `number` of the card `card`, with a parent device.
    fn node(&self, number: u32, parent: &Path, index: u32, card: &str, says: &str) {
        let class = parent.join(format!("video4linux/video{number}"));
        fs::create_dir_all(&class).unwrap();
        fs::write(class.join("name"), format!("{card}\n")).unwrap();
        fs::write(class.join("index"), format!("{index}\n")).unwrap();
        symlink(parent, class.join("device")).unwrap();
        symlink(&class, self.machine.sys.join(format!("class/video4linux/video{number}"))).unwrap();
        fs::write(self.dev(&format!("video{number}")), says).unwrap();
    }

    /// Adds a USB camera: its node for frames, and the next one for metadata.
    fn usb(&self, number: u32, port: &str, ids: &str, serial: Option<&str>) {
        let device = self.machine.sys.join("devices/usb1").join(port);
        fs::create_dir_all(device.join(format!("{port}:1.0"))).unwrap();
        let (vendor, product) = ids.split_once(':').unwrap();
        fs::write(device.join("idVendor"), format!("{vendor}\n")).unwrap();
        fs::write(device.join("idProduct"), format!("{product}\n")).unwrap();
        if let Some(serial) = serial {
            fs::write(device.join("serial"), format!("{serial}\n")).unwrap();
        }
        let interface = device.join(format!("{port}:1.0"));
        let card = format!("Webcam {product}");
        self.node(number, &interface, 0, &card, &format!("camera {card}"));
        self.node(number + 1, &interface, 1, &card, "metadata -");
        symlink(self.dev(&format!("video{number}")), self.dev(&format!("v4l/by-path/usb-{port}-video-index0")))
            .unwrap();
    }

    fn unplug(&self, number: u32, port: &str) {
        for number in [number, number + 1] {
            fs::remove_file(self.dev(&format!("video{number}"))).unwrap();
            fs::remove_file(self.machine.sys.join(format!("class/video4linux/video{number}"))).unwrap();
        }
        fs::remove_dir_all(self.machine.sys.join("devices/usb1").join(port)).unwrap();
        fs::remove_file(self.dev(&format!("v4l/by-path/usb-{port}-video-index0"))).unwrap();
    }

    fn find(&self, name: &str, remembered: Option<&Identity>) -> Result<FoundCamera, NotFound> {
        self.machine.find(&name.parse().unwrap(), remembered)
    }

    fn at(&self, name: &str, remembered: Option<&Identity>) -> Result<FoundCamera, NotFound> {
        self.machine.find(&CameraName::Node(self.dev(name)), remembered)
    }

    /// Returns the camera at a node.
    fn who(&self, name: &str) -> Identity {
        self.at(name, None).unwrap().identity.unwrap()
    }
}

#[test]
fn a_camera_is_found_by_usb_ids_by_serial_and_by_card_and_never_by_its_metadata() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", Some("A1"));
    desk.usb(2, "1-2", "046d:0826", None);
    for name in ["046d:0825", "046D:0825:A1", "Webcam 0825"] {
        assert_eq!(desk.find(name, None).unwrap().node, desk.dev("video0"), "{name}");
    }
    assert_eq!(desk.find("046d:0826", None).unwrap().node, desk.dev("video2"));
    let error = desk.find("046d:0825:B2", None).unwrap_err().to_string();
    assert!(error.starts_with("046d:0825:B2 is missing: plug the camera in"), "{error}");
    assert!(matches!(desk.find("Webcam", None), Err(NotFound::Absent { .. })));
}

#[test]
fn a_card_may_have_another_name_than_its_node() {
    let desk = Desk::new();
    let platform = desk.machine.sys.join("devices/platform/vivid.0");
    fs::create_dir_all(&platform).unwrap();
    desk.node(0, &platform, 0, "vivid-000-vid-cap", "camera vivid");
    assert_eq!(desk.find("vivid", None).unwrap().node, desk.dev("video0"));
    assert_eq!(desk.find("vivid-000-vid-cap", None).unwrap().node, desk.dev("video0"));
    assert_eq!(desk.who("video0").port, Path::new("platform/vivid.0"));
    desk.node(1, &platform, 0, "vivid-001-vid-cap", "camera vivid");
    assert!(matches!(desk.find("vivid", None), Err(NotFound::Ambiguous { .. })));
}

#[test]
fn of_two_that_fit_both_are_named_by_their_place_unless_one_was_open_before() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", None);
    let first = desk.who("video0");
    desk.usb(2, "1-2", "046d:0825", None);
    let error = desk.find("046d:0825", None).unwrap_err().to_string();
    let place = |port: &str| desk.dev(&format!("v4l/by-path/usb-{port}-video-index0")).display().to_string();
    let expected = format!(
        "2 cameras are 046d:0825: name one by its port, `device = \"{}\" or \"{}\"`",
        place("1-1"),
        place("1-2")
    );
    assert_eq!(error, expected);
    assert_eq!(desk.find("046d:0825", Some(&first)).unwrap().node, desk.dev("video0"));
}

#[test]
fn a_camera_that_comes_back_under_another_node_is_found_there() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", Some("A1"));
    let remembered = desk.who("video0");
    desk.unplug(0, "1-1");
    assert!(matches!(desk.at("video0", Some(&remembered)), Err(NotFound::Absent { .. })));
    desk.usb(4, "1-3", "046d:0825", Some("A1"));
    let found = desk.at("video0", Some(&remembered)).unwrap();
    assert_eq!(found.node, desk.dev("video4"));
    assert_eq!(found.identity, Some(desk.who("video4")), "its new port is remembered");
}

#[test]
fn another_camera_in_its_place_is_taken_only_if_the_camera_is_nowhere() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", None);
    let remembered = desk.who("video0");
    desk.unplug(0, "1-1");
    desk.usb(0, "1-2", "1234:0001", None);
    let error = desk.at("video0", Some(&remembered)).unwrap_err();
    assert!(matches!(error, NotFound::Replaced { .. }), "{error}");
    let text = error.to_string();
    let replaced = "is now Webcam 0001 (1234:0001), and Webcam 0825 (046d:0825) is missing: visiond switches to the new one if the";
    assert!(text.contains(replaced), "{text}");
    desk.usb(6, "1-1", "046d:0825", None);
    assert_eq!(desk.at("video0", Some(&remembered)).unwrap().node, desk.dev("video6"));
}

#[test]
fn cameras_that_change_places_in_a_hub_are_not_mixed_up() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", None);
    desk.usb(2, "1-2", "046d:0825", None);
    let (left, right) = (desk.who("video0"), desk.who("video2"));
    let reservations = [CameraClaim::new(), CameraClaim::new()];
    reservations[0].set(Some(&left));
    reservations[1].set(Some(&right));
    desk.unplug(0, "1-1");
    desk.unplug(2, "1-2");
    // The right camera comes back first, at the left camera's node.
    desk.usb(0, "1-2", "046d:0825", None);
    assert!(matches!(desk.at("video0", Some(&left)), Err(NotFound::Absent { .. })));
    assert_eq!(desk.at("video2", Some(&right)).unwrap().node, desk.dev("video0"));
    desk.usb(2, "1-1", "046d:0825", None);
    assert_eq!(desk.at("video0", Some(&left)).unwrap().node, desk.dev("video2"));
    drop(reservations);
}

#[test]
fn a_place_is_whatever_is_plugged_in_there() {
    let desk = Desk::new();
    desk.usb(0, "1-1", "046d:0825", None);
    let remembered = desk.who("video0");
    desk.unplug(0, "1-1");
    desk.usb(0, "1-1", "1234:0001", None);
    desk.usb(2, "1-2", "046d:0825", None);
    let link = "v4l/by-path/usb-1-1-video-index0";
    let found = desk.at(link, Some(&remembered)).unwrap();
    assert_eq!((found.node, found.identity), (desk.dev(link), Some(desk.who("video0"))));
}

#[test]
fn a_node_that_sys_does_not_tell_of_is_taken_as_it_is() {
    let desk = Desk::new();
    fs::write(desk.dev("camera"), "").unwrap();
    assert_eq!(desk.at("camera", None).unwrap(), FoundCamera { node: desk.dev("camera"), identity: None });
}

#[test]
fn a_jetsons_sensors_are_found_by_the_names_that_its_driver_gives_them() {
    let dev = tempfile::tempdir().unwrap();
    for (node, card) in [("video0", "vi-output, imx219 9-0010"), ("video1", "vi-output, imx219 10-0010")] {
        fs::write(dev.path().join(node), format!("camera {card}")).unwrap();
    }
    let sys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/boards/orin-nano-36.4.3/sys");
    let machine = SystemFolders { sys, dev: dev.path().to_owned(), ask };
    let found = machine.find(&CameraName::Card("vi-output, imx219 10-0010".to_owned()), None).unwrap();
    assert_eq!(found.node, dev.path().join("video1"));
}
