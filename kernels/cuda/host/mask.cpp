// The masks' kernel for the CPU: tests compile it, run it and compare it with the assembly in Rust.
#include "half.hpp"
#include "together.hpp"

#include "../mask.cu"

static const Masks* argument;

extern "C" uint64_t argument_bytes() { return sizeof(Masks); }

extern "C" void masks_on_host(const Masks* given, unsigned blocks, bool last_first) {
    argument = given;
    launch_together(blocks, 1, THREADS, last_first, [] { masks(*argument); });
}
