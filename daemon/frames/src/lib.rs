//! Frames, the pools that their buffers return to, the rings of coded frames, and the clocks of their timestamps.

pub mod clock;
pub mod coded_ring;
pub mod frame;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timestamp;
