// Frames into a network's input.
#include "types.cuh"

extern "C" __global__ void preprocess(u16* out, u32 count, float pad) { 
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = half_bits(pad);
}
