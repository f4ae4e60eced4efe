// Finds the candidates that pass in raw outputs: thresholds, chooses classes, decodes boxes and points, writes a compact list.
//
// A block takes THREADS / lanes rows of one table, `lanes` threads each; blockIdx.y is the frame. Every thread reads its share of
// a row's scores, the block finds the best through shared memory, and most blocks end there. Then one thread per number decodes
// boxes and points. A block reserves room for all of its candidates at once. The last block to finish writes the count for the
// host and clears the counters for the next launch, so that a frame needs nothing else. The two halves of one number count a
// frame's candidates and its finished blocks: all threads see its changes in one order, so no fence is needed.
//
// Every branch on `Filter` is the same for the whole launch. Operations and their order are those of the heads in Rust.
#include "filter_box.cuh"

#define THREADS 256
#define STAGED 1024
#define ONE_BLOCK (1ull << 32)

extern "C" __global__ void __launch_bounds__(THREADS) filter(const Filter f) {
    __shared__ float partial_value[THREADS];
    __shared__ u32 partial_column[THREADS];
    // For rows in which every class may pass: whether any can, the parts of the softmax, and the factor.
    __shared__ u32 row_passes[THREADS];
    __shared__ float row_top[THREADS], row_sum[THREADS], row_objectness[THREADS];
    __shared__ Candidate list[THREADS];
    // The logits of a few candidates' distances.
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
    // The objectness itself must pass, because a score cannot exceed it.
    bool worth = first + local < t.rows;
    if (worth) worth = objectness(f, t, frame, first + local) >= 0.0f;
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

    // One thread per row from here to the candidates.
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
        float top = best, sum = 0.0f, factor = objectness(f, t, frame, row);
        if (f.score_code == PLAIN_SCORE) {
            score = best;
            if ((t.has & OBJECTNESS) != 0) score = factor >= 0.0f && best >= 0.0f ? factor * best : minus_infinity();
            passes = score >= f.threshold;
        } else if (f.score_code == SIGMOID) {
            passes = best >= f.floor;
            score = sigmoid(best) * factor;
        } else {
#pragma unroll 1
            for (u32 column = 0; column < f.score_columns; ++column) {
                if (column >= f.first_class && column < f.end_class) continue;
                float value = number(t.scores, frame, row, column);
                top = value > top ? value : top;
            }
            // An upper bound of the softmax.
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
                float value = (f.score_code == SIGMOID ? sigmoid(raw) : exponential(raw - top) / sum) * factor;
                if (value > score) {
                    score = value;
                    best_column = column;
                }
            }
        }
        if (f.choice != EVERY) {
            passes = passes && best_column != NONE && score >= f.threshold;
            if (t.labels.address != 0) {
                class_id = passes ? class_of(f, number(t.labels, frame, row, 0)) : NONE;
                if (is_odd(f, t, frame, row, passes)) {
                    class_id = ODD;
                    score = number(t.scores, frame, row, f.first_class);
                }
                passes = class_id != NONE;
            } else if (passes) {
                class_id = best_column - f.first_class;
            }
        }
        row_passes[thread] = passes;
        row_top[thread] = top;
        row_sum[thread] = sum;
        row_objectness[thread] = factor;
        if (passes) any = 1;
    }
    __syncthreads();

    // If every class may be a candidate, each thread takes one column per round, so that the list has room for a round.
    u32 rounds = f.choice == EVERY ? (f.end_class - f.first_class + f.lanes - 1) / f.lanes : 1;
    for (u32 round = 0; any != 0 && round < rounds; ++round) {
        if (thread == 0) {
            listed = 0;
            kept = 0;
        }
        __syncthreads();
        if (f.choice == EVERY) {
            row = first + local;
            u32 column = f.first_class + round * f.lanes + lane;
            passes = row < t.rows && column < f.end_class && row_passes[local] != 0;
            if (passes) {
                float raw = number(t.scores, frame, row, column);
                score = raw;
                if (f.score_code == SIGMOID) score = raw >= f.floor ? sigmoid(raw) : minus_infinity();
                if (f.score_code == SOFTMAX) score = exponential(raw - row_top[local]) / row_sum[local];
                score *= row_objectness[local];
                class_id = column - f.first_class;
                passes = score >= f.threshold && (f.peaks == 0 || is_peak(t, frame, row, column, raw));
            }
        }
        if (passes) {
            Candidate& candidate = list[atomicAdd(&listed, 1u)];
            candidate.row = row;
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
        // The reader drops candidates whose points are not finite.
        if (thread < listed) {
            Candidate& candidate = list[thread];
            bool valid = make_box(f, t, candidate);
            // A row that the model has chosen has a box.
            if (!valid && t.labels.address != 0 && candidate.score > 0.0f) candidate.class_id = ODD;
            if (valid || candidate.class_id == ODD) candidate.slot = atomicAdd(&kept, 1u);
        }
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
            record.label = t.labels.address != 0 ? number(t.labels, frame, from.row, 0) : 0.0f;
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
