// The parts of CUDA that a kernel needs, in C++: numbers, and checked memory. together.hpp has the threads.
//
// A kernel compiled with this computes the same as on a GPU, including rounding. Every access is checked as by
// compute-sanitizer: it must be aligned, and within memory that the test allowed.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
static Index threadIdx, blockIdx, blockDim;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Memory that the kernel may read, or also write if `writes` is set, which counts the writes of each byte.
struct Range {
    uint64_t start;
    uint64_t end;
    uint8_t* writes;
};
static std::vector<Range> ranges;
static uint64_t faults;

inline const Range* range_of(uint64_t address, uint64_t bytes) {
    for (const Range& range : ranges) {
        if (address >= range.start && address + bytes <= range.end) return &range;
    }
    return nullptr;
}

template <class T>
inline T read(unsigned long long address) {
    T value = {};
    if (address % alignof(T) != 0 || !range_of(address, sizeof(T))) {
        ++faults;
        return value;
    }
    std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof(T));
    return value;
}

template <class T>
inline void write(unsigned long long address, T value) {
    const Range* range = range_of(address, sizeof(T));
    if (address % alignof(T) != 0 || !range || !range->writes) {
        ++faults;
        return;
    }
    std::memcpy(reinterpret_cast<void*>(address), &value, sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) ++range->writes[address - range->start + i];
}

inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t bytes = a | uint64_t(b) << 32;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= unsigned(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    return result;
}

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }

inline int min(int a, int b) { return a < b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }

// cvt.rn.f16.f32
inline unsigned short half_bits(float value) {
    unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    if (size < 0x38800000) {
        // Subnormal: units of 2^-24, rounded half to even by the addition.
        float units = __uint_as_float(size) * 16777216.0f + 8388608.0f;
        return (unsigned short)(sign | (__float_as_uint(units) & 0x7fffff));
    }
    unsigned rounded = size + 0xfff + (size >> 13 & 1);
    return (unsigned short)(sign | ((rounded - 0x38000000) >> 13));
}

inline unsigned selected_byte(unsigned word, unsigned selector) { return __byte_perm(word, 0, selector); }

inline unsigned saturated_word(int first, int second, int third, int fourth) {
    auto byte = [](int value) { return unsigned(min(max(value, 0), 255)); };
    return byte(first) | byte(second) << 8 | byte(third) << 16 | byte(fourth) << 24;
}

// dp2a.lo, dp2a.hi, dp4a
inline unsigned add_lower_products(unsigned sum, unsigned halves, unsigned bytes) {
    return sum + (halves & 0xffff) * (bytes & 0xff) + (halves >> 16) * (bytes >> 8 & 0xff);
}
inline unsigned add_upper_products(unsigned sum, unsigned halves, unsigned bytes) {
    return add_lower_products(sum, halves, bytes >> 16);
}
inline int add_products(int sum, unsigned weights, unsigned bytes) {
    for (int i = 0; i < 4; ++i) sum += int(int8_t(weights >> (8 * i))) * int(bytes >> (8 * i) & 0xff);
    return sum;
}

// The functions that the tests call.
extern "C" {
void forget_memory() {
    ranges.clear();
    faults = 0;
}
void allow(uint64_t start, uint64_t bytes, uint8_t* writes) { ranges.push_back({start, start + bytes, writes}); }
uint64_t fault_count() { return faults; }
}
