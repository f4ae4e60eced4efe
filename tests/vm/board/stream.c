/* Buffers, start, frames and end of the stream. vi/vi5_fops.c, vi/channel.c, tegracam_v4l2.c:
 *
 * - STREAMON powers the camera on, and opens a capture channel as the calling task: /dev/capture-vi-channel0, or the next one
 *   while a channel is busy. If that fails, it reports success all the same, no frame ever comes, and STREAMOFF leaves the
 *   power on. BOARD_POWER names a file with the number of times that the power is on.
 * - In bypass mode no channel is opened, and no frame comes.
 * - gain, exposure and frame rate reach the sensor when it starts: with override_enable the stored ones, else the mode's.
 * - The kernel refuses memory of a program's that does not begin and end with a cache line (vb2_dc_get_userptr in
 *   videobuf2-dma-contig.c); arm64 counts 128 bytes.
 * - Frames of another format than the mode's are damaged.
 */
#include "board.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define CACHE_LINE 128
/* Where the counter cannot be read, as on a PC, timestamps are off by an unknown amount. */
#define UNKNOWN_OFFSET (37 * SECOND)

static int streams, is_complete, has_frames, is_reset, is_bad, frames, channel = -1;
static unsigned buffer_count, mapped_count;
static long long sensor[CONTROLS], started;
static struct {
    long long offset;
    void *at;
} mapped[64];

int has_buffers(void) { return buffer_count > 0; }
int has_power(void) { return streams; }

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * SECOND + time.tv_nsec;
}

/* How far the counter by which frames are stamped is ahead of CLOCK_MONOTONIC: the tightest of some looks at both. */
static long long counter_offset(void) {
#ifdef __aarch64__
    long long offset = 0, tightest = SECOND;
    for (int i = 0; i < 20; i++) {
        unsigned long count, frequency;
        long long before = now(), width;
        __asm__ volatile("isb; mrs %0, cntvct_el0; mrs %1, cntfrq_el0" : "=r"(count), "=r"(frequency));
        if ((width = now() - before) >= tightest) continue;
        tightest = width, offset = (long long)((unsigned __int128)count * SECOND / frequency) - before - width / 2;
    }
    return offset;
#else
    return UNKNOWN_OFFSET;
#endif
}

/* Counts in the file, which several programs may do at once. */
static void power(int change) {
    char text[24] = "";
    const char *name = getenv("BOARD_POWER");
    int fd = name ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (!name) return;
    if (fd < 0 || flock(fd, LOCK_EX) || pread(fd, text, sizeof text - 1, 0) < 0 || ftruncate(fd, 0)) abort();
    int length = snprintf(text, sizeof text, "%d\n", atoi(text) + change);
    if (pwrite(fd, text, length, 0) != length) abort();
    close(fd);
}

static int open_channel(void) {
    char path[40];
    for (int i = 0; channel < 0; i++) {
        snprintf(path, sizeof path, "/dev/capture-vi-channel%d", i);
        channel = open(path, O_RDONLY | O_CLOEXEC);
        if (channel < 0 && errno != EBUSY) return -1;
    }
    return 0;
}

static void set_vivids_rate(int fd, unsigned numerator, unsigned denominator) {
    struct v4l2_streamparm rate = {.type = V4L2_BUF_TYPE_VIDEO_CAPTURE};
    rate.parm.capture.timeperframe.numerator = numerator;
    rate.parm.capture.timeperframe.denominator = denominator;
    real_ioctl(fd, VIDIOC_S_PARM, &rate);
}

void program_sensor(int fd, int which, long long value) {
    /* An exposure, in us, must end within its frame, as in nv_imx219.c; the rate is in frames per million seconds. */
    if (which == EXPOSURE && value > SECOND * 1000 / sensor[FRAME_RATE]) value = SECOND * 1000 / sensor[FRAME_RATE];
    sensor[which] = value;
    logged("sensor %s %lld", control_name(which), value);
    if (which == FRAME_RATE) set_vivids_rate(fd, 1000000, value);
}

int request_buffers(int fd, struct v4l2_requestbuffers *wanted) {
    if (wanted->count && !buffer_count && prepare_buffers(fd, wanted->memory)) return -1;
    if (real_ioctl(fd, VIDIOC_REQBUFS, wanted)) return -1;
    buffer_count = wanted->count;
    return 0;
}

int queue(int fd, struct v4l2_buffer *buffer) {
    if (buffer->memory == V4L2_MEMORY_USERPTR &&
        ((buffer->m.userptr | buffer->length) % CACHE_LINE || buffer->length < state.pitch * state.height))
        return errno = EINVAL, -1;
    return real_ioctl(fd, VIDIOC_QBUF, buffer);
}

int start(int fd, void *kind) {
    if (streams) return 0;
    power(1);
    is_complete = state.controls[BYPASS] || !open_channel();
    has_frames = is_complete && !state.controls[BYPASS];
    if (is_complete) {
        follow_mode(fd);
        sensor[FRAME_RATE] = default_value(FRAME_RATE);
        for (int i = GAIN; i <= FRAME_RATE; i++)
            program_sensor(fd, i, state.controls[OVERRIDE] ? state.controls[i] : default_value(i));
    } else {
        logged("channel %d", errno);
    }
    /* vivid streams in any case, because the driver's queue does. */
    if (!has_frames) set_vivids_rate(fd, 1, 1);
    if (real_ioctl(fd, VIDIOC_STREAMON, kind)) return -1;
    is_bad = is_set("BOARD_ALL_BAD") || state.pixelformat != mode_format(state.mode);
    streams = 1, started = now();
    return 0;
}

int stop(int fd, void *kind) {
    if (real_ioctl(fd, VIDIOC_STREAMOFF, kind)) return -1;
    if (streams && is_complete) power(-1);
    if (channel >= 0) close(channel), channel = -1;
    streams = is_reset = 0;
    return 0;
}

static void fill_words(uint16_t *words, unsigned count) {
    unsigned bits = state.pixelformat >> 24 == '2' ? 12 : 10;
    for (unsigned i = 0; i < count; i++) words[i] = words[i] << (16 - bits) | words[i] >> (2 * bits - 16);
}

/* vivid writes red, green, blue and alpha, the driver alpha, red, green and blue. */
static void rotate_words(uint32_t *words, unsigned count) {
    for (unsigned i = 0; i < count; i++) words[i] = words[i] << 8 | words[i] >> 24;
}

void remember_mapping(long long offset, void *at) {
    unsigned i = 0;
    while (i < mapped_count && mapped[i].offset != offset) i++;
    if (i == LENGTH(mapped)) abort();
    if (i == mapped_count) mapped_count++;
    mapped[i].offset = offset, mapped[i].at = at;
}

static void *memory_of(const struct v4l2_buffer *buffer) {
    if (buffer->memory == V4L2_MEMORY_USERPTR) return (void *)buffer->m.userptr;
    for (unsigned i = 0; i < mapped_count; i++)
        if (mapped[i].offset == buffer->m.offset) return mapped[i].at;
    abort();
}

int dequeue(int fd, struct v4l2_buffer *buffer) {
    int has_faults = is_set("BOARD_FAULTS");
    if (is_reset) return errno = EIO, -1;
    if (real_ioctl(fd, VIDIOC_DQBUF, buffer)) return -1;
    if (!has_frames || (has_faults && now() < started + 2 * SECOND)) {
        if (real_ioctl(fd, VIDIOC_QBUF, buffer)) abort();
        return errno = EAGAIN, -1;
    }
    void *memory = memory_of(buffer);
    buffer->bytesused = state.pitch * state.height;
    if (is_whole_picture() && state.pixelformat == V4L2_PIX_FMT_RGBA32) rotate_words(memory, buffer->bytesused / 4);
    else if (is_whole_picture()) fill_words(memory, buffer->bytesused / 2);
    frames++;
    if (is_bad || (has_faults && frames % 7 == 0)) {
        if (!is_bad) memset(memory, 0, buffer->bytesused);
        buffer->flags |= V4L2_BUF_FLAG_ERROR;
        logged("bad");
    }
    if (has_faults && frames == 20) is_reset = 1, logged("reset");
    long long stamp = buffer->timestamp.tv_sec * SECOND + buffer->timestamp.tv_usec * 1000LL;
    logged("stamp %u %lld", buffer->sequence, stamp);
    stamp += counter_offset();
    buffer->timestamp.tv_sec = stamp / SECOND, buffer->timestamp.tv_usec = stamp % SECOND / 1000;
    buffer->flags &= ~V4L2_BUF_FLAG_TSTAMP_SRC_MASK;
    return 0;
}
