// Demosaics one pixel of a raw sensor mosaic bilinearly, as in kernels/src/preprocess/bayer.rs.
#pragma once
#include "preprocess_fetch.cuh"
#include "preprocess_number.cuh"

// Return the neighbours of a position, mirrored at the edges without the edge itself.
INLINE u32 before(u32 position, u32 count) {
    return position > 0 ? position - 1 : (count > 1 ? 1 : 0);
}

INLINE u32 after(u32 position, u32 count) {
    return position + 1 < count ? position + 1 : (position > 0 ? position - 1 : 0);
}

template <class N>
INLINE typename N::Wide sample(const Frame& frame, u64 row, u32 x) {
    u32 raw;
    u64 at = row + offset_of(frame.components[0], x);
    if (frame.sample_bytes == 1) {
        raw = read<u8>(at);
    } else if (frame.sample_bytes == 2) {
        raw = read<u16>(at);
    } else {
        raw = read<u8>(at) | u32(read<u8>(at + 1)) << 8;
    }
    return N::sample(raw, frame.sample_gain);
}

template <class N>
struct Channels {
    typename N::Wide rgb[3];
};

// Not inlined, so that the kernel does not need its registers.
template <class N>
static __noinline__ Channels<N> demosaic(const Frame& frame, u32 x, u32 y) {
    typedef typename N::Wide Wide;
    u32 left = before(x, frame.width), right = after(x, frame.width);
    u64 at = row_of(frame.components[0], y);
    u64 above = row_of(frame.components[0], before(y, frame.height));
    u64 below = row_of(frame.components[0], after(y, frame.height));

    // The row's own colour is red or blue, in every second pixel; the others are green.
    bool red_row = (y & 1) == frame.red_y;
    bool own_site = ((x ^ frame.red_x) & 1) == (red_row ? 0 : 1);
    Wide centre = sample<N>(frame, at, x);
    Wide west = sample<N>(frame, at, left), east = sample<N>(frame, at, right);
    Wide north = sample<N>(frame, above, x), south = sample<N>(frame, below, x);
    Wide own, green, other;
    if (own_site) {
        own = centre;
        green = N::mean(west, east, north, south);
        other = N::mean(sample<N>(frame, above, left), sample<N>(frame, above, right), sample<N>(frame, below, left),
                        sample<N>(frame, below, right));
    } else {
        own = N::mean(west, east);
        green = centre;
        other = N::mean(north, south);
    }
    if (red_row) return {{own, green, other}};
    return {{other, green, own}};
}
