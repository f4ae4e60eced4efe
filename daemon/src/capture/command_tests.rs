//! Programs of one line of shell, read as a user's would be.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use visiond_kernels::color::ColorMatrix;
use visiond_kernels::frame::PixelFormat;

use super::super::clock::SystemClock;
use super::*;
use crate::config::types::Pace;
use crate::testing::{HANG, stopped_while_it_waits};

fn config(script: &str) -> CommandConfig {
    CommandConfig {
        command: ["sh", "-c", script].map(str::to_owned).into(),
        container: CommandContainer::Y4m,
        format: None,
        width: None,
        height: None,
        pitches: Vec::new(),
        pace: Pace::Fastest,
        repeat: false,
        max_frames: None,
        color_matrix: ColorMatrix::Bt601,
        color_range: None,
        timeout: HANG,
    }
}

fn raw(script: &str, format: PixelFormat, width: u32, height: u32) -> CommandConfig {
    CommandConfig {
        container: CommandContainer::Raw,
        format: Some(format),
        width: Some(width),
        height: Some(height),
        ..config(script)
    }
}

fn open(config: &CommandConfig) -> Result<CommandSource, SourceError> {
    CommandSource::open(config, "test", &Buffers::host(3), Arc::new(SystemClock))
}

fn frame(source: &mut CommandSource) -> Frame {
    match source.next(&Stop::new().unwrap()).unwrap() {
        Next::Frame(frame) => frame,
        other => panic!("no frame: {other:?}"),
    }
}

fn next(source: &mut CommandSource) -> Result<Next, SourceError> {
    source.next(&Stop::new().unwrap())
}

/// A 2x2 I420 frame has six bytes.
const TWO_FRAMES: &str =
    "printf 'YUV4MPEG2 W2 H2 F25:1 Ip C420mpeg2 XCOLORRANGE=FULL\\nFRAME\\nabcdefFRAME Ip Xfoo\\nghijkl'";

#[test]
fn y4m_frames_come_with_the_headers_shape_and_then_the_end() {
    let mut source = open(&config(TWO_FRAMES)).unwrap();
    let first = frame(&mut source);
    assert_eq!(first.buffer.as_slice(), b"abcdef");
    assert_eq!((first.layout.format(), first.layout.color().range), (PixelFormat::I420, ColorRange::Full));
    let second = frame(&mut source);
    assert_eq!((second.buffer.as_slice(), second.sequence), (b"ghijkl".as_slice(), 1));
    assert!(matches!(next(&mut source), Ok(Next::End)));
    assert!(matches!(next(&mut source), Ok(Next::End)));
}

#[test]
fn a_program_that_ends_well_is_started_again_and_counting_goes_on() {
    let mut source = open(&CommandConfig { repeat: true, max_frames: Some(5), ..config(TWO_FRAMES) }).unwrap();
    let sequences: Vec<u64> = (0..5).map(|_| frame(&mut source).sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4]);
    assert!(matches!(next(&mut source), Ok(Next::End)));
}

#[test]
fn raw_frames_may_have_padded_rows() {
    let config = CommandConfig { pitches: vec![4], ..raw("printf ab__cd__ef__gh__", PixelFormat::Grey, 2, 2) };
    let mut source = open(&config).unwrap();
    assert_eq!(frame(&mut source).view().unwrap().planes()[0].row(1), b"cd__");
    assert_eq!(frame(&mut source).view().unwrap().planes()[0].row(0), b"ef__");
    let error = open(&CommandConfig { pitches: vec![1], ..config }).err().unwrap();
    assert!(error.to_string().contains("pitch of at least 2 bytes") && !error.retry, "{error}");
}

#[test]
fn a_program_that_fails_is_quoted() {
    let mut source = open(&config("echo 'no camera at /dev/video7' >&2; exit 4")).unwrap();
    let error = next(&mut source).unwrap_err();
    assert_eq!(error.to_string(), "sh exited with status 4 after 0 frames: no camera at /dev/video7");
    assert!(error.retry);
    let error = next(&mut open(&config("true")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("wrote no whole frame"), "{error}");
    let missing = CommandConfig { command: vec!["/nonexistent/program".to_owned()], ..config("") };
    let error = open(&missing).err().unwrap();
    assert!(error.to_string().contains("no such program") && !error.retry, "{error}");
}

#[test]
fn an_end_in_the_middle_of_a_frame_is_a_damaged_frame() {
    let mut source = open(&raw("printf abcdef", PixelFormat::Grey, 2, 2)).unwrap();
    frame(&mut source);
    assert!(matches!(next(&mut source), Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt })));
    assert!(matches!(next(&mut source), Ok(Next::End)));
    let mut source = open(&config(&format!("{TWO_FRAMES}; printf 'FRAME\\n'"))).unwrap();
    frame(&mut source);
    frame(&mut source);
    assert!(matches!(next(&mut source), Ok(Next::Lost { frames: 1, cause: LossCause::Corrupt })));
}

#[test]
fn what_is_no_y4m_says_what_to_do() {
    let error = next(&mut open(&config("printf 'hello\\n'; sleep 1")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("does not begin with YUV4MPEG2") && !error.retry, "{error}");
    let endless = next(&mut open(&config("cat /dev/zero")).unwrap()).unwrap_err();
    assert!(endless.to_string().contains("does not begin with YUV4MPEG2"), "{endless}");
    let script = "printf 'YUV4MPEG2 W2 H2\\nFRAME\\nabcdefnoise that is no frame'";
    let mut source = open(&config(script)).unwrap();
    frame(&mut source);
    assert!(next(&mut source).unwrap_err().to_string().contains("lost its step"));
}

#[test]
fn with_every_buffer_out_a_realtime_program_goes_on_and_a_fast_one_waits_until_stop() {
    let script = "while :; do printf abcd || exit; done";
    let mut source = open(&CommandConfig { pace: Pace::Realtime, ..raw(script, PixelFormat::Grey, 2, 2) }).unwrap();
    let held: Vec<Frame> = (0..3).map(|_| frame(&mut source)).collect();
    assert!(matches!(next(&mut source), Ok(Next::Lost { frames: 1, cause: LossCause::Overload })));
    drop(held);
    assert_eq!(frame(&mut source).sequence, 4);

    let mut source = open(&raw(script, PixelFormat::Grey, 2, 2)).unwrap();
    let _held: Vec<Frame> = (0..3).map(|_| frame(&mut source)).collect();
    assert!(matches!(stopped_while_it_waits(move |stop| source.next(stop)), Ok(Next::Stopped)));
}

#[test]
fn a_program_that_falls_silent_is_given_up_after_the_time_limit() {
    let mut source = open(&config(&format!("{TWO_FRAMES}; sleep 3600"))).unwrap();
    frame(&mut source);
    frame(&mut source);
    source.config.timeout = Duration::from_millis(50);
    let error = next(&mut source).unwrap_err();
    assert!(error.to_string().contains("for 0.05 s") && error.retry, "{error}");
}
