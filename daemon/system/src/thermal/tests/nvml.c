// NVML with two GPUs, for tests: the first one rests, the second one is busy. ANSWER is the result of every question about a GPU:
// 0, or 3 (NVML_ERROR_NOT_SUPPORTED), as on an Orin with JetPack 7.2. INIT is the result of the start.
#include <stddef.h>

#ifndef ANSWER
#define ANSWER 0
#endif
#ifndef INIT
#define INIT 0
#endif

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;

static int started;
static int gpus[2];

int nvmlInit_v2(void) {
    started = INIT == 0;
    return INIT;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!started) return 1; // NVML_ERROR_UNINITIALIZED
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index > 1) return 2; // NVML_ERROR_INVALID_ARGUMENT
    *device = &gpus[index];
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, nvmlUtilization_t *used) {
    if (ANSWER != 0) return ANSWER;
    used->gpu = device == &gpus[1] ? 97 : 0;
    used->memory = 11;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz) {
    if (ANSWER != 0 || type != 0) return ANSWER != 0 ? ANSWER : 2;
    *mhz = device == &gpus[1] ? 1575 : 345;
    return 0;
}
