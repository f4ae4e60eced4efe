// Pixels of one row of a frame, as words whose low three bytes are the components: Y Cb Cr, or R G B, or grey alone.
//
// Where STAGED, a warp first copies the part of the row that its pixels need into shared memory, 16 bytes a lane side by side,
// so that each byte is read once and in full lines: pinned memory of a Jetson is not cached for its GPU. Where that part is
// too long, or rows may not be read so, and where not STAGED, every lane reads its own pixels: less to wait for.
#pragma once
#include "preprocess_job.cuh"

// 16-byte chunks that a warp has room for: 2 KB.
constexpr u32 CHUNKS = 128;

INLINE u64 row_of(const Component& component, u32 y) {
    return component.address + u64(y >> component.y_shift) * component.pitch_bytes;
}

INLINE u32 unit_of(const Component& component, u32 x) {
    return (x >> component.x_shift) * component.step_bytes;
}

// Source positions of the group's pixels, and how much of each there is, as the arithmetic's bits: OpenCV's integer or a float.
struct Taps {
    u32 positions[PIXELS];
    u32 weights[PIXELS];
};

// One entry of an axis.
INLINE u32 position_at(const Axis& axis, u32 tap, u32 i) {
    return read<u32>(axis.entries + 4ull * (tap * axis.stride + i)) & 0xffff;
}

INLINE u32 weight_at(const Axis& axis, bool exact, u32 tap, u32 i) {
    u64 entry = axis.entries + 4ull * (tap * axis.stride + i);
    return exact ? read<u32>(entry + 8ull * axis.stride) : read<u32>(entry) >> 16;
}

// Those of one group.
INLINE Taps taps_at(const Axis& axis, bool exact, u32 tap, u32 x) {
    u64 entries = axis.entries + 4ull * (tap * axis.stride + x);
    uint4 e = read<uint4>(entries);
    Taps taps = {{e.x & 0xffff, e.y & 0xffff, e.z & 0xffff, e.w & 0xffff}, {e.x >> 16, e.y >> 16, e.z >> 16, e.w >> 16}};
    if (exact) {
        uint4 w = read<uint4>(entries + 8ull * axis.stride);
        taps.weights[0] = w.x;
        taps.weights[1] = w.y;
        taps.weights[2] = w.z;
        taps.weights[3] = w.w;
    }
    return taps;
}

// One row's components: where that of column 0 would stand, in the frame's memory or in shared memory.
struct Row {
    u64 starts[3];
};

INLINE Row row_in_frame(const Frame& frame, u32 y) {
    Row row;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) row.starts[i] = row_of(frame.components[i], y) + frame.components[i].offset_bytes;
    return row;
}

// Copies what the columns `first` to `last` need into `room`, all lanes together; the row as it was where that is too long.
INLINE Row staged(const Frame& frame, u32 y, u32 first, u32 last, uint4* room) {
    Row row = row_in_frame(frame, y);
    u32 begins[3], counts[3], needed = 0;
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        begins[i] = unit_of(frame.components[i], first) & ~15u;
        counts[i] = (unit_of(frame.components[i], last) + frame.components[i].step_bytes - begins[i] + 15) / 16;
        if (i < frame.planes) needed += counts[i];
    }
    if (frame.planes == 0 || needed > CHUNKS) return row;
    // What was staged before has been read.
    __syncwarp();
    u64 to = address_of(room);
#pragma unroll
    for (u32 i = 0; i < 3; ++i) {
        // A further component of the first plane stands where that is staged.
        u64 staged_at = to - begins[i];
        if (i < frame.planes) {
            u64 from = row.starts[i] - frame.components[i].offset_bytes + begins[i];
#pragma unroll 1
            for (u32 chunk = FIRST_LANE; chunk < counts[i]; chunk += LANE_STEP) {
                room[chunk] = read<uint4>(from + 16ull * chunk);
            }
            room += counts[i];
            to += 16ull * counts[i];
        } else {
            staged_at = row.starts[0] - frame.components[0].offset_bytes;
        }
        row.starts[i] = staged_at + frame.components[i].offset_bytes;
    }
    __syncwarp();
    return row;
}

template <class T>
INLINE T read_row(u64 address) {
    return STAGED ? read_anywhere<T>(address) : read<T>(address);
}

INLINE void fetch(const Frame& frame, const Row& row, const Taps& taps, u32 (&words)[PIXELS]) {
    const Component *first = &frame.components[0], *second = first + 1, *third = first + 2;
    if (frame.source == SOURCE_WORDS) {
        u32 even = frame.selectors[0], odd = frame.selectors[1];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = read_row<u32>(row.starts[0] + unit_of(*first, taps.positions[i]));
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = __byte_perm(words[i], 0, taps.positions[i] & 1 ? odd : even);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = read_row<u8>(row.starts[0] + unit_of(*first, taps.positions[i]));
    if (frame.colour == COLOUR_GREY) return;
    if (frame.source == SOURCE_SEMIPLANAR) {
        u32 selector = frame.selectors[0];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 chroma = read_row<u16>(row.starts[1] + unit_of(*second, taps.positions[i]));
            words[i] = __byte_perm(words[i], chroma, selector);
        }
        return;
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        u32 low = read_row<u8>(row.starts[1] + unit_of(*second, taps.positions[i]));
        u32 high = read_row<u8>(row.starts[2] + unit_of(*third, taps.positions[i]));
        words[i] |= low << 8 | high << 16;
    }
}
