//! Against OpenCV (libjpeg-turbo), bit for bit; and data that no encoder wrote.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

/// golden.py made it.
const GOLDEN: &str = include_str!("../golden.txt");

struct Sample {
    name: &'static str,
    size: (u32, u32),
    hash: u64,
    jpeg: Vec<u8>,
}

fn samples() -> Vec<Sample> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    GOLDEN
        .lines()
        .map(|line| {
            let [name, width, height, hash, jpeg] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            Sample {
                name,
                size: (width.parse().unwrap(), height.parse().unwrap()),
                hash: u64::from_str_radix(hash, 16).unwrap(),
                jpeg: jpeg.as_bytes().chunks(2).map(byte).collect(),
            }
        })
        .collect()
}

fn sample(name: &str) -> Vec<u8> {
    samples().into_iter().find(|sample| sample.name == name).unwrap().jpeg
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Into a buffer that is large enough for every sample.
fn decode(jpeg: &[u8]) -> Result<Vec<u8>, JpegError> {
    let mut out = vec![0; 1 << 16];
    let layout = JpegDecoder::new().decode(jpeg, &mut out)?;
    out.truncate(layout.size_bytes());
    Ok(out)
}

/// The picture without the segments of that marker.
fn without_segments(jpeg: &[u8], marker: u8) -> Vec<u8> {
    let mut kept = jpeg[..2].to_vec();
    let mut position = 2;
    loop {
        let length = usize::from(u16::from_be_bytes([jpeg[position + 2], jpeg[position + 3]]));
        let end = position + 2 + length;
        if jpeg[position + 1] == SOS {
            kept.extend_from_slice(&jpeg[position..]);
            return kept;
        }
        if jpeg[position + 1] != marker {
            kept.extend_from_slice(&jpeg[position..end]);
        }
        position = end;
    }
}

#[test]
fn every_kind_of_picture_is_what_libjpeg_makes_of_it() {
    let mut decoder = JpegDecoder::new();
    let mut out = vec![0; 1 << 16];
    for sample in samples() {
        let header = decoder.header(&sample.jpeg).unwrap();
        assert_eq!((header.width, header.height), sample.size, "{}", sample.name);
        let layout = decoder.decode(&sample.jpeg, &mut out).unwrap();
        assert_eq!((layout.width(), layout.height()), sample.size, "{}", sample.name);
        assert_eq!(fnv(&out[..layout.size_bytes()]), sample.hash, "{}", sample.name);
    }
}

#[test]
fn a_camera_may_leave_out_the_standard_tables() {
    let whole = sample("422-p0-37x29");
    let without = without_segments(&whole, 0xC4);
    assert!(without.len() + 400 < whole.len());
    assert_eq!(decode(&without), decode(&whole));
}

#[test]
fn no_picture_is_decoded_with_the_tables_of_the_one_before_it() {
    let whole = sample("422-p0-37x29");
    let (without_huffman, without_quantization) = (without_segments(&whole, 0xC4), without_segments(&whole, 0xDB));
    for before in ["optimized", "420-p1-37x29", "grey"] {
        let (mut decoder, mut out) = (JpegDecoder::new(), vec![0; 1 << 16]);
        decoder.decode(&sample(before), &mut out).unwrap();
        let layout = decoder.decode(&without_huffman, &mut out).unwrap();
        assert_eq!(out[..layout.size_bytes()], decode(&whole).unwrap(), "the standard tables, not those of {before}");
        assert!(decoder.decode(&without_quantization, &mut out).is_err(), "with the tables of {before}");
    }
}

#[test]
fn a_camera_may_leave_out_the_end_marker_and_pad_the_frame() {
    let whole = sample("420-p0-37x29");
    let picture = decode(&whole).unwrap();
    assert_eq!(decode(&whole[..whole.len() - 2]), Ok(picture.clone()));
    assert_eq!(decode(&[whole.as_slice(), &[0; 100]].concat()), Ok(picture));
}

#[test]
fn what_is_cut_off_is_an_error_wherever_the_cut_is() {
    for name in ["420-p0-37x29", "420-p1-37x29", "restart", "grey"] {
        let whole = sample(name);
        for end in 0..whole.len() - 4 {
            assert!(decode(&whole[..end]).is_err(), "{name} cut at {end} of {}", whole.len());
        }
    }
}

#[test]
fn errors_tell_what_is_wrong() {
    assert_eq!(decode(b"\x89PNG"), Err(JpegError::NotJpeg));
    let error = decode(&[0xFF, 0xD8, 0xFF, 0xD9]).unwrap_err().to_string();
    assert!(error.starts_with("the JPEG data is damaged") && !error.contains("tj3"), "{error}");
    let error = JpegDecoder::new().decode(&sample("grey"), &mut [0; 10]).unwrap_err();
    assert_eq!(error, JpegError::BufferTooSmall { needed: 37 * 29 * 3, given: 10 });
}

#[test]
fn a_cameras_picture_of_another_size_is_refused() {
    let (jpeg, mut decoder) = (sample("422-p0-37x29"), JpegDecoder::new());
    let frame =
        |width, height| FrameLayout::packed(PixelFormat::Rgb, width, height, ColorDescription::default()).unwrap();
    let mut out = vec![7; frame(37, 29).size_bytes() + 100];
    decoder.decode_shared(&jpeg, &frame(37, 29), &mut out).unwrap();
    assert_eq!(out[..37 * 29 * 3], decode(&jpeg).unwrap());
    for (width, height) in [(36, 29), (37, 28), (38, 29), (29, 37)] {
        let refused = decoder.decode_shared(&jpeg, &frame(width, height), &mut out);
        assert_eq!(refused, Err(JpegError::OtherSize(37, 29)));
    }
    assert!(out[37 * 29 * 3..].iter().all(|&byte| byte == 7), "it wrote behind the frame");
    let short = decoder.decode_shared(&jpeg, &frame(37, 29), &mut out[..100]);
    assert_eq!(short, Err(JpegError::BufferTooSmall { needed: 37 * 29 * 3, given: 100 }));
}

/// Another process may write to a camera's buffer while it is decoded. Here a thread does so all the time, and makes the size in
/// the header grow and shrink.
#[test]
fn a_size_that_changes_while_the_picture_is_decoded_changes_nothing_behind_the_frame() {
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
    let jpeg = sample("420-p0-37x29");
    let at = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap() + 6;
    let shared: Vec<AtomicU8> = jpeg.iter().map(|&byte| AtomicU8::new(byte)).collect();
    // SAFETY: atomic bytes are bytes. That they change while they are read is what is tested.
    let bytes = unsafe { std::slice::from_raw_parts(shared.as_ptr().cast::<u8>(), shared.len()) };
    let layout = FrameLayout::packed(PixelFormat::Rgb, 37, 29, ColorDescription::default()).unwrap();
    let mut out = vec![7; 1 << 20];
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                // The low byte of the height: 29, or 255.
                shared[at].store(255, Relaxed);
                shared[at].store(29, Relaxed);
            }
        });
        let mut decoder = JpegDecoder::new();
        for _ in 0..20_000 {
            let _ = decoder.decode_shared(bytes, &layout, &mut out);
        }
        ended.store(true, Relaxed);
    });
    assert!(out[layout.size_bytes()..].iter().all(|&byte| byte == 7), "it wrote behind the frame");
}

#[test]
fn what_decoding_takes_is_known_from_the_header() {
    let working = |name: &str| JpegDecoder::new().header(&sample(name)).unwrap().working_bytes;
    assert_eq!(working("420-p0-37x29"), 0);
    // Coefficients of three components, 64x32 each: 37x29 in whole units.
    assert_eq!(working("420-p1-37x29"), 64 * 32 * 3 * 2);
    let jpeg = sample("420-p0-37x29");
    let endless = &jpeg[..jpeg.len() - 2];
    assert_eq!(JpegDecoder::new().header(endless).unwrap().working_bytes, jpeg.len() as u64);
    // A sequential picture whose first scan lacks components has as many coefficients as a progressive one.
    let mut several = jpeg.clone();
    let scan = several.windows(2).position(|pair| pair == [0xFF, SOS]).unwrap();
    several[scan + 4] = 1;
    assert!(!has_several_scans(&jpeg) && has_several_scans(&several) && has_several_scans(b""));
}

#[test]
fn coefficients_are_counted_by_component_and_inks_by_pixel() {
    let jpeg = sample("420-p1-37x29");
    let mut header = read_header(&mut library().unwrap(), &jpeg).unwrap();
    // 37x29 in whole units.
    let samples = 64 * 32;
    for (colorspace, wanted) in [
        (Colorspace::Gray, samples * 2),
        (Colorspace::YCbCr, samples * 3 * 2),
        (Colorspace::RGB, samples * 3 * 2),
        (Colorspace::CMYK, samples * 4 * 2 + 37 * 29 * 4),
        (Colorspace::YCCK, samples * 4 * 2 + 37 * 29 * 4),
    ] {
        header.colorspace = colorspace;
        assert_eq!(working_bytes(&header, &jpeg), wanted, "{colorspace:?}");
    }
}

#[test]
fn exif_is_found_before_the_picture() {
    let grey = sample("grey");
    assert_eq!(exif(&grey), None);
    let block = [0xFF, 0xE1, 0, 12, b'E', b'x', b'i', b'f', 0, 0, b'I', b'I', 42, 0];
    let with = [&grey[..2], &block, &grey[2..]].concat();
    assert_eq!(exif(&with), Some(&b"II\x2A\0"[..]));
    assert_eq!(decode(&with), decode(&grey));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        let _ = decode(&[&[0xFF, 0xD8, 0xFF], bytes.as_slice()].concat());
        let _ = exif(&bytes);
    }

    #[test]
    fn flipped_bits_never_panic(which in 0..24_usize, flips in proptest::collection::vec((any::<usize>(), 0..8_u8), 1..12)) {
        let samples = samples();
        let mut jpeg = samples[which % samples.len()].jpeg.clone();
        for (at, bit) in flips {
            let length = jpeg.len();
            jpeg[at % length] ^= 1 << bit;
        }
        let _ = decode(&jpeg);
    }
}
