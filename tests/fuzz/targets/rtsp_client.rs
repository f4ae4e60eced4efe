//! A whole session with an RTSP server: answers, requests, packets and datagrams, in pieces, and time.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_rtsp::fuzz::client(data));
