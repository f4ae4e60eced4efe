// Samplings whose taps grow with the frame: a tile of the tensor by way of shared memory, so that a pixel of the frame is read
// and converted once for all taps of a tile, and a row filtered once for all rows of a tile.
//
// A block stages rows of the frame, STAGED_ROWS at a time, and filters them along its columns' taps. When all rows are filtered, or
// as many as there is room for, it adds them to its rows of the tensor. Taps are added in fours: of a row, four neighbours whose
// first position is a multiple of 4; of a column, four rows that are listed one after the other.
//
// The columns' table: for each of `stride` columns the position of the first four; weights of the first four of each column, of
// the second four, and so on; then for every tile the first position that it needs, and how many fours. Positions may be outside
// of the frame: see Frame::reach. The rows' table: `listed_words` for every TILE_ROWS rows of the tensor: how many rows of the
// frame are listed, the first of them if each is the one after the one before, otherwise PAD, and two words of filling; for each
// of the TILE_ROWS the first four listed rows that it needs, and the first that it does not; the listed rows, or PAD, in the order
// in which they are added; for each four of these, TILE_ROWS times the weights. Four weights take 16 bytes: see WeightedBytes and
// WeightedFloats.
#pragma once
#include "preprocess_fetch.cuh"
#include "preprocess_mosaic.cuh"
#include "preprocess_store.cuh"
#include "preprocess_taps.cuh"

constexpr u32 WARP = 32, TILE_THREADS = 256;
constexpr u32 TILE_COLUMNS = WARP, TILE_ROWS = TILE_THREADS / (TILE_COLUMNS / PIXELS);
// Fours are PIXELS. At a third of the size, a tile's rows are staged in two steps.
constexpr u32 STAGED_ROWS = 52, STAGED_FOURS = 32;

// Red, green and blue of four pixels, by row and pixel; the fourth word is unused.
__shared__ uint4 staged[STAGED_ROWS * STAGED_FOURS];
// What the columns' taps make of rows, by four rows, word of these, channel and column.
constexpr u32 FILTERED_WORDS = TILE_THREADS * 3 * PIXELS;
alignas(16) __shared__ u32 filtered[FILTERED_WORDS];

// Pillow's arithmetic: bytes, and integers of 24 bits. Four weights are their lower halves, and their upper bytes, which are
// signed: three instructions multiply and add four pixels.
struct WeightedBytes {
    typedef i32 Sum;
    // What a sum begins with: half of what becomes 1.
    static constexpr u32 BITS = 22;
    static constexpr Sum BEGIN = 1 << (BITS - 1);
    // Words of four rows that were filtered.
    static constexpr u32 WORDS = 1;

    // A sum whose products with lower and upper parts of weights are apart.
    struct Parts {
        u32 low;
        i32 high;
    };

    static __forceinline__ Parts open(Sum sum) { return {u32(sum), 0}; }
    static __forceinline__ Sum close(Parts parts) { return i32(parts.low + (u32(parts.high) << 16)); }
    static __forceinline__ void add_pixels(Parts& parts, u32 bytes, uint4 weights) {
        parts.low = add_upper_products(add_lower_products(parts.low, weights.x, bytes), weights.y, bytes);
        parts.high = add_products(parts.high, weights.z, bytes);
    }
    static __forceinline__ void add_rows(Parts& parts, const u32 (&words)[WORDS], uint4 weights) {
        add_pixels(parts, words[0], weights);
    }
    static __forceinline__ void filtered(const Sum (&s)[PIXELS], u32 (&words)[WORDS]) {
        words[0] = saturated_word(s[0] >> BITS, s[1] >> BITS, s[2] >> BITS, s[3] >> BITS);
    }
    static __forceinline__ void values(const Sum (&sums)[PIXELS], float (&values)[PIXELS]) {
        u32 word[WORDS];
        filtered(sums, word);
        // The byte is the lowest of 2^23 as a float.
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) values[i] = __uint_as_float(__byte_perm(word[0], 0x4b000000, 0x7540 | i)) - 8388608.0f;
    }
};

// Floats, of bytes.
struct WeightedFloats {
    typedef float Sum;
    typedef float Parts;
    static constexpr Sum BEGIN = 0.0f;
    static constexpr u32 WORDS = PIXELS;

    static __forceinline__ Parts open(Sum sum) { return sum; }
    static __forceinline__ Sum close(Parts parts) { return parts; }
    static __forceinline__ void add(Parts& sum, u32 weight, float factor) { sum = sum + __uint_as_float(weight) * factor; }
    static __forceinline__ void add_pixels(Parts& sum, u32 bytes, uint4 weights) {
        add(sum, weights.x, small_float(byte_of(bytes, 0)));
        add(sum, weights.y, small_float(byte_of(bytes, 1)));
        add(sum, weights.z, small_float(byte_of(bytes, 2)));
        add(sum, weights.w, small_float(byte_of(bytes, 3)));
    }
    static __forceinline__ void add_rows(Parts& sum, const u32 (&words)[WORDS], uint4 weights) {
        add(sum, weights.x, __uint_as_float(words[0]));
        add(sum, weights.y, __uint_as_float(words[1]));
        add(sum, weights.z, __uint_as_float(words[2]));
        add(sum, weights.w, __uint_as_float(words[3]));
    }
    static __forceinline__ void filtered(const Sum (&sums)[PIXELS], u32 (&words)[WORDS]) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) words[i] = __float_as_uint(sums[i]);
    }
    static __forceinline__ void values(const Sum (&sums)[PIXELS], float (&values)[PIXELS]) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) values[i] = sums[i];
    }
};

struct Positions {
    u32 positions[PIXELS];

    __forceinline__ u32 position(u32 i) const { return positions[i]; }
};

// How pixels are converted, in registers: the compiler would read it again after every store in shared memory.
struct Conversion {
    Colour colour;
    bool luma;
    u32 coefficients[6];
    // What is added to the products of red, of green and of blue with chroma: chroma is less 128, and half of what becomes 1.
    i32 added[3];

    __forceinline__ Conversion(const Frame& frame, bool luma) : colour(frame.colour), luma(luma) {
#pragma unroll
        for (u32 i = 0; i < 6; ++i) coefficients[i] = frame.coefficients[i];
        const u32(&k)[6] = coefficients;
        added[0] = (1 << 19) - 128 * i32(k[2]);
        added[1] = (1 << 19) - 128 * (i32(k[3]) + i32(k[4]));
        added[2] = (1 << 19) - 128 * i32(k[5]);
    }
};

// Converts four pixels' components to words of red, of green and of blue. `RUN` says that they are neighbours from an even one on,
// of which two have the same chroma, that of the first.
template <bool RUN>
INLINE void convert_four(const Conversion& how, const u32 (&parts)[3][PIXELS], u32 (&words)[3]) {
    if (how.colour == COLOUR_GREY) {
        words[0] = words[1] = words[2] = saturated_word(i32(parts[0][0]), i32(parts[0][1]), i32(parts[0][2]), i32(parts[0][3]));
        return;
    }
    i32 rgb[3][PIXELS];
    const u32(&k)[6] = how.coefficients;
    if (how.colour == COLOUR_YUV) {
        i32 red = 0, green = 0, blue = 0;
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            if (!RUN || i % 2 == 0) {
                // As Fixed::convert.
                i32 cb = i32(parts[1][i]), cr = i32(parts[2][i]);
                red = i32(k[2]) * cr + how.added[0];
                green = i32(k[4]) * cr + (i32(k[3]) * cb + how.added[1]);
                blue = i32(k[5]) * cb + how.added[2];
            }
            i32 y = max(i32(parts[0][i]) - i32(k[0]), 0);
            rgb[0][i] = (y * i32(k[1]) + red) >> 20;
            rgb[1][i] = (y * i32(k[1]) + green) >> 20;
            rgb[2][i] = (y * i32(k[1]) + blue) >> 20;
        }
    } else if (how.colour == COLOUR_YUV_TRUNCATED) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 chroma = RUN ? i & ~1u : i;
            i32 pixel[3];
            Fixed::convert_truncated(k, parts[0][i] | parts[1][chroma] << 8 | parts[2][chroma] << 16, pixel);
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) rgb[channel][i] = pixel[channel];
        }
    } else {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) rgb[channel][i] = i32(parts[channel][i]);
        }
    }
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
        words[channel] = saturated_word(rgb[channel][0], rgb[channel][1], rgb[channel][2], rgb[channel][3]);
    }
    if (!how.luma) return;
    i32 luma[PIXELS];
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        i32 pixel[3] = {i32(byte_of(words[0], i)), i32(byte_of(words[1], i)), i32(byte_of(words[2], i))};
        luma[i] = Fixed::luma(pixel);
    }
    words[0] = saturated_word(luma[0], luma[1], luma[2], luma[3]);
}

// Reads four pixels that are not neighbours, or not all of the frame: one at a time if it is a mosaic.
INLINE void read_apart(const Frame& frame, const Conversion& how, u32 pad, i32 x, u32 y, u32 (&words)[3]) {
    Positions taps;
    u32 padded = 0;
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        i32 at = min(max(x + i32(i), frame.reach[0]), frame.reach[1]);
        bool inside = u32(at) < frame.width;
        padded |= inside ? 0 : 0xffu << (8 * i);
        taps.positions[i] = inside ? (u32(at) ^ frame.mirror) + frame.mirror_from : 0;
    }
    u32 parts[3][PIXELS] = {};
    if (frame.source == SOURCE_MOSAIC) {
#pragma unroll 1
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 at = taps.positions[0];
#pragma unroll
            for (u32 k = 1; k < PIXELS; ++k) at = i == k ? taps.positions[k] : at;
            Channels<Fixed> pixel = demosaic<Fixed>(frame, at, y);
#pragma unroll
            for (u32 k = 0; k < PIXELS; ++k) {
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) {
                    parts[channel][k] = i == k ? u32(pixel.rgb[channel]) : parts[channel][k];
                }
            }
        }
    } else {
        u32 pixels[PIXELS];
        fetch(frame, y, taps, pixels);
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
#pragma unroll
            for (u32 channel = 0; channel < 3; ++channel) parts[channel][i] = byte_of(pixels[i], channel);
        }
    }
    convert_four<false>(how, parts, words);
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) words[channel] = (words[channel] & ~padded) | (pad & padded);
}

// Four neighbours from a column that is a multiple of 4 on, in some rows. `read_row` returns what `convert` takes.
struct PackedRun {
    // Two words of packed 4:2:2.
    typedef uint2 Raw;
    u64 column;
    u32 pitch_bytes, selectors[4];

    __forceinline__ PackedRun(const Frame& frame, u32 x) : pitch_bytes(frame.components[0].pitch_bytes) {
        column = frame.components[0].address + 2ull * x;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) selectors[i] = frame.part_selectors[i];
    }
    __forceinline__ Raw read_row(u32 y) const {
        u64 at = column + u64(y) * pitch_bytes;
        return make_uint2(read<u32>(at), read<u32>(at + 4));
    }
    __forceinline__ void convert(const Conversion& how, const Raw& raw, u32 (&words)[3]) const {
        u32 parts[3][PIXELS];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            u32 word = i < 2 ? raw.x : raw.y;
            parts[0][i] = selected_byte(word, selectors[i % 2]);
            parts[1][i] = selected_byte(word, selectors[2]);
            parts[2][i] = selected_byte(word, selectors[3]);
        }
        convert_four<true>(how, parts, words);
    }
};

struct SemiplanarRun {
    struct Raw {
        u32 luma[PIXELS], chroma[PIXELS / 2];
    };
    u64 column, chroma_column;
    u32 pitch_bytes, chroma_pitch_bytes, y_shift, selectors[2];

    __forceinline__ SemiplanarRun(const Frame& frame, u32 x) {
        const Component &first = frame.components[0], &second = frame.components[1];
        column = first.address + x, chroma_column = second.address + x;
        pitch_bytes = first.pitch_bytes, chroma_pitch_bytes = second.pitch_bytes, y_shift = second.y_shift;
        selectors[0] = frame.part_selectors[2], selectors[1] = frame.part_selectors[3];
    }
    __forceinline__ Raw read_row(u32 y) const {
        u64 at = column + u64(y) * pitch_bytes, chroma = chroma_column + u64(y >> y_shift) * chroma_pitch_bytes;
        return {{read<u8>(at), read<u8>(at + 1), read<u8>(at + 2), read<u8>(at + 3)},
                {read<u16>(chroma), read<u16>(chroma + 2)}};
    }
    __forceinline__ void convert(const Conversion& how, const Raw& raw, u32 (&words)[3]) const {
        u32 parts[3][PIXELS];
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) {
            parts[0][i] = raw.luma[i];
            parts[1][i] = selected_byte(raw.chroma[i / 2], selectors[0]);
            parts[2][i] = selected_byte(raw.chroma[i / 2], selectors[1]);
        }
        convert_four<true>(how, parts, words);
    }
};

struct BytesRun {
    struct Raw {
        u32 parts[3][PIXELS];
    };
    const Frame& frame;
    u32 x;

    __forceinline__ BytesRun(const Frame& frame, u32 x) : frame(frame), x(x) {}
    __forceinline__ Raw read_row(u32 y) const {
        Raw raw = {};
#pragma unroll
        for (u32 part = 0; part < 3; ++part) {
            if (part > 0 && frame.colour == COLOUR_GREY) break;
            const Component& component = frame.components[part];
            u64 at = row_of(component, y) + offset_of(component, x);
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
                raw.parts[part][i] = read<u8>(at + (i >> component.x_shift) * component.step_bytes);
            }
        }
        return raw;
    }
    __forceinline__ void convert(const Conversion& how, const Raw& raw, u32 (&words)[3]) const {
        convert_four<true>(how, raw.parts, words);
    }
};

// Which of the staged fours a thread reads: the first row, rows from one to the next, and the four.
struct Share {
    u32 row, step, four;
};

// Stages the thread's share of `rows` rows from row `y` on. The next is read before one is converted.
template <class Run>
INLINE void stage_run(const Conversion& how, const Share& share, const Run& run, u32 y, u32 rows) {
    u32 at = share.row * STAGED_FOURS + share.four, end = rows * STAGED_FOURS, step = share.step * STAGED_FOURS;
    y += share.row;
    if (at >= end) return;
    typename Run::Raw next = run.read_row(y);
#pragma unroll 1
    while (at < end) {
        typename Run::Raw raw = next;
        u32 words[3], here = at;
        at += step;
        y += share.step;
        if (at < end) next = run.read_row(y);
        run.convert(how, raw, words);
        staged[here] = make_uint4(words[0], words[1], words[2], 0);
    }
}

// The rows of the frame for a tile: how many are listed and where, and the first of them if each is the one after the one before,
// or PAD.
struct ListedRows {
    u32 count, first;
    u64 list;
};

// Stages the thread's share of `rows` rows from the `done`th listed one on: the four pixels from column `x` on.
INLINE void stage(const Job& job, const Frame& frame, const Share& share, i32 x, const ListedRows& listed, u32 done, u32 rows) {
    Conversion how(frame, job.luma);
    // The first and the last column where neighbours can be read together.
    i32 low = max(frame.reach[0], 0), high = min(frame.reach[1] + 1, i32(frame.width)) - i32(PIXELS);
    if (listed.first != PAD && x >= low && x <= high) {
        u32 y = listed.first + done;
        if (frame.source == SOURCE_WORDS && frame.components[0].x_shift != 0) {
            return stage_run(how, share, PackedRun(frame, u32(x)), y, rows);
        }
        if (frame.source == SOURCE_SEMIPLANAR) return stage_run(how, share, SemiplanarRun(frame, u32(x)), y, rows);
        if (frame.source == SOURCE_BYTES) return stage_run(how, share, BytesRun(frame, u32(x)), y, rows);
    }
    u32 pad = u32(pad_byte(job)) * 0x01010101;
#pragma unroll 1
    for (u32 row = share.row; row < rows; row += share.step) {
        u32 y = read<u32>(listed.list + 4ull * (done + row));
        u32 words[3] = {pad, pad, pad};
        if (y != PAD) read_apart(frame, how, pad, x, y, words);
        staged[row * STAGED_FOURS + share.four] = make_uint4(words[0], words[1], words[2], 0);
    }
}

// The taps of a thread's column that are staged, in fours: the weights of the first of all its taps, and where that would be.
struct StagedTaps {
    u64 weights;
    u32 stride_bytes;
    i32 at, begin, end;
};

// Adds one four of each of four staged rows.
template <class T>
INLINE void add_four(u64 weights, const uint4* pixels, typename T::Parts (&sums)[3][PIXELS]) {
    uint4 four = read<uint4>(weights);
#pragma unroll
    for (u32 i = 0; i < PIXELS; ++i) {
        uint4 words = pixels[i * STAGED_FOURS];
        T::add_pixels(sums[0][i], words.x, four);
        T::add_pixels(sums[1][i], words.y, four);
        T::add_pixels(sums[2][i], words.z, four);
    }
}

// Filters four staged rows from `row` on along the columns' taps, to `parts`. `first` and `last` say whether these are the first
// and the last taps; between them the sums are at `parts`.
template <class T>
INLINE void filter_columns(const StagedTaps& taps, u32 row, u32* parts, bool first, bool last) {
    typedef typename T::Sum Sum;
    typename T::Parts sums[3][PIXELS];
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) sums[channel][i] = T::open(T::BEGIN);
    }
    i32 left = taps.end - taps.begin;
    u64 weights = taps.weights + u64(u32(taps.begin)) * taps.stride_bytes;
    const uint4* pixels = staged + row * STAGED_FOURS + taps.at + taps.begin;
    if (first && last) {
        // The first taps are added to a constant, which takes no instruction of its own.
        add_four<T>(weights, pixels, sums);
        weights += taps.stride_bytes;
        ++pixels;
        --left;
    } else if (!first) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) {
                Sum sum;
                from_bits(parts[(i * 3 + channel) * TILE_COLUMNS], sum);
                sums[channel][i] = T::open(sum);
            }
        }
    }
#pragma unroll 1
    for (; left > 0; --left) {
        add_four<T>(weights, pixels, sums);
        weights += taps.stride_bytes;
        ++pixels;
    }
    Sum closed[3][PIXELS];
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) closed[channel][i] = T::close(sums[channel][i]);
    }
    if (last) {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            u32 words[T::WORDS];
            T::filtered(closed[channel], words);
#pragma unroll
            for (u32 i = 0; i < T::WORDS; ++i) parts[(i * 3 + channel) * TILE_COLUMNS] = words[i];
        }
    } else {
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) parts[(i * 3 + channel) * TILE_COLUMNS] = to_bits(closed[channel][i]);
        }
    }
}

// Adds `fours` times four filtered rows, from those at `parts` on, to four columns of a row of the tensor.
template <class T>
INLINE void add_rows(const u32* parts, u32 spacing, u64 weights, u32 fours, typename T::Sum (&sums)[3][PIXELS]) {
    typename T::Parts open[3][PIXELS];
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) open[channel][i] = T::open(sums[channel][i]);
    }
#pragma unroll 1
    for (; fours > 0; --fours) {
        uint4 four = read<uint4>(weights);
#pragma unroll
        for (u32 channel = 0; channel < 3; ++channel) {
            u32 words[PIXELS][T::WORDS];
#pragma unroll
            for (u32 i = 0; i < T::WORDS; ++i) {
                uint4 columns = *reinterpret_cast<const uint4*>(parts + (i * 3 + channel) * TILE_COLUMNS);
                words[0][i] = columns.x, words[1][i] = columns.y, words[2][i] = columns.z, words[3][i] = columns.w;
            }
#pragma unroll
            for (u32 i = 0; i < PIXELS; ++i) T::add_rows(open[channel][i], words[i], four);
        }
        weights += 16 * TILE_ROWS;
        parts += spacing;
    }
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) sums[channel][i] = T::close(open[channel][i]);
    }
}

// Filters rows of the frame for a tile: `rows` from the `done`th listed one on, four of them `spacing` words after four others.
// Afterwards all of `filtered` can be read.
template <class T>
INLINE void filter_rows(const Job& job, const Frame& frame, u32 tile_column, const ListedRows& listed, u32 done, u32 rows,
                        u32 spacing) {
    const Axis& columns = frame.columns;
    u64 needed = columns.entries + 4ull * columns.stride * (1 + PIXELS * columns.taps) + 8ull * tile_column;
    i32 low = read<i32>(needed);
    u32 fours = read<u32>(needed + 4);
    u32 at_once = min(fours, STAGED_FOURS), row = threadIdx.x / at_once, step = TILE_THREADS / at_once;
    Share share = {row < step ? row : STAGED_ROWS, step, threadIdx.x - row * at_once};
    u32 column = min(tile_column * TILE_COLUMNS + threadIdx.x % WARP, columns.stride - 1);
    i32 first = (read<i32>(columns.entries + 4ull * column) - low) / i32(PIXELS), taps_end = i32(columns.taps);
    u32 stride_bytes = 16 * columns.stride;
    u64 weights = columns.entries + 4ull * columns.stride + 16ull * column;
    u32* to = filtered + threadIdx.x % WARP;
#pragma unroll 1
    for (u32 staging = 0; staging < rows; staging += STAGED_ROWS) {
        u32 count = min(rows - staging, STAGED_ROWS);
#pragma unroll 1
        for (u32 from = 0; from < fours; from += STAGED_FOURS) {
            u32 part = min(fours - from, STAGED_FOURS);
            if (share.four < part) stage(job, frame, share, low + i32((from + share.four) * PIXELS), listed, done + staging, count);
            __syncthreads();
            i32 at = first - i32(from);
            StagedTaps taps = {weights, stride_bytes, at, max(0, -at), min(taps_end, i32(part) - at)};
#pragma unroll 1
            for (u32 row = threadIdx.x / WARP * PIXELS; row < count; row += TILE_THREADS / WARP * PIXELS) {
                filter_columns<T>(taps, row, to + row / PIXELS * spacing, from == 0, from + part == fours);
            }
            __syncthreads();
        }
        to += STAGED_ROWS / PIXELS * spacing;
    }
}

// Computes the thread's pixels, 0 to 255: four of a row of the tile. Anything where the tile is padding.
template <class T>
INLINE void sample_tile(const Job& job, const Frame& frame, u32 tile_column, u32 tile_row, float (&values)[3][PIXELS]) {
    typedef typename T::Sum Sum;
    const Axis& rows = frame.rows;
    u64 table = rows.entries + 4ull * tile_row * frame.listed_words;
    ListedRows listed = {read<u32>(table), read<u32>(table + 4), table + 4 * (4 + 2 * TILE_ROWS)};
    u32 line = threadIdx.x / (TILE_COLUMNS / PIXELS), left = threadIdx.x % (TILE_COLUMNS / PIXELS) * PIXELS;
    Sum sums[3][PIXELS];
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) {
#pragma unroll
        for (u32 i = 0; i < PIXELS; ++i) sums[channel][i] = T::BEGIN;
    }
    // From four filtered rows to the next; if the columns' taps are staged in parts, there is room for the sums of each row.
    u32 spacing = (frame.tile_fours <= STAGED_FOURS ? T::WORDS : PIXELS) * 3 * TILE_COLUMNS;
    u32 at_once = FILTERED_WORDS / spacing * PIXELS;
#pragma unroll 1
    for (u32 done = 0; done < listed.count; done += at_once) {
        u32 count = min(listed.count - done, at_once);
        filter_rows<T>(job, frame, tile_column, listed, done, count, spacing);
        u32 before = done / PIXELS;
        u32 k = max(read<u32>(table + 4 * (4 + line)), before);
        u32 end = min(read<u32>(table + 4 * (4 + TILE_ROWS + line)), before + (count + PIXELS - 1) / PIXELS);
        if (k < end) {
            u32 most = (frame.listed_words - 4 - 2 * TILE_ROWS) / (1 + TILE_ROWS);
            u64 weights = listed.list + 4ull * most + 16ull * (TILE_ROWS * k + line);
            add_rows<T>(filtered + (k - before) * spacing + left, spacing, weights, end - k, sums);
        }
        if (done + at_once < listed.count) __syncthreads();
    }
#pragma unroll
    for (u32 channel = 0; channel < 3; ++channel) T::values(sums[channel], values[channel]);
}

template <class T>
INLINE void preprocess_tile(const Job& job) {
    const Frame& frame = described_frame(job);
    u32 tiles = (job.width + TILE_COLUMNS - 1) / TILE_COLUMNS;
    u32 tile_row = blockIdx.x / tiles, tile_column = blockIdx.x - tile_row * tiles;
    u32 left = tile_column * TILE_COLUMNS, top = tile_row * TILE_ROWS;
    u32 x = left + threadIdx.x % (TILE_COLUMNS / PIXELS) * PIXELS, y = top + threadIdx.x / (TILE_COLUMNS / PIXELS);
    float values[3][PIXELS];
    bool any = left < frame.placed_x + frame.placed_width && left + TILE_COLUMNS > frame.placed_x &&
               top < frame.placed_y + frame.placed_height && top + TILE_ROWS > frame.placed_y;
    if (any) sample_tile<T>(job, frame, tile_column, tile_row, values);
    if (any && has_picture(frame, x, y)) {
        normalise(job, frame, x, values);
    } else {
        pad(job, values);
    }
    if (x < job.width && y < job.height) store(job, blockIdx.y, x, y, values);
}
