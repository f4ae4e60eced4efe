//! Watches for device nodes that appear or become accessible.
//!
//! The kernel creates a node; udev then sets its permissions and creates its links. Each of these is an inotify event in /dev
//! or in a folder of links.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use visiond_config::types::CameraName;
use visiond_system::stop::{Stop, Wake};

/// The other events of one hotplug follow within this time: node, owner, permissions, links.
const BURST: Duration = Duration::from_millis(20);
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ONLYDIR);
#[derive(Debug)]
pub struct HotplugWatch {
    inotify: OwnedFd,
    dev: PathBuf,
    /// Folders with links to nodes.
    folders: Vec<PathBuf>,
    /// The watch descriptor of `dev`, where only video nodes and links matter.
    dev_number: i32,
}

impl HotplugWatch {
    /// Creates a watch for a camera of this name. Fails if the user has no inotify instance left.
    pub fn new(name: &CameraName) -> io::Result<Self> {
        Self::below(Path::new("/dev"), name)
    }

    fn below(dev: &Path, name: &CameraName) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut folders: Vec<_> = ["v4l", "v4l/by-id", "v4l/by-path"].iter().map(|folder| dev.join(folder)).collect();
        if let CameraName::Node(path) = name
            && let Some(parent) = path.parent().filter(|parent| *parent != dev && !folders.iter().any(|f| f == parent))
        {
            folders.push(parent.to_owned());
        }
        let mut watch = Self { inotify, dev: dev.to_owned(), folders, dev_number: -1 };
        watch.refresh();
        Ok(watch)
    }

    /// Also watches new folders. A missing folder will appear in a watched one. A folder that is already watched keeps its
    /// descriptor.
    fn refresh(&mut self) {
        self.dev_number = inotify::add_watch(&self.inotify, &self.dev, EVENTS).unwrap_or(-1);
        for folder in &self.folders {
            let _ = inotify::add_watch(&self.inotify, folder, EVENTS);
        }
    }

    /// Waits up to `pause` for an event about cameras, which returns [`Wake::Ready`].
    pub fn wait(&mut self, pause: Duration, stop: &Stop) -> Wake {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match stop.wait_readable(self.inotify.as_fd(), Some(left)) {
                Ok(Wake::Ready) if self.take() => {
                    if stop.sleep(BURST) {
                        return Wake::Stopped;
                    }
                    // Events that arrived meanwhile belong to the same hotplug; later ones are a new one.
                    self.take();
                    self.refresh();
                    return Wake::Ready;
                }
                Ok(Wake::Ready) => {}
                Ok(wake) => return wake,
                // The descriptors are open, so poll(2) fails only without memory: sleep instead.
                Err(_) => return if stop.sleep(left) { Wake::Stopped } else { Wake::TimedOut },
            }
        }
    }

    /// Reads all pending events; returns whether one was about a camera.
    fn take(&self) -> bool {
        let mut news = false;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let name = event.file_name().map_or(&[][..], |name| name.to_bytes());
            // In /dev itself, only video nodes and the folder of links matter.
            news |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                || event.wd() != self.dev_number
                || name.starts_with(b"video")
                || name == b"v4l";
        }
        news
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use visiond_system::testing::{EVER, stopped_while_it_waits};

    /// Whether `act` causes an event. The kernel queues the event before the call returns.
    fn wakes(watch: &mut HotplugWatch, act: impl FnOnce()) -> bool {
        act();
        match watch.wait(Duration::ZERO, &Stop::new().unwrap()) {
            Wake::Ready => true,
            Wake::TimedOut => false,
            Wake::Stopped => panic!("stopped"),
        }
    }

    #[test]
    fn nodes_rights_and_links_are_news_and_other_devices_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let dev = folder.path();
        let name = CameraName::Node(dev.join("video0"));
        let mut watch = HotplugWatch::below(dev, &name).unwrap();
        assert!(wakes(&mut watch, || fs::write(dev.join("video0"), "").unwrap()), "a node comes");
        let rights = fs::Permissions::from_mode(0o600);
        assert!(wakes(&mut watch, || fs::set_permissions(dev.join("video0"), rights).unwrap()), "its rights change");
        assert!(wakes(&mut watch, || fs::create_dir_all(dev.join("v4l/by-id")).unwrap()), "a folder of links comes");
        let links = dev.join("v4l/by-id");
        assert!(wakes(&mut watch, || symlink("../../video0", links.join("usb-x")).unwrap()), "a link comes");
        assert!(wakes(&mut watch, || fs::rename(links.join("usb-x"), links.join("usb-y")).unwrap()), "it is replaced");
        assert!(!wakes(&mut watch, || fs::write(dev.join("ttyUSB0"), "").unwrap()), "no camera");
        assert!(!wakes(&mut watch, || fs::write(dev.join("video0"), "x").unwrap()), "no news of this one");
    }

    #[test]
    fn a_node_elsewhere_is_heard_of_and_stop_ends_the_wait() {
        let (dev, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let node = other.path().join("door");
        let mut watch = HotplugWatch::below(dev.path(), &CameraName::Node(node.clone())).unwrap();
        assert!(wakes(&mut watch, || fs::write(&node, "").unwrap()));
        assert_eq!(stopped_while_it_waits(move |stop| watch.wait(EVER, stop)), Wake::Stopped);
    }
}
