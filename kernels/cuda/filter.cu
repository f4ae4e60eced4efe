// Of raw outputs, the candidates that pass: thresholds, chooses classes, decodes boxes and points, writes a compact list.
//
// A block takes THREADS / lanes rows of one table, `lanes` threads each; blockIdx.y is the frame. Every thread reads its
// share of a row's scores, the best is found through shared memory, and most blocks end there. Of what passes, boxes and
// points are decoded by as many threads as there are numbers. A block reserves room for all of its candidates at once.
// The last block to finish tells the host how many there are and clears the counters for the next launch, so that a
// launch is all that a frame needs. Candidates and finished blocks of a frame are counted in the two halves of one number:
// its changes are seen in one order by all, so that no fence is needed.
//
// Every branch on `Filter` is the same for the whole launch. Operations and their order are those of the heads in Rust.
#include "types.cuh"

typedef signed char i8;
typedef long long i64;

#ifdef __CUDACC_RTC__
// The value of a half given as bits; cuda/host/filter.cpp has the same for the processor.
INLINE float half_number(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
#endif

#define THREADS 256
#define TABLES 8
#define STAGED 1024
#define TOGETHER 5  // Of 80 classes, what a thread has (see `way_of_reading`).
#define ONE_BLOCK (1ull << 32)
#define NONE 0xffffffffu
#define OBJECTNESS 1u
#define VALID_ROWS 2u

enum Number { F32, F16, U8, I8, I32, I64, BOOLEAN };
enum Score { PLAIN_SCORE, SIGMOID, SOFTMAX };
enum Choice { BEST_RAW, BEST_SCORE, EVERY };
enum Label { PLAIN_LABEL, FROM_ONE, BELOW };
enum Box { PLAIN_BOX, DISTANCES, CELL_EXP, ANCHOR, PEAK, FACE };
enum Corners { XYXY, YXYX, CXCYWH, XYWH };
enum Point { PLAIN_POINT, ANCHOR_POINT, FACE_POINT };

// Rows and columns of numbers in one output; distances in elements.
struct Values {
    u64 address;  // 0 where there are none.
    u32 dtype;
    u32 offset;
    u32 row_step;
    u32 column_step;
    u32 frame_len;
    u32 unused;
};

// What every block needs comes first here and in Filter: a launch's argument is fetched 64 bytes at a time, and most blocks
// read nothing else of it.
struct Table {
    u32 first_row;
    u32 rows;
    Values scores;
    u32 columns;  // Of the grid.
    u32 lines;
    u32 rows_per_cell;
    float stride;
    float offset;
    u32 has;  // OBJECTNESS, VALID_ROWS.
    Values objectness;
    Values labels;
    Values valid_rows;
    Values boxes;
    Values offsets;
    Values points;
};

struct Filter {
    u32 first_block[TABLES];
    u32 table_count;
    u32 lanes;
    u32 turned;  // Whether a column's numbers, not a row's, lie side by side.
    u32 first_class;
    u32 end_class;
    u32 score_code;
    u32 choice;
    float threshold;
    float floor;
    u32 score_columns;
    u64 state;        // Of each frame the candidates so far and, from bit 32 on, the blocks; 0 between launches.
    u64 results;      // Of each frame: the count, padded to 16 bytes; `capacity` records; their points.
    u64 frame_bytes;  // From one frame's results to the next one's.
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
    u32 point_values;  // Numbers of one point.
    float scale_x;
    float scale_y;
    float point_scale_x;
    float point_scale_y;
    float input_width;
    float input_height;
    u32 unused[7];
    Table tables[TABLES];
};
static_assert(sizeof(Table) == 256 && sizeof(Filter) == 192 + TABLES * 256, "as filter/launch.rs says");

struct alignas(16) Record {
    float box[4];
    float score;
    u32 class_id;
    u32 row;
    u32 unused;
};

// A candidate on its way.
struct Candidate {
    u32 row;     // In its table.
    u32 column;  // Of the scores.
    u32 class_id;
    u32 slot;  // Among the block's; NONE for what is left out.
    float score;
    float numbers[4];
    float box[4];
};

// One number of whatever type. Not inlined: it would be most of the code.
__noinline__ float number_at(u64 address, u32 dtype, u64 index) {
    switch (dtype) {
    case F32: return read<float>(address + 4 * index);
    case F16: return half_number(read<u16>(address + 2 * index));
    case U8:
    case BOOLEAN: return (float)read<u8>(address + index);
    case I8: return (float)read<i8>(address + index);
    case I32: return (float)read<i32>(address + 4 * index);
    default: return (float)read<i64>(address + 8 * index);
    }
}

INLINE u64 index_of(const Values& v, u32 frame, u32 row, u32 column) {
    return (u64)frame * v.frame_len + (v.offset + row * v.row_step + column * v.column_step);
}

INLINE float number(const Values& v, u32 frame, u32 row, u32 column) {
    return number_at(v.address, v.dtype, index_of(v, frame, row, column));
}

INLINE float value_of(float raw) { return raw; }
INLINE float value_of(u16 raw) { return half_number(raw); }

// The first of the greatest numbers among every `step`th column; not-a-numbers are passed over.
//
// TOGETHER loads are under way at once, the last of them over again where there are fewer: waiting for memory is most of
// what a block does.
template <typename T>
INLINE void best_of(u64 row, u32 column_step, u32 column, u32 end, u32 step, float& best, u32& best_column) {
#pragma unroll 1
    for (; column < end; column += TOGETHER * step) {
        float values[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            u32 at = column + k * step < end ? column + k * step : end - 1;
            values[k] = value_of(read<T>(row + (u64)(at * column_step) * sizeof(T)));
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            u32 at = column + k * step;
            if (at < end && (values[k] > best || (values[k] == best && best_column == NONE))) {
                best = values[k];
                best_column = at;
            }
        }
    }
}

INLINE float minus_infinity() { return -1e38f * 1e38f; }

INLINE bool is_finite(float value) { return fabsf(value) <= 3.402823466e38f; }

// Not inlined either.
__noinline__ float exponential(float x) { return expf(x); }

INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// The expected bin of a distribution given as logits.
INLINE float expected_bin(const float* logits, u32 bins) {
    float top = minus_infinity();
#pragma unroll 1
    for (u32 bin = 0; bin < bins; ++bin) {
        float logit = logits[bin];
        top = logit > top ? logit : top;
    }
    float sum = 0.0f, weighted = 0.0f;
#pragma unroll 1
    for (u32 bin = 0; bin < bins; ++bin) {
        float weight = exponential(logits[bin] - top);
        sum += weight;
        weighted += weight * (float)bin;
    }
    return weighted / sum;
}

// Whether no neighbour in 3x3 exceeds the cell.
INLINE bool is_peak(const Table& t, u32 frame, u32 cell, u32 column, float value) {
    u32 x = cell % t.columns, y = cell / t.columns;
    u32 left = x == 0 ? 0 : x - 1, right = x + 1 < t.columns ? x + 1 : x;
    u32 top = y == 0 ? 0 : y - 1, bottom = y + 1 < t.lines ? y + 1 : y;
    for (u32 line = top; line <= bottom; ++line) {
#pragma unroll 1
        for (u32 at = left; at <= right; ++at) {
            if (!(number(t.scores, frame, line * t.columns + at, column) <= value)) return false;
        }
    }
    return true;
}

// The class that a network means by a number; NONE where it means none.
INLINE u32 class_of(const Filter& f, float label) {
    if (!(label >= -0.5f && label < 16777216.0f)) return NONE;
    float nearest = roundf(label);
    u32 class_id = nearest > 0.0f ? (u32)nearest : 0;
    if (f.label_code == FROM_ONE) return class_id == 0 ? NONE : class_id - 1;
    if (f.label_code == BELOW) return class_id < f.label_limit ? class_id : NONE;
    return class_id;
}

// Number `k` of what a box is made of; not of DISTANCES.
INLINE float box_number(const Filter& f, const Table& t, u32 frame, u32 row, u32 k) {
    if (k >= 2 && (f.box_code == PEAK || f.box_code == FACE)) {
        return t.offsets.address == 0 ? 0.5f : number(t.offsets, frame, row, k - 2);
    }
    float value = number(t.boxes, frame, row, k);
    if (f.box_code == PEAK) return value * t.stride;
    if (f.box_code == FACE) return exponential(value) * t.stride;
    if (f.box_code == CELL_EXP) {
        u32 cell = row / t.rows_per_cell;
        if (k == 0) return (value + (float)(cell % t.columns)) * t.stride;
        if (k == 1) return (value + (float)(cell / t.columns)) * t.stride;
        return exponential(value) * t.stride;
    }
    return value;
}

// The middle of a row's cell in pixels of the input.
INLINE float middle_x(const Filter& f, const Table& t, u32 row) {
    return ((float)(row / t.rows_per_cell % t.columns) + 0.5f) / (float)t.columns * f.input_width;
}

INLINE float middle_y(const Filter& f, const Table& t, u32 row) {
    return ((float)(row / t.rows_per_cell / t.columns) + 0.5f) / (float)t.lines * f.input_height;
}

// Makes corners of the numbers; says whether it is a box.
INLINE bool make_box(const Filter& f, const Table& t, Candidate& c) {
    float n0 = c.numbers[0], n1 = c.numbers[1], n2 = c.numbers[2], n3 = c.numbers[3];
    u32 cell = c.row / t.rows_per_cell;
    float column = (float)(cell % t.columns), line = (float)(cell / t.columns);
    u32 corners = f.box_code == PLAIN_BOX ? f.corners : CXCYWH;
    if (f.box_code == DISTANCES) {
        float x = (column + t.offset) * t.stride, y = (line + t.offset) * t.stride;
        n0 = x - n0;
        n1 = y - n1;
        n2 = x + n2;
        n3 = y + n3;
        corners = XYXY;
    } else if (f.box_code == ANCHOR) {
        // A size below 0 is none; one that is not a number makes no finite box.
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

// Number `k` of a candidate's points.
INLINE float point_number(const Filter& f, const Table& t, u32 frame, const Candidate& c, u32 k) {
    u32 axis = k % f.point_values;
    // A face's come as y and x.
    float value = number(t.points, frame, c.row, f.point_code == FACE_POINT ? k ^ 1 : k);
    if (f.point_code == FACE_POINT) return axis == 0 ? value * c.numbers[1] + c.box[0] : value * c.numbers[0] + c.box[1];
    if (f.point_code == ANCHOR_POINT) return (axis == 0 ? middle_x(f, t, c.row) : middle_y(f, t, c.row)) + value;
    return axis == 0 ? value * f.point_scale_x : axis == 1 ? value * f.point_scale_y : value;
}

extern "C" __global__ void __launch_bounds__(THREADS) filter(const Filter f) {
    __shared__ float partial_value[THREADS];
    __shared__ u32 partial_column[THREADS];
    // Of rows in which every class that passes counts: whether any may, and the softmax's parts.
    __shared__ u32 row_passes[THREADS];
    __shared__ float row_top[THREADS], row_sum[THREADS];
    __shared__ Candidate list[THREADS];
    // Logits of a few candidates' distances.
    __shared__ float staged[STAGED];
    __shared__ u32 any, listed, kept, base;

    u32 thread = threadIdx.x, frame = blockIdx.y;
    u32 at = 0;
    while (at + 1 < f.table_count && blockIdx.x >= f.first_block[at + 1]) ++at;
    const Table& t = f.tables[at];
    u32 rows = THREADS / f.lanes;
    u32 first = (blockIdx.x - f.first_block[at]) * rows;
    u32 local = f.turned ? thread % rows : thread / f.lanes;
    u32 lane = f.turned ? thread / rows : thread % f.lanes;

    if (thread == 0) any = 0;
    // A row's objectness alone must pass: a score cannot be more.
    bool worth = first + local < t.rows;
    if (worth && (t.has & OBJECTNESS) != 0) worth = number(t.objectness, frame, first + local, 0) >= f.threshold;
    float best = minus_infinity();
    u32 best_column = NONE;
    if (worth) {
        u64 start = index_of(t.scores, frame, first + local, 0);
        u32 step = t.scores.column_step, column = f.first_class + lane;
        if (t.scores.dtype == F32) {
            best_of<float>(t.scores.address + 4 * start, step, column, f.end_class, f.lanes, best, best_column);
        } else if (t.scores.dtype == F16) {
            best_of<u16>(t.scores.address + 2 * start, step, column, f.end_class, f.lanes, best, best_column);
        } else {
#pragma unroll 1
            for (; column < f.end_class; column += f.lanes) {
                float value = number_at(t.scores.address, t.scores.dtype, start + (u64)column * step);
                if (value > best || (value == best && best_column == NONE)) {
                    best = value;
                    best_column = column;
                }
            }
        }
    }
    partial_value[lane * rows + local] = best;
    partial_column[lane * rows + local] = best_column;
    __syncthreads();

    // One thread a row from here to the candidates.
    u32 row = first + thread;
    bool mine = thread < rows && row < t.rows;
    bool passes = false;
    float score = 0.0f;
    u32 class_id = NONE;
    if (mine) {
        best = partial_value[thread];
        best_column = partial_column[thread];
#pragma unroll 4
        for (u32 other = 1; other < f.lanes; ++other) {
            float value = partial_value[other * rows + thread];
            u32 column = partial_column[other * rows + thread];
            if (value > best || (value == best && column < best_column)) {
                best = value;
                best_column = column;
            }
        }
        float top = best, sum = 0.0f;
        if (f.score_code == PLAIN_SCORE) {
            score = best;
            if ((t.has & OBJECTNESS) != 0) {
                float objectness = number(t.objectness, frame, row, 0);
                score = objectness >= f.threshold && best >= 0.0f ? objectness * best : minus_infinity();
            }
            passes = score >= f.threshold;
        } else if (f.score_code == SIGMOID) {
            passes = best >= f.floor;
            score = sigmoid(best);
        } else {
#pragma unroll 1
            for (u32 column = 0; column < f.score_columns; ++column) {
                if (column >= f.first_class && column < f.end_class) continue;
                float value = number(t.scores, frame, row, column);
                top = value > top ? value : top;
            }
            // A softmax is at most this.
            passes = exponential(best - top) >= f.threshold;
#pragma unroll 1
            for (u32 column = 0; passes && column < f.score_columns; ++column) {
                sum += exponential(number(t.scores, frame, row, column) - top);
            }
        }
        if ((t.has & VALID_ROWS) != 0) passes = passes && (float)row < number(t.valid_rows, frame, 0, 0);
        if (passes && f.choice == BEST_SCORE && f.score_code != PLAIN_SCORE) {
            score = minus_infinity();
            best_column = NONE;
#pragma unroll 1
            for (u32 column = f.first_class; column < f.end_class; ++column) {
                float raw = number(t.scores, frame, row, column);
                float value = f.score_code == SIGMOID ? sigmoid(raw) : exponential(raw - top) / sum;
                if (value > score) {
                    score = value;
                    best_column = column;
                }
            }
        }
        if (f.choice != EVERY) {
            passes = passes && best_column != NONE && score >= f.threshold;
            if (passes) {
                class_id = t.labels.address != 0 ? class_of(f, number(t.labels, frame, row, 0)) : best_column - f.first_class;
                passes = class_id != NONE;
            }
        }
        row_passes[thread] = passes;
        row_top[thread] = top;
        row_sum[thread] = sum;
        if (passes) any = 1;
    }
    __syncthreads();

    // One column a thread and round where every class may be a candidate, so that a round's list has room for all.
    u32 rounds = f.choice == EVERY ? (f.end_class - f.first_class + f.lanes - 1) / f.lanes : 1;
    for (u32 round = 0; any != 0 && round < rounds; ++round) {
        if (thread == 0) {
            listed = 0;
            kept = 0;
        }
        __syncthreads();
        u32 column = best_column;
        if (f.choice == EVERY) {
            row = first + local;
            column = f.first_class + round * f.lanes + lane;
            passes = row < t.rows && column < f.end_class && row_passes[local] != 0;
            if (passes) {
                float raw = number(t.scores, frame, row, column);
                score = raw;
                if (f.score_code == SIGMOID) score = raw >= f.floor ? sigmoid(raw) : minus_infinity();
                if (f.score_code == SOFTMAX) score = exponential(raw - row_top[local]) / row_sum[local];
                class_id = column - f.first_class;
                passes = score >= f.threshold && (f.peaks == 0 || is_peak(t, frame, row, column, raw));
            }
        }
        if (passes) {
            Candidate& candidate = list[atomicAdd(&listed, 1u)];
            candidate.row = row;
            candidate.column = column;
            candidate.class_id = class_id;
            candidate.score = score;
            candidate.slot = NONE;
        }
        __syncthreads();
        u32 logits = 4 * f.bins;
        for (u32 start = 0; f.box_code == DISTANCES && start < listed; start += STAGED / logits) {
            u32 count = listed - start < STAGED / logits ? listed - start : STAGED / logits;
#pragma unroll 1
            for (u32 item = thread; item < count * logits; item += THREADS) {
                staged[item] = number(t.boxes, frame, list[start + item / logits].row, item % logits);
            }
            __syncthreads();
            for (u32 item = thread; item < count * 4; item += THREADS) {
                float distance = expected_bin(staged + item * f.bins, f.bins) * t.stride;
                list[start + item / 4].numbers[item % 4] = distance;
            }
            __syncthreads();
        }
#pragma unroll 1
        for (u32 item = thread; f.box_code != DISTANCES && item < listed * 4; item += THREADS) {
            list[item / 4].numbers[item % 4] = box_number(f, t, frame, list[item / 4].row, item % 4);
        }
        __syncthreads();
        // Points that are not finite are left to the reader, which drops the candidate.
        if (thread < listed && make_box(f, t, list[thread])) list[thread].slot = atomicAdd(&kept, 1u);
        __syncthreads();
        if (thread == 0 && kept > 0) base = (u32)atomicAdd((u64*)f.state + frame, (u64)kept);
        __syncthreads();
        u64 records = f.results + frame * f.frame_bytes + 16;
        u64 points = records + (u64)f.capacity * sizeof(Record);
        if (thread < listed && list[thread].slot != NONE && base + list[thread].slot < f.capacity) {
            const Candidate& from = list[thread];
            Record record;
            for (u32 k = 0; k < 4; ++k) record.box[k] = from.box[k];
            record.score = from.score;
            record.class_id = from.class_id;
            record.row = t.first_row + from.row + f.class_row_step * from.class_id;
            record.unused = 0;
            write(records + (u64)(base + from.slot) * sizeof(Record), record);
        }
        u32 point_numbers = f.point_count * f.point_values;
#pragma unroll 1
        for (u32 item = thread; item < listed * point_numbers; item += THREADS) {
            const Candidate& candidate = list[item / point_numbers];
            u32 slot = base + candidate.slot;
            if (candidate.slot == NONE || slot >= f.capacity) continue;
            float value = point_number(f, t, frame, candidate, item % point_numbers);
            write(points + ((u64)slot * point_numbers + item % point_numbers) * sizeof(float), value);
        }
        __syncthreads();
    }

    if (thread == 0) {
        u64 before = atomicAdd((u64*)f.state + frame, ONE_BLOCK);
        if (before >> 32 == gridDim.x - 1) {
            write(f.results + frame * f.frame_bytes, (u32)before);
            write(f.state + frame * sizeof(u64), 0ull);
        }
    }
}
