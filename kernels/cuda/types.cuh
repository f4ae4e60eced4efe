// Numbers by their width, memory by address, half precision: without CUDA's headers.
//
// cuda/host/device.hpp has the same for C++, so that a kernel can be compiled for the processor and tested there.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

#define INLINE static __forceinline__

#ifdef __CUDACC_RTC__
// Memory that nothing writes while the kernel runs.
template <class T>
INLINE T read(u64 address) {
    return __ldg(reinterpret_cast<const T*>(address));
}

template <class T>
INLINE void write(u64 address, T value) {
    *reinterpret_cast<T*>(address) = value;
}

// The nearest half, ties to even, as bits.
INLINE u16 half_bits(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif
