//! Counts the copies of a frame's bytes between their source and the buffer that the model reads.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process;

use tempfile::TempDir;
use visiond_config::types::{
    CommandConfig, CommandContainer, ImagesConfig, Pace, PatternConfig, SnapshotConfig, VideoConfig, VideoPixels,
};
use visiond_frames::frame::LossCause;
use visiond_kernels::color::ColorMatrix;
use visiond_kernels::frame::PixelFormat;
use visiond_system::stop::Stop;

use crate::http_client::tests as http;
use crate::mjpeg::jpeg_scanner_tests::picture;
use crate::rtsp::tests as rtsp;
use crate::source::Next;
use crate::*;

const BUFFERS: usize = 3;

/// Takes `frames` frames; returns the bytes copied, and the number of buffers that held the frames.
fn take(source: &SourceConfig, frames: usize) -> (u64, usize) {
    let stop = Stop::new().unwrap();
    let mut source = open(source, Vec::new(), "test", &Buffers::host(BUFFERS)).unwrap();
    let mut places = BTreeSet::new();
    let mut taken = 0;
    while taken < frames {
        match source.next(&stop).unwrap() {
            Next::Frame(frame) => {
                places.insert(frame.view().unwrap().planes()[0].bytes.as_ptr() as usize);
                taken += 1;
            }
            // On a busy machine, a source that sets its own pace gets ahead of this test.
            Next::Lost { cause: LossCause::Overload, .. } => {}
            other => panic!("no frame: {other:?}"),
        };
    }
    (source.copied_bytes(), places.len())
}

fn assert_in_place(source: &SourceConfig) {
    let (copied, places) = take(source, 8);
    assert_eq!(copied, 0, "{source:?}");
    assert!(places <= BUFFERS, "{places} places: {source:?}");
}

#[test]
fn a_programs_frames_are_read_straight_into_the_networks_buffers() {
    let command = |container, script: &str| {
        SourceConfig::Command(CommandConfig {
            command: ["sh", "-c", script].map(str::to_owned).into(),
            container,
            fd: 1,
            format: (container == CommandContainer::Raw).then_some(PixelFormat::Nv12),
            width: (container == CommandContainer::Raw).then_some(64),
            height: (container == CommandContainer::Raw).then_some(48),
            pitches: Vec::new(),
            pace: Pace::Fastest,
            repeat: false,
            max_frames: None,
            color_matrix: ColorMatrix::Bt601,
            color_range: None,
            levels: None,
            timeout: visiond_system::testing::HANG,
        })
    };
    assert_in_place(&command(CommandContainer::Raw, "head -c 60000 /dev/zero"));
    let y4m = "printf 'YUV4MPEG2 W64 H48 F25:1\\n'; for i in 1 2 3 4 5 6 7 8; do printf 'FRAME\\n'; head -c 4608 /dev/zero; done";
    assert_in_place(&command(CommandContainer::Y4m, y4m));
}

#[test]
fn a_videos_frames_are_read_straight_into_the_networks_buffers() {
    let folder = TempDir::new().unwrap();
    let film = folder.path().join("film.avi");
    let args = ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=64x48:d=2:r=10", "-c:v", "mpeg4"];
    assert!(process::Command::new("ffmpeg").args(args).arg(&film).status().unwrap().success());
    for pixels in [VideoPixels::Bgr, VideoPixels::Native] {
        let url = film.to_str().unwrap().to_owned();
        assert_in_place(&SourceConfig::Video(VideoConfig {
            url,
            pace: Pace::Fastest,
            pixels,
            ..VideoConfig::default()
        }));
    }
}

#[test]
fn a_network_cameras_frames_are_read_straight_into_the_networks_buffers() {
    let folder = TempDir::new().unwrap();
    let file = rtsp::stream(&folder, "live.h264", "64x48", 0);
    let server = rtsp::Server::start(&[&file], &["--at-end", "loop"]);
    assert_in_place(&SourceConfig::Rtsp(rtsp::config(&server.url())));
}

#[test]
fn jpegs_over_http_are_decoded_into_the_networks_buffers() {
    let jpeg = picture(9, 64, 48);
    let server = http::Server::start(move |request, client| match request.path() {
        "/film" => http::write(client, b"HTTP/1.0 200 OK\r\n\r\n") && (0..).all(|_| http::write(client, &jpeg)),
        _ => http::answer(client, "200 OK", "", &jpeg),
    });
    assert_in_place(&SourceConfig::Mjpeg(mjpeg::tests::config(&server.url("/film"))));
    let interval = std::time::Duration::from_millis(20);
    let config = snapshot::tests::config(&server.url("/picture"));
    assert_in_place(&SourceConfig::Snapshot(SnapshotConfig { interval, ..config }));
}

#[test]
fn a_pattern_is_drawn_in_the_networks_buffers() {
    let config = PatternConfig { width: 64, height: 48, fps: 200.0, ..PatternConfig::default() };
    assert_in_place(&SourceConfig::Pattern(config));
}

#[test]
fn a_jpeg_is_decoded_into_the_networks_buffer_and_other_pictures_are_copied_once() {
    let folder = TempDir::new().unwrap();
    let copied = |name: &str| {
        let path = folder.path().join(name);
        image::RgbImage::new(32, 16).save(&path).unwrap();
        take(&images(&path), 1).0
    };
    assert_eq!(copied("upright.jpg"), 0);
    assert_eq!(copied("lossless.png"), 32 * 16 * 3);
}

fn images(path: &Path) -> SourceConfig {
    SourceConfig::Images(ImagesConfig { path: path.to_owned(), ..ImagesConfig::default() })
}
