// The arithmetics of samplings with any number of taps, as in kernels/src/preprocess/separable.rs. Nothing is fused.
//
// The taps of a row are added by `add_column` and become a value by `row`; these are added by `add_row`, and become what is
// normalised by `value`.
#pragma once
#include "preprocess_number.cuh"

// Positions and weights of one tap of the group's pixels.
template <class Weight>
struct TapsOf {
    static constexpr bool PADDED = true;
    u32 positions[PIXELS];
    Weight weights[PIXELS];
    // A bit for each pixel whose tap is padding; its position is then any of the frame.
    u32 padded;

    __forceinline__ u32 position(u32 i) const { return positions[i]; }
    __forceinline__ Weight weight(u32 i) const { return weights[i]; }
};

INLINE void from_bits(u32 bits, i32& number) {
    number = i32(bits);
}

INLINE void from_bits(u32 bits, float& number) {
    number = __uint_as_float(bits);
}

INLINE u32 to_bits(i32 number) {
    return u32(number);
}

INLINE u32 to_bits(float number) {
    return __float_as_uint(number);
}

// Reads tables with weights of this type.
template <class Weight>
struct Tables {
    static __forceinline__ TapsOf<Weight> columns(const Axis& axis, u32 tap, u32 x) {
        u64 entry = axis.entries + 4ull * (tap * axis.stride + x);
        uint4 p = read<uint4>(entry), w = read<uint4>(entry + 4ull * axis.taps * axis.stride);
        TapsOf<Weight> taps = {{p.x, p.y, p.z, p.w}, {}, 0};
        from_bits(w.x, taps.weights[0]);
        from_bits(w.y, taps.weights[1]);
        from_bits(w.z, taps.weights[2]);
        from_bits(w.w, taps.weights[3]);
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            if (taps.positions[i] != PAD) continue;
            taps.positions[i] = 0;
            taps.padded |= 1u << i;
        }
        return taps;
    }

    // Reads one row's position, and returns its weight.
    static __forceinline__ Weight row(const Axis& axis, u32 tap, u32 y, u32& position) {
        u64 entry = axis.entries + 4ull * (tap * axis.stride + y);
        position = read<u32>(entry);
        Weight weight;
        from_bits(read<u32>(entry + 4ull * axis.taps * axis.stride), weight);
        return weight;
    }
};

// Makes each of a group's sums a value.
template <class Sum, class Value>
INLINE void finish_each(const Sum (&sums)[3][PIXELS], float (&values)[3][PIXELS], Value value) {
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) values[channel][i] = value(sums[channel][i]);
    }
}

INLINE i32 pad_byte(const Job& job) {
    return rounded(job.pad_level);
}

// OpenCV's INTER_LINEAR.
struct LinearTaps : Fixed, Tables<i32> {
    using Tables<i32>::columns;
    using Tables<i32>::row;

    static __forceinline__ Wide pad(const Job& job) { return pad_byte(job); }
    static __forceinline__ Sum add_column(Sum sum, Wide channel, i32 weight) { return sum + channel * weight; }
    static __forceinline__ Sum row(Sum sum) { return sum >> 4; }
    static __forceinline__ Sum add_row(Sum sum, Sum columns, i32 weight) { return sum + ((columns * weight) >> 16); }
    static __forceinline__ void finish(const Frame&, const Sum (&sums)[3][PIXELS], float (&values)[3][PIXELS]) {
        finish_each(sums, values, [](Sum sum) { return small_float(u32(sum + 2) >> 2); });
    }
};

// Floats, of bytes.
struct ByteTaps : Fixed, Tables<float> {
    using Tables<float>::columns;
    using Tables<float>::row;
    typedef float Sum;

    static __forceinline__ Wide pad(const Job& job) { return pad_byte(job); }
    static __forceinline__ Sum add_column(Sum sum, Wide channel, float weight) { return sum + weight * small_float(u32(channel)); }
    static __forceinline__ Sum row(Sum sum) { return sum; }
    static __forceinline__ Sum add_row(Sum sum, Sum columns, float weight) { return sum + weight * columns; }
    // With one branch for the group.
    static __forceinline__ void finish(const Frame& frame, const Sum (&sums)[3][PIXELS], float (&values)[3][PIXELS]) {
        float factor = frame.factor;
        if (frame.finish == FINISH_NONE) {
            finish_each(sums, values, [](Sum sum) { return sum; });
        } else if (frame.finish == FINISH_HALF_UP) {
            finish_each(sums, values, [factor](Sum sum) { return half_up(sum * factor); });
        } else {
            finish_each(sums, values, [factor](Sum sum) { return half_even(sum * factor); });
        }
    }
    static __forceinline__ float half_up(float scaled) { return clamped(floorf(scaled + 0.5f), 0.0f, 255.0f); }
    static __forceinline__ float half_even(float scaled) { return clamped(scaled, 0.0f, 255.0f) + 12582912.0f - 12582912.0f; }
};

// Floats, of pixels that were not rounded.
struct FloatTaps : Exact, Tables<float> {
    using Tables<float>::columns;
    using Tables<float>::row;

    static __forceinline__ Wide pad(const Job& job) { return job.pad_level; }
    static __forceinline__ Sum add_column(Sum sum, Wide channel, float weight) { return sum + weight * channel; }
    static __forceinline__ Sum row(Sum sum) { return sum; }
    static __forceinline__ Sum add_row(Sum sum, Sum columns, float weight) { return sum + weight * columns; }
    static __forceinline__ void finish(const Frame&, const Sum (&sums)[3][PIXELS], float (&values)[3][PIXELS]) {
        finish_each(sums, values, [](Sum sum) { return sum; });
    }
};
