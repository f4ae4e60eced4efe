//! The numbers of TensorRT's enumerations that differ between versions.

use visiond_engine::tensorrt::Layout;

/// A member of `nvinfer1::BuilderFlag`: its numbers in TensorRT 8, 10 and 11 and for RTX, where they have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuilderFlag([Option<i32>; 4]);

impl BuilderFlag {
    // From TensorRT 11 on, every model is strongly typed.
    pub(super) const FP16: Self = Self([Some(0), Some(0), None, None]);
    pub(super) const INT8: Self = Self([Some(1), Some(1), None, None]);
    pub(super) const BF16: Self = Self([None, Some(17), None, None]);
    pub(super) const GPU_FALLBACK: Self = Self([Some(3); 4]);
    /// The only flag that is set by default.
    pub(super) const TF32: Self = Self([Some(7), Some(6), Some(6), Some(6)]);
    pub(super) const PREFER_PRECISION_CONSTRAINTS: Self = Self([Some(11), Some(10), None, None]);
    pub(super) const DIRECT_IO: Self = Self([Some(12), Some(11), Some(11), Some(11)]);
    pub(super) const VERSION_COMPATIBLE: Self = Self([Some(15), Some(13), Some(12), None]);

    /// Returns its number, if the version has it.
    pub(super) const fn number(self, layout: Layout) -> Option<i32> {
        let [v8, v10, v11, rtx] = self.0;
        match layout {
            Layout::V8 => v8,
            Layout::V10 => v10,
            Layout::V11 => v11,
            Layout::Rtx => rtx,
        }
    }
}

/// Decides the type in which a layer computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typing {
    /// The model decides.
    Strong,
    /// TensorRT decides, within what the flags allow.
    Weak,
}

impl Typing {
    /// Returns the argument of `IBuilder::createNetworkV2`.
    pub(super) const fn network_flags(self, layout: Layout) -> u32 {
        match (layout, self) {
            // kEXPLICIT_BATCH; there is no strong typing.
            (Layout::V8, _) => 1,
            // kSTRONGLY_TYPED
            (Layout::V10, Self::Strong) => 1 << 1,
            (Layout::V10, Self::Weak) => 0,
            // Always strongly typed; the flag, now bit 0, is ignored.
            (Layout::V11 | Layout::Rtx, _) => 0,
        }
    }
}

/// `nvinfer1::MemoryPoolType::kWORKSPACE`
pub(super) const WORKSPACE: i32 = 0;
/// `nvinfer1::ProfilingVerbosity::kDETAILED`
pub(super) const DETAILED: i32 = 2;
/// `nvinfer1::DeviceType::kDLA`
pub(super) const DLA: i32 = 1;
