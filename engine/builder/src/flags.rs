//! The numbers of TensorRT's enumerations that differ between its versions.

use visiond_engine::tensorrt::Layout;

/// `nvinfer1::BuilderFlag`, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    Fp16,
    Bf16,
    Int8,
    GpuFallback,
    Tf32,
    PreferPrecisionConstraints,
    DirectIo,
    VersionCompatible,
}

impl Flag {
    /// Its number, where the version has it.
    pub(super) const fn number(self, layout: Layout) -> Option<i32> {
        match (self, layout) {
            (Self::GpuFallback, _) => Some(3),
            // The only one that is set from the start.
            (Self::Tf32, Layout::V8) => Some(7),
            (Self::Tf32, _) => Some(6),
            // From 11 on every network says its types itself.
            (Self::Fp16, Layout::V8 | Layout::V10) => Some(0),
            (Self::Int8, Layout::V8 | Layout::V10) => Some(1),
            (Self::Bf16, Layout::V10) => Some(17),
            (Self::PreferPrecisionConstraints, Layout::V8) => Some(11),
            (Self::PreferPrecisionConstraints, Layout::V10) => Some(10),
            (Self::DirectIo, Layout::V8) => Some(12),
            (Self::DirectIo, Layout::V10 | Layout::V11 | Layout::Rtx) => Some(11),
            (Self::VersionCompatible, Layout::V8) => Some(15),
            (Self::VersionCompatible, Layout::V10) => Some(13),
            (Self::VersionCompatible, Layout::V11) => Some(12),
            (Self::Fp16 | Self::Int8 | Self::PreferPrecisionConstraints, Layout::V11 | Layout::Rtx)
            | (Self::Bf16, Layout::V8 | Layout::V11 | Layout::Rtx)
            | (Self::VersionCompatible, Layout::Rtx) => None,
        }
    }
}

/// Who decides in what type a layer computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Typing {
    /// The network.
    Strong,
    /// TensorRT, within what flags allow.
    Weak,
}

impl Typing {
    /// What `IBuilder::createNetworkV2` takes.
    pub(super) const fn network_flags(self, layout: Layout) -> u32 {
        match (layout, self) {
            // kEXPLICIT_BATCH; strong typing does not exist.
            (Layout::V8, _) => 1,
            // kSTRONGLY_TYPED
            (Layout::V10, Self::Strong) => 1 << 1,
            (Layout::V10, Self::Weak) => 0,
            // Always strong; the flag, bit 0 now, is ignored.
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
