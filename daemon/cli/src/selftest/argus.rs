//! NVIDIA's camera stack, Argus: 100 frames of `nvarguscamerasrc` through a pipe, as a `command` source gets them.
//!
//! The element prints to standard output, where such a pipeline also writes its frames, and every extra byte shifts the image.
//! So one run sends the frames through descriptor 3, where nothing else may arrive, and another through standard output, which
//! shows what this release prints.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use visiond_system::find_program::find_program;

use super::checks::{AreaTest, NO_TIME};
use super::child::{SuperviseError, supervise};

const FRAMES: usize = 100;
const WIDTH: usize = 1280;
const HEIGHT: usize = 720;
/// NV12.
const FRAME_BYTES: usize = WIDTH * HEIGHT * 3 / 2;
/// 100 frames take four seconds, and the start a few more.
const PATIENCE: Duration = Duration::from_secs(40);

/// The shell redirects standard output to standard error.
const BY_DESCRIPTOR_3: &str = r#"exec 3>&1 1>&2; exec "$@" fd=3"#;
const BY_STANDARD_OUTPUT: &str = r#"exec "$@" fd=1"#;

/// Counts the frames and other bytes of both runs.
pub fn run(test: &mut AreaTest) {
    const CHECK: &str = "nvarguscamerasrc";
    const WANTED: &str = "100 frames and nothing else";
    let Some(launch) = find_program(Path::new("gst-launch-1.0")) else {
        return test.skip(CHECK, "gst-launch-1.0 is not installed");
    };
    let inspected = find_program(Path::new("gst-inspect-1.0")).map(|inspect| {
        let mut command = Command::new(inspect);
        command.arg(CHECK).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
    });
    if !matches!(inspected, Some(Ok(status)) if status.success()) {
        let why = "GStreamer has no such element: not a Jetson, or nvidia-l4t-gstreamer is not installed";
        return test.skip(CHECK, why);
    }
    for (way, script) in [("descriptor 3", BY_DESCRIPTOR_3), ("standard output", BY_STANDARD_OUTPUT)] {
        let check = format!("{FRAMES} frames through {way}");
        test.say(&check);
        let Some(left) = test.time_left() else {
            test.skip(&check, NO_TIME);
            continue;
        };
        match supervise(&mut pipeline(&launch, script), PATIENCE.min(left), |_| {}) {
            Ok(exited) => {
                let (seen, passed) = count(&exited.output, FRAME_BYTES, exited.last_line());
                if script == BY_DESCRIPTOR_3 {
                    test.verdict(&check, WANTED, seen, passed);
                } else {
                    test.info(&check, seen);
                }
            }
            Err(SuperviseError::TimedOut { .. }) if left < PATIENCE => test.skip(&check, NO_TIME),
            Err(error) => test.fail(&check, WANTED, error),
        }
    }
}

fn pipeline(launch: &Path, script: &str) -> Command {
    let elements = format!(
        "nvarguscamerasrc sensor-id=0 num-buffers={FRAMES} \
         ! video/x-raw(memory:NVMM),width={WIDTH},height={HEIGHT},framerate=30/1 \
         ! nvvidconv ! video/x-raw,format=NV12,width={WIDTH},height={HEIGHT} ! fdsink"
    );
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).arg(launch).arg("-q").args(elements.split(' '));
    command
}

/// Counts frames of this many bytes. Returns a sentence, and whether exactly [`FRAMES`] frames and nothing else arrived.
fn count(bytes: &[u8], frame_bytes: usize, last_line: &str) -> (String, bool) {
    let (frames, foreign) = (bytes.len() / frame_bytes, bytes.len() % frame_bytes);
    let mut seen = format!("{frames} frames and {foreign} bytes");
    // The prefixes of lines from Argus and nvarguscamerasrc.
    let marks = ["GST_ARGUS", "CONSUMER", "Setting pipeline"].map(str::as_bytes);
    let marks = marks.iter().filter(|_| foreign > 0);
    let starts = marks.filter_map(|mark| bytes.windows(mark.len()).position(|window| window == *mark));
    let texts: Vec<_> = starts.map(|start| line(&bytes[start..])).collect();
    if !texts.is_empty() {
        seen += &format!(", among them `{}`", texts.join("`, `"));
    }
    if frames < FRAMES && !last_line.is_empty() {
        seen += &format!("; {last_line}");
    }
    (seen, frames == FRAMES && foreign == 0)
}

/// The printable text at the start of `bytes`.
fn line(bytes: &[u8]) -> String {
    bytes.iter().take(80).take_while(|byte| (b' '..=b'~').contains(byte)).map(|byte| char::from(*byte)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use super::*;

    #[test]
    fn text_among_the_frames_is_counted_and_shown() {
        let mut bytes = vec![128; FRAMES * 1000];
        assert_eq!(count(&bytes, 1000, ""), ("100 frames and 0 bytes".to_owned(), true));
        bytes.splice(0..0, *b"GST_ARGUS: Creating output stream\n");
        let seen = "100 frames and 34 bytes, among them `GST_ARGUS: Creating output stream`";
        assert_eq!(count(&bytes, 1000, ""), (seen.to_owned(), false));
        assert_eq!(count(&[], 1000, "no camera"), ("0 frames and 0 bytes; no camera".to_owned(), false));
    }

    #[test]
    fn a_program_that_prints_does_not_disturb_descriptor_3() {
        // A shell replaces the pipeline: it prints, then writes to the given descriptor.
        let print = r#"echo "GST_ARGUS: chatter"; printf frame >&"${1#fd=}""#;
        let written = |script| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script, "sh", "/bin/sh", "-c", print, "sh"]);
            let ended = supervise(&mut command, PATIENCE, |_| {}).expect("a shell runs");
            String::from_utf8_lossy(&ended.output).into_owned()
        };
        assert_eq!(written(BY_DESCRIPTOR_3), "frame");
        assert_eq!(written(BY_STANDARD_OUTPUT), "GST_ARGUS: chatter\nframe");
    }
}
