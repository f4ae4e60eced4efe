// The preprocess kernel for the CPU: kernels/src/preprocess/cuda/tests.rs compiles, runs and compares it.
#include "together.hpp"

#include "../preprocess.cu"

static const Job* argument;

// `kernel` counts from 0 in the order of preprocess.cu.
extern "C" void preprocess_on_host(const Job* job, unsigned kernel, unsigned blocks, unsigned threads, unsigned frames, bool last_first) {
    void (*const kernels[])() = {[] { preprocess(*argument); }, [] { preprocess_exact(*argument); },
                                [] { preprocess_warp(*argument); }, [] { preprocess_taps(*argument); }, [] { preprocess_pillow(*argument); },
                                [] { preprocess_antialias(*argument); }};
    argument = job;
    launch_together(blocks, frames, threads, last_first, kernels[kernel]);
}

extern "C" void round_on_host(u64 tensor, u64 count) {
    static u64 words, length;
    words = tensor, length = count;
    launch_together(unsigned((count + 127) / 128), 1, 128, false, [] { round_tensor(words, length); });
}

extern "C" void describe_on_host(u64 from, u64 to, u64 copies, unsigned blocks, unsigned threads, unsigned frames) {
    static u64 arguments[3];
    arguments[0] = from, arguments[1] = to, arguments[2] = copies;
    launch_together(blocks, frames, threads, false, [] { describe(arguments[0], arguments[1], arguments[2]); });
}
