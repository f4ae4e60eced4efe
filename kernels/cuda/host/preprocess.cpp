// The preprocess kernel for the CPU: kernels/src/preprocess/cuda/tests.rs compiles, runs and compares it.
#include "together.hpp"

#include "../preprocess.cu"

static const Job* argument;

extern "C" void preprocess_on_host(const Job* job, unsigned blocks, unsigned frames, bool last_first) {
    argument = job;
    launch_together(blocks, frames, 128, last_first, [] { preprocess(*argument); });
}
