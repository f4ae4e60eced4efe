// Samplings whose taps grow with the frame: a tile of the tensor by way of shared memory, so that a pixel of the frame is read
// and converted once for all taps of a tile, and a row filtered once for all rows of a tile.
//
// A warp converts a row of the frame, STAGED_PIXELS at a time, and filters it along the columns' taps. When the block has
// filtered FILTERED_ROWS this way, its threads add these to their rows of the tensor.
//
// The columns' table: the position of the first tap of each of `stride` columns, as many weights of first taps, of second taps,
// and so on; then for every tile the first position that it needs, an even one, and how many. Positions may be outside of the
// frame: see Frame::reach. The rows' table: `listed_words` for every TILE_ROWS rows of the tensor: how many rows of the frame are
// listed; for each of the TILE_ROWS the first listed row that it needs, and the first that it does not; the listed rows, or PAD, in
// the order in which they are added; TILE_ROWS weights of each.
#pragma once
#include "preprocess_fetch.cuh"
#include "preprocess_mosaic.cuh"
#include "preprocess_store.cuh"
#include "preprocess_taps.cuh"

constexpr u32 WARP = 32, WARPS = 8, TILE_THREADS = WARP * WARPS;
constexpr u32 TILE_COLUMNS = WARP, TILE_ROWS = 16, TILE_LINES = TILE_ROWS / WARPS;
constexpr u32 STAGED_PIXELS = WARP * PIXELS, FILTERED_ROWS = 64, FILTERED_PITCH = 3 * TILE_COLUMNS;
// The most weights of a column that a thread keeps in registers. An even number.
constexpr u32 HELD_TAPS = 16;

// Red, green and blue in a word: a piece of a row for each warp, with room for a tap without weight after it. Then rows that are
// filtered along the columns' taps: see keep_row.
alignas(16) __shared__ u32 staged[WARPS][STAGED_PIXELS + PIXELS];
__shared__ u32 filtered[FILTERED_ROWS * FILTERED_PITCH];

struct Positions {
    u32 positions[PIXELS];

    __forceinline__ u32 position(u32 i) const { return positions[i]; }
};

// What reading and converting need, in registers: the compiler would read it again after every store in shared memory.
struct Conversion {
    Source source;
    Component first;
    u32 selectors[2];
    Colour colour;
    bool luma;
    i32 y_offset, y_gain, red_cr, green_cb, green_cr, blue_cb;
    // Half of a unit, less the chroma's offset.
    i32 red, green, blue;

    __forceinline__ Conversion(const Frame& frame, bool luma)
        : source(frame.source), first(frame.components[0]), selectors{frame.selectors[0], frame.selectors[1]}, colour(frame.colour),
          luma(luma && frame.colour != COLOUR_GREY) {
        const u32* k = frame.coefficients;
        y_offset = i32(k[0]), y_gain = i32(k[1]), red_cr = i32(k[2]), green_cb = i32(k[3]), green_cr = i32(k[4]), blue_cb = i32(k[5]);
        if (colour != COLOUR_YUV) return;
        red = (1 << 19) - 128 * red_cr;
        green = (1 << 19) - 128 * (green_cb + green_cr);
        blue = (1 << 19) - 128 * blue_cb;
    }
};

// Returns a byte with one instruction.
INLINE i32 one_byte(u32 word, u32 index) {
    return i32(__byte_perm(word, 0, 0x4440 + index));
}

// Converts fetched pixels. `RUN` says that they are neighbours from an even one on, of which two have the same chroma.
template <bool RUN>
INLINE void convert_words(const Conversion& how, u32 (&words)[PIXELS]) {
    if (how.colour == COLOUR_YUV) {
        i32 red = 0, green = 0, blue = 0;
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 word = words[i];
            if (!RUN || i % 2 == 0) {
                // As Fixed::convert.
                i32 cb = one_byte(word, 1), cr = one_byte(word, 2);
                red = how.red_cr * cr + how.red;
                green = how.green_cr * cr + (how.green_cb * cb + how.green);
                blue = how.blue_cb * cb + how.blue;
            }
            i32 y = max(one_byte(word, 0) - how.y_offset, 0);
            words[i] = saturated_bytes((y * how.y_gain + red) >> 20, (y * how.y_gain + green) >> 20, (y * how.y_gain + blue) >> 20);
        }
    } else if (how.colour == COLOUR_GREY) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = byte_of(words[i], 0) * 0x010101;
    }
    if (!how.luma) return;
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        i32 rgb[3] = {i32(byte_of(words[i], 0)), i32(byte_of(words[i], 1)), i32(byte_of(words[i], 2))};
        words[i] = u32(Fixed::luma(rgb));
    }
}

// Reads pixels that are not neighbours, or not all of the frame: one at a time if it is a mosaic.
template <bool MOSAIC>
INLINE void read_apart(const Frame& frame, const Conversion& how, u32 pad, i32 x, u32 y, u32 (&words)[PIXELS]) {
    Positions taps;
    u32 padded = 0;
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        i32 at = min(max(x + i32(i), frame.reach[0]), frame.reach[1]);
        bool inside = u32(at) < frame.width && y != PAD;
        padded |= inside ? 0 : 1u << i;
        taps.positions[i] = inside ? u32(at) : 0;
    }
    u32 row = y != PAD ? y : 0;
    if (MOSAIC && how.source == SOURCE_MOSAIC) {
#pragma unroll 1
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 at = taps.positions[0];
#pragma unroll
            for (u32 k = 1; k < PIXELS; ++k) at = i == k ? taps.positions[k] : at;
            Channels<Fixed> pixel = demosaic<Fixed>(frame, at, row);
            if (how.luma) pixel.rgb[0] = Fixed::luma(pixel.rgb);
            u32 word = u32(pixel.rgb[0]) | u32(pixel.rgb[1]) << 8 | u32(pixel.rgb[2]) << 16;
#pragma unroll
            for (u32 k = 0; k < PIXELS; ++k) words[k] = i == k ? word : words[k];
        }
    } else {
        fetch(frame, row, taps, words);
        convert_words<false>(how, words);
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = padded >> i & 1 ? pad : words[i];
}

// Puts the components of words in order, which are those of neighbours from an even column on.
INLINE void order_words(const Conversion& how, u32 (&words)[PIXELS]) {
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = __byte_perm(words[i], 0, how.selectors[i % 2]);
}

// Fetches PIXELS neighbours from an even column on, of which two have the same chroma. Words are those of `fetch`.
INLINE void fetch_run(const Frame& frame, const Conversion& how, u32 x, u32 y, u32 (&words)[PIXELS]) {
    u64 at = row_of(how.first, y) + offset_of(how.first, x);
    u32 step = how.first.step_bytes;
    if (how.source == SOURCE_WORDS) {
        if (how.first.x_shift == 0) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) words[i] = read<u32>(at + i * step);
        } else {
            words[0] = words[1] = read<u32>(at);
            words[2] = words[3] = read<u32>(at + step);
        }
        order_words(how, words);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = read<u8>(at + i * step);
    if (how.colour == COLOUR_GREY) return;
    const Component& second = frame.components[1];
    if (how.source == SOURCE_SEMIPLANAR) {
        u32 selector = how.selectors[0];
        at = row_of(second, y) + offset_of(second, x);
        u32 chroma[2] = {read<u16>(at), read<u16>(at + second.step_bytes)};
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = __byte_perm(words[i], chroma[i / 2], selector);
        return;
    }
    const Component& third = frame.components[2];
    u64 row = row_of(second, y), third_row = row_of(third, y);
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        u32 low = read<u8>(row + offset_of(second, x + i)), high = read<u8>(third_row + offset_of(third, x + i));
        words[i] |= low << 8 | high << 16;
    }
}

// The columns of the frame under a tile: `pixels` from `low` on. `run` has the first and the last one where neighbours can be
// read together.
struct Span {
    i32 low;
    u32 pixels;
    i32 run[2];

    __forceinline__ bool runs(i32 x) const { return x >= run[0] && x <= run[1]; }
};

// Stages the piece of a row that begins `from` pixels after the span's first.
template <bool MOSAIC>
INLINE void stage(const Job& job, const Frame& frame, const Conversion& how, const Span& span, u32 from, u32 y) {
    u32 lane = threadIdx.x % WARP, at = from + lane * PIXELS;
    if (at >= span.pixels) return;
    i32 x = span.low + i32(at);
    u32 words[PIXELS];
    if (span.runs(x) && y != PAD) {
        fetch_run(frame, how, u32(x), y, words);
        convert_words<true>(how, words);
    } else {
        read_apart<MOSAIC>(frame, how, u32(pad_byte(job)) * 0x010101, x, y, words);
    }
    *reinterpret_cast<uint4*>(staged[threadIdx.x / WARP] + lane * PIXELS) = make_uint4(words[0], words[1], words[2], words[3]);
}

// Return the channels of a staged pixel.
INLINE void channels_of(u32 word, i32 (&channels)[3]) {
#pragma unroll
    for (u32 i = 0; i < 3; ++i) channels[i] = one_byte(word, i);
}

INLINE void channels_of(u32 word, float (&channels)[3]) {
    // As small_float, with one instruction for the byte and the exponent.
#pragma unroll
    for (u32 i = 0; i < 3; ++i) channels[i] = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 + i)) - 8388608.0f;
}

// Keep a pixel of a row that is filtered: Pillow's as bytes in a word, floats one below the other.
INLINE void keep_row(u32* pixel, const i32 (&sums)[3]) {
    constexpr i32 HALF = 1 << (PillowTaps::BITS - 1);
    *pixel = saturated_bytes((sums[0] + HALF) >> PillowTaps::BITS, (sums[1] + HALF) >> PillowTaps::BITS,
                             (sums[2] + HALF) >> PillowTaps::BITS);
}

INLINE void keep_row(u32* pixel, const float (&sums)[3]) {
#pragma unroll
    for (u32 i = 0; i < 3; ++i) pixel[i * TILE_COLUMNS] = __float_as_uint(sums[i]);
}

INLINE void kept_row(const u32* pixel, i32 (&channels)[3]) {
    channels_of(*pixel, channels);
}

INLINE void kept_row(const u32* pixel, float (&channels)[3]) {
#pragma unroll
    for (u32 i = 0; i < 3; ++i) channels[i] = __uint_as_float(pixel[i * TILE_COLUMNS]);
}

// The taps of a thread's column: where their weights are, `stride_bytes` apart, and the first one's place in the span.
struct ColumnTaps {
    u64 weights;
    u32 stride_bytes;
    u32 count;
    i32 first;
};

// Adds one tap of a column.
template <class T>
INLINE void add_column(typename T::Sum (&sums)[3], u32 word, typename T::Sum weight) {
    typename T::Sum channels[3];
    channels_of(word, channels);
#pragma unroll
    for (u32 i = 0; i < 3; ++i) sums[i] = sums[i] + weight * channels[i];
}

// Filters `count` rows of the frame, which are listed at `list`, along the columns' taps. `WHOLE` says that a row is one piece
// and a column has at most HELD_TAPS.
template <class T, bool WHOLE>
INLINE void filter_rows(const Job& job, const Frame& frame, const Conversion& how, const Span& span, const ColumnTaps& taps, u64 list,
                        u32 count) {
    typedef typename T::Sum Sum;
    Sum held[WHOLE ? HELD_TAPS : 1] = {};
    if constexpr (WHOLE) {
#pragma unroll
        for (u32 k = 0; k < HELD_TAPS; ++k) {
            if (k < taps.count) from_bits(read<u32>(taps.weights + taps.stride_bytes * k), held[k]);
        }
    }
    u32 lane = threadIdx.x % WARP;
    u32* kept = filtered + threadIdx.x / WARP * FILTERED_PITCH + lane;
    u32* pieces = staged[threadIdx.x / WARP];
    const u32* pixels = pieces + taps.first;
    // Whether the thread's pixels of a whole row are two words of packed 4:2:2, which most cameras send, and where those of row 0
    // are.
    i32 x = span.low + i32(lane * PIXELS);
    bool packed = WHOLE && how.source == SOURCE_WORDS && how.first.x_shift == 1 && how.colour == COLOUR_YUV && !how.luma &&
                  lane * PIXELS < span.pixels && span.runs(x);
    u64 column = packed ? row_of(how.first, 0) + offset_of(how.first, u32(x)) : 0;
    // All warps take as many turns, the last one perhaps for nothing.
#pragma unroll 1
    for (u32 turn = 0; turn < count; turn += WARPS) {
        u32 row = turn + threadIdx.x / WARP;
        u32 y = read<u32>(list + 4ull * min(row, count - 1));
        Sum sums[3] = {};
        if constexpr (WHOLE) {
            if (packed && y != PAD) {
                u64 at = column + u64(y) * how.first.pitch_bytes;
                u32 low = read<u32>(at), high = read<u32>(at + how.first.step_bytes);
                u32 words[PIXELS] = {low, low, high, high};
                order_words(how, words);
                convert_words<true>(how, words);
                *reinterpret_cast<uint4*>(pieces + lane * PIXELS) = make_uint4(words[0], words[1], words[2], words[3]);
            } else {
                stage<false>(job, frame, how, span, 0, y);
            }
            __syncwarp();
            // A tap more than there are has no weight.
#pragma unroll
            for (u32 k = 0; k < HELD_TAPS; k += 2) {
                if (k >= taps.count) break;
                add_column<T>(sums, pixels[k], held[k]);
                add_column<T>(sums, pixels[k + 1], held[k + 1]);
            }
            __syncwarp();
        } else {
#pragma unroll 1
            for (u32 from = 0; from < span.pixels; from += STAGED_PIXELS) {
                stage<true>(job, frame, how, span, from, y);
                __syncwarp();
                i32 begin = max(0, i32(from) - taps.first);
                i32 end = min(i32(taps.count), i32(min(span.pixels, from + STAGED_PIXELS)) - taps.first);
#pragma unroll 4
                for (i32 k = begin; k < end; ++k) {
                    Sum weight;
                    from_bits(read<u32>(taps.weights + taps.stride_bytes * u32(k)), weight);
                    add_column<T>(sums, pixels[k - i32(from)], weight);
                }
                __syncwarp();
            }
        }
        if (row < count) keep_row(kept, sums);
        kept += WARPS * FILTERED_PITCH;
    }
}

// Adds `count` filtered rows, from the `done`th listed one on, to the thread's rows of the tensor. `list` is the tile's part of
// the rows' table. A row that one of these does not need has no weight there.
template <class T>
INLINE void add_rows(const Frame& frame, u64 list, u32 done, u32 count, typename T::Sum (&sums)[TILE_LINES][3]) {
    u32 line = threadIdx.x / WARP * TILE_LINES;
    u32 begin = PAD, end = 0;
#pragma unroll
    for (u32 i = 0; i < TILE_LINES; ++i) {
        u32 until = read<u32>(list + 4 * (1 + TILE_ROWS + line + i));
        if (until > 0) begin = min(begin, read<u32>(list + 4 * (1 + line + i)));
        end = max(end, until);
    }
    begin = max(begin, done);
    end = min(end, done + count);
    u32 most = (frame.listed_words - 1 - 2 * TILE_ROWS) / (1 + TILE_ROWS);
    u64 weights = list + 4ull * (1 + 2 * TILE_ROWS + most + TILE_ROWS * begin + line);
    const u32* pixel = filtered + (begin - done) * FILTERED_PITCH + threadIdx.x % WARP;
#pragma unroll 2
    for (u32 row = begin; row < end; ++row) {
        typename T::Sum channels[3];
        kept_row(pixel, channels);
#pragma unroll
        for (u32 i = 0; i < TILE_LINES; ++i) {
            typename T::Sum weight;
            from_bits(read<u32>(weights + 4 * i), weight);
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) sums[i][channel] = T::add_row(sums[i][channel], channels[channel], weight);
        }
        pixel += FILTERED_PITCH;
        weights += 4 * TILE_ROWS;
    }
}

// Computes the thread's pixels, 0 to 255. Anything where the tile is padding.
template <class T>
INLINE void sample_tile(const Job& job, const Frame& frame, u32 tile_column, u32 tile_row, float (&pictures)[TILE_LINES][3]) {
    const Axis &columns = frame.columns, &rows = frame.rows;
    u64 needed = columns.entries + 4ull * columns.stride * (1 + columns.taps) + 8ull * tile_column;
    Span span = {read<i32>(needed), read<u32>(needed + 4), {max(frame.reach[0], 0), 0}};
    span.run[1] = min(frame.reach[1] + 1, i32(frame.width)) - i32(PIXELS);
    if (frame.source == SOURCE_MOSAIC) span.run[1] = span.run[0] - 1;
    u32 column = min(tile_column * TILE_COLUMNS + threadIdx.x % WARP, columns.stride - 1);
    ColumnTaps taps = {columns.entries + 4ull * (columns.stride + column), 4 * columns.stride, columns.taps};
    taps.first = read<i32>(columns.entries + 4ull * column) - span.low;
    bool whole = span.pixels <= STAGED_PIXELS && taps.count <= HELD_TAPS && frame.source != SOURCE_MOSAIC;
    Conversion how(frame, job.luma);

    u64 list = rows.entries + 4ull * tile_row * frame.listed_words;
    u32 listed = read<u32>(list);
    u64 positions = list + 4 * (1 + 2 * TILE_ROWS);
    typename T::Sum sums[TILE_LINES][3] = {};
#pragma unroll 1
    for (u32 done = 0; done < listed; done += FILTERED_ROWS) {
        u32 count = min(listed - done, FILTERED_ROWS);
        if (whole) {
            filter_rows<T, true>(job, frame, how, span, taps, positions + 4ull * done, count);
        } else {
            filter_rows<T, false>(job, frame, how, span, taps, positions + 4ull * done, count);
        }
        __syncthreads();
        add_rows<T>(frame, list, done, count, sums);
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < TILE_LINES; ++i) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) pictures[i][channel] = T::value(frame, sums[i][channel]);
    }
}

INLINE void preprocess_tile(const Job& job) {
    const Frame& frame = reinterpret_cast<const Frame*>(job.frames)[blockIdx.y];
    u32 tiles = (job.width + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 tile_row = blockIdx.x / tiles, tile_column = blockIdx.x - tile_row * tiles;
    float pictures[TILE_LINES][3] = {};
    u32 x = tile_column * TILE_COLUMNS + threadIdx.x % WARP, left = frame.placed_x, right = left + frame.placed_width;
    // A tile without columns is padding; one without rows has an empty list.
    if (tile_column * TILE_COLUMNS < right && (tile_column + 1) * TILE_COLUMNS > left) {
        if (frame.arithmetic == ARITHMETIC_PILLOW) {
            sample_tile<PillowTaps>(job, frame, tile_column, tile_row, pictures);
        } else {
            sample_tile<ByteTaps>(job, frame, tile_column, tile_row, pictures);
        }
    }
    if (x >= job.width) return;
#pragma unroll
    for (u32 i = 0; i < TILE_LINES; ++i) {
        u32 y = tile_row * TILE_ROWS + threadIdx.x / WARP * TILE_LINES + i;
        if (y >= job.height) return;
        bool inside = x - left < frame.placed_width && y - frame.placed_y < frame.placed_height;
        float values[3];
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            float value = job.reversed ? pictures[i][2 - channel] : pictures[i][channel];
            values[channel] = inside ? fmaf(value, job.gain[channel], job.bias[channel]) : job.pad[channel];
        }
        store_pixel(job, blockIdx.y, x, y, values);
    }
}
