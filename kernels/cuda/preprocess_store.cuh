// Stores a group's normalised values in the tensor.
#pragma once
#include "preprocess_number.cuh"

INLINE u32 element_bytes(DType dtype) {
    return dtype == DTYPE_F32 ? 4 : dtype == DTYPE_F16 ? 2 : 1;
}

INLINE u32 byte_element(DType dtype, float value) {
    float low = dtype == DTYPE_U8 ? 0.0f : -128.0f, high = dtype == DTYPE_U8 ? 255.0f : 127.0f;
    return u32(rounded(clamped(value, low, high))) & 0xff;
}

// Stores four adjacent elements at once. The address is a multiple of their total size.
INLINE void store_4(DType dtype, u64 address, float a, float b, float c, float d) {
    if (dtype == DTYPE_F32) {
        write(address, make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)));
    } else if (dtype == DTYPE_F16) {
        write(address, make_uint2(half_bits(a) | u32(half_bits(b)) << 16, half_bits(c) | u32(half_bits(d)) << 16));
    } else {
        write(address, byte_element(dtype, a) | byte_element(dtype, b) << 8 | byte_element(dtype, c) << 16 |
                           byte_element(dtype, d) << 24);
    }
}

INLINE void store_1(DType dtype, u64 address, float value) {
    if (dtype == DTYPE_F32) {
        write(address, __float_as_uint(value));
    } else if (dtype == DTYPE_F16) {
        write(address, half_bits(value));
    } else {
        write(address, u8(byte_element(dtype, value)));
    }
}

// Returns whether any pixel of the group at (x, y) is not padding.
INLINE bool has_picture(const Frame& frame, u32 x, u32 y) {
    u32 left = frame.placed_x, right = left + frame.placed_width;
    return y - frame.placed_y < frame.placed_height && x < right && x + PIXELS > left;
}

// Makes a group of padding.
INLINE void pad(const Job& job, float (&values)[3][PIXELS]) {
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) values[channel][i] = job.pad[channel];
    }
}

// Normalises the pixels, 0 to 255, of the group from column `x` on, and pads those that are not of the picture.
INLINE void normalise(const Job& job, const Frame& frame, u32 x, float (&values)[3][PIXELS]) {
    u32 left = frame.placed_x, right = left + frame.placed_width;
    if (job.reversed) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            float red = values[0][i];
            values[0][i] = values[2][i];
            values[2][i] = red;
        }
    }
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) values[channel][i] = fmaf(values[channel][i], job.gain[channel], job.bias[channel]);
    }
    if (x < left || x + PIXELS > right) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            bool inside = x + i >= left && x + i < right;
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) values[channel][i] = inside ? values[channel][i] : job.pad[channel];
        }
    }
}

// Stores the values, by channel, of the pixels from (x, y) of frame `slot` on.
INLINE void store(const Job& job, u32 slot, u32 x, u32 y, const float (&v)[3][PIXELS]) {
    static_assert(PIXELS == 4, "stores are cut for four");
    DType dtype = job.dtype;
    u64 bytes = element_bytes(dtype);
    u64 plane = u64(job.width) * job.height;
    u64 pixel = u64(y) * job.width + x;
    u64 out = job.out + slot * plane * job.channels * bytes;
    if (job.planar || job.channels == 1) {
        u64 address = out + pixel * bytes;
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            if (channel >= job.channels) break;
            if (job.aligned) {
                store_4(dtype, address, v[channel][0], v[channel][1], v[channel][2], v[channel][3]);
            } else {
#pragma unroll
                for (u32 i = 0; i < PIXELS; ++i) {
                    if (x + i < job.width) store_1(dtype, address + i * bytes, v[channel][i]);
                }
            }
            address += plane * bytes;
        }
    } else {
        u64 address = out + pixel * 3 * bytes;
        if (job.aligned) {
            store_4(dtype, address, v[0][0], v[1][0], v[2][0], v[0][1]);
            store_4(dtype, address + 4 * bytes, v[1][1], v[2][1], v[0][2], v[1][2]);
            store_4(dtype, address + 8 * bytes, v[2][2], v[0][3], v[1][3], v[2][3]);
        } else {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) {
                    if (x + i < job.width) store_1(dtype, address + (3 * i + channel) * bytes, v[channel][i]);
                }
            }
        }
    }
}
