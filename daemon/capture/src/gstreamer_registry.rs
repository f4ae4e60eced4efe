//! GStreamer's list of plugins. GStreamer opens each plugin to make the list, which takes seconds, and keeps it below the home
//! folder: a service has none, and a confined program writes nothing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use visiond_system::cache;
use visiond_system::child_process::{Child, Filled, Launch};
use visiond_system::stop::Stop;

/// Variable of GStreamer with the list's file.
pub const VARIABLE: &str = "GST_REGISTRY";

/// The most time to make the list.
const MAX_UPDATE: Duration = Duration::from_secs(20);

/// How long a wait lasts until the camera's thread shows that it is alive.
const STEP: Duration = Duration::from_millis(500);

/// Returns the file with the list, which one run of `program` per process brings up to date. `None` leaves the place to GStreamer,
/// because visiond has no cache folder, or stop was raised.
pub fn current(program: &Path, stop: &Stop) -> Option<PathBuf> {
    // Held during the run, so that cameras that start together wait for one. A run that fails is not repeated: the decoder's own
    // says why.
    static WAS_TRIED: Mutex<bool> = Mutex::new(false);
    if let Some(set) = env::var_os(VARIABLE) {
        return Some(set.into());
    }
    let folder = cache::own_folder()?;
    let file = folder.join("gstreamer.bin");
    let mut was_tried = loop {
        if let Some(guard) = WAS_TRIED.try_lock_for(STEP) {
            break guard;
        }
        stop.mark_progress();
        if stop.is_raised() {
            return None;
        }
    };
    if !*was_tried {
        fs::create_dir_all(&folder).ok()?;
        *was_tried = true;
        update(program, &file, stop);
    }
    Some(file)
}

/// Runs `program` to its end.
fn update(program: &Path, file: &Path, stop: &Stop) {
    let mut command = Command::new(program);
    command.args(["-q", "fakesrc", "num-buffers=1", "!", "fakesink"]).env(VARIABLE, file);
    // It decodes nothing, so it need not be confined. Its own output goes to the log: plugins may print when they are opened. It
    // starts a program that opens them.
    let label = "GStreamer's list of plugins";
    let launch = Launch { label, on_descriptor_3: true, has_children: true, ..Launch::default() };
    let Ok(mut child) = Child::spawn(command, &launch) else { return };
    let until = Instant::now() + MAX_UPDATE;
    while Instant::now() < until {
        stop.mark_progress();
        match child.fill(&mut [0], stop, Instant::now() + STEP) {
            Ok(Filled::TimedOut) => {}
            Ok(Filled::Ended(_)) => {
                child.exit_status(stop);
                return;
            }
            Ok(Filled::Full | Filled::Stopped) | Err(_) => return,
        }
    }
    log::warn!("GStreamer did not list its plugins within {} s: check it with `gst-inspect-1.0`", MAX_UPDATE.as_secs());
}
