// A group's normalised values into the tensor.
#pragma once
#include "preprocess_number.cuh"

INLINE u32 element_bytes(DType dtype) {
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_F16 ? 2 : 1;
}

INLINE u32 element_bits(DType dtype, float value) {
    if (dtype == DTYPE_F32) return __float_as_uint(value);
    if (dtype == DTYPE_F16) return half_bits(value);
    float low = dtype == DTYPE_U8 ? 0.0f : -128.0f, high = dtype == DTYPE_U8 ? 255.0f : 127.0f;
    return u32(rounded(clamped(value, low, high))) & 0xff;
}

// Four elements that stand side by side, at once. The address is a multiple of their size together.
INLINE void store_4(DType dtype, u64 address, const u32* e) {
    if (dtype == DTYPE_F32) {
        write(address, make_uint4(e[0], e[1], e[2], e[3]));
    } else if (dtype == DTYPE_F16) {
        write(address, make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16));
    } else {
        write(address, e[0] | e[1] << 8 | e[2] << 16 | e[3] << 24);
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
    // In the tensor's order, in runs of four: of a channel, or of neighbours.
    u64 run = planar ? plane : PIXELS;
    u32 elements[3 * PIXELS];
#pragma unroll
    for (u32 k = 0; k < 3 * PIXELS; ++k) {
        elements[k] = element_bits(dtype, planar ? values[k / PIXELS][k % PIXELS] : values[k % 3][k / 3]);
    }
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        if (i >= job.channels) break;
        u64 address = job.out + (first + i * run) * bytes;
        if (job.aligned) {
            store_4(dtype, address, elements + PIXELS * i);
        } else {
#pragma unroll
            for (u32 k = 0; k < PIXELS; ++k) {
                u32 column = planar ? k : (PIXELS * i + k) / 3;
                if (x + column < job.width) store_1(dtype, address + k * bytes, elements[PIXELS * i + k]);
            }
        }
    }
}
