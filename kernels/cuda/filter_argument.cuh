// The input and the output of the candidate filter; kernels/src/filter/launch.rs has the same structs in Rust.
#pragma once
#include "types.cuh"

#define TABLES 12
#define OBJECTNESS 1u
#define VALID_ROWS 2u

enum Number { F32, F16, U8, I8, I32, I64, BOOLEAN };
enum Score { PLAIN_SCORE, SIGMOID, SOFTMAX };
enum Choice { BEST_RAW, BEST_SCORE, EVERY };
enum Label { PLAIN_LABEL, FROM_ONE, BELOW };
enum Box { PLAIN_BOX, DISTANCES, CELL_EXP, ANCHOR, PEAK, FACE, SIDES, CELL_SIDES, ANCHOR_EXP, ANCHOR_SQUARE };
enum Corners { XYXY, YXYX, CXCYWH, XYWH };
enum Point { PLAIN_POINT, ANCHOR_POINT, FACE_POINT, CELL_POINT };

// Rows and columns of numbers in one output; distances in elements.
struct Values {
    u64 address;  // 0 if there are none.
    u32 dtype;
    u32 offset;
    u32 row_step;
    u32 column_step;
    u32 frame_len;
    u32 unused;
};

// Here and in Filter, the fields that every block needs come first: the GPU fetches a launch's argument 64 bytes at a time, and
// most blocks read nothing else of it.
struct Table {
    u32 first_row;
    u32 rows;
    Values scores;
    u32 columns;  // The grid's.
    u32 lines;
    u32 rows_per_cell;
    float stride;
    float offset;
    u32 has;  // Bits: OBJECTNESS, VALID_ROWS.
    Values objectness;
    Values labels;
    Values valid_rows;
    Values boxes;
    Values offsets;
    Values points;
    float anchor_width;
    float anchor_height;
    float centre_scale;
    u32 unused[13];
};

struct Filter {
    u32 first_block[TABLES];
    u32 table_count;
    u32 lanes;
    u32 turned;  // Whether the numbers of a column, not of a row, are adjacent.
    u32 first_class;
    u32 end_class;
    u32 score_code;
    u32 choice;
    float threshold;
    float floor;
    u32 score_columns;
    u64 state;        // For each frame the candidates so far and, from bit 32 on, the finished blocks; 0 between launches.
    u64 results;      // For each frame the count, padded to 16 bytes; `capacity` records; their points.
    u64 frame_bytes;  // The distance between the results of two frames.
    u32 capacity;
    u32 peaks;
    u32 class_row_step;
    u32 label_code;
    u32 label_limit;
    u32 box_code;
    u32 corners;
    u32 bins;
    u32 point_count;
    u32 point_code;
    u32 point_values;  // Numbers per point.
    float scale_x;
    float scale_y;
    float point_scale_x;
    float point_scale_y;
    float input_width;
    float input_height;
    u32 unused[3];
    Table tables[TABLES];
};
static_assert(sizeof(Table) == 320 && sizeof(Filter) == 192 + TABLES * 320, "as filter/launch.rs says");

struct alignas(16) Record {
    float box[4];
    float score;
    u32 class_id;
    u32 row;
    float label;
};
