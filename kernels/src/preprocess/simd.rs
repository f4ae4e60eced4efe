//! The same loop compiled for what the processor has.
//!
//! A kernel is a value with a `run` written as plain slice loops; the compiler vectorises it once for the target's baseline
//! (NEON on aarch64, SSE2 on x86-64) and once for AVX2 with FMA, and [`Isa`] picks at run time. This is the only module of
//! the preprocess with `unsafe` in it.

/// A loop over slices.
pub(super) trait Kernel {
    /// Runs it. `FMA` says whether `f32::mul_add` is one instruction here; implementations must be `#[inline(always)]`, so
    /// that they are compiled with the caller's instruction set.
    fn run<const FMA: bool>(self);
}

/// An instruction set that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Isa(Level);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// What every processor of the target has.
    Baseline,
    /// AVX2 and FMA, found on this processor.
    #[cfg(target_arch = "x86_64")]
    Avx2Fma,
}

/// Whether the target's baseline has a fused multiply-add.
const BASELINE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

impl Isa {
    /// What every processor of the target has.
    #[cfg(test)]
    pub(super) const BASELINE: Self = Self(Level::Baseline);

    /// The best that this processor has.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
            return Self(Level::Avx2Fma);
        }
        Self(Level::Baseline)
    }

    /// Whether it fuses multiplications and additions, as every GPU does.
    #[cfg(test)]
    pub(super) fn fuses(self) -> bool {
        BASELINE_FMA || self != Self::BASELINE
    }

    /// Runs a kernel.
    #[inline]
    pub(super) fn run(self, kernel: impl Kernel) {
        match self.0 {
            Level::Baseline => kernel.run::<BASELINE_FMA>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Level::Avx2Fma` is made in `detect` alone, after it found both features on this processor.
            Level::Avx2Fma => unsafe { avx2_fma(kernel) },
        }
    }
}

/// `kernel` compiled with AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_fma(kernel: impl Kernel) {
    kernel.run::<true>();
}

/// `a * b + c`, fused where that is one instruction.
#[inline(always)]
pub(super) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}
