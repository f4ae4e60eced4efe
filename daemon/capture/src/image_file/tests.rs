//! Images like those of users: in every format, rotated, mislabelled, damaged, hostile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use image::{GrayAlphaImage, GrayImage, ImageBuffer, Rgb, Rgba, RgbaImage};
use tempfile::TempDir;

use super::*;

/// 3x2, every pixel different.
fn load(path: &Path) -> Result<Frame, SourceError> {
    super::load(path, &Buffers::host(1))
}

fn picture() -> RgbImage {
    RgbImage::from_fn(3, 2, |x, y| Rgb([10 * x as u8, 100 * y as u8, 200]))
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn pixels(frame: &Frame) -> &[u8] {
    &frame.buffer.as_slice()[..frame.layout.size_bytes()]
}

fn error(path: &Path) -> String {
    let error = load(path).unwrap_err();
    assert!(!error.may_pass());
    assert!(error.to_string().starts_with(&format!("cannot read the image {}: ", path.display())), "{error}");
    error.to_string()
}

#[test]
fn lossless_formats_give_the_pixels_that_were_written_whatever_the_name_says() {
    let folder = TempDir::new().unwrap();
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::WebP, ImageFormat::Pnm] {
        let path = write(&folder, "picture.jpg", &encoded(picture(), format));
        let frame = load(&path).unwrap();
        assert_eq!(pixels(&frame), picture().as_raw(), "{format:?}");
        assert_eq!((frame.layout.width(), frame.layout.height()), (3, 2));
        assert_eq!(frame.name.as_deref(), path.to_str());
    }
}

#[test]
fn alpha_is_dropped_and_low_bytes_too_and_grey_becomes_colour() {
    let folder = TempDir::new().unwrap();
    let load_png = |picture: DynamicImage| {
        let path = write(&folder, "picture.png", &encoded(picture, ImageFormat::Png));
        pixels(&load(&path).unwrap()).to_vec()
    };
    assert_eq!(load_png(RgbaImage::from_pixel(1, 1, Rgba([9, 8, 7, 0])).into()), [9, 8, 7]);
    assert_eq!(load_png(GrayImage::from_pixel(1, 1, image::Luma([5])).into()), [5, 5, 5]);
    assert_eq!(load_png(GrayAlphaImage::from_pixel(1, 1, image::LumaA([5, 1])).into()), [5, 5, 5]);
    let deep: ImageBuffer<Rgb<u16>, Vec<u16>> = ImageBuffer::from_pixel(1, 1, Rgb([0x12FF, 0x3400, 0xFFFF]));
    assert_eq!(load_png(deep.into()), [0x12, 0x34, 0xFF]);
}

#[test]
fn a_photo_is_turned_as_its_exif_says() {
    let folder = TempDir::new().unwrap();
    let tall = RgbImage::from_fn(16, 32, |_, y| if y < 16 { Rgb([250, 250, 250]) } else { Rgb([5, 5, 5]) });
    let plain = encoded(tall, ImageFormat::Jpeg);
    for (orientation, size, top_left_is_white) in
        [(1, (16, 32), true), (3, (16, 32), false), (6, (32, 16), false), (8, (32, 16), true)]
    {
        let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend_from_slice(&[orientation, 0, 0, 0, 0, 0, 0, 0]);
        let length = (exif.len() as u16 + 2).to_be_bytes();
        let turned = [&plain[..2], &[0xFF, 0xE1], &length, &exif, &plain[2..]].concat();
        let frame = load(&write(&folder, "photo.jpg", &turned)).unwrap();
        assert_eq!((frame.layout.width(), frame.layout.height()), size, "orientation {orientation}");
        assert_eq!(pixels(&frame)[0] > 128, top_left_is_white, "orientation {orientation}");
    }
}

#[test]
fn what_was_cut_off_is_an_error_in_every_format() {
    let folder = TempDir::new().unwrap();
    let noisy = RgbImage::from_fn(64, 64, |x, y| Rgb([(x * 37 + y * 91) as u8, (x * y) as u8, (x ^ y) as u8]));
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Bmp,
        ImageFormat::Gif,
        ImageFormat::Tiff,
        ImageFormat::WebP,
        ImageFormat::Pnm,
    ] {
        let whole = encoded(noisy.clone(), format);
        assert!(load(&write(&folder, "whole", &whole)).is_ok(), "{format:?}");
        error(&write(&folder, "cut", &whole[..whole.len() / 2]));
    }
}

#[test]
fn what_is_no_picture_gets_a_sentence() {
    let folder = TempDir::new().unwrap();
    assert!(error(&write(&folder, "empty.png", b"")).contains("the file is empty"));
    assert!(error(&write(&folder, "text.png", b"hello, world")).contains("not a supported image"));
    assert!(error(folder.path()).contains("it is a folder"));
    assert!(error(Path::new("/dev/zero")).contains("a device or a pipe"));
    let fifo = folder.path().join("fifo.png");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    assert!(error(&fifo).contains("a device or a pipe"));
    assert!(error(&folder.path().join("missing.png")).contains("No such file"));
    let exact: ImageBuffer<Rgb<f32>, Vec<f32>> = ImageBuffer::from_pixel(1, 1, Rgb([0.5, 0.5, 0.5]));
    assert!(error(&write(&folder, "f.tif", &encoded(exact, ImageFormat::Tiff))).contains("floating-point"));
}

/// A PNG of that size without any pixels.
fn empty_png(width: u32, height: u32, depth: u8, color: u8, interlaced: u8) -> Vec<u8> {
    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(data);
        [&(data.len() as u32).to_be_bytes(), &kind[..], data, &crc.sum().to_be_bytes()].concat()
    }
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[depth, color, 0, 0, interlaced]].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", b""), chunk(b"IEND", b"")].concat()
}

#[test]
fn the_limits_are_the_configurations_and_the_header_is_judged_alone() {
    let folder = TempDir::new().unwrap();
    for interlaced in [0, 1] {
        let refusal = |width, height, depth, color| {
            error(&write(&folder, "bomb.png", &empty_png(width, height, depth, color, interlaced)))
        };
        assert!(refusal(11_500, 11_500, 16, 6).contains("it has 132250000 pixels (11500x11500), more than 67108864: "));
        assert!(refusal(7_000, 7_000, 16, 6).contains("reading it may take 539 MiB of memory, more than 384: make it"));
        assert!(refusal(u32::MAX >> 1, 1, 8, 2).contains("limit"));
        // An allowed size fails only because the pixels are missing.
        assert!(!refusal(5_700, 5_700, 16, 6).contains("more than"));
    }
    let limits = |max_pixels, max_picture_bytes| Buffers { max_pixels, max_picture_bytes, ..Buffers::host(1) };
    let path = write(&folder, "small.bmp", &encoded(picture(), ImageFormat::Bmp));
    let refusal = |limits| super::load(&path, &limits).unwrap_err().to_string();
    assert!(super::load(&path, &limits(6, 1000)).is_ok());
    assert!(
        refusal(limits(5, 1000)).contains("it has 6 pixels (3x2), more than 5: make it smaller, or raise `max_pixels`")
    );
    assert!(refusal(limits(6, 100)).contains("reading it may take 1 MiB of memory"));
    // A file that is larger by itself is not read.
    assert!(refusal(limits(6, 10)).contains("reading it may take 1 MiB of memory"));
    // Errors of the image library also have a remedy; visiond does not read formats that the library only recognises.
    assert!(
        error(&write(&folder, "cut.png", &empty_png(3, 2, 8, 2, 0))).ends_with("; copy it again, or save it as PNG")
    );
    assert!(error(&write(&folder, "wide.png", &empty_png(1 << 20, 1, 8, 2, 0))).ends_with("; make it smaller"));
    assert!(error(&write(&folder, "a.qoi", b"qoif\0\0\0\x01\0\0\0\x01\x03\0")).contains("not a supported image"));
}

#[test]
fn a_tiff_with_jpeg_inside_is_refused_because_nothing_checks_the_size_within() {
    let folder = TempDir::new().unwrap();
    let mut tiff = encoded(picture(), ImageFormat::Tiff);
    // The tag Compression: 259, a short, one of them.
    let tag = [3, 1, 3, 0, 1, 0, 0, 0];
    let at = tiff.windows(tag.len()).position(|bytes| bytes == tag).unwrap();
    assert!(load(&write(&folder, "plain.tif", &tiff)).is_ok());
    tiff[at + tag.len()] = 7;
    assert!(error(&write(&folder, "jpeg.tif", &tiff)).contains("save it as JPEG"));
}

#[test]
fn a_small_file_that_claims_a_huge_picture_is_refused_before_memory_is_taken() {
    let folder = TempDir::new().unwrap();
    error(&write(&folder, "wide.ppm", b"P6\n60000 60000\n255\n"));
    let message = error(&write(&folder, "large.ppm", b"P6\n16000 16000\n255\n"));
    assert!(message.contains("256000000 pixels (16000x16000)"), "{message}");
    // The same in JPEG: the frame header has the size.
    let mut jpeg = encoded(picture(), ImageFormat::Jpeg);
    let at = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    jpeg[at + 5..at + 9].copy_from_slice(&[0x3E, 0x80, 0x3E, 0x80]);
    let message = error(&write(&folder, "large.jpg", &jpeg));
    assert!(message.contains("256000000 pixels"), "{message}");
    // Progressive, and of the largest size that the format can state.
    jpeg[at + 1] = 0xC2;
    jpeg[at + 5..at + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
    let message = error(&write(&folder, "progressive.jpg", &jpeg));
    assert!(message.contains("a frame of 65500x65500 is out of range"), "{message}");
    // Within the pixels, but the coefficients of all scans are kept: 9 bytes a pixel.
    jpeg[at + 5..at + 9].copy_from_slice(&[0x1F, 0x40, 0x1F, 0x40]);
    let message = error(&write(&folder, "scans.jpg", &jpeg));
    assert!(message.contains("reading it may take 550 MiB of memory, more than 384"), "{message}");
}

/// golden.py made it.
const GOLDEN: &str = include_str!("golden.txt");

/// Files that OpenCV reads and visiond refuses, each with a part of the reason. OpenCV fills the missing part of a JPEG with grey.
const REFUSED: [(&str, &str); 8] = [
    ("jpeg.tif", "TIFF with JPEG inside"),
    ("palette.tif", "unsupported"),
    ("grey-alpha.tif", "does not support"),
    ("rgb.avif", "it is AVIF, which visiond does not read: convert it with `avifdec IMAGE.avif IMAGE.png`"),
    ("cut-sequential-80.jpg", "damaged, truncated"),
    ("cut-sequential-95.jpg", "damaged, truncated"),
    ("cut-progressive-80.jpg", "damaged, truncated"),
    ("cut-progressive-95.jpg", "damaged, truncated"),
];

/// Files that visiond reads and OpenCV refuses: it allocates the image before it turns a TIFF, and takes no background outside
/// the table of colours.
const READ_HERE_ALONE: [&str; 5] = ["exif-5.tif", "exif-6.tif", "exif-7.tif", "exif-8.tif", "screen-outside-table.gif"];

/// OpenCV takes the samples of a binary PGM as they are, whatever its header calls white.
const WITH_ANOTHER_WHITE: [&str; 2] = ["max-100.pgm", "max-1000.pgm"];

#[test]
fn a_picture_has_the_pixels_that_opencv_gives() {
    let folder = TempDir::new().unwrap();
    let fnv = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0xCBF2_9CE4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
    };
    let mut wrong = Vec::new();
    for line in GOLDEN.lines() {
        let [name, width, height, hash, file] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let path = write(&folder, name, &file.as_bytes().chunks(2).map(byte).collect::<Vec<_>>());
        let found = match load(&path) {
            Err(error) => match REFUSED.iter().find(|(refused, _)| *refused == name) {
                Some((_, reason)) => error.to_string().contains(reason).to_string(),
                None if hash == "-" => true.to_string(),
                None => error.to_string(),
            },
            Ok(frame) => {
                let (layout, found) = (&frame.layout, fnv(pixels(&frame)));
                let size_fits =
                    (layout.width().to_string(), layout.height().to_string()) == (width.into(), height.into());
                let is_equal = size_fits && format!("{found:016x}") == hash;
                let may_differ = READ_HERE_ALONE.contains(&name) || WITH_ANOTHER_WHITE.contains(&name);
                (is_equal != may_differ).to_string()
            }
        };
        if found != "true" {
            wrong.push(format!("{name}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
