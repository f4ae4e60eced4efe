// Threads of a block that communicate, in C++: shared memory, barriers, atomics. Include this before the kernel.
//
// Every thread has its own context on one CPU thread; a barrier switches to the next one. Between barriers the threads run
// first to last or last to first, so that a missing barrier changes the results. Shared memory is filled with rubbish before
// each block, so that reading it before writing it changes them too.
#pragma once
#include "device.hpp"

#include <ucontext.h>

#include <memory>

#define __noinline__ __attribute__((noinline))
#define __shared__ static __attribute__((section("shared")))

extern "C" uint8_t __start_shared[], __stop_shared[];
// Defines the section even if the kernel has no shared memory.
static uint8_t shared_byte __attribute__((section("shared"), used));

static Index gridDim;

// A thread of the running block.
struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    bool done;
};
static Fibre fibres[1024];
static ucontext_t scheduler;
static unsigned running;
static void (*body)();

inline void __syncthreads() { swapcontext(&fibres[running].context, &scheduler); }

// The threads of a warp vote in the same round, and read the votes in the next.
static bool votes[1024];
inline unsigned __ballot_sync(unsigned, bool vote) {
    votes[running] = vote;
    __syncthreads();
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) bits |= unsigned(votes[running / 32 * 32 + lane]) << lane;
    __syncthreads();
    return bits;
}

template <class T>
inline T atomicAdd(T* at, T value) {
    T old = *at;
    *at += value;
    return old;
}

static void enter() {
    body();
    fibres[running].done = true;
    // The context's link leads back to the scheduler.
}

// Runs `thread` for every thread of a launch, backwards with `last_first`.
inline void launch_together(unsigned blocks_x, unsigned blocks_y, unsigned threads, bool last_first, void (*thread)()) {
    constexpr size_t STACK = 64 * 1024;
    body = thread;
    blockDim = {threads, 1, 1};
    gridDim = {blocks_x, blocks_y, 1};
    for (unsigned block = 0; block < blocks_x * blocks_y; ++block) {
        unsigned at = last_first ? blocks_x * blocks_y - 1 - block : block;
        blockIdx = {at % blocks_x, at / blocks_x, 0};
        std::memset(__start_shared, 0xa5, __stop_shared - __start_shared);
        for (unsigned i = 0; i < threads; ++i) {
            Fibre& fibre = fibres[i];
            if (!fibre.stack) fibre.stack.reset(new char[STACK]);
            fibre.done = false;
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = fibre.stack.get();
            fibre.context.uc_stack.ss_size = STACK;
            fibre.context.uc_link = &scheduler;
            makecontext(&fibre.context, enter, 0);
        }
        for (bool any = true; any;) {
            any = false;
            for (unsigned i = 0; i < threads; ++i) {
                running = last_first ? threads - 1 - i : i;
                if (fibres[running].done) continue;
                threadIdx = {running, 0, 0};
                swapcontext(&scheduler, &fibres[running].context);
                any = true;
            }
        }
    }
}
