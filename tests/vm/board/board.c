/* Makes vivid look like NVIDIA's tegra-video with a raw sensor behind it, for the program it is preloaded into. It imitates
 * these files of Jetson Linux 35 and 36, in drivers/media/platform/tegra/camera:
 *
 * vi/channel.c          who it is; one input; any event is accepted; no S_PARM; formats and controls of the capture unit
 * csi/csi.c             the input has status 1, no power, while it does not stream
 * tegracam_ctrls.c      gain, exposure and frame rate are stored while the sensor is off; with override_enable it gets them when
 *                       it starts, else those of its mode; a value that is the stored one already changes nothing
 * camera_common.c       the control sensor_mode decides which size there is; another one becomes the default mode's
 * vi/vi5_formats.h      10 and 12 bits are written as T_R16: at the top of the word, low bits repeating the highest
 * vi/vi5_fops.c         a capture channel is opened as the task that calls STREAMON; timestamps count the system counter; a
 *                       broken frame has its error flag set; after a reset of the sensor DQBUF answers EIO until the stream is
 *                       ended
 *
 * Beside it, format.c, controls.c and stream.c say more. A program has one such camera. Variables:
 *
 * BOARD_LOG             a file that gets a line for everything that happened: "mode 2", "sensor Gain 100", "stamp SEQUENCE NS"
 *                       (the frame's true CLOCK_MONOTONIC), "bad", "reset", "channel ERRNO", "bypass 0", "test pattern 1"
 * BOARD_STATE           a file that keeps what the driver stores from one program to the next, as text; it may be empty
 * BOARD_POWER           a file that counts how often the camera's power is on
 * BOARD_SENSOR          the sensor, one of sensors.h; small by default
 * BOARD_FORMAT          the format of all its modes, such as RG12 or AB24, instead of the sensor's own
 * BOARD_BY_SIZE=1       a device tree without use_sensor_mode_id: the size chooses the mode
 * BOARD_BYPASS=1        bypass_mode is on at first, as after Argus
 * BOARD_TEST_PATTERN=1  the sensor has a test pattern
 * BOARD_ALL_BAD=1       every frame is broken
 * BOARD_FAULTS=1        the first frame takes two seconds, every seventh frame is broken, and after 20 frames the sensor is
 *                       reset once
 *
 * visiond's ioctls on cameras go through syscall() of the C library, not through ioctl().
 */
#define _GNU_SOURCE
#include "board.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

struct state state;

static long real_syscall(long number, long *argument) {
    static long (*next)(long, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

int real_ioctl(int fd, unsigned long request, void *argument) {
    return real_syscall(SYS_ioctl, (long[6]){fd, request, (long)argument});
}

int is_set(const char *variable) { return getenv(variable) != NULL; }

void logged(const char *format, ...) {
    FILE *file = is_set("BOARD_LOG") ? fopen(getenv("BOARD_LOG"), "a") : NULL;
    va_list list;
    if (!file) abort();
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fputc('\n', file);
    fclose(file);
}

/* As text: a line for each control, and one for the rest. */
void keep_state(void) {
    FILE *file = is_set("BOARD_STATE") ? fopen(getenv("BOARD_STATE"), "w") : NULL;
    if (!file) abort();
    for (int i = 0; i < CONTROLS; i++) fprintf(file, "%s %lld\n", control_name(i), state.controls[i]);
    fprintf(file, "mode %u %u, format %u %u %u %u, picture %d\n", state.mode, state.range_mode, state.width, state.height,
            state.pixelformat, state.pitch, state.picture);
    fclose(file);
}

static int read_state(FILE *file) {
    for (int i = 0; i < CONTROLS; i++)
        if (fscanf(file, " %*[A-Za-z ]%lld", &state.controls[i]) != 1) return -1;
    int count = fscanf(file, " mode %u %u, format %u %u %u %u, picture %d", &state.mode, &state.range_mode, &state.width,
                       &state.height, &state.pixelformat, &state.pitch, &state.picture);
    return count == 7 && state.mode < mode_count() && state.range_mode < mode_count() ? 0 : -1;
}

__attribute__((constructor)) static void begin(void) {
    FILE *file = is_set("BOARD_STATE") ? fopen(getenv("BOARD_STATE"), "r") : NULL;
    choose_sensor();
    if (!file || read_state(file)) {
        initial_controls();
        state.mode = state.range_mode = 0;
        state.width = mode_width(0), state.height = mode_height(0), state.pixelformat = mode_format(0);
        state.pitch = state.width * (state.pixelformat == V4L2_PIX_FMT_RGBA32 ? 4 : 2);
    }
    if (file) fclose(file);
    if (is_set("BOARD_BYPASS")) state.controls[BYPASS] = 1;
}

static int board(int fd, unsigned long request, void *argument) {
    switch (request) {
    case VIDIOC_SUBSCRIBE_EVENT: return 0;
    case VIDIOC_S_PARM: case VIDIOC_G_PARM: return errno = ENOTTY, -1;
    case VIDIOC_QUERY_EXT_CTRL: return query(argument);
    case VIDIOC_QUERYMENU: return query_menu(argument);
    case VIDIOC_G_EXT_CTRLS: return access_controls(fd, argument, 0);
    case VIDIOC_S_EXT_CTRLS: return access_controls(fd, argument, 1);
    case VIDIOC_ENUM_FMT: return describe_format(argument);
    case VIDIOC_ENUM_FRAMESIZES: return frame_size(argument);
    case VIDIOC_ENUM_FRAMEINTERVALS: return frame_interval(argument);
    case VIDIOC_G_FMT: case VIDIOC_TRY_FMT: case VIDIOC_S_FMT: return format(fd, request, argument);
    case VIDIOC_REQBUFS: return request_buffers(fd, argument);
    case VIDIOC_QBUF: return queue(fd, argument);
    case VIDIOC_DQBUF: return dequeue(fd, argument);
    case VIDIOC_STREAMON: return start(fd, argument);
    case VIDIOC_STREAMOFF: return stop(fd, argument);
    }
    if (real_ioctl(fd, request, argument)) return -1;
    if (request == VIDIOC_QUERYCAP) {
        struct v4l2_capability *who = argument;
        strcpy((char *)who->driver, "tegra-video"), strcpy((char *)who->bus_info, "platform:tegra-capture-vi:2");
        snprintf((char *)who->card, sizeof who->card, "vi-output, %s 9-0010", sensor_name());
    }
    if (request == VIDIOC_ENUMINPUT) {
        struct v4l2_input *input = argument;
        strcpy((char *)input->name, "Camera 2");
        input->status = has_power() ? 0 : V4L2_IN_ST_NO_POWER, input->capabilities = 0, input->std = 0;
    }
    return 0;
}

/* Nothing else of this library is seen outside of it. */
#define SEEN __attribute__((visibility("default")))

SEEN long syscall(long number, ...) {
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) argument[i] = va_arg(list, long);
    va_end(list);
    if (number != SYS_ioctl) return real_syscall(number, argument);
    if (_IOC_TYPE((unsigned)argument[1]) != 'V') return real_syscall(number, argument);
    return board(argument[0], (unsigned)argument[1], (void *)argument[2]);
}

/* Remembers where the driver's buffers are. */
SEEN void *mmap(void *place, size_t length, int access, int flags, int fd, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    struct stat file;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    void *found = next(place, length, access, flags, fd, offset);
    if (fd >= 0 && !fstat(fd, &file) && S_ISCHR(file.st_mode) && major(file.st_rdev) == 81) remember_mapping(offset, found);
    return found;
}
