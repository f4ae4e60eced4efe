// The input of the masks' kernel; kernels/src/mask/launch.rs has the same structs in Rust.
#pragma once
#include "filter_argument.cuh"

// `MaskAxis` of mask/spec.rs.
struct MaskAxis {
    u32 cells;
    u32 first;
    u32 count;
    float step;
    float origin;
};

struct Masks {
    Values planes;
    Values coefficients;
    u32 channels;   // How many planes are added, each times its coefficient.
    u32 own_plane;  // 1: a mask is the plane with the number of its row, without coefficients.
    float threshold;
    u32 width;   // Cells of a plane's line.
    u32 factor;  // Of the refinement: 1, 2 or 4.
    u32 slot;    // Which frame of the outputs.
    MaskAxis x;
    MaskAxis y;
    u64 pieces;  // One for each block.
    u64 bits;    // The words of all masks.
};
static_assert(sizeof(MaskAxis) == 20 && sizeof(Masks) == 144, "as mask/launch.rs says");

// Consecutive words of a mask: what a block makes.
struct alignas(16) Piece {
    u32 row;  // Of the candidate.
    u32 left;
    u32 top;
    u32 width;  // Of the mask, in pixels.
    u32 first;  // The first word, from the start of the mask.
    u32 count;
    u32 out;  // Where it goes, from the start of all bits.
    u32 unused;
};
static_assert(sizeof(Piece) == 32, "as mask/launch.rs says");
