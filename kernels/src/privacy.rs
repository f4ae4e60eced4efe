//! Blanks areas of a frame, for privacy.
//!
//! - `plan`: the bytes to write for a layout, and writing them on the CPU.
//! - `launch`, `cuda`: the same writes for a picture in the GPU's memory.

mod cuda;
mod launch;
mod plan;

pub use self::cuda::{BlankError, CudaMaskPlan};
pub use self::plan::{Fill, MaskPlan, PrivacyMask};
