// Integers by their width, access to memory by address, half precision: without CUDA's headers.
//
// cuda/host/device.hpp has the same in C++, so that a kernel can be compiled for the CPU and tested there.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define INLINE static __forceinline__

#ifdef __CUDACC_RTC__
// Reads memory that nothing writes while the kernel runs.
template <class T>
INLINE T read(u64 address) {
    return __ldg(reinterpret_cast<const T*>(address));
}

template <class T>
INLINE void write(u64 address, T value) {
    *reinterpret_cast<T*>(address) = value;
}

// Returns the bits of the nearest half, ties to even.
INLINE u16 half_bits(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

// Returns a word whose low three bytes are the numbers, saturated.
INLINE u32 saturated_bytes(i32 first, i32 second, i32 third) {
    u32 word;
    asm("{\n\t.reg .b32 high;\n\t"
        "cvt.pack.sat.u8.s32.b32 high, 0, %3, 0;\n\t"
        "cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;\n\t}"
        : "=r"(word)
        : "r"(first), "r"(second), "r"(third));
    return word;
}
#endif
