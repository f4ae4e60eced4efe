//! The numbers of TensorRT's enumerations that differ between versions.

use visiond_engine::tensorrt::Layout;

/// The members of `nvinfer1::BuilderFlag` that are used.
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
    /// Returns its number, if the version has it.
    pub(super) const fn number(self, layout: Layout) -> Option<i32> {
        match (self, layout) {
            (Self::GpuFallback, _) => Some(3),
            // The only flag that is set by default.
            (Self::Tf32, Layout::V8) => Some(7),
            (Self::Tf32, _) => Some(6),
            // From TensorRT 11 on, every model is strongly typed.
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

/// Who decides in which type a layer computes.
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
            // Always strongly typed; the flag, bit 0 now, is ignored.
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
