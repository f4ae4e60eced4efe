// The two arithmetics, as in kernels/src/preprocess/number.rs: OpenCV's fixed point, and exact in float.
//
// Multiply-adds are fused exactly where the CPU reference fuses them; the compiler fuses none (--fmad=false).
#pragma once
#include "preprocess_job.cuh"

INLINE u32 byte_of(u32 word, u32 index) {
    return (word >> (8 * index)) & 0xff;
}

// Returns one of three bytes of a word whose fourth is 0.
INLINE u32 component(u32 word, u32 index) {
    return index == 0 ? word & 0xff : index == 1 ? __byte_perm(word, 0, 0x4441) : word >> 16;
}

// Converts an integer below 2^23 to a float with one addition, four times as fast as a conversion.
INLINE float small_float(u32 value) {
    return __uint_as_float(0x4b000000u | value) - 8388608.0f;
}

// Rounds a number of up to 2^22 to the nearest integer, half to even, in two's complement.
INLINE i32 rounded(float value) {
    return i32(__float_as_uint(value + 12582912.0f) - __float_as_uint(12582912.0f));
}

INLINE float clamped(float value, float low, float high) {
    return fminf(fmaxf(value, low), high);
}

// OpenCV's cvtColor and resize on bytes: each step results in a byte.
struct Fixed {
    typedef Fixed Base;
    typedef i32 Wide;
    typedef i32 Sum;

    // Positions and weights of taps; an entry holds both.
    struct Taps {
        static constexpr bool PADDED = false;
        u32 entries[PIXELS];

        __forceinline__ u32 position(u32 i) const { return entries[i] & 0xffff; }
        __forceinline__ u32 weight(u32 i) const { return entries[i] >> 16; }
    };

    static __forceinline__ Taps columns(const Axis& axis, u32 tap, u32 x) {
        uint4 read4 = read<uint4>(axis.entries + 4ull * (tap * axis.stride + x));
        return {{read4.x, read4.y, read4.z, read4.w}};
    }

    // Reads one row's position, and returns its weight.
    static __forceinline__ u32 row(const Axis& axis, u32 tap, u32 y, u32& position) {
        u32 entry = read<u32>(axis.entries + 4ull * (tap * axis.stride + y));
        position = entry & 0xffff;
        return entry >> 16;
    }

    // Sets what the sums begin with: half of what becomes 1.
    static __forceinline__ void begin(const Job&, const Frame&, u32, u32, Wide (&sums)[3][PIXELS]) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) sums[0][i] = sums[1][i] = sums[2][i] = 2;
    }

    // Coefficients: y_offset, y_gain, r_cr, g_cb, g_cr, b_cb, times 2^20.
    static __forceinline__ void convert(const u32* k, u32 word, Wide (&rgb)[3]) {
        i32 y = max(i32(component(word, 0)) - i32(k[0]), 0) * i32(k[1]);
        i32 cb = i32(component(word, 1)), cr = i32(component(word, 2));
        // Chroma is less 128, and half of what becomes 1 is added: the same for all pixels.
        i32 red = (1 << 19) - 128 * i32(k[2]), green = (1 << 19) - 128 * (i32(k[4]) + i32(k[3])), blue = (1 << 19) - 128 * i32(k[5]);
        rgb[0] = saturated((y + (i32(k[2]) * cr + red)) >> 20);
        rgb[1] = saturated((y + (i32(k[4]) * cr + (i32(k[3]) * cb + green))) >> 20);
        rgb[2] = saturated((y + (i32(k[5]) * cb + blue)) >> 20);
    }

    // ffmpeg's conversion. Coefficients: y_offset times 8; y_gain, r_cr, g_cb, g_cr, b_cb, times 2^13.
    static __forceinline__ void convert_truncated(const u32* k, u32 word, Wide (&rgb)[3]) {
        i32 y = ((8 * i32(byte_of(word, 0)) - i32(k[0])) * i32(k[1])) >> 16;
        i32 cb = 8 * i32(byte_of(word, 1)) - 1024, cr = 8 * i32(byte_of(word, 2)) - 1024;
        rgb[0] = saturated(y + ((i32(k[2]) * cr) >> 16));
        rgb[1] = saturated(y + ((i32(k[3]) * cb) >> 16) + ((i32(k[4]) * cr) >> 16));
        rgb[2] = saturated(y + ((i32(k[5]) * cb) >> 16));
    }

    static __forceinline__ i32 saturated(i32 value) { return min(max(value, 0), 255); }
    static __forceinline__ Wide wide(u32 byte) { return i32(byte); }
    // Unchanged, whatever its range, as in GRAY2BGR.
    static __forceinline__ Wide grey(const Frame&, u32 word) { return i32(byte_of(word, 0)); }
    static __forceinline__ Wide luma(const Wide (&rgb)[3]) {
        return (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + (1 << 14)) >> 15;
    }

    static __forceinline__ Wide add_column(Wide sum, Wide channel, u32 weight) { return sum + channel * i32(weight); }
    static __forceinline__ Wide add_row(Wide sum, Wide columns, u32 weight) { return sum + (((columns >> 4) * i32(weight)) >> 16); }
    static __forceinline__ float value(Wide sum) { return small_float(u32(sum) >> 2); }

    static __forceinline__ Wide sample(u32 raw, float gain) { return rounded(fminf(float(raw) * gain, 255.0f)); }
    static __forceinline__ Wide mean(Wide a, Wide b) { return (a + b + 1) >> 1; }
    static __forceinline__ Wide mean(Wide a, Wide b, Wide c, Wide d) { return (a + b + c + d + 2) >> 2; }
};

// OpenCV 4's warps of bytes: weights are 32nds, and the sums of both axes are rounded once.
struct Warp : Fixed {
    // The padding has what its taps leave of the weights, 32 of each axis: they are 0 in the tables.
    static __forceinline__ void begin(const Job& job, const Frame& frame, u32 x, u32 y, Wide (&sums)[3][PIXELS]) {
        Taps low = Fixed::columns(frame.columns, 0, x), high = low;
        u32 position, rows = Fixed::row(frame.rows, 0, y, position) + Fixed::row(frame.rows, 1, y, position);
        i32 pad = rounded(job.pad_level);
        if (frame.columns.taps == 2) high = Fixed::columns(frame.columns, 1, x);
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 columns = low.weight(i) + (frame.columns.taps == 2 ? high.weight(i) : 0);
            sums[0][i] = sums[1][i] = sums[2][i] = pad * (1024 - i32(columns * rows)) + 512;
        }
    }
    static __forceinline__ Wide add_row(Wide sum, Wide columns, u32 weight) { return sum + columns * i32(weight); }
    static __forceinline__ float value(Wide sum) { return small_float(u32(sum) >> 10); }
};

// Floating point without rounding to bytes.
struct Exact {
    typedef Exact Base;
    typedef float Wide;
    typedef float Sum;

    struct Taps {
        static constexpr bool PADDED = false;
        u32 positions[PIXELS];
        float weights[PIXELS];

        __forceinline__ u32 position(u32 i) const { return positions[i]; }
        __forceinline__ float weight(u32 i) const { return weights[i]; }
    };

    static __forceinline__ Taps columns(const Axis& axis, u32 tap, u32 x) {
        u64 entry = axis.entries + 4ull * (tap * axis.stride + x);
        uint4 positions = read<uint4>(entry);
        float4 weights = read<float4>(entry + 8ull * axis.stride);
        return {{positions.x, positions.y, positions.z, positions.w}, {weights.x, weights.y, weights.z, weights.w}};
    }

    static __forceinline__ float row(const Axis& axis, u32 tap, u32 y, u32& position) {
        u64 entry = axis.entries + 4ull * (tap * axis.stride + y);
        position = read<u32>(entry);
        return read<float>(entry + 8ull * axis.stride);
    }

    static __forceinline__ void begin(const Job&, const Frame&, u32, u32, Wide (&sums)[3][PIXELS]) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) sums[0][i] = sums[1][i] = sums[2][i] = 0.0f;
    }

    // Coefficients: y_gain, r_cr, g_cb, g_cr, b_cb, and the biases of red, green and blue.
    static __forceinline__ void convert(const u32* k, u32 word, Wide (&rgb)[3]) {
        float y = wide(byte_of(word, 0)), cb = wide(byte_of(word, 1)), cr = wide(byte_of(word, 2));
        float red = fmaf(coefficient(k[1]), cr, coefficient(k[5]));
        float green = fmaf(coefficient(k[2]), cb, fmaf(coefficient(k[3]), cr, coefficient(k[6])));
        float blue = fmaf(coefficient(k[4]), cb, coefficient(k[7]));
        rgb[0] = clamped(fmaf(coefficient(k[0]), y, red), 0.0f, 255.0f);
        rgb[1] = clamped(fmaf(coefficient(k[0]), y, green), 0.0f, 255.0f);
        rgb[2] = clamped(fmaf(coefficient(k[0]), y, blue), 0.0f, 255.0f);
    }

    static __forceinline__ float coefficient(u32 bits) { return __uint_as_float(bits); }
    static __forceinline__ Wide wide(u32 byte) { return small_float(byte); }
    // Coefficients: gain, bias.
    static __forceinline__ Wide grey(const Frame& frame, u32 word) {
        float value = fmaf(coefficient(frame.coefficients[0]), wide(byte_of(word, 0)), coefficient(frame.coefficients[1]));
        return clamped(value, 0.0f, 255.0f);
    }
    static __forceinline__ Wide luma(const Wide (&rgb)[3]) { return fmaf(0.299f, rgb[0], fmaf(0.587f, rgb[1], 0.114f * rgb[2])); }

    static __forceinline__ Wide add_column(Wide sum, Wide channel, float weight) { return fmaf(channel, weight, sum); }
    static __forceinline__ Wide add_row(Wide sum, Wide columns, float weight) { return fmaf(columns, weight, sum); }
    static __forceinline__ float value(Wide sum) { return sum; }

    static __forceinline__ Wide sample(u32 raw, float gain) { return fminf(float(raw) * gain, 255.0f); }
    static __forceinline__ Wide mean(Wide a, Wide b) { return 0.5f * (a + b); }
    static __forceinline__ Wide mean(Wide a, Wide b, Wide c, Wide d) { return 0.25f * ((a + b) + (c + d)); }
};
