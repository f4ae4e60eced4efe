//! JPEG images, and the frames of MJPEG cameras.
//!
//! A decoded image has the bytes of its size, and nothing of the previous image.

#![no_main]

use libfuzzer_sys::fuzz_target;
use visiond_kernels::frame::PixelFormat;
use visiond_kernels::jpeg::{JpegDecoder, exif};

/// The bytes of the largest image.
const MOST_BYTES: usize = 1 << 16;
/// The image that is decoded before the input: progressive, because that leaves the most state.
const BEFORE: &[u8] = include_bytes!("before.jpg");

fuzz_target!(|data: &[u8]| {
    if let Some(block) = exif(data) {
        assert!(block.len() < data.len());
    }
    // Larger images do not fit, and find nothing new.
    let (mut first, mut second) = (vec![0; MOST_BYTES], vec![1; MOST_BYTES]);
    let mut decoder = JpegDecoder::new();
    let header = decoder.header(data);
    let alone = decoder.decode(data, &mut first);
    let _ = decoder.decode(BEFORE, &mut second);
    assert_eq!(alone, decoder.decode(data, &mut second));
    if let Ok(layout) = alone {
        assert!(header.is_ok());
        let size = layout.width() as usize * layout.height() as usize * 3;
        assert_eq!((layout.format(), layout.size_bytes()), (PixelFormat::Rgb, size));
        assert!(first[..size] == second[..size], "the picture before it shows");
        assert!(first[size..].iter().all(|byte| *byte == 0), "it wrote behind the picture");
    }
});
