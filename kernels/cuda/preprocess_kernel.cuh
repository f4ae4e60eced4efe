// Frames into a network's input: every format, fit, sampling, layout and type, a batch of frames at once.
//
// What it computes is said at the head of kernels/src/preprocess/mod.rs; this follows that code step by step. A thread makes
// PIXELS adjacent pixels of the tensor, padding included, and a warp as many times 32 of one row; blocks of the second
// dimension are frames. What differs between frames is read from memory (`Job::frames`), so that a captured launch serves
// whatever comes; what differs between networks is an argument. All branches but those at edges are the same for a warp.
#pragma once
#include "preprocess_fetch.cuh"
#include "preprocess_mosaic.cuh"
#include "preprocess_number.cuh"
#include "preprocess_store.cuh"

// Red, green and blue of a word; luma in red's place where that is wanted.
template <class N>
INLINE void convert(const Job& job, const Frame& frame, u32 word, typename N::Wide (&rgb)[3]) {
    if (frame.colour == COLOUR_YUV) {
        N::convert(frame, word, rgb);
    } else if (frame.colour == COLOUR_RGB) {
        rgb[0] = N::wide(byte_of(word, 0));
        rgb[1] = N::wide(byte_of(word, 1));
        rgb[2] = N::wide(byte_of(word, 2));
    } else {
        rgb[0] = rgb[1] = rgb[2] = N::grey(frame, word);
    }
    if (job.luma && frame.colour != COLOUR_GREY) rgb[0] = N::luma(rgb);
}

// Adds one tap of the group's pixels, given as words, to the sums of their columns.
template <class N>
INLINE void add_words(const Job& job, const Frame& frame, const u32 (&words)[PIXELS], const Taps& taps, u32 (&sums)[3][PIXELS]) {
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        typename N::Wide rgb[3];
        convert<N>(job, frame, words[i], rgb);
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            u32& sum = sums[channel][i];
            sum = N::bits(N::add_column(N::of(sum), rgb[channel], N::of(taps.weights[i])));
        }
    }
}

// Words that stand alone, as values.
template <class N>
INLINE void values_of(const Job& job, const Frame& frame, const u32 (&words)[PIXELS], float (&values)[3][PIXELS]) {
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        typename N::Wide rgb[3];
        convert<N>(job, frame, words[i], rgb);
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) values[channel][i] = N::channel(rgb[channel]);
    }
}

// The same of a mosaic, one pixel after the other: unrolled, this would be half of the kernel.
template <class N>
INLINE void add_mosaic(const Job& job, const Frame& frame, u32 y, const Taps& taps, u32 (&sums)[3][PIXELS]) {
    typedef typename N::Wide Wide;
#pragma unroll 1
    for (u32 i = 0; i < PIXELS; ++i) {
        u32 x = taps.positions[0], weight = taps.weights[0];
#pragma unroll
        for (u32 k = 1; k < PIXELS; ++k) {
            x = i == k ? taps.positions[k] : x;
            weight = i == k ? taps.weights[k] : weight;
        }
        Wide rgb[3];
        demosaic<N>(frame, x, y, rgb);
        if (job.luma) rgb[0] = N::luma(rgb);
#pragma unroll
        for (u32 k = 0; k < PIXELS; ++k) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
                u32& sum = sums[channel][k];
                sum = i == k ? N::bits(N::add_column(N::of(sum), rgb[channel], N::of(weight))) : sum;
            }
        }
    }
}

// Adds a row's columns to the sums of rows.
template <class N>
INLINE void add_row(const u32 (&columns)[3][PIXELS], u32 weight, u32 (&sums)[3][PIXELS]) {
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            u32& sum = sums[channel][i];
            sum = N::bits(N::add_row(N::of(sum), N::of(columns[channel][i]), N::of(weight)));
        }
    }
}

// The group's pixels, 0 to 255. What is read does not depend on the arithmetic, so that its code is there once; sums are
// the arithmetic's numbers as bits.
INLINE void resample(const Job& job, const Frame& frame, u32 x, u32 y, uint4* room, float (&values)[3][PIXELS]) {
    const Axis &columns = frame.columns, &rows = frame.rows;
    bool mosaic = frame.source == SOURCE_MOSAIC;
    // Asked for together, to wait once.
    u32 upper_weight = weight_at(rows, job.exact, 1, y);
    u32 lower_y = position_at(rows, 0, y);
    u32 warp_x = x / (LANES * PIXELS) * (LANES * PIXELS);
    // The warp's first column, and its last one's upper tap.
    u32 first = 0, last = 0;
    if (STAGED) {
        first = position_at(columns, 0, warp_x);
        last = position_at(columns, columns.taps - 1, min(warp_x + LANES * PIXELS, columns.stride) - 1);
    }
    // Lanes beyond the tensor repeat its last group.
    x = min(x, columns.stride - PIXELS);
    if (columns.taps == 1 && upper_weight == 0 && !mosaic) {
        // Every pixel is one of the frame, as at an odd whole scale.
        Taps taps = taps_at(columns, false, 0, x);
        Row row = STAGED ? staged(frame, lower_y, first, last, room) : row_in_frame(frame, lower_y);
        u32 words[PIXELS];
        fetch(frame, row, taps, words);
        if (job.exact) {
            values_of<Exact>(job, frame, words, values);
        } else {
            values_of<Fixed>(job, frame, words, values);
        }
        return;
    }
    u32 sums[3][PIXELS] = {};
#pragma unroll 1
    for (u32 row_tap = 0; row_tap < 2; ++row_tap) {
        // Without weight a row is not read.
        if (row_tap == 1 && upper_weight == 0) break;
        u32 weight = row_tap == 1 ? upper_weight : weight_at(rows, job.exact, 0, y);
        u32 source_y = position_at(rows, row_tap, y);
        u32 mixed[3][PIXELS] = {};
        Row row = STAGED ? staged(frame, source_y, first, last, room) : row_in_frame(frame, source_y);
#pragma unroll 1
        for (u32 tap = 0; tap < columns.taps; ++tap) {
            Taps taps = taps_at(columns, job.exact, tap, x);
            if (mosaic) {
                if (job.exact) {
                    add_mosaic<Exact>(job, frame, source_y, taps, mixed);
                } else {
                    add_mosaic<Fixed>(job, frame, source_y, taps, mixed);
                }
            } else {
                u32 words[PIXELS];
                fetch(frame, row, taps, words);
                if (job.exact) {
                    add_words<Exact>(job, frame, words, taps, mixed);
                } else {
                    add_words<Fixed>(job, frame, words, taps, mixed);
                }
            }
        }
        if (job.exact) {
            add_row<Exact>(mixed, weight, sums);
        } else {
            add_row<Fixed>(mixed, weight, sums);
        }
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            u32 sum = sums[channel][i];
            values[channel][i] = job.exact ? Exact::value(Exact::of(sum)) : Fixed::value(Fixed::of(sum));
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, STAGED ? 6 : 8) preprocess(const Job job) {
    __shared__ uint4 rooms[STAGED ? THREADS / LANES : 1][STAGED ? CHUNKS : 1];
    u32 warp_of_block = threadIdx.x / LANES;
    u32 warp = blockIdx.x * (THREADS / LANES) + warp_of_block;
    u32 y = warp / job.warps;
    if (y >= job.height) return;
    u32 warp_x = (warp - y * job.warps) * (LANES * PIXELS);
    u32 x = warp_x + threadIdx.x % LANES * PIXELS;
    const Frame& frame = reinterpret_cast<const Frame*>(job.frames)[blockIdx.y];

    float values[3][PIXELS];
    u32 left = frame.placed_x, right = left + frame.placed_width;
    // The warp's pixels, some of them, are in the picture.
    if (y - frame.placed_y < frame.placed_height && warp_x < right && warp_x + LANES * PIXELS > left) {
        resample(job, frame, x, y, rooms[STAGED ? warp_of_block : 0], values);
        if (job.reversed) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
                float red = values[0][i];
                values[0][i] = values[2][i];
                values[2][i] = red;
            }
        }
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
                values[channel][i] = fmaf(values[channel][i], job.gain[channel], job.bias[channel]);
            }
        }
    } else {
        right = left;
    }
    if (x < left || x + PIXELS > right) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            bool inside = x + i >= left && x + i < right;
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
                values[channel][i] = inside ? values[channel][i] : job.pad[channel];
            }
        }
    }
    if (x < job.width) store(job, blockIdx.y, x, y, values);
}
