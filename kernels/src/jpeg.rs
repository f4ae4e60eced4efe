//! Decodes JPEG images (files, or frames of an MJPEG camera) into frames, and encodes frames.
//!
//! The decoder is libjpeg-turbo through the `turbojpeg` crate: a model's scores change with single grey levels, and the usual
//! reference, OpenCV, decodes with it. Measured against `cv2.imdecode` of OpenCV 5.0 on one x86-64 core, on 1080p frames of a
//! photo at quality 80 to 95 (tests/bench/jpeg.py), and on 252 pictures of every sampling, odd sizes, grey and progressive:
//!
//! | | 4:2:0 | 4:2:2 | samples that differ from OpenCV's |
//! |---|---|---|---|
//! | turbojpeg 1.5 (libjpeg-turbo 3.1) | 5.8 to 8.0 ms | 7.0 to 9.5 ms | none |
//! | zune-jpeg 0.5 (pure Rust) | 7.4 to 10.6 ms | 8.2 to 12.2 ms | 12 to 14 % (4:2:0), 6 to 8 % (4:2:2), by up to 4 levels |
//! | OpenCV itself | 6.8 to 8.7 ms | 7.4 to 10.1 ms | |
//!
//! Decoding is strict: an image that libjpeg decodes with a warning (truncated or damaged data) is an error here, because half an
//! image is a wrong image. There is one exception: some cameras leave out the end marker, which is added first and affects no
//! pixel. libjpeg-turbo itself supplies the Huffman tables that MJPEG cameras leave out.

mod decode;
mod encode;

pub use decode::{JpegDecoder, JpegError, JpegHeader, exif};
pub use encode::{EncodeError, JpegEncoder};
