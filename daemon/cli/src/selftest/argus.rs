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
    let [launch, inspect] = ["gst-launch-1.0", "gst-inspect-1.0"].map(|name| find_program(Path::new(name)));
    run_with(launch.as_deref(), inspect.as_deref(), test);
}

/// As [`run`], with these programs of GStreamer.
fn run_with(launch: Option<&Path>, inspect: Option<&Path>, test: &mut AreaTest) {
    const CHECK: &str = "nvarguscamerasrc";
    const WANTED: &str = "100 frames and nothing else";
    let Some(launch) = launch else {
        return test.skip(CHECK, "gst-launch-1.0 is not installed");
    };
    let inspected = inspect.map(|inspect| {
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
        match supervise(&mut pipeline(launch, script), PATIENCE.min(left), |_| {}) {
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
    #![allow(clippy::expect_used, clippy::unwrap_used)]

    use std::time::Instant;

    use super::super::checks::Area;
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

    #[test]
    fn only_whole_runs_pass_and_a_failed_one_ends_with_the_programs_last_line() {
        let of = |length: usize, last| count(&vec![128; length], 1000, last);
        assert_eq!(of(100_000, "done"), ("100 frames and 0 bytes".to_owned(), true), "its last line does not matter");
        assert_eq!(of(99_999, "no signal"), ("99 frames and 999 bytes; no signal".to_owned(), false));
        assert_eq!(of(101_000, "done"), ("101 frames and 0 bytes".to_owned(), false));
        assert_eq!(of(5_000, ""), ("5 frames and 0 bytes".to_owned(), false));
    }

    #[test]
    fn each_kind_of_text_is_shown_up_to_its_end_or_80_characters() {
        let mut bytes = vec![128; FRAMES * 1000];
        // In a frame such bytes are pixels.
        bytes[500..508].copy_from_slice(b"CONSUMER");
        assert_eq!(count(&bytes, 1000, ""), ("100 frames and 0 bytes".to_owned(), true));
        bytes[500..508].fill(128);
        let text = format!("CONSUMER: {}~ end\nSetting pipeline to PLAYING\x7f", "x".repeat(80));
        bytes.splice(0..0, text.bytes());
        let shown = format!("`CONSUMER: {}`, `Setting pipeline to PLAYING`", "x".repeat(70));
        assert_eq!(count(&bytes, 1000, "").0, format!("100 frames and {} bytes, among them {shown}", text.len()));
        assert_eq!(line(b" !~\x7f"), " !~");
    }

    /// Runs shell scripts in place of GStreamer's programs; returns the rows.
    fn rows_by(launch: &str, inspect: &str, time: Duration) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let [launch, inspect] = [("launch", launch), ("inspect", inspect)].map(|(name, script)| {
            let path = folder.path().join(name);
            // Another process writes it: a program that this one has open for writing, in any thread's child, cannot be run.
            let mut write = Command::new("/bin/sh");
            write.args(["-c", r#"printf '#!/bin/sh\n%s\n' "$1" >"$0" && chmod 755 "$0""#]).arg(&path).arg(script);
            assert!(write.status().unwrap().success());
            path
        });
        let mut test = AreaTest::new(Area::Argus, true, Instant::now() + time);
        run_with(Some(&launch), Some(&inspect), &mut test);
        test.rows.iter().map(|row| format!("{:?} {}: {}", row.outcome, row.check, row.seen)).collect()
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn frames_through_descriptor_3_must_be_whole_and_alone_and_what_is_printed_is_shown() {
        let launch = format!(
            "for last; do :; done\n\
             case $last in fd=3) echo 'GST_ARGUS: chatter'; head -c {} /dev/zero >&3 ;; \
             *) echo 'GST_ARGUS: chatter'; head -c {FRAME_BYTES} /dev/zero ;; esac",
            FRAMES * FRAME_BYTES
        );
        assert_eq!(
            rows_by(&launch, "test $1 = nvarguscamerasrc", HOUR),
            [
                "Pass 100 frames through descriptor 3: 100 frames and 0 bytes",
                "Info 100 frames through standard output: 1 frames and 19 bytes, among them `GST_ARGUS: chatter`",
            ]
        );
    }

    #[test]
    fn a_camera_that_gives_nothing_fails_and_what_is_missing_is_skipped() {
        let without_camera = rows_by("echo 'No cameras available' >&2; exit 1", "", HOUR);
        let seen = "0 frames and 0 bytes; No cameras available";
        assert_eq!(
            without_camera,
            [
                format!("Fail 100 frames through descriptor 3: {seen}"),
                format!("Info 100 frames through standard output: {seen}"),
            ]
        );
        let without_element = rows_by("", "exit 1", HOUR);
        assert!(
            without_element.len() == 1
                && without_element[0].starts_with("Skipped nvarguscamerasrc: GStreamer has no such element"),
            "{without_element:?}"
        );
        let late = rows_by("", "", Duration::ZERO);
        let skipped = |way| format!("Skipped 100 frames through {way}: {NO_TIME}");
        assert_eq!(late, ["descriptor 3", "standard output"].map(skipped));
        let mut test = AreaTest::new(Area::Argus, true, Instant::now());
        run_with(None, None, &mut test);
        assert_eq!(test.rows[0].seen, "gst-launch-1.0 is not installed");
    }
}
