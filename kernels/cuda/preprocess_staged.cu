// The preprocess for frames in memory that the GPU does not cache: every byte is read once, by the warp together.
constexpr bool STAGED = true;
#include "preprocess_kernel.cuh"
