// Turns a batch of frames into a model's input: every format, fit, sampling, layout and type.
//
// The head of kernels/src/preprocess.rs defines the results; this follows that code step by step. There are six kernels:
// `preprocess`, `preprocess_exact` and `preprocess_warp` for the samplings with two taps that are used most, `preprocess_taps` for
// the others with a few taps, `preprocess_pillow` and `preprocess_antialias` for those whose taps grow with the frame. A thread
// computes PIXELS adjacent pixels of the tensor, including padding; a block of the last two a tile of it. The grid's second
// dimension is the frame. Properties of the frames are read from memory (`Job::frames`), so that a captured launch works for all
// frames; properties of the model are an argument. All branches except those at edges are the same for a whole warp.
#include "preprocess_fetch.cuh"
#include "preprocess_mosaic.cuh"
#include "preprocess_number.cuh"
#include "preprocess_store.cuh"
#include "preprocess_taps.cuh"
#include "preprocess_tiles.cuh"

// Converts the group's fetched pixels. Each branch is for all of them, so that the coefficients are read once.
template <class N>
INLINE void convert(const Frame& frame, bool luma, const u32 (&words)[PIXELS], typename N::Wide (&rgb)[PIXELS][3]) {
    if (frame.colour == COLOUR_YUV) {
        u32 coefficients[8];
#pragma unroll
        for (u32 i = 0; i < 8; ++i) coefficients[i] = frame.coefficients[i];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) N::convert(coefficients, words[i], rgb[i]);
    } else if (frame.colour == COLOUR_YUV_TRUNCATED) {
        u32 coefficients[6];
#pragma unroll
        for (u32 i = 0; i < 6; ++i) coefficients[i] = frame.coefficients[i];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            i32 bytes[3];
            Fixed::convert_truncated(coefficients, words[i], bytes);
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) rgb[i][channel] = N::wide(u32(bytes[channel]));
        }
    } else if (frame.colour == COLOUR_RGB) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) rgb[i][channel] = N::wide(component(words[i], channel));
        }
    } else {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) rgb[i][0] = rgb[i][1] = rgb[i][2] = N::grey(frame, words[i]);
        return;
    }
    if (!luma) return;
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) rgb[i][0] = N::luma(rgb[i]);
}

// Adds the group's source pixels of one row and one column tap.
template <class N, class Taps>
INLINE void add_tap(const Job& job, const Frame& frame, u32 y, const Taps& taps, typename N::Sum (&sums)[3][PIXELS]) {
    typedef typename N::Wide Wide;
    typedef typename N::Sum Sum;
    if constexpr (Taps::PADDED) {
        if (y == PAD) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) {
                    sums[channel][i] = N::add_column(sums[channel][i], N::pad(job), taps.weight(i));
                }
            }
            return;
        }
    }
    if (frame.source == SOURCE_MOSAIC) {
        // Not unrolled, because it would be half of the kernel.
#pragma unroll 1
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 x = taps.position(0);
            auto weight = taps.weight(0);
#pragma unroll
            for (u32 k = 1; k < PIXELS; ++k) {
                x = i == k ? taps.position(k) : x;
                weight = i == k ? taps.weight(k) : weight;
            }
            Channels<typename N::Base> pixel = demosaic<typename N::Base>(frame, x, y);
            if (job.luma) pixel.rgb[0] = N::luma(pixel.rgb);
            if constexpr (Taps::PADDED) {
                if (taps.padded >> i & 1) pixel.rgb[0] = pixel.rgb[1] = pixel.rgb[2] = N::pad(job);
            }
#pragma unroll
            for (u32 k = 0; k < PIXELS; ++k) {
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) {
                    Sum sum = N::add_column(sums[channel][k], pixel.rgb[channel], weight);
                    sums[channel][k] = i == k ? sum : sums[channel][k];
                }
            }
        }
        return;
    }
    u32 words[PIXELS];
    fetch(frame, y, taps, words);
    Wide rgb[PIXELS][3];
    convert<N>(frame, job.luma, words, rgb);
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        if constexpr (Taps::PADDED) {
            if (taps.padded >> i & 1) rgb[i][0] = rgb[i][1] = rgb[i][2] = N::pad(job);
        }
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            sums[channel][i] = N::add_column(sums[channel][i], rgb[i][channel], taps.weight(i));
        }
    }
}

// Computes the group's pixels, 0 to 255.
template <class N>
INLINE void resample(const Job& job, const Frame& frame, u32 x, u32 y, float (&values)[3][PIXELS]) {
    typedef typename N::Wide Wide;
    Wide sums[3][PIXELS];
    N::begin(job, frame, x, y, sums);
#pragma unroll 1
    for (u32 row_tap = 0; row_tap < 2; ++row_tap) {
        u32 source_y;
        auto row_weight = N::row(frame.rows, row_tap, y, source_y);
        // A row without weight is not read; at an odd whole scale no upper tap has any, nor has the padding of a warp.
        if (row_weight == 0) continue;
        Wide columns[3][PIXELS] = {};
#pragma unroll 1
        for (u32 tap = 0; tap < frame.columns.taps; ++tap) {
            add_tap<N>(job, frame, source_y, N::columns(frame.columns, tap, x), columns);
        }
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
                sums[channel][i] = N::add_row(sums[channel][i], columns[channel][i], row_weight);
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) values[channel][i] = N::value(sums[channel][i]);
    }
}

// The same with any number of taps, which pads as well.
template <class N>
INLINE void resample_taps(const Job& job, const Frame& frame, u32 x, u32 y, float (&values)[3][PIXELS]) {
    typedef typename N::Sum Sum;
    Sum sums[3][PIXELS] = {};
#pragma unroll 1
    for (u32 row_tap = 0; row_tap < frame.rows.taps; ++row_tap) {
        u32 source_y;
        auto row_weight = N::row(frame.rows, row_tap, y, source_y);
        if (row_weight == 0) continue;
        Sum columns[3][PIXELS] = {};
#pragma unroll 1
        for (u32 tap = 0; tap < frame.columns.taps; ++tap) {
            add_tap<N>(job, frame, source_y, N::columns(frame.columns, tap, x), columns);
        }
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
                sums[channel][i] = N::add_row(sums[channel][i], N::row(columns[channel][i]), row_weight);
            }
        }
    }
    N::finish(frame, sums, values);
}

// Samples with two taps, as OpenCV's resize or its warps, or in floats.
template <class N>
struct TwoTaps {
    static __forceinline__ void resample(const Job& job, const Frame& frame, u32 x, u32 y, float (&values)[3][PIXELS]) {
        ::resample<N>(job, frame, x, y, values);
    }
};

// Samples with any number of taps, in the frame's arithmetic.
struct AnyTaps {
    static __forceinline__ void resample(const Job& job, const Frame& frame, u32 x, u32 y, float (&values)[3][PIXELS]) {
        if (frame.arithmetic == ARITHMETIC_LINEAR) {
            resample_taps<LinearTaps>(job, frame, x, y, values);
        } else if (frame.arithmetic == ARITHMETIC_BYTES) {
            resample_taps<ByteTaps>(job, frame, x, y, values);
        } else {
            resample_taps<FloatTaps>(job, frame, x, y, values);
        }
    }
};

template <class Sampler>
INLINE void preprocess_group(const Job& job) {
    const Frame& frame = described_frame(job);
    // A division: the reciprocal is rounded down, so that the quotient may be one too small.
    u32 group = blockIdx.x * blockDim.x + threadIdx.x;
    u32 y = __umulhi(group, job.groups_reciprocal), column = group - y * job.groups;
    if (column >= job.groups) {
        column -= job.groups;
        ++y;
    }
    u32 x = column * PIXELS;
    if (y >= job.height) return;

    float values[3][PIXELS];
    if (has_picture(frame, x, y)) {
        Sampler::resample(job, frame, x, y, values);
        normalise(job, frame, x, values);
    } else {
        pad(job, values);
    }
    store(job, blockIdx.y, x, y, values);
}

extern "C" __global__ void __launch_bounds__(128) preprocess(const Job job) {
    preprocess_group<TwoTaps<Fixed>>(job);
}

extern "C" __global__ void __launch_bounds__(128) preprocess_exact(const Job job) {
    preprocess_group<TwoTaps<Exact>>(job);
}

extern "C" __global__ void __launch_bounds__(128) preprocess_warp(const Job job) {
    preprocess_group<TwoTaps<Warp>>(job);
}

extern "C" __global__ void __launch_bounds__(128) preprocess_taps(const Job job) {
    preprocess_group<AnyTaps>(job);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 4) preprocess_pillow(const Job job) {
    preprocess_tile<WeightedBytes>(job);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 4) preprocess_antialias(const Job job) {
    preprocess_tile<WeightedFloats>(job);
}

// Rounds `count` floats in their place to 32-bit integers, one per thread. A launch of its own, for the few models that take such
// pictures: in the kernels above it would take registers from all others.
extern "C" __global__ void __launch_bounds__(128) round_tensor(u64 tensor, u64 count) {
    u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    // `rounded` takes up to 2^22.
    float value = clamped(__uint_as_float(read<u32>(tensor + 4 * i)), -4194304.0f, 4194304.0f);
    write(tensor + 4 * i, u32(rounded(value)));
}

// Copies the description of each frame from pinned memory, and its tables if they are new: what a run reads often must be in the
// GPU's memory, because some GPUs do not cache pinned memory. In the stream's order a launch takes less time than a copy, for which
// the GPU's compute and copy engines wait for each other. The grid's second dimension is the frame.
extern "C" __global__ void __launch_bounds__(128) describe(u64 from, u64 to, u64 copies) {
    constexpr u32 WORDS = sizeof(Frame) / sizeof(u32);
    u64 frame = u64(blockIdx.y) * sizeof(Frame), copy = copies + u64(blockIdx.y) * sizeof(TableCopy);
    u64 table = read<u64>(copy), target = read<u64>(copy + 8);
    u32 fours = read<u32>(copy + 16), step = gridDim.x * blockDim.x;
    if (blockIdx.x == 0 && threadIdx.x < WORDS) {
        u64 word = frame + threadIdx.x * sizeof(u32);
        write(to + word, read<u32>(from + word));
    }
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < fours; i += step) {
        write(target + i * sizeof(uint4), read<uint4>(table + i * sizeof(uint4)));
    }
}
