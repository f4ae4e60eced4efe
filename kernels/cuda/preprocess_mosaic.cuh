// One pixel of a raw sensor mosaic, demosaiced bilinearly as in kernels/src/preprocess/bayer.rs.
#pragma once
#include "preprocess_fetch.cuh"
#include "preprocess_number.cuh"

// The neighbours of a position, mirrored at the edges without the edge itself.
INLINE u32 before(u32 position, u32 count) {
    return position > 0 ? position - 1 : (count > 1 ? 1 : 0);
}

INLINE u32 after(u32 position, u32 count) {
    return position + 1 < count ? position + 1 : (position > 0 ? position - 1 : 0);
}

template <class N>
INLINE typename N::Wide sample(const Frame& frame, u64 row, u32 x) {
    u64 address = row + u64(x * frame.sample_bytes);
    u32 raw = read<u8>(address);
    if (frame.sample_bytes == 2) raw |= u32(read<u8>(address + 1)) << 8;
    return N::sample(raw, frame.sample_gain);
}

template <class N>
INLINE void demosaic(const Frame& frame, u32 x, u32 y, typename N::Wide (&rgb)[3]) {
    typedef typename N::Wide Wide;
    u32 left = before(x, frame.width), right = after(x, frame.width);
    // Of the rows above, at and below: the sample in the middle, and the two beside it added.
    Wide middles[3], sides[3];
#pragma unroll 1
    for (u32 i = 0; i < 3; ++i) {
        u64 row = row_of(frame.components[0], i == 0 ? before(y, frame.height) : i == 1 ? y : after(y, frame.height));
        Wide middle = sample<N>(frame, row, x);
        Wide side = sample<N>(frame, row, left) + sample<N>(frame, row, right);
#pragma unroll
        for (u32 k = 0; k < 3; ++k) {
            middles[k] = i == k ? middle : middles[k];
            sides[k] = i == k ? side : sides[k];
        }
    }

    // The row's own colour is red or blue; it stands at every second pixel, green at the others.
    bool red_row = (y & 1) == frame.red_y;
    bool own_site = ((x ^ frame.red_x) & 1) == (red_row ? 0 : 1);
    Wide across = middles[0] + middles[2];
    Wide own = own_site ? middles[1] : N::half(sides[1]);
    Wide green = own_site ? N::quarter(sides[1] + across) : middles[1];
    Wide other = own_site ? N::quarter(sides[0] + sides[2]) : N::half(across);
    rgb[0] = red_row ? own : other;
    rgb[1] = green;
    rgb[2] = red_row ? other : own;
}
