//! Closed sources leak nothing: no descriptor, no process, no thread.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::{env, fs, process};

use tempfile::TempDir;
use visiond_config::types::{
    CommandConfig, CommandContainer, FfmpegConfig, ImagesConfig, Pace, PatternConfig, VideoConfig, VideoPixels,
};
use visiond_kernels::color::ColorMatrix;
use visiond_kernels::frame::PixelFormat;
use visiond_system::stop::Stop;
use visiond_system::testing::{EVER, finishes, wait_until};

use crate::mjpeg::jpeg_scanner_tests::picture;
use crate::rtsp::tests as rtsp;
use crate::source::Next;
use crate::*;

const INSIDE: &str = "VISIOND_TEST_ALONE";

#[test]
fn fifty_sources_leave_no_descriptor_no_process_and_no_thread() {
    // In its own process, because other tests open files at the same time.
    if env::var_os(INSIDE).is_none() {
        let name = "tests::leaks::fifty_sources_leave_no_descriptor_no_process_and_no_thread";
        let mut alone = process::Command::new(env::current_exe().unwrap());
        let output = alone.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // With an unknown name, the program would run no test and succeed.
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let folder = TempDir::new().unwrap();
    let server = rtsp::Server::start(&[&rtsp::stream(&folder, "live.h264", "64x48", 0)], &["--at-end", "loop"]);
    let web = FileServer::start(&folder);
    let mut sources = sources(&folder);
    sources.push(SourceConfig::Mjpeg(mjpeg::tests::config(&web.url("film"))));
    sources.push(SourceConfig::Snapshot(snapshot::tests::config(&web.url("picture"))));
    sources.push(SourceConfig::Rtsp(rtsp::config(&server.url())));
    let mut before = None;
    for round in 0..11 {
        for source in &sources {
            let stop = Stop::new().unwrap();
            let buffers = Buffers::host(3);
            let mut open = open(source, Vec::new(), "test", &buffers).unwrap();
            // A source that is late by its own clock loses frames.
            let mut next = open.next(&stop).unwrap();
            while matches!(next, Next::Lost { .. }) {
                next = open.next(&stop).unwrap();
            }
            assert!(matches!(next, Next::Frame(_)), "{source:?}: {next:?}");
            drop(next);
            stop.raise();
            let next = finishes("a source that is stopped", move || open.next(&stop).unwrap());
            assert!(matches!(next, Next::Stopped | Next::Frame(_) | Next::Lost { .. } | Next::End), "{source:?}");
        }
        // The first round starts the one thread that stays: it starts programs.
        // The servers are two.
        assert_eq!(children(), 2, "a child is left");
        // A joined thread may remain in /proc for a moment.
        let now = || (count("/proc/self/fd"), count("/proc/self/task"));
        let before = *before.get_or_insert_with(now);
        wait_until(&format!("as many descriptors and threads in round {round}"), || now() == before);
    }
}

/// Serves files over HTTP, in a separate process, because its descriptors would count.
struct FileServer(process::Child, String);

impl FileServer {
    /// Serves a film and an image.
    fn start(folder: &TempDir) -> Self {
        let folder = folder.path().join("web");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("picture"), picture(9, 64, 48)).unwrap();
        fs::write(folder.join("film"), picture(9, 64, 48).repeat(1000)).unwrap();
        let mut server = process::Command::new("python3");
        let server = server.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]).current_dir(folder);
        let mut server = server.stdout(process::Stdio::piped()).stderr(process::Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        // Serving HTTP on 127.0.0.1 port 41234 (http://127.0.0.1:41234/) ...
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(server, line.split(['(', ')']).nth(1).unwrap().to_owned())
    }

    fn url(&self, name: &str) -> String {
        format!("{}{name}", self.1)
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Four of the kinds of sources, programs in three ways; with those over the network, more than fifty openings in eleven rounds.
fn sources(folder: &TempDir) -> Vec<SourceConfig> {
    let picture = folder.path().join("a.png");
    image::RgbImage::new(8, 8).save(&picture).unwrap();
    let film = folder.path().join("film.avi");
    let args = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:d=60:r=10", "-c:v", "mpeg4"];
    assert!(process::Command::new("ffmpeg").args(args).arg(&film).status().unwrap().success());
    let command = |script: &str| CommandConfig {
        command: ["sh", "-c", script].map(str::to_owned).into(),
        container: CommandContainer::Raw,
        fd: 1,
        format: Some(PixelFormat::Grey),
        width: Some(2),
        height: Some(2),
        pitches: Vec::new(),
        pace: Pace::Realtime,
        repeat: true,
        max_frames: None,
        color_matrix: ColorMatrix::Bt601,
        color_range: None,
        levels: None,
        timeout: EVER,
    };
    vec![
        SourceConfig::Pattern(PatternConfig {
            width: 64,
            height: 48,
            fps: 100.0,
            format: PixelFormat::Nv12,
            max_frames: None,
        }),
        SourceConfig::Images(ImagesConfig {
            path: folder.path().to_owned(),
            recursive: true,
            watch: true,
            watch_interval: EVER,
            repeat: false,
            fps: None,
        }),
        SourceConfig::Command(command("printf abcd; sleep 3600 & sleep 3600")),
        SourceConfig::Command(command("while printf abcd; do :; done")),
        SourceConfig::Command(CommandConfig { fd: 3, ..command("while printf abcd >&3; do echo on; done") }),
        SourceConfig::Video(VideoConfig {
            url: film.to_str().unwrap().to_owned(),
            login: None,
            pace: Pace::Realtime,
            repeat: false,
            max_frames: None,
            input_args: Vec::new(),
            ffmpeg: FfmpegConfig::default(),
            pixels: VideoPixels::Bgr,
            color_matrix: None,
            color_range: None,
            timeout: EVER,
        }),
    ]
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// The child processes of this one, zombies too.
fn children() -> usize {
    let parent = format!(" {} ", process::id());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| is_child(&entry.path(), &parent)).count()
}

fn is_child(process: &Path, parent: &str) -> bool {
    // "PID (NAME) STATE PARENT ..."
    fs::read_to_string(process.join("stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest[1..].starts_with(parent)))
}
