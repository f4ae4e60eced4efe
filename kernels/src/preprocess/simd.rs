//! Compiles the same loop for different instruction sets.
//!
//! A kernel is a value whose `run` consists of plain slice loops. The compiler vectorises it once for the target's baseline
//! (NEON on aarch64, SSE2 on x86-64) and once for AVX2 with FMA, and [`Isa`] selects at run time. This is the only module of
//! the CPU preprocess that uses `unsafe`.

/// A loop over slices.
pub(super) trait SliceLoop {
    /// Runs the loop. `FMA` says whether `f32::mul_add` is one instruction here; implementations must be `#[inline(always)]`,
    /// so that they are compiled with the caller's instruction set.
    fn run<const FMA: bool>(self);
}

/// An instruction set that this processor supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The instructions that every processor of the target supports.
    Baseline,
    /// AVX2 and FMA, found on this processor.
    #[cfg(target_arch = "x86_64")]
    Avx2Fma,
}

/// Whether the target's baseline has a fused multiply-add.
const BASELINE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl Isa {
    /// The instructions that every processor of the target supports.
    #[cfg(test)]
    pub(super) const BASELINE: Self = Self(Level::Baseline);

    /// Returns the best instruction set of this processor.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return Self(Level::Avx2Fma);
        }
        Self(Level::Baseline)
    }

    /// Whether it has a fused multiply-add, as every GPU does.
    #[cfg(test)]
    pub(super) fn fuses(self) -> bool {
        BASELINE_FMA || self != Self::BASELINE
    }

    /// Runs a kernel.
    #[inline]
    pub(super) fn run(self, kernel: impl SliceLoop) {
        match self.0 {
            Level::Baseline => kernel.run::<BASELINE_FMA>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: only `detect` makes `Level::Avx2Fma`, after it found both features on this processor.
            Level::Avx2Fma => unsafe { avx2_fma(kernel) },
        }
    }
}

/// Runs `kernel` compiled with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_fma(kernel: impl SliceLoop) {
    kernel.run::<true>();
}

/// Computes `a * b + c`, fused if that is one instruction.
#[inline(always)]
pub(super) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}
