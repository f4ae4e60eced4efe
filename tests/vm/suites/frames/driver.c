/* Makes a driver narrower and odder than it is, for the program it is preloaded into:
 *
 * ONLY_FORMAT=NM12   it offers this pixel format alone: vivid offers several that mean the same, of which only the first
 *                    would ever be taken
 * PITCH_EXTRA=52     its rows are so many bytes farther apart (half of it where a chroma plane's are half as long)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int real_ioctl(int fd, unsigned long request, void *argument) {
    static int (*next)(int, unsigned long, ...);
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "ioctl");
    return next(fd, request, argument);
}

static int enumerate(int fd, struct v4l2_fmtdesc *asked, const char *only) {
    struct v4l2_fmtdesc found;
    if (asked->index > 0) return errno = EINVAL, -1;
    for (unsigned index = 0;; index++) {
        memset(&found, 0, sizeof found);
        found.index = index, found.type = asked->type;
        if (real_ioctl(fd, VIDIOC_ENUM_FMT, &found)) return -1;
        if (!memcmp(&found.pixelformat, only, 4)) break;
    }
    found.index = 0;
    *asked = found;
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
    return real_ioctl(fd, VIDIOC_S_FMT, format);
}

int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    const char *only = getenv("ONLY_FORMAT"), *extra = getenv("PITCH_EXTRA");
    if (request == VIDIOC_ENUM_FMT && only) return enumerate(fd, argument, only);
    if (request == VIDIOC_S_FMT && extra) return set_format(fd, argument, atoi(extra));
    return real_ioctl(fd, request, argument);
}
