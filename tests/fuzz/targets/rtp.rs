//! Payloads of RTP packets, up to the decoder.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_capture::fuzz::rtp(data));
