// The candidate filter for the CPU: tests compile it, run it and compare it with the heads.
#include "together.hpp"

// cvt.f32.f16
inline float half_number(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    float size = (float)fraction / 16777216.0f;
    return sign ? -size : size;
}

#include "../filter.cu"

static const Filter* argument;

extern "C" uint64_t argument_bytes() { return sizeof(Filter); }

extern "C" void filter_on_host(const Filter* given, unsigned blocks, unsigned frames, bool last_first) {
    argument = given;
    launch_together(blocks, frames, THREADS, last_first, [] { filter(*argument); });
}
