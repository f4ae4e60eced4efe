// A driver whose GPU is the host's memory: allocations are malloc's, copies are memcpy's and done at once. What the tests do not
// use is refused, not pretended.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, NOT_SUPPORTED = 801 };
typedef uint32_t result;
typedef uint64_t address;

// Allocations and streams that were not freed.
static int alive;
int stub_alive(void) { return alive; }
// Calls that allocate, free or wait, and launches of kernels.
static int slow_calls, launches;
int stub_slow_calls(void) { return slow_calls; }
int stub_launches(void) { return launches; }

result cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
result cuDriverGetVersion(int *version) { *version = 12060; return SUCCESS; }
result cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
result cuDeviceGet(int *device, int index) { *device = index; return index ? INVALID_VALUE : SUCCESS; }
result cuDeviceGetName(char *name, int len, int device) {
    (void)device;
    strncpy(name, "Stub", len);
    return SUCCESS;
}
result cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    // Compute capability 8.7, the sixteen multiprocessors of an Orin; nothing else is there, except mapped memory beside kernels.
    *value = attribute == 75 ? 8 : attribute == 76 ? 7 : attribute == 16 ? 16 : 0;
#ifdef WITH_KERNELS
    if (attribute == 19)
        *value = 1;
#endif
    return SUCCESS;
}
result cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = 1 << 30; return SUCCESS; }
result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; (void)flags; return SUCCESS; }
result cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &alive; return SUCCESS; }
result cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
result cuCtxSetCurrent(void *context) { return context == &alive ? SUCCESS : INVALID_VALUE; }
// What each call returns once the GPU is lost.
static result fault;
void stub_lose(result code) { fault = code; }
result cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = 1 << 30; return fault; }

result cuMemAlloc_v2(address *found, size_t bytes) {
    slow_calls++;
    void *memory = bytes && bytes <= 1 << 30 ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    if (!memory)
        return OUT_OF_MEMORY;
    // What nobody wrote must show.
    memset(memory, 0xee, bytes);
    alive++;
    *found = (address)(uintptr_t)memory;
    return SUCCESS;
}
result cuMemFree_v2(address freed) {
    slow_calls++;
    free((void *)(uintptr_t)freed);
    alive--;
    return SUCCESS;
}
result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}
result cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    (void)stream;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}
result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}
static int priority;
int stub_priority(void) { return priority; }
result cuStreamCreateWithPriority(void **stream, unsigned flags, int wanted) {
    (void)flags;
    priority = wanted;
    *stream = malloc(1);
    alive++;
    return SUCCESS;
}
result cuStreamDestroy_v2(void *stream) {
    free(stream);
    alive--;
    return SUCCESS;
}
result cuStreamSynchronize(void *stream) { (void)stream; slow_calls++; return SUCCESS; }
// The event that a stream waits for, and the recorded one that is not done before it was asked for twice.
static void *awaited, *pending;
void *stub_awaited(void) { return awaited; }
void *stub_pending(void) { return pending; }
result cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    awaited = event;
    return stream && event ? SUCCESS : INVALID_VALUE;
}
result cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = malloc(1);
    alive++;
    return SUCCESS;
}
result cuEventDestroy_v2(void *event) {
    free(event);
    alive--;
    return SUCCESS;
}
result cuEventRecord(void *event, void *stream) {
    pending = event;
    return stream && event ? SUCCESS : INVALID_VALUE;
}
result cuEventQuery(void *event) {
    if (event != pending)
        return SUCCESS;
    pending = NULL;
    return NOT_READY;
}
result cuGetErrorName(result code, const char **name) {
    *name = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : NULL;
    return *name ? SUCCESS : INVALID_VALUE;
}

#define REFUSED(name) result name(void) { return NOT_SUPPORTED; }
REFUSED(cuMemAllocManaged)
REFUSED(cuMemHostRegister_v2) REFUSED(cuMemHostUnregister) REFUSED(cuMemcpyDtoDAsync_v2) REFUSED(cuMemsetD8Async)
REFUSED(cuStreamAttachMemAsync) REFUSED(cuStreamBeginCapture_v2) REFUSED(cuStreamEndCapture)
REFUSED(cuGraphInstantiateWithFlags) REFUSED(cuGraphDestroy) REFUSED(cuGraphExecDestroy) REFUSED(cuGraphLaunch)
REFUSED(cuEventRecordWithFlags)
#ifdef WITH_KERNELS
// All work is done at once, and takes no time.
result cuEventSynchronize(void *event) { return event ? SUCCESS : INVALID_VALUE; }
result cuEventElapsedTime(float *ms, void *begin, void *end) {
    *ms = 0;
    return begin && end ? SUCCESS : INVALID_VALUE;
}
// Kernels load and are launched, and do nothing.
result cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    (void)image; (void)count; (void)options; (void)values;
    *module = &launches;
    return SUCCESS;
}
result cuModuleUnload(void *module) { (void)module; return SUCCESS; }
result cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)name;
    *function = module;
    return SUCCESS;
}
result cuLaunchKernel(void) { launches++; return SUCCESS; }
result cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    (void)flags;
    slow_calls++;
    *start = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    alive++;
    return *start ? SUCCESS : OUT_OF_MEMORY;
}
result cuMemFreeHost(void *start) {
    slow_calls++;
    free(start);
    alive--;
    return SUCCESS;
}
result cuMemHostGetDevicePointer_v2(address *found, void *start, unsigned flags) {
    (void)flags;
    *found = (address)(uintptr_t)start;
    return SUCCESS;
}
#else
REFUSED(cuEventSynchronize) REFUSED(cuEventElapsedTime)
REFUSED(cuModuleLoadDataEx) REFUSED(cuModuleUnload) REFUSED(cuModuleGetFunction) REFUSED(cuLaunchKernel)
REFUSED(cuMemHostAlloc) REFUSED(cuMemFreeHost) REFUSED(cuMemHostGetDevicePointer_v2)
#endif
