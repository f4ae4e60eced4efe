//! Challenges of RTSP servers to log in.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_rtsp::fuzz::challenge(data));
