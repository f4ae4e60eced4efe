// The candidate filter for the CPU: tests compile it, run it and compare it with the heads.
#include "half.hpp"
#include "together.hpp"

#include "../filter.cu"

static const Filter* argument;

extern "C" uint64_t argument_bytes() { return sizeof(Filter); }

extern "C" void filter_on_host(const Filter* given, unsigned blocks, unsigned frames, bool last_first) {
    argument = given;
    launch_together(blocks, frames, THREADS, last_first, [] { filter(*argument); });
}
