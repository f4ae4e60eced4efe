//! Descriptions of sessions (SDP) with the parameter sets in them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_rtsp::fuzz::sdp(data));
