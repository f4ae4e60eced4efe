// The preprocess for frames in memory that the GPU caches: every thread reads its own pixels.
constexpr bool STAGED = false;
#include "preprocess_kernel.cuh"
