// Preloaded into visiond: a disk that fails and a wall clock that jumps, as `faults.py` says in the file $CHAOS_CONTROL.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// The same layout is in `faults.py`.
struct control {
    volatile int64_t clock_offset_s;
    // The error that writes and syncs of the named files end with; 0 for none.
    volatile int32_t write_error, sync_error;
    // What such a file's path contains.
    char path[64];
};

static struct control none, *control = &none;

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("CHAOS_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *mapped = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED)
            control = mapped;
        close(fd);
    }
    // Programs that visiond starts are spared.
    unsetenv("LD_PRELOAD");
}

static int named(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return strstr(path, control->path) != NULL;
}

#define FAIL(error, fd)                  \
    if (control->error && named(fd)) {   \
        errno = control->error;          \
        return -1;                       \
    }

ssize_t write(int fd, const void *bytes, size_t count) {
    FAIL(write_error, fd)
    return REAL(write)(fd, bytes, count);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    FAIL(write_error, fd)
    return REAL(writev)(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
    FAIL(write_error, fd)
    return REAL(pwrite64)(fd, bytes, count, offset);
}

int fsync(int fd) {
    FAIL(sync_error, fd)
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    FAIL(sync_error, fd)
    return REAL(fdatasync)(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += control->clock_offset_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = REAL(gettimeofday)(now, zone);
    now->tv_sec += control->clock_offset_s;
    return result;
}

time_t time(time_t *out) {
    time_t now = REAL(time)(NULL) + control->clock_offset_s;
    if (out)
        *out = now;
    return now;
}
