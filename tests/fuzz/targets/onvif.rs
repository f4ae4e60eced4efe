//! Answers of ONVIF devices: to the multicast probe, and of their media services.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_capture::fuzz::onvif(data));
