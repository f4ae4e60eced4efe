// cvt.f32.f16 in C++.
#pragma once
#include "device.hpp"

inline float half_number(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    float size = (float)fraction / 16777216.0f;
    return sign ? -size : size;
}
