//! The bytes of an MQTT broker, from its answer to CONNECT on. The first byte chooses the sink's options, 0xFF lets the sink
//! speak.
//!
//! Only messages that were sent are acknowledged, each once, and the session ends.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_publish::fuzz::mqtt(data));
