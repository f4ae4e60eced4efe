// Makes the masks of objects from planes of cells: kernels/src/mask/assemble.rs with the same operations in order.
//
// A block makes WORDS consecutive words of a mask, 32 pixels each. It computes the logits of the cells that its pixels touch
// once, into shared memory; then a warp makes a word at a time, a pixel per thread, and writes 32 words together, because the
// memory of the results may be across a bus. If the cells do not fit, because there are more of them than pixels, each pixel
// computes its own.
#include "filter_numbers.cuh"
#include "mask_argument.cuh"

#define THREADS 256
#define WORDS 256  // Words of a block.
#define CELLS 5120
#define CHANNELS 1024

struct Tap {
    u32 at[2];
    float weight[2];
};

INLINE Tap tap_of(u32 index, float step, float origin, u32 size) {
    float last = (float)(size - 1);
    float at = step * ((float)index + 0.5f) - 0.5f + origin;
    at = at > 0.0f ? at : 0.0f;
    at = at < last ? at : last;
    Tap tap;
    tap.at[0] = (u32)at;
    tap.at[1] = tap.at[0] + 1 < size ? tap.at[0] + 1 : size - 1;
    tap.weight[1] = at - (float)tap.at[0];
    tap.weight[0] = 1.0f - tap.weight[1];
    return tap;
}

INLINE Tap refined_tap(const MaskAxis& axis, u32 index, u32 factor) {
    return tap_of(axis.first + index, 1.0f / (float)factor, 0.0f, axis.cells);
}

// The first and the last cell of the planes that the pixels from `first` to `last` are made of.
INLINE void cells_of(const MaskAxis& axis, u32 factor, u32 first, u32 last, u32& low, u32& high) {
    low = tap_of(first, axis.step, axis.origin, axis.count).at[0];
    high = tap_of(last, axis.step, axis.origin, axis.count).at[1];
    if (factor == 1) {
        low += axis.first;
        high += axis.first;
    } else {
        low = refined_tap(axis, low, factor).at[0];
        high = refined_tap(axis, high, factor).at[1];
    }
}

template <typename T>
INLINE float sum_of(const float* coefficients, float sum, u64 start, u32 step, u32 channels) {
#pragma unroll 8
    for (u32 channel = 0; channel < channels; ++channel) {
        sum += coefficients[channel] * value_of(read<T>(start + (u64)channel * step * sizeof(T)));
    }
    return sum;
}

// Which planes a mask is made of.
struct Parts {
    const float* coefficients;
    u32 plane;  // The first.
};

// Not inlined, because it is called for every neighbour.
__noinline__ float logit_of(const Masks& m, const Parts& parts, u32 x, u32 y) {
    const Values& p = m.planes;
    const float* coefficients = parts.coefficients;
    u64 start = index_of(p, m.slot, y * m.width + x, parts.plane);
    float sum = 0.0f - m.threshold;
    if (p.dtype == F32) return sum_of<float>(coefficients, sum, p.address + 4 * start, p.column_step, m.channels);
    if (p.dtype == F16) return sum_of<u16>(coefficients, sum, p.address + 2 * start, p.column_step, m.channels);
#pragma unroll 1
    for (u32 channel = 0; channel < m.channels; ++channel) {
        sum += coefficients[channel] * number_at(p.address, p.dtype, start + (u64)channel * p.column_step);
    }
    return sum;
}

// The logits that a block has computed, if they fit.
struct Field {
    const float* cells;
    u32 left;
    u32 top;
    u32 width;
    bool staged;
};

INLINE float cell(const Masks& m, const Field& field, const Parts& parts, u32 x, u32 y) {
    if (field.staged) return field.cells[(y - field.top) * field.width + x - field.left];
    return logit_of(m, parts, x, y);
}

// The logit of a refined cell, from the first on that shows the frame.
INLINE float refined(const Masks& m, const Field& field, const Parts& parts, u32 x, u32 y) {
    if (m.factor == 1) return cell(m, field, parts, m.x.first + x, m.y.first + y);
    Tap across = refined_tap(m.x, x, m.factor), down = refined_tap(m.y, y, m.factor);
    float lines[2];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        lines[i] = cell(m, field, parts, across.at[0], down.at[i]) * across.weight[0] +
                   cell(m, field, parts, across.at[1], down.at[i]) * across.weight[1];
    }
    return lines[0] * down.weight[0] + lines[1] * down.weight[1];
}

extern "C" __global__ void __launch_bounds__(THREADS) masks(const Masks m) {
    __shared__ float cells[CELLS];
    __shared__ float coefficients[CHANNELS];

    u32 thread = threadIdx.x;
    u64 from = m.pieces + (u64)blockIdx.x * sizeof(Piece);
    uint4 head = read<uint4>(from), tail = read<uint4>(from + sizeof(uint4));
    u32 left = head.y, top = head.z, width = head.w, first = tail.x, count = tail.y, out = tail.z;
    u32 per_row = (width + 31) / 32;
    for (u32 channel = thread; channel < m.channels; channel += THREADS) {
        coefficients[channel] = m.own_plane ? 1.0f : number(m.coefficients, m.slot, head.x, channel);
    }
    Parts parts = {coefficients, m.own_plane ? head.x : 0};
    Field field;
    u32 right, bottom;
    cells_of(m.x, m.factor, left, left + width - 1, field.left, right);
    cells_of(m.y, m.factor, top + first / per_row, top + (first + count - 1) / per_row, field.top, bottom);
    field.cells = cells;
    field.width = right - field.left + 1;
    u32 cell_count = field.width * (bottom - field.top + 1);
    field.staged = cell_count <= CELLS;
    __syncthreads();
#pragma unroll 1
    for (u32 item = thread; field.staged && item < cell_count; item += THREADS) {
        cells[item] = logit_of(m, parts, field.left + item % field.width, field.top + item / field.width);
    }
    __syncthreads();

    // No barrier from here on: the warps of a block may make different numbers of words.
    u32 lane = thread % 32, mine = 0;
    u32 begin = thread / 32 * 32, end = count < begin + 32 ? count : begin + 32;
#pragma unroll 1
    for (u32 word = begin; word < end; ++word) {
        u32 row = (first + word) / per_row, column = (first + word) % per_row * 32 + lane;
        bool set = false;
        if (column < width) {
            Tap across = tap_of(left + column, m.x.step, m.x.origin, m.x.count);
            Tap down = tap_of(top + row, m.y.step, m.y.origin, m.y.count);
            float lines[2];
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                lines[i] = refined(m, field, parts, across.at[0], down.at[i]) * across.weight[0] +
                           refined(m, field, parts, across.at[1], down.at[i]) * across.weight[1];
            }
            set = lines[0] * down.weight[0] + lines[1] * down.weight[1] > 0.0f;
        }
        u32 bits = __ballot_sync(0xffffffffu, set);
        if (word - begin == lane) mine = bits;
    }
    if (begin + lane < end) write(m.bits + 4 * ((u64)out + begin + lane), mine);
}
