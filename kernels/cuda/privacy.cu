// Blanks areas of a picture in the GPU's memory: the writes of kernels/src/privacy/plan.rs, with the same means.
//
// `means` makes the colour of the tiles of a mosaic, a block for a tile. After it, `blank` writes runs of bytes, a block for a run.
#include "types.cuh"

#define THREADS 128

// kernels/src/privacy/launch.rs has the same structs in Rust.
struct Blanking {
    u64 frame;
    u64 tiles;  // One for each block of `means`.
    u64 runs;   // One for each block of `blank`.
    u64 words;  // Colours: cells of 1, 2 or 4 bytes, repeated.
};
static_assert(sizeof(Blanking) == 32, "as privacy/launch.rs says");

// A block of a mosaic in one plane.
struct alignas(16) Tile {
    u64 start;  // Its first byte, from the start of the frame.
    u32 pitch;
    u32 rows;
    u32 row_bytes;
    u32 samples;  // Of a cell, 1 or 2.
    u32 sample_bytes;
    u32 word;  // Where its mean goes.
};
static_assert(sizeof(Tile) == 32, "as privacy/launch.rs says");

// Bytes that become the same word, again and again.
struct alignas(16) Run {
    u64 start;  // From the start of the frame.
    u32 bytes;
    u32 word;
};
static_assert(sizeof(Run) == 16, "as privacy/launch.rs says");

extern "C" __global__ void __launch_bounds__(THREADS) means(const Blanking b) {
    __shared__ u64 sums[2 * THREADS];
    u64 from = b.tiles + (u64)blockIdx.x * sizeof(Tile);
    uint4 head = read<uint4>(from), tail = read<uint4>(from + sizeof(uint4));
    u64 start = b.frame + (head.x | (u64)head.y << 32);
    u32 pitch = head.z, samples = tail.y, sample_bytes = tail.z, cell = samples * sample_bytes;
    u32 columns = tail.x / cell, count = columns * head.w, thread = threadIdx.x;
    u64 sum[2] = {0, 0};
    for (u32 i = thread; i < count; i += THREADS) {
        u64 at = start + (u64)(i / columns) * pitch + (i % columns) * cell;
        for (u32 sample = 0; sample < samples; ++sample) {
            sum[sample] += sample_bytes == 1 ? read<u8>(at + sample) : read<u16>(at + 2 * sample);
        }
    }
    sums[2 * thread] = sum[0];
    sums[2 * thread + 1] = sum[1];
    __syncthreads();
    if (thread != 0) return;
    for (u32 other = 1; other < THREADS; ++other) {
        sum[0] += sums[2 * other];
        sum[1] += sums[2 * other + 1];
    }
    u32 word = 0;
    for (u32 byte = 0; byte < 4; ++byte) {
        u32 within = byte % cell, mean = (u32)(sum[within / sample_bytes] / count);
        word |= (mean >> (8 * (within % sample_bytes)) & 0xff) << (8 * byte);
    }
    write<u32>(b.words + 4 * (u64)tail.w, word);
}

extern "C" __global__ void __launch_bounds__(THREADS) blank(const Blanking b) {
    uint4 run = read<uint4>(b.runs + (u64)blockIdx.x * sizeof(Run));
    u64 start = b.frame + (run.x | (u64)run.y << 32);
    u32 word = read<u32>(b.words + 4 * (u64)run.w);
    for (u32 i = threadIdx.x; i < run.z; i += THREADS) write<u8>(start + i, (u8)(word >> (8 * (i % 4))));
}
