/* Makes a driver narrower and odder than it is, for the program it is preloaded into:
 *
 * ONLY_FORMAT=NM12   it offers this pixel format alone: vivid offers several that mean the same, of which only the first
 *                    would ever be taken; trailing spaces of the code may be missing
 * PITCH_EXTRA=52     its rows are so many bytes farther apart (half of it where a chroma plane's are half as long)
 * IDLE_STATUS=1      its input has this status while it does not stream, and it takes any event, as tegra-video does
 *
 * visiond's ioctls on cameras go through syscall() of the C library, not through ioctl(). The file that CHANGED names has a line
 * for each answer that was changed: without one the library did nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static long real_syscall(long number, long *argument) {
    static long (*next)(long, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    return next(number, argument[0], argument[1], argument[2], argument[3], argument[4], argument[5]);
}

static int real_ioctl(int fd, unsigned long request, void *argument) {
    return real_syscall(SYS_ioctl, (long[6]){fd, request, (long)argument});
}

static void changed(const char *what) {
    FILE *file = fopen(getenv("CHANGED"), "a");
    if (!file) abort();
    fprintf(file, "%s\n", what);
    fclose(file);
}

static int enumerate(int fd, struct v4l2_fmtdesc *asked, const char *only) {
    struct v4l2_fmtdesc found;
    char code[5];
    snprintf(code, sizeof code, "%-4s", only);
    if (asked->index > 0) return errno = EINVAL, -1;
    for (unsigned index = 0;; index++) {
        memset(&found, 0, sizeof found);
        found.index = index, found.type = asked->type;
        if (real_ioctl(fd, VIDIOC_ENUM_FMT, &found)) return -1;
        if (!memcmp(&found.pixelformat, code, 4)) break;
    }
    found.index = 0;
    *asked = found;
    changed("formats");
    return 0;
}

static int set_format(int fd, struct v4l2_format *format, int extra) {
    if (real_ioctl(fd, VIDIOC_S_FMT, format)) return -1;
    if (format->type == V4L2_BUF_TYPE_VIDEO_CAPTURE) {
        format->fmt.pix.bytesperline += extra, format->fmt.pix.sizeimage = 0;
    } else {
        struct v4l2_pix_format_mplane *pix = &format->fmt.pix_mp;
        unsigned first = pix->plane_fmt[0].bytesperline;
        for (int i = 0; i < pix->num_planes; i++) {
            struct v4l2_plane_pix_format *plane = &pix->plane_fmt[i];
            plane->bytesperline += plane->bytesperline < first ? extra / 2 : extra, plane->sizeimage = 0;
        }
    }
    changed("pitch");
    return real_ioctl(fd, VIDIOC_S_FMT, format);
}

static int idle(int fd, unsigned long request, void *argument, int status) {
    static int streams;
    if (request == VIDIOC_SUBSCRIBE_EVENT) return 0;
    if (real_ioctl(fd, request, argument)) return -1;
    if (request == VIDIOC_STREAMON) streams = 1;
    if (request == VIDIOC_STREAMOFF) streams = 0;
    if (request == VIDIOC_ENUMINPUT && !streams) {
        ((struct v4l2_input *)argument)->status |= status;
        changed("status");
    }
    return 0;
}

static int changed_ioctl(int fd, unsigned long request, void *argument) {
    const char *only = getenv("ONLY_FORMAT"), *extra = getenv("PITCH_EXTRA"), *status = getenv("IDLE_STATUS");
    if (request == VIDIOC_ENUM_FMT && only) return enumerate(fd, argument, only);
    if (request == VIDIOC_S_FMT && extra) return set_format(fd, argument, atoi(extra));
    if (status) return idle(fd, request, argument, atoi(status));
    return real_ioctl(fd, request, argument);
}

long syscall(long number, ...) {
    long argument[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) argument[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_ioctl) return changed_ioctl(argument[0], (unsigned)argument[1], (void *)argument[2]);
    return real_syscall(number, argument);
}
