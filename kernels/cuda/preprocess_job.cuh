// What the host tells the kernel. kernels/src/preprocess/cuda/job.rs has the same structs, field by field.
#pragma once
#include "types.cuh"

// Where a pixel's three components (Y Cb Cr, or R G B) are read.
enum Source : u32 {
    // From one aligned 32-bit word: packed 4:2:2, RGBA, BGRA.
    SOURCE_WORDS,
    // From a byte of luma and two aligned bytes of chroma: NV12, NV21, NV16, NV61.
    SOURCE_SEMIPLANAR,
    // From a byte each: everything else, and all that is not aligned.
    SOURCE_BYTES,
    // From the samples around it.
    SOURCE_MOSAIC,
};

enum Colour : u32 { COLOUR_YUV, COLOUR_RGB, COLOUR_GREY };

enum DType : u32 { DTYPE_F32, DTYPE_F16, DTYPE_U8, DTYPE_I8 };

// One component: that of pixel (x, y) stands at address + (y >> y_shift) * pitch_bytes + (x >> x_shift) * step_bytes.
struct Component {
    u64 address;
    u32 pitch_bytes;
    u32 step_bytes;
    u32 x_shift;
    u32 y_shift;
};

// Which source pixels make a pixel of the tensor, for all its columns or rows: `stride` entries for the lower taps, as many
// for the upper ones. An entry is a position, with OpenCV's weight (2048 is all) 16 bits up. For exact sampling as many
// floats follow.
struct Axis {
    u64 entries;
    u32 stride;
    // 1 where upper taps have no weight anywhere.
    u32 taps;
};

struct Frame {
    Component components[3];
    Axis columns;
    Axis rows;
    // Where the picture stands in the tensor.
    u32 placed_x, placed_y, placed_width, placed_height;
    Source source;
    Colour colour;
    // Which bytes of a word are the components, as __byte_perm takes it: of even and of odd columns.
    u32 selectors[2];
    // YUV's or grey's way to RGB: see Fixed::convert and Exact::convert.
    u32 coefficients[8];
    // Of a mosaic: size in pixels, column and row of the first red one, 255 / white, bytes of a sample (0: two, not aligned).
    u32 width, height;
    u32 red_x, red_y;
    float sample_gain;
    u32 sample_bytes;
};

struct Job {
    u64 out;
    u64 frames;
    u32 width, height;
    // Groups of PIXELS pixels in a row.
    u32 groups;
    u32 exact;
    DType dtype;
    u32 planar;
    u32 channels;
    // Blue first.
    u32 reversed;
    // One channel of luma.
    u32 luma;
    // Whole groups may be stored at once: the width is a multiple of PIXELS, and `out` of 16.
    u32 aligned;
    // By the tensor's channels: value * gain + bias; padding as stored.
    float gain[3], bias[3], pad[3];
};

static_assert(sizeof(Component) == 24 && sizeof(Axis) == 16 && sizeof(Frame) == 192 && sizeof(Job) == 96, "see job.rs");

// Adjacent pixels of the tensor that one thread makes.
constexpr u32 PIXELS = 4;
