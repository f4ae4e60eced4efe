// The kernels of privacy masks for the CPU: tests compile them, run them and compare them with the writes in Rust.
#include "together.hpp"

#include "../privacy.cu"

static const Blanking* argument;

extern "C" void means_on_host(const Blanking* given, unsigned blocks, bool last_first) {
    argument = given;
    launch_together(blocks, 1, THREADS, last_first, [] { means(*argument); });
}

extern "C" void blank_on_host(const Blanking* given, unsigned blocks, bool last_first) {
    argument = given;
    launch_together(blocks, 1, THREADS, last_first, [] { blank(*argument); });
}
