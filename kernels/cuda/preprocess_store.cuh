// A group's normalised values into the tensor.
#pragma once
#include "preprocess_number.cuh"

INLINE u32 element_bytes(DType dtype) {
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_F16 ? 2 : 1;
}

INLINE u32 byte_element(DType dtype, float value) {
    float low = dtype == DTYPE_U8 ? 0.0f : -128.0f, high = dtype == DTYPE_U8 ? 255.0f : 127.0f;
    return u32(rounded(clamped(value, low, high))) & 0xff;
}

// Values as the type's elements, in bits.
INLINE void to_elements(DType dtype, const float (&values)[3][PIXELS], u32 (&elements)[3][PIXELS]) {
#define EACH(expression)                                     \
    _Pragma("unroll") for (u32 c = 0; c < 3; ++c) {          \
        _Pragma("unroll") for (u32 i = 0; i < PIXELS; ++i) { \
            float value = values[c][i];                      \
            elements[c][i] = expression;                     \
        }                                                    \
    }
    if (dtype == DTYPE_F16) {
        EACH(half_bits(value))
    } else if (dtype == DTYPE_F32) {
        EACH(__float_as_uint(value))
    } else {
        EACH(byte_element(dtype, value))
    }
#undef EACH
}

// Four elements that stand side by side, at once. The address is a multiple of their size together.
INLINE void store_4(DType dtype, u64 address, u32 a, u32 b, u32 c, u32 d) {
    if (dtype == DTYPE_F16) {
        write(address, make_uint2(a | b << 16, c | d << 16));
    } else if (dtype == DTYPE_F32) {
        write(address, make_uint4(a, b, c, d));
    } else {
        write(address, a | b << 8 | c << 16 | d << 24);
    }
}

INLINE void store_1(DType dtype, u64 address, u32 element) {
    if (dtype == DTYPE_F32) {
        write(address, element);
    } else if (dtype == DTYPE_F16) {
        write(address, u16(element));
    } else {
        write(address, u8(element));
    }
}

// The values of the pixels from (x, y) of frame `slot` on, by channel.
INLINE void store(const Job& job, u32 slot, u32 x, u32 y, const float (&values)[3][PIXELS]) {
    static_assert(PIXELS == 4, "stores are cut for four");
    DType dtype = job.dtype;
    u64 bytes = element_bytes(dtype);
    u64 plane = u64(job.width) * job.height;
    bool planar = job.planar || job.channels == 1;
    u64 first = slot * plane * job.channels + (u64(y) * job.width + x) * (planar ? 1 : 3);
    u32 e[3][PIXELS];
    to_elements(dtype, values, e);
    u64 address = job.out + first * bytes;
    if (!job.aligned) {
        // From pixel to pixel, and from channel to channel.
        u64 step = planar ? bytes : 3 * bytes, channel_step = planar ? plane * bytes : bytes;
#pragma unroll
        for (u32 c = 0; c < 3; ++c) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
                if (c < job.channels && x + i < job.width) store_1(dtype, address + c * channel_step + i * step, e[c][i]);
            }
        }
    } else if (planar) {
#pragma unroll
        for (u32 c = 0; c < 3; ++c) {
            if (c < job.channels) store_4(dtype, address + c * plane * bytes, e[c][0], e[c][1], e[c][2], e[c][3]);
        }
    } else {
        store_4(dtype, address, e[0][0], e[1][0], e[2][0], e[0][1]);
        store_4(dtype, address + 4 * bytes, e[1][1], e[2][1], e[0][2], e[1][2]);
        store_4(dtype, address + 8 * bytes, e[2][2], e[0][3], e[1][3], e[2][3]);
    }
}
