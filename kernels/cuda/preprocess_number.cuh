// The two arithmetics, as in kernels/src/preprocess/number.rs and yuv.rs: OpenCV's fixed point, and exact in float.
//
// Fused multiply-adds stand where the CPU twin has them; everything else is rounded on its own (--fmad=false).
#pragma once
#include "preprocess_job.cuh"

INLINE u32 byte_of(u32 word, u32 index) {
    return (word >> (8 * index)) & 0xff;
}

// An integer below 2^23 as a float: one addition, where a conversion is a quarter as fast.
INLINE float small_float(u32 value) {
    return __uint_as_float(0x4b000000u | value) - 8388608.0f;
}

// The nearest integer of a number up to 2^22 in size, half to even, in two's complement.
INLINE i32 rounded(float value) {
    return i32(__float_as_uint(value + 12582912.0f) - __float_as_uint(12582912.0f));
}

INLINE float clamped(float value, float low, float high) {
    return fminf(fmaxf(value, low), high);
}

// OpenCV's cvtColor and resize on bytes: a byte comes out of each step.
struct Fixed {
    // A channel, and what sums are made of.
    typedef i32 Wide;

    static __forceinline__ Wide of(u32 bits) { return i32(bits); }
    static __forceinline__ u32 bits(Wide value) { return u32(value); }

    // Coefficients: y_offset, y_gain, r_cr, g_cb, g_cr, b_cb, times 2^20.
    static __forceinline__ void convert(const Frame& frame, u32 word, Wide (&rgb)[3]) {
        const u32* k = frame.coefficients;
        i32 y = max(i32(byte_of(word, 0)) - i32(k[0]), 0) * i32(k[1]) + (1 << 19);
        i32 cb = i32(byte_of(word, 1)) - 128, cr = i32(byte_of(word, 2)) - 128;
        rgb[0] = saturated((y + i32(k[2]) * cr) >> 20);
        rgb[1] = saturated((y + i32(k[4]) * cr + i32(k[3]) * cb) >> 20);
        rgb[2] = saturated((y + i32(k[5]) * cb) >> 20);
    }

    static __forceinline__ i32 saturated(i32 value) { return min(max(value, 0), 255); }
    static __forceinline__ Wide wide(u32 byte) { return i32(byte); }
    // Whatever its range, as by GRAY2BGR.
    static __forceinline__ Wide grey(const Frame&, u32 word) { return i32(byte_of(word, 0)); }
    static __forceinline__ Wide luma(const Wide (&rgb)[3]) {
        return (rgb[0] * 9798 + rgb[1] * 19235 + rgb[2] * 3735 + (1 << 14)) >> 15;
    }

    static __forceinline__ Wide add_column(Wide sum, Wide channel, Wide weight) { return sum + channel * weight; }
    static __forceinline__ Wide add_row(Wide sum, Wide columns, Wide weight) { return sum + (((columns >> 4) * weight) >> 16); }
    static __forceinline__ float value(Wide sum) { return small_float(u32(sum + 2) >> 2); }
    static __forceinline__ float channel(Wide value) { return small_float(u32(value)); }

    static __forceinline__ Wide sample(u32 raw, float gain) { return rounded(fminf(float(raw) * gain, 255.0f)); }
    static __forceinline__ Wide half(Wide sum) { return (sum + 1) >> 1; }
    static __forceinline__ Wide quarter(Wide sum) { return (sum + 2) >> 2; }
};

// No rounding but that of float.
struct Exact {
    typedef float Wide;

    static __forceinline__ Wide of(u32 bits) { return __uint_as_float(bits); }
    static __forceinline__ u32 bits(Wide value) { return __float_as_uint(value); }

    // Coefficients: y_gain, r_cr, g_cb, g_cr, b_cb, and what is added to red, green and blue.
    static __forceinline__ void convert(const Frame& frame, u32 word, Wide (&rgb)[3]) {
        const u32* k = frame.coefficients;
        float y = wide(byte_of(word, 0)), cb = wide(byte_of(word, 1)), cr = wide(byte_of(word, 2));
        float red = fmaf(of(k[1]), cr, of(k[5]));
        float green = fmaf(of(k[2]), cb, fmaf(of(k[3]), cr, of(k[6])));
        float blue = fmaf(of(k[4]), cb, of(k[7]));
        rgb[0] = clamped(fmaf(of(k[0]), y, red), 0.0f, 255.0f);
        rgb[1] = clamped(fmaf(of(k[0]), y, green), 0.0f, 255.0f);
        rgb[2] = clamped(fmaf(of(k[0]), y, blue), 0.0f, 255.0f);
    }

    static __forceinline__ Wide wide(u32 byte) { return small_float(byte); }
    // Coefficients: gain, bias.
    static __forceinline__ Wide grey(const Frame& frame, u32 word) {
        float value = fmaf(of(frame.coefficients[0]), wide(byte_of(word, 0)), of(frame.coefficients[1]));
        return clamped(value, 0.0f, 255.0f);
    }
    static __forceinline__ Wide luma(const Wide (&rgb)[3]) { return fmaf(0.299f, rgb[0], fmaf(0.587f, rgb[1], 0.114f * rgb[2])); }

    static __forceinline__ Wide add_column(Wide sum, Wide channel, Wide weight) { return fmaf(channel, weight, sum); }
    static __forceinline__ Wide add_row(Wide sum, Wide columns, Wide weight) { return fmaf(columns, weight, sum); }
    static __forceinline__ float value(Wide sum) { return sum; }
    static __forceinline__ float channel(Wide value) { return value; }

    static __forceinline__ Wide sample(u32 raw, float gain) { return fminf(float(raw) * gain, 255.0f); }
    static __forceinline__ Wide half(Wide sum) { return 0.5f * sum; }
    static __forceinline__ Wide quarter(Wide sum) { return 0.25f * sum; }
};
