//! Row "Copies": the daemon runs the engine on a program's frames, in each kind of memory, and reports the copied bytes.
//!
//! A frame is read from the program's pipe into the buffer that the preprocess kernel reads, without a copy in between, except
//! for host memory, where each frame is copied once for the GPU.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::report::{Failure, Report};
use crate::setup::Setup;

const ROW: &str = "Copies";

/// 1280x720 NV12.
const FRAME_BYTES: u64 = 1280 * 720 * 3 / 2;
const FRAMES: u64 = 100;

/// Runs the row.
pub fn run(setup: &Setup, report: &mut Report) -> Result<(), Failure> {
    let engine = setup.engine()?;
    let card = setup.arguments.model.with_extension("toml");
    let folder = std::env::temp_dir().join(format!("visiond-gpu-copies-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let folder = Folder(folder);
    let (config, summary) = (folder.0.join("copies.toml"), folder.0.join("summary.json"));
    for memory in ["auto", "mapped", "managed", "host"] {
        let frames = format!(
            "[buffers]\nmemory = \"{memory}\"\n[[model]]\nname = \"objects\"\npath = {engine:?}\ncard = {card:?}\n\
             [[camera]]\nname = \"program\"\n[camera.source]\ntype = \"command\"\n\
             command = [\"head\", \"-c\", \"{}\", \"/dev/zero\"]\ncontainer = \"raw\"\nformat = \"nv12\"\n\
             width = 1280\nheight = 720\npace = \"fastest\"\nrepeat = false\n",
            FRAME_BYTES * FRAMES
        );
        fs::write(&config, frames)?;
        let output = Command::new(setup.visiond()?)
            .arg("run")
            .arg("--summary-json")
            .args([&summary, &config])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default();
            report.figure(ROW, memory, "exit status 0", format!("{}: {last}", output.status), false);
            continue;
        }
        let text: Value = serde_json::from_slice(&fs::read(&summary)?)?;
        judge(memory, &text, report);
    }
    Ok(())
}

fn judge(memory: &str, text: &Value, report: &mut Report) {
    let (model, camera) = (&text["models"][0], &text["cameras"][0]);
    let kind = model["memory"].as_str().unwrap_or("?");
    let published = camera["published"].as_u64().unwrap_or(0);
    let copied = (camera["copied_bytes"].as_u64(), model["gpu"]["copied_bytes"].as_u64());
    let staged = kind == "host";
    let named = memory == "auto" || memory == kind;
    let what = format!("{FRAMES} frames of a program, memory {memory}");
    let wanted = if staged { "every frame once, for the GPU" } else { "nothing copied" };
    let bytes = |count: Option<u64>| count.map_or("?".to_owned(), |bytes| bytes.to_string());
    let seen = format!(
        "{kind}, {published} frames; bytes copied: {} by the source, {} for the GPU",
        bytes(copied.0),
        bytes(copied.1)
    );
    let once = copied.1.is_some_and(|bytes| if staged { bytes >= FRAME_BYTES * FRAMES } else { bytes == 0 });
    let pass = named && published == FRAMES && copied.0 == Some(0) && once;
    report.figure(ROW, &what, wanted, seen, pass);
}

/// Removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
