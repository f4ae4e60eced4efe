//! An HTTP camera's answer: the head, the body's encoding, and the images in it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_capture::fuzz::mjpeg(data));
