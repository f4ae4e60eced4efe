// The kernel's arguments. kernels/src/preprocess/cuda/job.rs has the same structs, field by field.
#pragma once
#include "types.cuh"

// How a pixel's three components (Y Cb Cr, or R G B) are read.
enum Source : u32 {
    // From one aligned 32-bit word: packed 4:2:2, RGBA, BGRA.
    SOURCE_WORDS,
    // From a byte of luma and two aligned bytes of chroma: NV12, NV21, NV16, NV61.
    SOURCE_SEMIPLANAR,
    // From one byte each: all other formats, and any that is not aligned.
    SOURCE_BYTES,
    // From the samples around the pixel.
    SOURCE_MOSAIC,
    // From both bytes of a grey sample, which becomes one: grey10, grey12, grey16.
    SOURCE_LEVELS,
};

// The last is YUV that becomes RGB as in ffmpeg: see Fixed::convert_truncated.
enum Colour : u32 { COLOUR_YUV, COLOUR_RGB, COLOUR_GREY, COLOUR_YUV_TRUNCATED };

// A tensor of i32 is stored as f32 first: see round_tensor.
enum DType : u32 { DTYPE_F32, DTYPE_F16, DTYPE_U8, DTYPE_I8 };

// One component, whose rows are columns of the camera's frame if the picture is transposed; then all sizes and positions are of the
// transposed frame. That of pixel (x, y) is at address + (y >> y_shift) * pitch_bytes + (x >> x_shift) * step_bytes.
struct Component {
    u64 address;
    u32 pitch_bytes;
    u32 step_bytes;
    u32 x_shift;
    u32 y_shift;
};

// The source pixels that contribute to each column or row of the tensor: `stride` entries for the lower taps, then `stride` for
// the upper ones. An entry is a position, with OpenCV's weight from bit 16 on: 0 to 2048 of its resize, 0 to 32 of its warps, which
// have none for padding. For exact sampling the weights follow as floats, in the same order. Samplings with any number of taps have as many times `stride` positions, or PAD, and then as
// many weights, integers or floats; preprocess_tiles.cuh has the tables of those whose taps grow with the frame.
struct Axis {
    u64 entries;
    u32 stride;
    // 1 if no upper tap has a weight, else 2; or any number; of tiles the fours of a column.
    u32 taps;
};

// The position of a pixel of padding.
constexpr u32 PAD = 0xffffffff;

// How samplings with any number of taps add pixels: see preprocess_taps.cuh.
enum Arithmetic : u32 { ARITHMETIC_PILLOW, ARITHMETIC_LINEAR, ARITHMETIC_BYTES, ARITHMETIC_FLOATS };

// How a sum of floats becomes a value.
enum Finish : u32 { FINISH_NONE, FINISH_HALF_EVEN, FINISH_HALF_UP };

struct Frame {
    Component components[3];
    Axis columns;
    Axis rows;
    // The position of the picture in the tensor.
    u32 placed_x, placed_y, placed_width, placed_height;
    Source source;
    Colour colour;
    // The selectors of __byte_perm that put the components in order, for even and for odd columns.
    u32 selectors[2];
    // The selectors of __byte_perm for one component alone of SOURCE_WORDS or of chroma of SOURCE_SEMIPLANAR: the first of even and
    // of odd columns, the second, the third.
    u32 part_selectors[4];
    // For the conversion of YUV or grey to RGB: see Fixed::convert, Fixed::convert_truncated, Exact::convert and
    // Exact::grey. Grey of more than 8 bits has the gain and the bias of its samples in the last two: see `level`.
    u32 coefficients[8];
    // For mosaics: size in pixels, column and row of the first red pixel, 255 / white, bytes per sample (0 means 2, not aligned).
    u32 width, height;
    u32 red_x, red_y;
    float sample_gain;
    u32 sample_bytes;
    // For samplings with any number of taps: the arithmetic, and what becomes of sums of floats.
    Arithmetic arithmetic;
    Finish finish;
    float factor;
    // For tiles: the columns that taps may reach, beyond which the edge is repeated (those outside of the frame are padding), the
    // words of a row of tiles in the rows' table, and the most fours that the columns of a tile need.
    i32 reach[2];
    u32 listed_words;
    u32 tile_fours;
    // For tiles, whose columns' table counts columns of the picture: all bits and the width if it is mirrored, else 0 and 0.
    u32 mirror, mirror_from;
};

// The tables of a frame that are new to the GPU, in blocks of 16 bytes; none if it has them.
struct TableCopy {
    u64 from, to, fours;
};

struct Job {
    u64 out;
    u64 frames;
    u32 width, height;
    // Groups of PIXELS pixels per row, and 2^32 - 1 divided by that.
    u32 groups;
    u32 groups_reciprocal;
    DType dtype;
    u32 planar;
    u32 channels;
    // Whether blue is first.
    u32 reversed;
    // Whether there is one channel, of luma.
    u32 luma;
    // Whether a group can be stored at once: the width is a multiple of PIXELS, and `out` of 16.
    u32 aligned;
    // For each channel of the tensor: value * gain + bias; the padding after that.
    float gain[3], bias[3], pad[3];
    // The padding before that, 0 to 255.
    float pad_level;
};

static_assert(sizeof(Component) == 24 && sizeof(Axis) == 16 && sizeof(Frame) == 248 && sizeof(Job) == 96 && sizeof(TableCopy) == 24, "see job.rs");

// The adjacent pixels of the tensor that one thread computes.
constexpr u32 PIXELS = 4;
