//! The output of ffprobe about a video.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_capture::fuzz::ffprobe(data));
