// Samplings whose taps grow with the frame: a tile of the tensor by way of shared memory, so that a pixel of the frame is read
// and converted once for all taps of a tile, and a row filtered once for all rows of a tile.
//
// A block stages rows of the frame as bytes, filters them along its columns' taps, and adds the results to its rows of the tensor,
// STAGED_ROWS at a time.
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
constexpr u32 STAGED_ROWS = 32, STAGED_PIXELS = 128;

// Red, green and blue in a word, by row and pixel; what the columns' taps make of these, by row, channel and column.
alignas(16) __shared__ u32 staged[STAGED_ROWS * STAGED_PIXELS];
__shared__ u32 filtered[STAGED_ROWS * 3 * TILE_COLUMNS];

// Which part of the frame is staged: `pixels` from column `x` on of `rows` rows, which are listed at `list`.
struct Piece {
    i32 x;
    u32 pixels;
    u64 list;
    u32 rows;
};

struct Positions {
    u32 positions[PIXELS];

    __forceinline__ u32 position(u32 i) const { return positions[i]; }
};

// What the conversion needs, in registers: the compiler would read it again after every store in shared memory.
struct Conversion {
    Colour colour;
    bool luma;
    u32 coefficients[6];

    __forceinline__ Conversion(const Frame& frame, bool luma) : colour(frame.colour), luma(luma) {
#pragma unroll
        for (u32 i = 0; i < 6; ++i) coefficients[i] = frame.coefficients[i];
    }
};

// Converts fetched pixels. `RUN` says that they are neighbours from an even one on, of which two have the same chroma.
template <bool RUN>
INLINE void convert_words(const Conversion& how, u32 (&words)[PIXELS]) {
    if (how.colour == COLOUR_YUV) {
        const u32(&k)[6] = how.coefficients;
        i32 red = 0, green = 0, blue = 0;
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 word = words[i];
            if (!RUN || i % 2 == 0) {
                // As Fixed::convert.
                i32 cb = i32(byte_of(word, 1)) - 128, cr = i32(byte_of(word, 2)) - 128;
                red = i32(k[2]) * cr + (1 << 19);
                green = i32(k[4]) * cr + i32(k[3]) * cb + (1 << 19);
                blue = i32(k[5]) * cb + (1 << 19);
            }
            i32 y = max(i32(byte_of(word, 0)) - i32(k[0]), 0) * i32(k[1]);
            words[i] = saturated_bytes((y + red) >> 20, (y + green) >> 20, (y + blue) >> 20);
        }
    } else if (how.colour == COLOUR_YUV_TRUNCATED) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            i32 rgb[3];
            Fixed::convert_truncated(how.coefficients, words[i], rgb);
            words[i] = saturated_bytes(rgb[0], rgb[1], rgb[2]);
        }
    } else if (how.colour == COLOUR_GREY) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = byte_of(words[i], 0) * 0x010101;
    }
    if (!how.luma || how.colour == COLOUR_GREY) return;
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        i32 rgb[3] = {i32(byte_of(words[i], 0)), i32(byte_of(words[i], 1)), i32(byte_of(words[i], 2))};
        words[i] = u32(Fixed::luma(rgb));
    }
}

// Reads pixels that are not neighbours, or not all of the frame: one at a time if it is a mosaic.
INLINE void read_apart(const Frame& frame, bool luma, u32 pad, i32 x, u32 y, u32 (&words)[PIXELS]) {
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
    if (frame.source == SOURCE_MOSAIC) {
#pragma unroll 1
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 at = taps.positions[0];
#pragma unroll
            for (u32 k = 1; k < PIXELS; ++k) at = i == k ? taps.positions[k] : at;
            Channels<Fixed> pixel = demosaic<Fixed>(frame, at, row);
            if (luma) pixel.rgb[0] = Fixed::luma(pixel.rgb);
            u32 word = u32(pixel.rgb[0]) | u32(pixel.rgb[1]) << 8 | u32(pixel.rgb[2]) << 16;
#pragma unroll
            for (u32 k = 0; k < PIXELS; ++k) words[k] = i == k ? word : words[k];
        }
    } else {
        fetch(frame, row, taps, words);
        convert_words<false>(Conversion(frame, luma), words);
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = padded >> i & 1 ? pad : words[i];
}

// Fetches PIXELS neighbours from an even column on, of which two have the same chroma. Words are those of `fetch`.
INLINE void fetch_run(const Frame& frame, u32 x, u32 y, u32 (&words)[PIXELS]) {
    const Component& first = frame.components[0];
    u64 at = row_of(first, y) + offset_of(first, x);
    u32 step = first.step_bytes;
    if (frame.source == SOURCE_WORDS) {
        u32 even = frame.selectors[0], odd = frame.selectors[1];
        if (first.x_shift == 0) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) words[i] = read<u32>(at + i * step);
        } else {
            words[0] = words[1] = read<u32>(at);
            words[2] = words[3] = read<u32>(at + step);
        }
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = __byte_perm(words[i], 0, i % 2 ? odd : even);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) words[i] = read<u8>(at + i * step);
    if (frame.colour == COLOUR_GREY) {
        if (frame.source == SOURCE_LEVELS) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) words[i] = level(frame, words[i], at + i * step);
        }
        return;
    }
    const Component& second = frame.components[1];
    if (frame.source == SOURCE_SEMIPLANAR) {
        u32 selector = frame.selectors[0];
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

// Stages a piece, at most STAGED_ROWS times STAGED_PIXELS.
INLINE void stage(const Job& job, const Frame& frame, const Piece& piece) {
    u32 groups = (piece.pixels + PIXELS - 1) / PIXELS;
    u32 row = threadIdx.x / groups, group = threadIdx.x - row * groups;
    u32 rows_on = TILE_THREADS / groups, groups_on = TILE_THREADS - rows_on * groups;
    // The first and the last column where neighbours can be read together.
    i32 low = max(frame.reach[0], 0), high = min(frame.reach[1] + 1, i32(frame.width)) - i32(PIXELS);
    if (frame.source == SOURCE_MOSAIC) high = low - 1;
    Conversion how(frame, job.luma);
#pragma unroll 1
    while (row < piece.rows) {
        u32 y = read<u32>(piece.list + 4ull * row);
        i32 x = piece.x + i32(group * PIXELS);
        u32 words[PIXELS];
        if (x >= low && x <= high && y != PAD) {
            fetch_run(frame, u32(x), y, words);
            convert_words<true>(how, words);
        } else {
            read_apart(frame, job.luma, u32(pad_byte(job)) * 0x010101, x, y, words);
        }
        *reinterpret_cast<uint4*>(staged + row * STAGED_PIXELS + group * PIXELS) = make_uint4(words[0], words[1], words[2], words[3]);
        row += rows_on;
        group += groups_on;
        if (group >= groups) {
            group -= groups;
            ++row;
        }
    }
}

// The taps of a thread's column that are staged: the weight of the first of all its taps, and where that would be staged.
struct StagedTaps {
    u64 weights;
    u32 stride_bytes;
    i32 at, begin, end;
};

// Filters the staged rows along the columns' taps. `first` and `last` say whether these are the first and the last taps.
template <class T>
INLINE void filter_columns(const StagedTaps& taps, u32 rows, bool first, bool last) {
    u32 column = threadIdx.x % WARP;
#pragma unroll 1
    for (u32 row = threadIdx.x / WARP; row < rows; row += 2 * WARPS) {
        // Two rows for each weight that is read.
        u32* parts = filtered + row * 3 * TILE_COLUMNS + column;
        const u32* pixels = staged + row * STAGED_PIXELS + taps.at;
        constexpr u32 NEXT = WARPS * 3 * TILE_COLUMNS;
        typename T::Sum sums[2][3] = {};
        if (!first) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
                from_bits(parts[channel * TILE_COLUMNS], sums[0][channel]);
                from_bits(parts[NEXT + channel * TILE_COLUMNS], sums[1][channel]);
            }
        }
#pragma unroll 4
        for (i32 k = taps.begin; k < taps.end; ++k) {
            typename T::Sum weight;
            from_bits(read<u32>(taps.weights + taps.stride_bytes * u32(k)), weight);
            u32 words[2] = {pixels[k], pixels[k + i32(WARPS * STAGED_PIXELS)]};
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
                for (u32 i = 0; i < 2; ++i) {
                    sums[i][channel] = T::add_column(sums[i][channel], i32(byte_of(words[i], channel)), weight);
                }
            }
        }
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
            for (u32 i = 0; i < 2; ++i) {
                parts[i * NEXT + channel * TILE_COLUMNS] = to_bits(last ? T::row(sums[i][channel]) : sums[i][channel]);
            }
        }
    }
}

// Adds `count` filtered rows from the `done`th listed one on to a row of the tensor, which needs those from `begin` to `end`.
template <class T>
INLINE void add_rows(u32 done, u32 count, u32 begin, u32 end, u64 weights, typename T::Sum (&sums)[3]) {
    const u32* parts = filtered + threadIdx.x % WARP;
#pragma unroll 4
    for (u32 row = max(begin, done); row < min(end, done + count); ++row) {
        typename T::Sum weight;
        from_bits(read<u32>(weights + 4ull * TILE_ROWS * row), weight);
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            typename T::Sum part;
            from_bits(parts[((row - done) * 3 + channel) * TILE_COLUMNS], part);
            sums[channel] = T::add_row(sums[channel], part, weight);
        }
    }
}

// Computes the thread's pixels, 0 to 255. Anything where the tile is padding.
template <class T>
INLINE void sample_tile(const Job& job, const Frame& frame, u32 tile_column, u32 tile_row, float (&pictures)[TILE_LINES][3]) {
    const Axis &columns = frame.columns, &rows = frame.rows;
    u64 needed = columns.entries + 4ull * columns.stride * (1 + columns.taps) + 8ull * tile_column;
    i32 low = read<i32>(needed);
    u32 pixels = read<u32>(needed + 4);
    u32 column = min(tile_column * TILE_COLUMNS + threadIdx.x % WARP, columns.stride - 1);
    i32 first = read<i32>(columns.entries + 4ull * column) - low;
    StagedTaps taps = {columns.entries + 4ull * (columns.stride + column), 4 * columns.stride};
    u64 list = rows.entries + 4ull * tile_row * frame.listed_words;
    u32 listed = read<u32>(list);
    u64 positions = list + 4 * (1 + 2 * TILE_ROWS);
    u64 weights = positions + 4ull * ((frame.listed_words - 1 - 2 * TILE_ROWS) / (1 + TILE_ROWS));
    typename T::Sum sums[TILE_LINES][3] = {};
#pragma unroll 1
    for (u32 done = 0; done < listed; done += STAGED_ROWS) {
        u32 count = min(listed - done, STAGED_ROWS);
#pragma unroll 1
        for (u32 from = 0; from < pixels; from += STAGED_PIXELS) {
            u32 part = min(pixels - from, STAGED_PIXELS);
            stage(job, frame, {low + i32(from), part, positions + 4ull * done, count});
            __syncthreads();
            taps.at = first - i32(from);
            taps.begin = max(0, -taps.at);
            taps.end = min(i32(columns.taps), i32(part) - taps.at);
            filter_columns<T>(taps, count, from == 0, from + part == pixels);
            __syncthreads();
        }
#pragma unroll
        for (u32 i = 0; i < TILE_LINES; ++i) {
            u32 line = threadIdx.x / WARP + i * WARPS;
            u32 begin = read<u32>(list + 4 * (1 + line)), end = read<u32>(list + 4 * (1 + TILE_ROWS + line));
            add_rows<T>(done, count, begin, end, weights + 4 * line, sums[i]);
        }
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
        u32 y = tile_row * TILE_ROWS + threadIdx.x / WARP + i * WARPS;
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
