/* Makes vivid look like NVIDIA's tegra-video with a raw sensor behind it, for the program it is preloaded into. What is
 * imitated is what these files of Jetson Linux 35 and 36 do, in drivers/media/platform/tegra/camera:
 *
 * vi/channel.c          who it is; one input; any event is accepted; no S_PARM; formats and controls of the capture unit
 * csi/csi.c             the input has status 1, no power, while it does not stream
 * tegracam_ctrls.c      gain, exposure and frame rate are stored while the sensor is off; with override_enable it gets them when
 *                       it starts, else those of its mode; a value that is the stored one already changes nothing
 * camera_common.c       the control sensor_mode decides which size there is; another one becomes the default mode's
 * vi/vi5_formats.h      10 and 12 bits are written as T_R16: at the top of the word, low bits repeating the highest
 * vi/vi5_fops.c         timestamps count the system counter; a broken frame has its error flag set; after a reset of the
 *                       sensor DQBUF answers EIO until the stream is ended
 *
 * BOARD_LOG names a file that gets a line for everything that happened: "mode 2", "sensor gain 100", "stamp SEQUENCE NS" (the
 * frame's true CLOCK_MONOTONIC), "bad", "reset". BOARD_STATE names one that keeps the stored controls from process to process,
 * as the driver does. BOARD_FORMAT is the sensor's format, such as RG10. With BOARD_FAULTS=1 the first frame takes two seconds,
 * every seventh frame is broken, and after 20 frames the sensor is reset once.
 *
 * visiond's ioctls on cameras go through syscall() of the C library, not through ioctl().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define BASE (V4L2_CTRL_CLASS_CAMERA | 0x2000)
#define SECOND 1000000000LL
/* Where the counter cannot be read, as on a PC, timestamps are off by an unknown amount. */
#define UNKNOWN_OFFSET (37 * SECOND)

enum { SENSOR_MODE, GAIN, EXPOSURE, FRAME_RATE, BYPASS, OVERRIDE, STRIDE, CONTROLS };
static const struct control {
    unsigned id, type;
    const char *name;
    long long minimum, maximum, initial;
} controls[CONTROLS] = {
    {BASE + 8, V4L2_CTRL_TYPE_INTEGER64, "Sensor Mode", 0, INT32_MAX, 0},
    {BASE + 9, V4L2_CTRL_TYPE_INTEGER64, "Gain", 16, 170, 16},
    {BASE + 10, V4L2_CTRL_TYPE_INTEGER64, "Exposure", 13, 683709, 2495},
    {BASE + 11, V4L2_CTRL_TYPE_INTEGER64, "Frame Rate", 2000000, 15000000, 15000000},
    {BASE + 100, V4L2_CTRL_TYPE_INTEGER_MENU, "Bypass Mode", 0, 1, 0},
    {BASE + 101, V4L2_CTRL_TYPE_INTEGER_MENU, "Override Enable", 0, 1, 0},
    {BASE + 110, V4L2_CTRL_TYPE_INTEGER, "Preferred Stride", 0, 65535, 0},
};
/* The default one first; small and slow ones, which an emulated machine keeps up with. vivid's webcams have them. */
static const struct { unsigned width, height; } modes[] = {{640, 360}, {320, 180}};

static long long stored[CONTROLS], sensor[CONTROLS];
static int streams, is_reset, frames;
static long long started;
static struct { off_t offset; void *at; } mapped[64];
static unsigned mapped_count;

static long real_syscall(long number, long *argument) {
    static long (*next)(long, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

static int real_ioctl(int fd, unsigned long request, void *argument) {
    return real_syscall(SYS_ioctl, (long[6]){fd, request, (long)argument});
}

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

static void logged(const char *format, ...) {
    FILE *file = fopen(getenv("BOARD_LOG"), "a");
    va_list list;
    if (!file) abort();
    va_start(list, format);
    vfprintf(file, format, list);
    va_end(list);
    fputc('\n', file);
    fclose(file);
}

static void keep(const char *mode) {
    FILE *file = fopen(getenv("BOARD_STATE"), mode);
    if (!file) return;
    if (*mode == 'r' ? fread(stored, sizeof stored, 1, file) != 1 : fwrite(stored, sizeof stored, 1, file) != 1) abort();
    fclose(file);
}

__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < CONTROLS; i++) stored[i] = controls[i].initial;
    keep("r");
}

static void program_sensor(int fd, int which, long long value) {
    /* An exposure, in us, must end within its frame, as in nv_imx219.c; the rate is in frames per million seconds. */
    if (which == EXPOSURE && value > SECOND * 1000 / sensor[FRAME_RATE]) value = SECOND * 1000 / sensor[FRAME_RATE];
    sensor[which] = value;
    logged("sensor %s %lld", controls[which].name, value);
    if (which != FRAME_RATE) return;
    struct v4l2_streamparm rate = {.type = V4L2_BUF_TYPE_VIDEO_CAPTURE};
    rate.parm.capture.timeperframe.numerator = 1000000;
    rate.parm.capture.timeperframe.denominator = value;
    real_ioctl(fd, VIDIOC_S_PARM, &rate);
}

static int set_control(int fd, int which, long long value) {
    if (value < controls[which].minimum || value > controls[which].maximum) return errno = ERANGE, -1;
    if (stored[which] == value) return 0;
    stored[which] = value;
    keep("w");
    if (which >= GAIN && which <= FRAME_RATE && streams) program_sensor(fd, which, value);
    return 0;
}

static int control_of(unsigned id) {
    for (int i = 0; i < CONTROLS; i++)
        if (controls[i].id == id) return i;
    return -1;
}

static int query(struct v4l2_query_ext_ctrl *asked) {
    unsigned flags = asked->id & (V4L2_CTRL_FLAG_NEXT_CTRL | V4L2_CTRL_FLAG_NEXT_COMPOUND), id = asked->id & ~flags;
    for (int i = 0; i < CONTROLS; i++) {
        if (flags ? controls[i].id <= id : controls[i].id != id) continue;
        memset(asked, 0, sizeof *asked);
        asked->id = controls[i].id, asked->type = controls[i].type, asked->step = 1;
        asked->elem_size = controls[i].type == V4L2_CTRL_TYPE_INTEGER64 ? 8 : 4, asked->elems = 1;
        asked->minimum = controls[i].minimum, asked->maximum = controls[i].maximum;
        asked->default_value = controls[i].initial;
        strcpy(asked->name, controls[i].name);
        return 0;
    }
    return errno = EINVAL, -1;
}

static int access_controls(int fd, struct v4l2_ext_controls *all, int sets) {
    for (unsigned i = 0; i < all->count; i++) {
        struct v4l2_ext_control *one = &all->controls[i];
        int which = control_of(one->id), is_long = which >= 0 && controls[which].type == V4L2_CTRL_TYPE_INTEGER64;
        if (which < 0) return all->error_idx = i, errno = EINVAL, -1;
        if (!sets && is_long) one->value64 = stored[which];
        if (!sets && !is_long) one->value = stored[which];
        if (sets && set_control(fd, which, is_long ? one->value64 : one->value)) return all->error_idx = i, -1;
    }
    return 0;
}

static unsigned sensor_format(void) {
    const char *name = getenv("BOARD_FORMAT");
    return v4l2_fourcc(name[0], name[1], name[2], name[3]);
}

static int format(int fd, unsigned long request, struct v4l2_format *wanted) {
    struct v4l2_pix_format *pix = &wanted->fmt.pix;
    unsigned mode = stored[SENSOR_MODE] < (long long)LENGTH(modes) ? stored[SENSOR_MODE] : 0;
    if (pix->width != modes[mode].width || pix->height != modes[mode].height) mode = 0;
    pix->width = modes[mode].width, pix->height = modes[mode].height, pix->pixelformat = sensor_format();
    pix->field = V4L2_FIELD_NONE, pix->bytesperline = stored[STRIDE], pix->sizeimage = 0;
    if (request == VIDIOC_S_FMT) logged("mode %u", mode);
    return real_ioctl(fd, request, wanted);
}

static int start(int fd, void *kind) {
    sensor[FRAME_RATE] = controls[FRAME_RATE].initial;
    for (int i = GAIN; i <= FRAME_RATE; i++) program_sensor(fd, i, stored[OVERRIDE] ? stored[i] : controls[i].initial);
    if (real_ioctl(fd, VIDIOC_STREAMON, kind)) return -1;
    streams = 1, started = now();
    return 0;
}

static void fill_words(uint16_t *words, unsigned count) {
    unsigned bits = getenv("BOARD_FORMAT")[2] == '1' && getenv("BOARD_FORMAT")[3] == '2' ? 12 : 10;
    for (unsigned i = 0; i < count; i++) words[i] = words[i] << (16 - bits) | words[i] >> (2 * bits - 16);
}

/* The newest mapping counts: a stream's may be at the place of an earlier one's. */
static void *words_of(const struct v4l2_buffer *buffer) {
    if (buffer->memory == V4L2_MEMORY_USERPTR) return (void *)buffer->m.userptr;
    for (unsigned i = mapped_count; i-- > 0;)
        if (mapped[i].offset == (off_t)buffer->m.offset) return mapped[i].at;
    abort();
}

static int dequeue(int fd, struct v4l2_buffer *buffer) {
    int has_faults = getenv("BOARD_FAULTS") != NULL;
    if (is_reset) return errno = EIO, -1;
    if (real_ioctl(fd, VIDIOC_DQBUF, buffer)) return -1;
    if (has_faults && now() < started + 2 * SECOND) {
        if (real_ioctl(fd, VIDIOC_QBUF, buffer)) abort();
        return errno = EAGAIN, -1;
    }
    uint16_t *words = words_of(buffer);
    fill_words(words, buffer->bytesused / 2);
    frames++;
    if (has_faults && frames % 7 == 0) {
        memset(words, 0, buffer->bytesused);
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

static int board(int fd, unsigned long request, void *argument) {
    switch (request) {
    case VIDIOC_SUBSCRIBE_EVENT: return 0;
    case VIDIOC_S_PARM: case VIDIOC_G_PARM: return errno = ENOTTY, -1;
    case VIDIOC_QUERY_EXT_CTRL: return query(argument);
    case VIDIOC_G_EXT_CTRLS: return access_controls(fd, argument, 0);
    case VIDIOC_S_EXT_CTRLS: return access_controls(fd, argument, 1);
    case VIDIOC_TRY_FMT: case VIDIOC_S_FMT: return format(fd, request, argument);
    case VIDIOC_STREAMON: return start(fd, argument);
    case VIDIOC_DQBUF: return dequeue(fd, argument);
    case VIDIOC_STREAMOFF: streams = is_reset = 0; return real_ioctl(fd, request, argument);
    case VIDIOC_QUERYMENU: {
        struct v4l2_querymenu *item = argument;
        int which = control_of(item->id);
        if (which < 0 || item->index > controls[which].maximum) return errno = EINVAL, -1;
        return item->value = item->index, 0;
    }
    case VIDIOC_ENUM_FRAMESIZES: {
        struct v4l2_frmsizeenum *size = argument;
        if (size->index >= LENGTH(modes)) return errno = EINVAL, -1;
        size->type = V4L2_FRMSIZE_TYPE_DISCRETE;
        size->discrete.width = modes[size->index].width, size->discrete.height = modes[size->index].height;
        return 0;
    }
    case VIDIOC_ENUM_FRAMEINTERVALS: {
        struct v4l2_frmivalenum *interval = argument;
        if (interval->index > 0) return errno = EINVAL, -1;
        interval->type = V4L2_FRMIVAL_TYPE_DISCRETE;
        interval->discrete.numerator = 1, interval->discrete.denominator = 15;
        return 0;
    }
    case VIDIOC_ENUM_FMT: {
        struct v4l2_fmtdesc *asked = argument;
        if (asked->index > 0) return errno = EINVAL, -1;
        asked->flags = 0, asked->pixelformat = sensor_format();
        strcpy((char *)asked->description, "RGRG.. GBGB..");
        return 0;
    }
    }
    if (real_ioctl(fd, request, argument)) return -1;
    if (request == VIDIOC_QUERYCAP) {
        struct v4l2_capability *who = argument;
        strcpy((char *)who->driver, "tegra-video"), strcpy((char *)who->card, "vi-output, imx219 9-0010");
        strcpy((char *)who->bus_info, "platform:tegra-capture-vi:2");
    }
    if (request == VIDIOC_ENUMINPUT) {
        struct v4l2_input *input = argument;
        strcpy((char *)input->name, "Camera 2");
        input->status = streams ? 0 : V4L2_IN_ST_NO_POWER, input->capabilities = 0, input->std = 0;
    }
    return 0;
}

long syscall(long number, ...) {
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
void *mmap(void *place, size_t length, int access, int flags, int fd, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    struct stat file;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "mmap");
    void *found = next(place, length, access, flags, fd, offset);
    if (fd >= 0 && !fstat(fd, &file) && S_ISCHR(file.st_mode) && major(file.st_rdev) == 81) {
        if (mapped_count == LENGTH(mapped)) abort();
        mapped[mapped_count].offset = offset, mapped[mapped_count++].at = found;
    }
    return found;
}
