//! Frames, the pools that their buffers return to, and the clocks of their timestamps.

pub mod clock;
pub mod frame;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timestamp;
