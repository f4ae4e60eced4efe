//! The first line of a YUV4MPEG2 stream.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_capture::fuzz::y4m(data));
