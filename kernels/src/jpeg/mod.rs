//! A JPEG picture (a file, or a frame of an MJPEG camera) into a frame, and a frame into a picture.
//!
//! Decoded by libjpeg-turbo through the `turbojpeg` crate, because a network's scores move with single grey levels and the
//! usual reference, OpenCV, decodes with it. Measured against `cv2.imdecode` of OpenCV 5.0 on one x86-64 core, on 1080p
//! frames of a photo at quality 80 to 95 (tests/bench/jpeg.py), and on 252 pictures of every sampling, odd sizes, grey and
//! progressive:
//!
//! | | 4:2:0 | 4:2:2 | samples that differ from OpenCV's |
//! |---|---|---|---|
//! | turbojpeg 1.5 (libjpeg-turbo 3.1) | 5.8 to 8.0 ms | 7.0 to 9.5 ms | none |
//! | zune-jpeg 0.5 (pure Rust) | 7.4 to 10.6 ms | 8.2 to 12.2 ms | 12 to 14 % (4:2:0), 6 to 8 % (4:2:2), by up to 4 levels |
//! | OpenCV itself | 6.8 to 8.7 ms | 7.4 to 10.1 ms | |
//!
//! Strict: what libjpeg decodes with a warning (data cut off or damaged) is an error here, because half a picture is a
//! wrong picture. One thing is mended first: cameras leave out the end marker, which costs nothing of the picture. The
//! Huffman tables that MJPEG cameras leave out are known to libjpeg-turbo.

mod decode;
mod encode;

pub use decode::{JpegDecoder, JpegError, exif};
pub use encode::{EncodeError, JpegEncoder};
