//! Pictures that are encoded and read again.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::color::ColorDescription;
use crate::frame::FrameLayout;
use crate::jpeg::{JpegDecoder, JpegHeader};

const FORMATS: [PixelFormat; 11] = [
    PixelFormat::Grey,
    PixelFormat::Grey16,
    PixelFormat::Yuyv,
    PixelFormat::Uyvy,
    PixelFormat::Yvyu,
    PixelFormat::Vyuy,
    PixelFormat::Nv12,
    PixelFormat::Nv21,
    PixelFormat::Nv16,
    PixelFormat::Nv61,
    PixelFormat::I420,
];

/// A frame of one colour, as `format` stores it.
fn frame_of(format: PixelFormat, size: (u32, u32), color: ColorDescription, [y, cb, cr]: [u8; 3]) -> Vec<u8> {
    let layout = FrameLayout::packed(format, size.0, size.1, color).unwrap();
    let mut bytes = vec![0; layout.size_bytes()];
    let luma = layout.planes().get(1).map_or(bytes.len(), |plane| plane.offset_bytes);
    let fill = |bytes: &mut [u8], pattern: &[u8]| {
        bytes.iter_mut().zip(pattern.iter().cycle()).for_each(|(byte, value)| *byte = *value);
    };
    match format {
        PixelFormat::Yuyv => fill(&mut bytes, &[y, cb, y, cr]),
        PixelFormat::Uyvy => fill(&mut bytes, &[cb, y, cr, y]),
        PixelFormat::Yvyu => fill(&mut bytes, &[y, cr, y, cb]),
        PixelFormat::Vyuy => fill(&mut bytes, &[cr, y, cb, y]),
        // Both bytes of 16 bits, whose map to bytes divides by 257.
        _ => fill(&mut bytes[..luma], &[y]),
    }
    match format {
        PixelFormat::Nv12 | PixelFormat::Nv16 => fill(&mut bytes[luma..], &[cb, cr]),
        PixelFormat::Nv21 | PixelFormat::Nv61 => fill(&mut bytes[luma..], &[cr, cb]),
        PixelFormat::I420 => {
            let second = layout.planes()[2].offset_bytes;
            fill(&mut bytes[luma..second], &[cb]);
            fill(&mut bytes[second..], &[cr]);
        }
        _ => {}
    }
    bytes
}

fn decoded(jpeg: &[u8]) -> (Vec<u8>, u32, u32) {
    let mut decoder = JpegDecoder::new();
    let JpegHeader { width, height, .. } = decoder.header(jpeg).unwrap();
    let mut rgb = vec![0; (width * height * 3) as usize];
    decoder.decode(jpeg, &mut rgb).unwrap();
    (rgb, width, height)
}

#[test]
fn colours_stay_what_they_were_in_every_format_and_at_odd_sizes() {
    // Red and blue, which show a swap of Cb and Cr: limited range, and the same red in full range.
    let limited = ColorDescription::default();
    let cases = [
        (limited, [81, 90, 240], [255, 0, 0]),
        (limited, [41, 240, 110], [0, 0, 255]),
        (ColorDescription::JPEG, [76, 85, 255], [255, 0, 0]),
    ];
    let mut encoder = JpegEncoder::new(95).unwrap();
    for format in FORMATS {
        for size in [(64, 48), (33, 17), (1, 1), (2, 3)] {
            for (color, yuv, rgb) in cases {
                let bytes = frame_of(format, size, color, yuv);
                let layout = FrameLayout::packed(format, size.0, size.1, color).unwrap();
                assert!(encoder.read(&layout.view(&bytes).unwrap()));
                let (pixels, width, height) = decoded(&encoder.encode_read().unwrap());
                assert_eq!((width, height), size);
                let grey = ((color.to_rgb().y_gain * (f64::from(yuv[0]) - color.to_rgb().y_offset)).round()) as u8;
                let expected = if format.is_grey() { [grey; 3] } else { rgb };
                for pixel in pixels.chunks(3) {
                    let near = pixel.iter().zip(expected).all(|(&a, b)| a.abs_diff(b) <= 6);
                    assert!(near, "{format} {size:?}: {pixel:?} instead of {expected:?}");
                }
            }
        }
    }
}

#[test]
fn the_pixels_of_a_gradient_keep_their_places() {
    let (width, height) = (98, 61);
    let mut encoder = JpegEncoder::new(95).unwrap();
    for format in FORMATS {
        let layout = FrameLayout::packed(format, width, height, ColorDescription::JPEG).unwrap();
        let mut bytes = frame_of(format, (width, height), ColorDescription::JPEG, [0, 128, 128]);
        let pitch = layout.planes()[0].pitch_bytes;
        let (step, first) = match format {
            PixelFormat::Yuyv | PixelFormat::Yvyu => (2, 0),
            // The upper byte.
            PixelFormat::Uyvy | PixelFormat::Vyuy | PixelFormat::Grey16 => (2, 1),
            _ => (1, 0),
        };
        for y in 0..height as usize {
            for x in 0..width as usize {
                bytes[y * pitch + x * step + first] = (x + 2 * y) as u8;
            }
        }
        assert!(encoder.read(&layout.view(&bytes).unwrap()));
        let (pixels, ..) = decoded(&encoder.encode_read().unwrap());
        for y in 0..height as usize {
            for x in 0..width as usize {
                let found = pixels[(y * width as usize + x) * 3 + 1];
                assert!(found.abs_diff((x + 2 * y) as u8) <= 5, "{format} {x},{y}: {found}");
            }
        }
    }
}

#[test]
fn a_picture_in_stripes_has_the_pixels_of_one_in_one_piece() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static PAUSES: AtomicUsize = AtomicUsize::new(0);
    // Twelve stripes, of which the last is low.
    let (width, height) = (1284, 561);
    let noise =
        |bytes: usize| (0..bytes).map(|n| ((n / 7).wrapping_mul(2_654_435_761) >> 16) as u8).collect::<Vec<_>>();
    let mut striped = JpegEncoder::new(80).unwrap().pausing(|| {
        PAUSES.fetch_add(1, Ordering::Relaxed);
    });
    let mut whole = JpegEncoder { stripe_pixels: usize::MAX, ..JpegEncoder::new(80).unwrap() };
    let same = |striped: &[u8], whole: &[u8]| {
        assert!(decoded(striped) == decoded(whole));
        assert!(striped.len() < whole.len() + 12 * 16, "{} instead of {} bytes", striped.len(), whole.len());
    };
    for format in FORMATS {
        let layout = FrameLayout::packed(format, width, height, ColorDescription::JPEG).unwrap();
        let bytes = noise(layout.size_bytes());
        let frame = layout.view(&bytes).unwrap();
        assert!(striped.read(&frame) && whole.read(&frame));
        PAUSES.store(0, Ordering::Relaxed);
        same(&striped.encode_read().unwrap(), &whole.encode_read().unwrap());
        assert_eq!(PAUSES.load(Ordering::Relaxed), 11, "{format}");
    }
    let rgb = noise(width as usize * height as usize * 3);
    same(&striped.encode_rgb(&rgb, width, height).unwrap(), &whole.encode_rgb(&rgb, width, height).unwrap());
}

#[test]
fn what_jpeg_has_no_colours_for_comes_as_rgb() {
    let mut encoder = JpegEncoder::new(90).unwrap();
    let hd = ColorDescription::new(ColorMatrix::Bt709, ColorRange::Limited);
    for (format, color) in [(PixelFormat::Nv12, hd), (PixelFormat::Bgr, ColorDescription::JPEG)] {
        let layout = FrameLayout::packed(format, 8, 8, color).unwrap();
        assert!(!encoder.read(&layout.view(&vec![0; layout.size_bytes()]).unwrap()));
    }
    let (pixels, ..) = decoded(&encoder.encode_rgb(&[10, 200, 90].repeat(64), 8, 8).unwrap());
    assert!(pixels.chunks(3).all(|p| p[0].abs_diff(10) <= 4 && p[1].abs_diff(200) <= 4 && p[2].abs_diff(90) <= 4));
    assert!(encoder.encode_rgb(&[0; 8], 8, 8).unwrap_err().to_string().contains("needs 192 bytes"));
}
