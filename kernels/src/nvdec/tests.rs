//! The whole way of a picture, on a driver and a video library made for the test (`tests/nvcuvid.c`, and the GPU of malloc in
//! `cuda/tests`).
//!
//! Both are found by their names, once in a process. So the test runs its program again, with them in the loader's path.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use super::*;
use crate::color::{ColorDescription, ColorMatrix, ColorRange};
use crate::cuda::{CudaError, CudaStream, Device};
use crate::frame::{FrameLayout, PixelFormat, PlaneLayout};
use visiond_ground::gpu_lost::is_gpu_lost;

const INNER: &str = "VISIOND_TEST_STUB_VIDEO";

#[test]
fn each_error_says_what_to_do() {
    let call = |code| NvdecError::Call(CudaError { call: "cuvidCreateDecoder", code, name: String::new() });
    assert_eq!(call(2).to_string(), "cuvidCreateDecoder failed (2): the GPU has too little memory for another decoder");
    assert!(is_gpu_lost(&call(700)) && !is_gpu_lost(&call(2)));
    let kind = VideoKind { codec: VideoCodec::H264, chroma: Chroma::Yuv422, bits: 10 };
    assert_eq!(
        NvdecError::Kind(kind).to_string(),
        "the GPU's video engine does not decode H.264 of 10 bits, 4:2:2: set the camera to 8 bits of 4:2:0"
    );
}

#[test]
fn pictures_come_out_of_an_engine_that_is_made_of_memory() {
    let Some(folder) = std::env::var_os(INNER) else {
        let folder = tempfile::tempdir().unwrap();
        compile(folder.path(), "libcuda.so.1", include_str!("../cuda/tests/stub_driver.c"));
        compile(folder.path(), "libnvcuvid.so.1", include_str!("tests/nvcuvid.c"));
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "nvdec::tests::pictures_come_out_of_an_engine_that_is_made_of_memory", "--nocapture"])
            .env(INNER, folder.path())
            .env("LD_LIBRARY_PATH", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    };
    let device = Device::open(0).unwrap();
    pictures_are_shown_where_they_lie(&device);
    each_picture_comes_with_the_number_of_its_unit_though_times_are_of_others(&device);
    surfaces_are_few_and_outlive_their_decoder(&device);
    what_is_damaged_is_no_picture(&device);
    pictures_are_shown_at_once_and_only_once(&device);
    streams_that_are_not_decoded_say_why(&device);
    let folder = PathBuf::from(folder);
    a_decoder_is_made_before_its_first_picture(&device);
    nobody_reads_or_overwrites_a_picture_before_it_is_copied(&device, &folder);
    drop(device);
    for (library, counters) in
        [("libnvcuvid.so.1", &["stub_alive", "stub_wrong"][..]), ("libcuda.so.1", &["stub_alive"])]
    {
        // SAFETY: the library is the stub, which is loaded already.
        let loaded = unsafe { libloading::Library::new(folder.join(library)) }.unwrap();
        for counter in counters {
            // SAFETY: the stubs' counters take nothing and return a number.
            let count = unsafe { loaded.get::<unsafe extern "C" fn() -> i32>(counter.as_bytes()).unwrap()() };
            assert_eq!(count, 0, "{counter} of {library}");
        }
    }
}

fn compile(folder: &Path, name: &str, source: &str) {
    let (library, file) = (folder.join(name), folder.join(name).with_extension("c"));
    std::fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).arg(format!("-Wl,-soname,{name}"));
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn decoder(device: &Arc<Device>) -> VideoDecoder {
    VideoDecoder::new(device, VideoCodec::H264, 2, Box::new(|_, _, _| Ok(()))).unwrap()
}

/// 64x48 of 4:2:0 and 8 bits.
const FORMAT: &[u8] = &[b'F', 4, 3, 1];

fn unit(orders: &[&[u8]]) -> Vec<u8> {
    orders.concat()
}

fn shown(decoder: &mut VideoDecoder) -> (Surface, i64) {
    match decoder.next_picture().unwrap() {
        Some(Picture::Shown { surface, presentation, .. }) => (surface, presentation),
        other => panic!("{other:?}"),
    }
}

fn pictures_are_shown_where_they_lie(device: &Arc<Device>) {
    let mut decoder = decoder(device);
    assert_eq!(decoder.format(), None);
    decoder.decode(&unit(&[FORMAT, &[b'D', 0, 77, 0], &[b'S', 0, 2, 0]]), 9000, Showing::InOrder).unwrap();
    let format = decoder.format().unwrap();
    assert_eq!((format.width, format.height, format.is_interlaced), (62, 44, false));
    assert_eq!(format.color, ColorDescription::new(ColorMatrix::Bt709, ColorRange::Full));
    let (surface, presentation) = shown(&mut decoder);
    assert_eq!((presentation, surface.pitch_bytes()), (9000, 128));
    // Two columns and four rows are cut off.
    assert_eq!(format.plane_offsets(&surface), [4 * 128 + 2, (48 + 2) * 128 + 2]);
    let mut copy = Vec::new();
    surface.copy_to(&mut copy).unwrap();
    assert_eq!(copy, vec![77; 128 * 48 * 3 / 2]);
    assert!(decoder.next_picture().unwrap().is_none());
    // Of 10 bits, samples have two bytes.
    let mut deep = VideoDecoder::new(device, VideoCodec::H265, 1, Box::new(|_, _, _| Ok(()))).unwrap();
    deep.decode(&unit(&[&[b'F', 4, 3, 0x21], &[b'D', 0, 5, 0], &[b'S', 0, 2, 0], b"N000"]), 1, Showing::InOrder)
        .unwrap();
    let (surface, _) = shown(&mut deep);
    assert_eq!(deep.format().unwrap().plane_offsets(&surface)[0], 4 * surface.pitch_bytes() + 4);
}

/// Some cameras write times in the order of decoding, and the parser gives these to the pictures in the order of display.
fn each_picture_comes_with_the_number_of_its_unit_though_times_are_of_others(device: &Arc<Device>) {
    let mut decoder = decoder(device);
    let mut next = |orders: &[&[u8]], presentation| {
        decoder.decode(&unit(orders), presentation, Showing::InOrder).unwrap();
        match decoder.next_picture().unwrap() {
            Some(Picture::Shown { presentation, given_with, .. }) => Some((presentation, given_with)),
            _ => None,
        }
    };
    assert_eq!(next(&[FORMAT, &[b'D', 0, 1, 0]], 10), None);
    assert_eq!(next(&[&[b'D', 1, 2, 0], &[b'S', 1, 2, 0]], 20), Some((20, 20)));
    // Two fields of one picture.
    assert_eq!(next(&[&[b'H', 1, 3, 0], &[b'D', 1, 4, 0], &[b'S', 0, 2, 0]], 30), Some((30, 10)));
    assert_eq!(next(&[&[b'D', 2, 5, 0], &[b'S', 1, 2, 0]], 40), Some((40, 30)));
}

fn surfaces_are_few_and_outlive_their_decoder(device: &Arc<Device>) {
    let mut decoder = decoder(device);
    let picture = |value: u8| unit(&[FORMAT, &[b'D', 1, value, 0], &[b'S', 1, 2, 0]]);
    for value in 1..=3 {
        decoder.decode(&picture(value), value.into(), Showing::InOrder).unwrap();
    }
    let (first, second) = (shown(&mut decoder).0, shown(&mut decoder).0);
    assert!(matches!(decoder.next_picture().unwrap(), Some(Picture::Skipped { given_with: 3 })));
    drop(first);
    decoder.decode(&picture(4), 4, Showing::InOrder).unwrap();
    let (fourth, _) = shown(&mut decoder);
    drop(decoder);
    let mut copy = Vec::new();
    for (surface, value) in [(second, 2), (fourth, 4)] {
        surface.copy_to(&mut copy).unwrap();
        assert_eq!(copy[0], value);
    }
}

fn what_is_damaged_is_no_picture(device: &Arc<Device>) {
    let mut decoder = decoder(device);
    let mut next = |orders: &[&[u8]]| {
        decoder.decode(&unit(orders), 0, Showing::InOrder)?;
        decoder.next_picture()
    };
    // The decoder refuses a picture; the engine reports an error, or that it has concealed one.
    assert!(matches!(next(&[FORMAT, &[b'D', 0, 1, 1], &[b'S', 0, 2, 0]]), Ok(Some(Picture::Damaged { .. }))));
    for status in [8, 9] {
        assert!(matches!(next(&[&[b'D', 0, 1, 0], &[b'S', 0, status, 0]]), Ok(Some(Picture::Damaged { .. }))));
    }
    assert!(matches!(next(&[&[b'D', 0, 1, 0], &[b'S', 0, 2, 0]]), Ok(Some(Picture::Shown { .. }))));
    // A unit holds the thread for few pictures.
    let pictures = [&[b'D', 0, 1, 0][..]; 9];
    assert!(next(&pictures[..8]).is_ok());
    assert_eq!(next(&pictures).unwrap_err(), NvdecError::ManyPictures(8));
    // A lost GPU ends the decoder.
    let error = next(&[&[b'D', 0, 1, 214]]).unwrap_err();
    assert!(is_gpu_lost(&error), "{error}");
}

fn pictures_are_shown_at_once_and_only_once(device: &Arc<Device>) {
    let mut decoder = decoder(device);
    decoder.decode(&unit(&[FORMAT, &[b'D', 0, 1, 0]]), 10, Showing::AtOnce).unwrap();
    assert_eq!(shown(&mut decoder).1, 10);
    // Two fields are one picture. In its order the first is no news.
    decoder.decode(&unit(&[&[b'H', 1, 2, 0], &[b'D', 1, 3, 0], &[b'S', 0, 2, 0]]), 20, Showing::AtOnce).unwrap();
    assert_eq!(shown(&mut decoder).1, 20);
    assert!(decoder.next_picture().unwrap().is_none());
    // The last one comes out at the end.
    decoder.decode(&unit(&[&[b'D', 2, 5, 0]]), 25, Showing::InOrder).unwrap();
    assert!(decoder.next_picture().unwrap().is_none());
    decoder.finish().unwrap();
    assert!(matches!(decoder.next_picture().unwrap(), Some(Picture::Shown { presentation: 99, .. })));
    // A surface with another picture is news again.
    decoder.decode(&unit(&[&[b'D', 0, 4, 0], &[b'S', 0, 2, 0], &[b'S', 1, 2, 0]]), 30, Showing::InOrder).unwrap();
    assert_eq!(shown(&mut decoder).1, 30);
    assert!(decoder.next_picture().unwrap().is_none());
}

fn a_decoder_is_made_before_its_first_picture(device: &Arc<Device>) {
    // The picture that the parser makes of the sets is none.
    let sets = unit(&[FORMAT, &[b'D', 0, 1, 0], &[b'S', 0, 2, 0]]);
    let mut decoder = decoder(device).prepared(&sets).unwrap();
    assert_eq!(decoder.format().map(|format| format.width), Some(62));
    assert!(decoder.next_picture().unwrap().is_none());
    decoder.decode(b"0000", 4, Showing::InOrder).unwrap();
    assert!(!decoder.has_begun(), "no key frame has come");
    decoder.decode(&unit(&[FORMAT, &[b'D', 0, 7, 0], &[b'S', 0, 2, 0]]), 5, Showing::InOrder).unwrap();
    assert_eq!((shown(&mut decoder).1, decoder.has_begun()), (5, true));
    let error = decoder.decode(&unit(&[&[b'F', 5, 3, 1]]), 6, Showing::InOrder).unwrap_err();
    assert_eq!(error, NvdecError::OtherParameters);
    // Without a format there is nothing to make yet.
    let made = |codec, sets| VideoDecoder::new(device, codec, 2, Box::new(|_, _, _| Ok(()))).unwrap().prepared(sets);
    assert_eq!(made(VideoCodec::H265, &[]).unwrap().format(), None);
    assert!(matches!(made(VideoCodec::H264, &[b'F', 4, 3, 2]), Err(NvdecError::Kind(_))));
}

fn nobody_reads_or_overwrites_a_picture_before_it_is_copied(device: &Arc<Device>, folder: &Path) {
    // SAFETY: the library is the stub, which is loaded already.
    let driver = unsafe { libloading::Library::new(folder.join("libcuda.so.1")) }.unwrap();
    // SAFETY: these functions of the stub take nothing and return an event's address.
    let event = |name: &str| unsafe { driver.get::<unsafe extern "C" fn() -> usize>(name.as_bytes()).unwrap()() };
    let mut decoder = decoder(device);
    decoder.decode(&unit(&[FORMAT, &[b'D', 0, 1, 0], &[b'S', 0, 2, 0]]), 1, Showing::InOrder).unwrap();
    assert_eq!(event("stub_pending"), 0, "the engine is not waited for");
    assert!(decoder.due().is_some());
    let ((surface, _), copied) = (shown(&mut decoder), event("stub_pending"));
    assert_eq!((copied == 0, decoder.due()), (false, None));
    let (format, color) = (PixelFormat::Nv12, ColorDescription::default());
    let planes = decoder.format().unwrap().plane_offsets(&surface);
    let planes = planes.map(|offset_bytes| PlaneLayout { offset_bytes, pitch_bytes: surface.pitch_bytes() });
    let layout = FrameLayout::with_planes(format, 62, 44, &planes, color).unwrap();
    // SAFETY: the frame has no bytes for the host.
    unsafe { layout.view_on_gpu(&surface).attach(&CudaStream::new(device).unwrap()) }.unwrap();
    assert_eq!((event("stub_awaited"), event("stub_pending")), (copied, copied));
    decoder.decode(&unit(&[&[b'D', 0, 2, 0]]), 2, Showing::InOrder).unwrap();
    assert_eq!(event("stub_pending"), 0);
    // Nor is its memory given back before.
    decoder.decode(&unit(&[&[b'S', 0, 2, 0]]), 2, Showing::InOrder).unwrap();
    let (second, _) = shown(&mut decoder);
    assert_eq!(event("stub_pending"), copied);
    drop((surface, second));
    // A picture that was not taken yet is copied before it may be overwritten.
    let both: [&[u8]; 3] = [&[b'D', 0, 3, 0], &[b'S', 0, 2, 0], &[b'D', 0, 4, 0]];
    decoder.decode(&unit(&both), 3, Showing::InOrder).unwrap();
    let (third, _) = shown(&mut decoder);
    let mut copy = Vec::new();
    third.copy_to(&mut copy).unwrap();
    assert_eq!(copy[0], 3);
    drop((third, decoder));
    assert_eq!(event("stub_pending"), 0);
}

fn streams_that_are_not_decoded_say_why(device: &Arc<Device>) {
    let error = |orders: &[&[u8]], accept: Accept| {
        let mut decoder = VideoDecoder::new(device, VideoCodec::H264, 2, accept).unwrap();
        decoder.decode(&unit(orders), 0, Showing::InOrder).unwrap_err().to_string()
    };
    let all = || -> Accept { Box::new(|_, _, _| Ok(())) };
    assert!(
        error(&[&[b'F', 4, 3, 2]], all())
            .starts_with("the GPU's video engine does not decode H.264 of 8 bits, 4:2:2: ")
    );
    assert!(error(&[&[b'F', 4, 3, 0]], all()).contains("does not decode H.264 of 8 bits, 4:0:0"));
    assert!(error(&[&[b'F', 4, 3, 7]], all()).contains("unknown here (7)"));
    let size = error(&[&[b'F', 2, 3, 1]], all());
    assert!(size.contains("H.264 of 8 bits, 4:2:0 from 48x48 to 4096x4096, and the video has 32x48: "), "{size}");
    assert_eq!(
        error(&[FORMAT], Box::new(|width, height, bytes| Err(format!("{width}x{height}, {bytes}: no")))),
        "64x48, 32256: no"
    );
    assert_eq!(error(&[FORMAT, &[b'F', 4, 4, 1]], all()), NvdecError::OtherParameters.to_string());
    assert_eq!(error(&[FORMAT], Box::new(|_, _, _| panic!("on purpose"))), NvdecError::Callback.to_string());
}
