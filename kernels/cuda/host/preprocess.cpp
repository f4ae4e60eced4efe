// The preprocess kernel for the processor: kernels/src/preprocess/cuda/twin.rs compiles, runs and compares it. KERNEL is the
// source's name.
#include "together.hpp"

#include KERNEL

static const Job* argument;

extern "C" void preprocess_on_host(const Job* job, unsigned blocks, unsigned frames, bool last_first) {
    argument = job;
    launch_together(blocks, frames, THREADS, last_first, [] { preprocess(*argument); });
}
