//! What a NATS server says, from its INFO on. The first byte chooses the sink's options, 0xFF lets the sink speak, `@R` stands
//! for the subject of its last request's answer.
//!
//! Only messages that were sent are acknowledged, each once, and the connection ends.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| visiond_publish::fuzz::nats(data));
