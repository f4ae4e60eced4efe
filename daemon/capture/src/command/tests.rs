//! Shell programs of one line, read as a user's program is.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use visiond_config::types::Pace;
use visiond_frames::clock::SystemClock;
use visiond_kernels::color::{ColorMatrix, GreyLevels};
use visiond_kernels::frame::PixelFormat;
use visiond_system::testing::{HANG, skip, stopped_while_it_waits};

use visiond_frames::frame::Frame;

use super::*;

fn config(script: &str) -> CommandConfig {
    CommandConfig {
        command: ["sh", "-c", script].map(str::to_owned).into(),
        container: CommandContainer::Y4m,
        fd: 1,
        format: None,
        width: None,
        height: None,
        pitches: Vec::new(),
        pace: Pace::Fastest,
        repeat: false,
        max_frames: None,
        color_matrix: ColorMatrix::Bt601,
        color_range: None,
        levels: None,
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
fn a_header_with_a_size_that_cannot_be_is_refused_before_memory_is_taken() {
    let refusal = |size: &str| {
        let mut source = open(&config(&format!("printf 'YUV4MPEG2 {size} F25:1\\nFRAME\\n'"))).unwrap();
        let error = next(&mut source).unwrap_err();
        assert!(!error.may_pass() && error.to_string().starts_with("cannot read what sh writes: "), "{error}");
        error.to_string()
    };
    assert!(refusal("W16384 H16384").contains("it has 268435456 pixels (16384x16384), more than 67108864: "));
    assert!(refusal("W16385 H2").contains("out of range"));
    for size in ["W99999999 H99999999", "W4294967295 H4294967295"] {
        assert!(refusal(size).contains("pixels"), "{size}");
    }
    for size in ["W4294967296 H2", "W-2 H2", "W0 H2", "W2 H0", "W2.5 H2", "WNaN H2", "W H2"] {
        assert!(refusal(size).contains("has no width and height"), "{size}");
    }
}

#[test]
fn raw_frames_have_the_configured_range_and_limited_without_one() {
    let range = |color_range| {
        let config = CommandConfig { color_range, ..raw("printf 1234", PixelFormat::Grey, 2, 2) };
        frame(&mut open(&config).unwrap()).layout.color().range
    };
    let (full, limited) = (ColorRange::Full, ColorRange::Limited);
    assert_eq!([None, Some(full), Some(limited)].map(range), [limited, full, limited]);
}

#[test]
fn raw_frames_of_grey_have_the_configured_levels() {
    let levels = GreyLevels::new(28_815, 31_315);
    let config = CommandConfig { levels, ..raw("printf 12345678", PixelFormat::Grey16, 2, 2) };
    assert_eq!(frame(&mut open(&config).unwrap()).layout.color().levels, levels);
}

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
    assert!(error.to_string().contains("pitch of at least 2 bytes") && !error.may_pass(), "{error}");
}

#[test]
fn a_program_that_fails_is_quoted() {
    let mut source = open(&config("echo 'no camera at /dev/video7' >&2; exit 4")).unwrap();
    let error = next(&mut source).unwrap_err();
    assert_eq!(error.to_string(), "sh exited with status 4 after 0 frames: no camera at /dev/video7");
    assert!(error.may_pass());
    let error = next(&mut open(&config("true")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("wrote no whole frame"), "{error}");
    let missing = CommandConfig { command: vec!["/nonexistent/program".to_owned()], ..config("") };
    let error = open(&missing).err().unwrap();
    assert!(error.to_string().contains("no such program") && !error.may_pass(), "{error}");
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
fn frames_on_descriptor_3_are_whole_whatever_is_printed() {
    let script = "echo GST_ARGUS: Creating output stream; printf abcd >&3; echo CONSUMER: Producer has connected; printf efgh >&3";
    let config = CommandConfig { fd: 3, ..raw(script, PixelFormat::Grey, 2, 2) };
    let mut source = open(&config).unwrap();
    assert_eq!(frame(&mut source).buffer.as_slice(), b"abcd");
    assert_eq!(frame(&mut source).buffer.as_slice(), b"efgh");
    assert!(matches!(next(&mut source), Ok(Next::End)));
    // Y4M too. The error quotes what the program printed.
    let script = format!("exec 4>&1 1>&3; {TWO_FRAMES}; echo no sensor >&4; exit 4");
    let mut source = open(&CommandConfig { fd: 3, ..self::config(&script) }).unwrap();
    assert_eq!(frame(&mut source).buffer.as_slice(), b"abcdef");
    frame(&mut source);
    assert_eq!(next(&mut source).unwrap_err().to_string(), "sh exited with status 4 after 2 frames: no sensor");
    // Frames on the wrong descriptor.
    let mut source = open(&CommandConfig { fd: 3, ..raw("printf abcd", PixelFormat::Grey, 2, 2) }).unwrap();
    let error = next(&mut source).unwrap_err();
    assert!(error.to_string().contains("wrote no whole frame on descriptor 3"), "{error}");
}

#[test]
fn text_where_a_raw_frame_should_begin_ends_the_run_and_says_what_to_do() {
    let frames = "head -c 192 /dev/zero";
    let lines = ["GST_ARGUS: Creating output stream", "Opening in BLOCKING MODE ", "Setting pipeline to PAUSED ..."];
    for line in lines {
        for (before, script) in [
            (0, format!("echo '{line}'; {frames}")),
            // After two frames, and on descriptor 3 as well.
            (2, format!("head -c 128 /dev/zero; echo '{line}'; {frames}")),
        ] {
            let mut source = open(&raw(&script, PixelFormat::Grey, 8, 8)).unwrap();
            for _ in 0..before {
                frame(&mut source);
            }
            let error = next(&mut source).unwrap_err();
            let text = error.to_string();
            assert!(error.may_pass() && text.contains(line.trim_end()) && text.contains("`fdsink fd=3`"), "{text}");
        }
    }
    let script = format!("exec >&3; echo '{}'; {frames}", lines[0]);
    let mut source = open(&CommandConfig { fd: 3, ..raw(&script, PixelFormat::Grey, 8, 8) }).unwrap();
    let text = next(&mut source).unwrap_err().to_string();
    assert!(text.contains("make it write only frames to descriptor 3"), "{text}");
}

#[test]
fn text_is_found_in_a_frame_that_nobody_takes() {
    let script = "head -c 192 /dev/zero; echo Setting pipeline to PAUSED; head -c 64 /dev/zero";
    let mut source = open(&CommandConfig { pace: Pace::Realtime, ..raw(script, PixelFormat::Grey, 8, 8) }).unwrap();
    let _held: Vec<Frame> = (0..3).map(|_| frame(&mut source)).collect();
    assert!(next(&mut source).unwrap_err().to_string().contains("Setting pipeline"));
}

#[test]
fn pixels_are_no_text() {
    let none = |bytes: &[u8]| assert_eq!(leading_text(bytes), None, "{:?}", String::from_utf8_lossy(bytes));
    none(b"");
    none(b"Creating output stream and no line feed");
    none(b"Creating output\x80stream here\n");
    // Flat, a gradient down to black, two alternating colours, three bytes a pixel.
    none(&[vec![b'A'; 64], vec![b'\n'; 64]].concat());
    none(&(10..=90).rev().collect::<Vec<u8>>());
    none(&[b" Fgh Fgh".repeat(8), vec![b'\n']].concat());
    none(&[b" FP".repeat(20), b" GQ".repeat(20), b" GP".repeat(20), vec![b'\n']].concat());
    // Longer than the part that is checked.
    none(&[b"word text line ".repeat(100), vec![b'\n']].concat());
    assert_eq!(leading_text(b"\r\n  Using three words here\t\nxxxx"), Some("Using three words here"));
}

proptest::proptest! {
    #[test]
    fn no_bytes_are_too_odd_to_be_looked_at(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2048)) {
        leading_text(&bytes);
    }
}

#[test]
fn what_is_no_y4m_says_what_to_do() {
    let error = next(&mut open(&config("printf 'hello\\n'; sleep 1")).unwrap()).unwrap_err();
    assert!(error.to_string().contains("does not begin with YUV4MPEG2") && !error.may_pass(), "{error}");
    let endless = next(&mut open(&config("cat /dev/zero")).unwrap()).unwrap_err();
    assert!(endless.to_string().contains("does not begin with YUV4MPEG2"), "{endless}");
    let script = "printf 'YUV4MPEG2 W2 H2\\nFRAME\\nabcdefnoise that is no frame'";
    let mut source = open(&config(script)).unwrap();
    frame(&mut source);
    let lost = next(&mut source).unwrap_err().to_string();
    assert!(lost.contains("is out of step") && lost.contains("`fd = 3`"), "{lost}");
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
    assert!(error.to_string().contains("for 0.05 s") && error.may_pass(), "{error}");
}

/// A pipeline of GStreamer whose frames go into shared memory, and skips the test without it.
fn shm(caps: &str, frames: u32) -> Option<CommandConfig> {
    let inspect = std::process::Command::new("gst-inspect-1.0").arg("shmsink").output();
    if !inspect.is_ok_and(|output| output.status.success()) {
        skip("GStreamer's shmsink is not here: install gstreamer1.0-tools and gstreamer1.0-plugins-bad");
        return None;
    }
    // At the end of its frames, shmsink of GStreamer 1.22 mostly fails: "gst_poll_wait returned -1".
    let pipeline =
        format!("gst-launch-1.0 -q videotestsrc num-buffers={frames} ! {caps} ! shmsink socket-path={SOCKET}");
    Some(CommandConfig {
        container: CommandContainer::Shm,
        format: Some(PixelFormat::Nv12),
        width: Some(320),
        height: Some(240),
        ..config(&format!("{pipeline}; exit 0"))
    })
}

const CAPS: &str = "video/x-raw,format=NV12,width=320,height=240";

#[test]
fn frames_in_shared_memory_are_those_of_a_pipe() {
    let Some(shared) = shm(CAPS, 12) else { return };
    let command = shared.command.iter().map(|word| word.replace("shmsink socket-path={socket}", "fdsink")).collect();
    let piped = CommandConfig { command, container: CommandContainer::Raw, ..shared.clone() };
    let (mut shared, mut piped) = (open(&shared).unwrap(), open(&piped).unwrap());
    for number in 0..12 {
        let (a, b) = (frame(&mut shared), frame(&mut piped));
        assert_eq!((a.sequence, a.layout), (number, b.layout));
        assert!(matches!(a.buffer, FrameBytes::Driver(_)) && a.buffer.as_slice() == b.buffer.as_slice(), "{number}");
    }
    let folder = shared.shared.as_ref().unwrap().folder.socket();
    assert!(matches!(next(&mut shared).unwrap(), Next::End));
    assert!(shared.describe().ends_with(", 320x240 nv12, shared memory"), "{}", shared.describe());
    drop(shared);
    assert!(!folder.parent().unwrap().exists());
}

#[test]
fn shared_memory_is_used_again_when_the_program_is() {
    let Some(config) = shm(CAPS, 2) else { return };
    let mut source = open(&CommandConfig { repeat: true, max_frames: Some(5), ..config }).unwrap();
    let sequences: Vec<_> = (0..5).map(|_| frame(&mut source).sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4]);
    assert!(matches!(next(&mut source).unwrap(), Next::End));
}

#[test]
fn frames_of_another_size_in_shared_memory_say_what_to_correct() {
    let Some(config) = shm("video/x-raw,format=NV12,width=640,height=240", 2) else { return };
    let error = next(&mut open(&config).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("its frames have 230400 bytes, and `format`, `width`, `height` and `pitches` make 115200"),
        "{text}"
    );
    assert!(!error.may_pass());
}

#[test]
fn a_program_that_does_not_listen_says_what_it_needs() {
    let deaf = |script: &str, timeout: Duration| {
        let shape = raw(script, PixelFormat::Grey, 2, 2);
        let mut source = open(&CommandConfig { container: CommandContainer::Shm, timeout, ..shape }).unwrap();
        next(&mut source).unwrap_err().to_string()
    };
    let text = deaf("sleep 100", Duration::from_millis(100));
    assert!(text.contains("does not listen on {socket} after 0.1 s: end its pipeline with `shmsink"), "{text}");
    let text = deaf("echo no such element >&2; exit 3", HANG);
    assert!(text.contains("sh exited with status 3 after 0 frames: no such element"), "{text}");
    let text = deaf("exit 0", HANG);
    assert!(text.contains("wrote no whole frame into shared memory"), "{text}");
}

#[test]
fn the_wait_for_a_program_to_listen_can_be_stopped() {
    let shape = raw("sleep 100", PixelFormat::Grey, 2, 2);
    let mut source = open(&CommandConfig { container: CommandContainer::Shm, ..shape }).unwrap();
    assert!(matches!(stopped_while_it_waits(move |stop| source.next(stop)).unwrap(), Next::Stopped));
}
