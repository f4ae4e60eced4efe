// Reads numbers of any type, and computes with many of them: the best of a row, expected bins, peaks.
#pragma once
#include "filter_argument.cuh"

typedef signed char i8;
typedef long long i64;

#ifdef __CUDACC_RTC__
// Returns the value of a half from its bits; cuda/host/filter.cpp has the same for the CPU.
INLINE float half_number(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
#endif

#define TOGETHER 5  // The numbers that a thread has of 80 classes (see `reading_order` in filter/launch.rs).
#define NONE 0xffffffffu
// The class of a row that cannot be what the card says; kernels/src/filter.rs has the same number.
#define ODD 0xfffffffeu

// Reads one number of any type. Not inlined, because it would be most of the code.
__noinline__ float number_at(u64 address, u32 dtype, u64 index) {
    switch (dtype) {
    case F32: return read<float>(address + 4 * index);
    case F16: return half_number(read<u16>(address + 2 * index));
    case U8:
    case BOOLEAN: return (float)read<u8>(address + index);
    case I8: return (float)read<i8>(address + index);
    case I32: return (float)read<i32>(address + 4 * index);
    default: return (float)read<i64>(address + 8 * index);
    }
}

INLINE u64 index_of(const Values& v, u32 frame, u32 row, u32 column) {
    return (u64)frame * v.frame_len + (v.offset + row * v.row_step + column * v.column_step);
}

INLINE float number(const Values& v, u32 frame, u32 row, u32 column) {
    return number_at(v.address, v.dtype, index_of(v, frame, row, column));
}

INLINE float value_of(float raw) { return raw; }
INLINE float value_of(u16 raw) { return half_number(raw); }

// Finds the first of the greatest numbers among every `step`th column, and skips NaN.
//
// Keeps TOGETHER loads in flight, and repeats the last one if there are fewer: a block spends most of its time waiting for
// memory.
template <typename T>
INLINE void best_of(u64 row, u32 column_step, u32 column, u32 end, u32 step, float& best, u32& best_column) {
#pragma unroll 1
    for (; column < end; column += TOGETHER * step) {
        float values[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            u32 at = column + k * step < end ? column + k * step : end - 1;
            values[k] = value_of(read<T>(row + (u64)(at * column_step) * sizeof(T)));
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            u32 at = column + k * step;
            if (at < end && (values[k] > best || (values[k] == best && best_column == NONE))) {
                best = values[k];
                best_column = at;
            }
        }
    }
}

INLINE float minus_infinity() { return -1e38f * 1e38f; }

INLINE bool is_finite(float value) { return fabsf(value) <= 3.402823466e38f; }

// Not inlined, for the same reason.
__noinline__ float exponential(float x) { return expf(x); }

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// Returns a row's objectness, with which its scores are multiplied; minus infinity if it cannot pass.
INLINE float objectness(const Filter& f, const Table& t, u32 frame, u32 row) {
    if ((t.has & OBJECTNESS) == 0) return 1.0f;
    float value = number(t.objectness, frame, row, 0);
    if (f.score_code != PLAIN_SCORE) value = value >= f.floor ? sigmoid(value) : minus_infinity();
    return value >= f.threshold ? value : minus_infinity();
}

// Returns the expected bin of a distribution, from its logits.
INLINE float expected_bin(const float* logits, u32 bins) {
    float top = minus_infinity();
#pragma unroll 1
    for (u32 bin = 0; bin < bins; ++bin) {
        float logit = logits[bin];
        top = logit > top ? logit : top;
    }
    float sum = 0.0f, weighted = 0.0f;
#pragma unroll 1
    for (u32 bin = 0; bin < bins; ++bin) {
        float weight = exponential(logits[bin] - top);
        sum += weight;
        weighted += weight * (float)bin;
    }
    return weighted / sum;
}

// Returns whether no neighbour in 3x3 exceeds the cell.
INLINE bool is_peak(const Table& t, u32 frame, u32 cell, u32 column, float value) {
    u32 x = cell % t.columns, y = cell / t.columns;
    u32 left = x == 0 ? 0 : x - 1, right = x + 1 < t.columns ? x + 1 : x;
    u32 top = y == 0 ? 0 : y - 1, bottom = y + 1 < t.lines ? y + 1 : y;
    for (u32 line = top; line <= bottom; ++line) {
#pragma unroll 1
        for (u32 at = left; at <= right; ++at) {
            if (!(number(t.scores, frame, line * t.columns + at, column) <= value)) return false;
        }
    }
    return true;
}
