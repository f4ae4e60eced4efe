// A candidate's class, box and points.
#pragma once
#include "filter_numbers.cuh"

// A candidate that a block works on.
struct Candidate {
    u32 row;     // Within its table.
    u32 class_id;
    u32 slot;  // Its position among the block's results; NONE if it is dropped.
    float score;
    float numbers[4];
    float box[4];
};

// Returns the class for a model's label; NONE for the background or an invalid label.
INLINE u32 class_of(const Filter& f, float label) {
    if (!(label >= -0.5f && label < 16777216.0f)) return NONE;
    float nearest = roundf(label);
    u32 class_id = nearest > 0.0f ? (u32)nearest : 0;
    if (f.label_code == FROM_ONE) return class_id == 0 ? NONE : class_id - 1;
    if (f.label_code == BELOW) return class_id < f.label_limit ? class_id : NONE;
    return class_id;
}

// Returns whether a row that the model has chosen has a score that is no number, or a label that is no class. Heads check the same.
INLINE bool is_odd(const Filter& f, const Table& t, u32 frame, u32 row, bool passes) {
    if ((t.has & VALID_ROWS) != 0 && !((float)row < number(t.valid_rows, frame, 0, 0))) return false;
    float score = number(t.scores, frame, row, f.first_class);
    float label = number(t.labels, frame, row, 0);
    float off = label - truncf(label);
    if (off < 0.0f) off = -off;
    bool is_class = label >= -0.5f && label < 16777216.0f;
    return score != score || (off > 0.01f && off < 0.99f) || (passes && score > 0.0f && !is_class);
}

// Returns number `k` of the four that a box is made from. Not for DISTANCES.
INLINE float box_number(const Filter& f, const Table& t, u32 frame, u32 row, u32 k) {
    if (k >= 2 && (f.box_code == PEAK || f.box_code == FACE)) {
        return t.offsets.address == 0 ? 0.5f : number(t.offsets, frame, row, k - 2);
    }
    float value = number(t.boxes, frame, row, k);
    if (f.box_code == PEAK || f.box_code == CELL_SIDES) return value * t.stride;
    if (f.box_code == FACE) return exponential(value) * t.stride;
    if (f.box_code == CELL_EXP) {
        u32 cell = row / t.rows_per_cell;
        if (k == 0) return (value + (float)(cell % t.columns)) * t.stride;
        if (k == 1) return (value + (float)(cell / t.columns)) * t.stride;
        return exponential(value) * t.stride;
    }
    if (f.box_code == ANCHOR_EXP || f.box_code == ANCHOR_SQUARE) {
        if (k >= 2) {
            float anchor = k == 2 ? t.anchor_width : t.anchor_height;
            if (f.box_code == ANCHOR_EXP) return exponential(value) * anchor;
            float twice = 2.0f * sigmoid(value);
            return twice * twice * anchor;
        }
        u32 cell = row / t.rows_per_cell;
        float place = (float)(k == 0 ? cell % t.columns : cell / t.columns);
        float side = k == 0 ? f.input_width / (float)t.columns : f.input_height / (float)t.lines;
        return (place + sigmoid(value) * t.centre_scale - (t.centre_scale - 1.0f) / 2.0f) * side;
    }
    return value;
}

// Returns the middle of a row's cell in pixels of the input.
INLINE float middle_x(const Filter& f, const Table& t, u32 row) {
    return ((float)(row / t.rows_per_cell % t.columns) + 0.5f) / (float)t.columns * f.input_width;
}

INLINE float middle_y(const Filter& f, const Table& t, u32 row) {
    return ((float)(row / t.rows_per_cell / t.columns) + 0.5f) / (float)t.lines * f.input_height;
}

// Computes the corners from the numbers. Returns whether the box and its score are valid.
INLINE bool make_box(const Filter& f, const Table& t, Candidate& c) {
    float n0 = c.numbers[0], n1 = c.numbers[1], n2 = c.numbers[2], n3 = c.numbers[3];
    u32 cell = c.row / t.rows_per_cell;
    float column = (float)(cell % t.columns), line = (float)(cell / t.columns);
    u32 corners = f.box_code == PLAIN_BOX ? f.corners : CXCYWH;
    if (f.box_code == DISTANCES || f.box_code == SIDES || f.box_code == CELL_SIDES) {
        float x = (column + t.offset) * t.stride, y = (line + t.offset) * t.stride;
        n0 = x - n0;
        n1 = y - n1;
        n2 = x + n2;
        n3 = y + n3;
        corners = XYXY;
    } else if (f.box_code == ANCHOR) {
        // A size below 0 is invalid; NaN makes a box that is not finite.
        if (n2 < 0.0f || n3 < 0.0f) return false;
        n0 = middle_x(f, t, c.row) + n0;
        n1 = middle_y(f, t, c.row) + n1;
    } else if (f.box_code == PEAK) {
        float width = n0, height = n1;
        n0 = (column + n2) * t.stride;
        n1 = (line + n3) * t.stride;
        n2 = width;
        n3 = height;
    } else if (f.box_code == FACE) {
        float height = n0, width = n1;
        n0 = fminf(fmaxf((column + n3 + 0.5f) * t.stride - width / 2.0f, 0.0f), f.input_width);
        n1 = fminf(fmaxf((line + n2 + 0.5f) * t.stride - height / 2.0f, 0.0f), f.input_height);
        n2 = fminf(n0 + width, f.input_width);
        n3 = fminf(n1 + height, f.input_height);
        corners = XYXY;
    }
    float x1 = n0, y1 = n1, x2 = n2, y2 = n3;
    if (corners == YXYX) {
        x1 = n1;
        y1 = n0;
        x2 = n3;
        y2 = n2;
    } else if (corners == CXCYWH) {
        x1 = n0 - n2 / 2.0f;
        y1 = n1 - n3 / 2.0f;
        x2 = n0 + n2 / 2.0f;
        y2 = n1 + n3 / 2.0f;
    } else if (corners == XYWH) {
        x2 = n0 + n2;
        y2 = n1 + n3;
    }
    c.box[0] = x1 * f.scale_x;
    c.box[1] = y1 * f.scale_y;
    c.box[2] = x2 * f.scale_x;
    c.box[3] = y2 * f.scale_y;
    return is_finite(c.score) && is_finite(c.box[0]) && is_finite(c.box[1]) && is_finite(c.box[2]) && is_finite(c.box[3]);
}

// Returns number `k` of a candidate's points.
INLINE float point_number(const Filter& f, const Table& t, u32 frame, const Candidate& c, u32 k) {
    u32 axis = k % f.point_values;
    // A face has y before x.
    float value = number(t.points, frame, c.row, f.point_code == FACE_POINT ? k ^ 1 : k);
    if (f.point_code == FACE_POINT) return axis == 0 ? value * c.numbers[1] + c.box[0] : value * c.numbers[0] + c.box[1];
    if (f.point_code == ANCHOR_POINT) return (axis == 0 ? middle_x(f, t, c.row) : middle_y(f, t, c.row)) + value;
    if (f.point_code == CELL_POINT) {
        u32 cell = c.row / t.rows_per_cell;
        float place = (float)(axis == 0 ? cell % t.columns : cell / t.columns);
        return (place + t.offset) * t.stride + value * t.stride;
    }
    return axis == 0 ? value * f.point_scale_x : axis == 1 ? value * f.point_scale_y : value;
}
