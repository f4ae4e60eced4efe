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

// Returns a byte of a word. `selector` is 0x4440 and the byte's index; __byte_perm would mask it.
INLINE u32 selected_byte(u32 word, u32 selector) {
    u32 byte;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "r"(selector));
    return byte;
}

// Returns a word whose bytes are the numbers, saturated.
INLINE u32 saturated_word(i32 first, i32 second, i32 third, i32 fourth) {
    u32 word;
    asm("{\n\t.reg .b32 high;\n\t"
        "cvt.pack.sat.u8.s32.b32 high, %4, %3, 0;\n\t"
        "cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;\n\t}"
        : "=r"(word)
        : "r"(first), "r"(second), "r"(third), "r"(fourth));
    return word;
}

// Add products of a word's two halves with the lower two of the bytes, or with the upper two.
INLINE u32 add_lower_products(u32 sum, u32 halves, u32 bytes) {
    asm("dp2a.lo.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(halves), "r"(bytes));
    return sum;
}

INLINE u32 add_upper_products(u32 sum, u32 halves, u32 bytes) {
    asm("dp2a.hi.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(halves), "r"(bytes));
    return sum;
}

// Adds products of four bytes that are signed with four that are not.
INLINE i32 add_products(i32 sum, u32 weights, u32 bytes) {
    asm("dp4a.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(weights), "r"(bytes));
    return sum;
}
#endif
