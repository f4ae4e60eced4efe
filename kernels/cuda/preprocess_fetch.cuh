// Reads pixels of one row of a frame as words whose low three bytes are the components: Y Cb Cr, R G B, or grey alone.
//
// Reads only the pixels that are sampled. The lanes of a warp compute neighbouring pixels, so that they load from the same cache
// lines.
#pragma once
#include "preprocess_number.cuh"

// Copies the description of the block's frame to shared memory, which is nearer.
INLINE const Frame& described_frame(const Job& job) {
    __shared__ Frame described;
    constexpr u32 WORDS = sizeof(Frame) / sizeof(u32);
    if (threadIdx.x < WORDS) {
        const u32* frames = reinterpret_cast<const u32*>(job.frames);
        reinterpret_cast<u32*>(&described)[threadIdx.x] = frames[blockIdx.y * WORDS + threadIdx.x];
    }
    __syncthreads();
    return described;
}

INLINE u64 row_of(const Component& component, u32 y) {
    return component.address + u64(y >> component.y_shift) * component.pitch_bytes;
}

INLINE u64 offset_of(const Component& component, u32 x) {
    return u64((x >> component.x_shift) * component.step_bytes);
}

// Returns the byte that a grey sample becomes, as LevelMap::byte in kernels/src/color.rs. `low` is the byte at `at`.
INLINE u32 level(const Frame& frame, u32 low, u64 at) {
    float raw = small_float(low | u32(read<u8>(at + 1)) << 8);
    return u32(rounded(clamped(fmaf(raw, __uint_as_float(frame.coefficients[6]), __uint_as_float(frame.coefficients[7])), 0.0f, 255.0f)));
}

template <class Taps>
INLINE void fetch(const Frame& frame, u32 y, const Taps& taps, u32 (&words)[PIXELS]) {
    const Component& first = frame.components[0];
    u64 row = row_of(first, y);
    if (frame.source == SOURCE_WORDS) {
        u32 even = frame.selectors[0], odd = frame.selectors[1];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            words[i] = read<u32>(row + offset_of(first, taps.position(i)));
        }
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            words[i] = __byte_perm(words[i], 0, taps.position(i) & 1 ? odd : even);
        }
        return;
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        words[i] = read<u8>(row + offset_of(first, taps.position(i)));
    }
    if (frame.colour == COLOUR_GREY) {
        if (frame.source == SOURCE_LEVELS) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) words[i] = level(frame, words[i], row + offset_of(first, taps.position(i)));
        }
        return;
    }
    const Component& second = frame.components[1];
    row = row_of(second, y);
    if (frame.source == SOURCE_SEMIPLANAR) {
        u32 selector = frame.selectors[0];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 chroma = read<u16>(row + offset_of(second, taps.position(i)));
            words[i] = __byte_perm(words[i], chroma, selector);
        }
        return;
    }
    const Component& third = frame.components[2];
    u64 third_row = row_of(third, y);
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        u32 low = read<u8>(row + offset_of(second, taps.position(i)));
        u32 high = read<u8>(third_row + offset_of(third, taps.position(i)));
        words[i] |= low << 8 | high << 16;
    }
}
