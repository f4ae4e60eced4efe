// The preprocess kernel for the processor: kernels/src/preprocess/cuda/twin.rs compiles, runs and compares it.
#include "device.hpp"

#include "../preprocess.cu"

extern "C" void preprocess_on_host(const Job* job, unsigned blocks, unsigned frames, unsigned threads) {
    launch(blocks, frames, threads, [&] { preprocess(*job); });
}
