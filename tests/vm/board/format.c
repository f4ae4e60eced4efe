/* Sizes, formats and rates. vi/channel.c, camera_common.c:
 *
 * - With use_sensor_mode_id in the device tree, as in all of NVIDIA's, the control sensor_mode chooses the mode. Another size
 *   than that mode's is answered with the default mode's size, while the mode stays the chosen one.
 * - Otherwise, or with a number that no mode has, the size chooses: the first mode that has it, or the default one.
 * - TRY_FMT changes the sensor's mode as S_FMT does. The ranges of its controls follow with S_FMT.
 * - Each size has one rate, that of the first mode with this size.
 * - Formats are listed in the order of vi/vi5_formats.h, each once, and every format has all sizes.
 * - A pitch that is wanted is kept if rows fit; S_FMT prefers the one of the control preferred_stride.
 *
 * vivid draws the largest of its sizes that fits into the sensor's, into buffers that hold the sensor's frames.
 */
#include "board.h"
#include "sensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_PITCH 32768

static const struct sensor *sensor = sensors;

/* In the order of vi/vi5_formats.h, with the driver's descriptions. AB24 is what it calls the RGB888 of a bridge. */
static const struct {
    unsigned format;
    const char *description;
} formats[] = {
    {V4L2_PIX_FMT_SRGGB10, "RGRG.. GBGB.."}, {V4L2_PIX_FMT_SGRBG10, "GRGR.. BGBG.."},
    {V4L2_PIX_FMT_SGBRG10, "GBGB.. RGRG.."}, {V4L2_PIX_FMT_SBGGR10, "BGBG.. GRGR.."},
    {V4L2_PIX_FMT_SRGGB12, "RGRG.. GBGB.."}, {V4L2_PIX_FMT_SGRBG12, "GRGR.. BGBG.."},
    {V4L2_PIX_FMT_SGBRG12, "GBGB.. RGRG.."}, {V4L2_PIX_FMT_SBGGR12, "BGBG.. GRGR.."},
    {V4L2_PIX_FMT_RGBA32, "RGBA-8-8-8-8"},
};
/* vivid's. */
static const struct {
    unsigned width, height;
} sizes[] = {{1920, 1080}, {1280, 720}, {640, 480}, {640, 360}, {320, 180}};

void choose_sensor(void) {
    const char *name = getenv("BOARD_SENSOR");
    for (unsigned i = 0; name && i < LENGTH(sensors); i++)
        if (!strcmp(name, sensors[i].name)) sensor = &sensors[i], name = NULL;
    if (name) fprintf(stderr, "board: there is no sensor %s\n", name), abort();
}

const char *sensor_name(void) { return sensor == sensors ? "imx219" : sensor->name; }

unsigned mode_count(void) {
    unsigned count = 0;
    while (count < MAX_MODES && sensor->modes[count].width) count++;
    return count;
}

unsigned mode_width(unsigned mode) { return sensor->modes[mode].width; }
unsigned mode_height(unsigned mode) { return sensor->modes[mode].height; }
unsigned mode_fps(unsigned mode) { return sensor->modes[mode].fps; }

unsigned mode_format(unsigned mode) {
    const char *name = getenv("BOARD_FORMAT");
    return name ? v4l2_fourcc(name[0], name[1], name[2], name[3]) : sensor->modes[mode].format;
}

static int has_format(unsigned format) {
    for (unsigned i = 0; i < mode_count(); i++)
        if (mode_format(i) == format) return 1;
    return 0;
}

/* The first mode of this size, or -1. */
static int mode_of(unsigned width, unsigned height) {
    for (unsigned i = 0; i < mode_count(); i++)
        if (mode_width(i) == width && mode_height(i) == height) return i;
    return -1;
}

static void vivid_size(unsigned *width, unsigned *height) {
    for (unsigned i = 0; i < LENGTH(sizes); i++) {
        if (sizes[i].width > *width || sizes[i].height > *height) continue;
        *width = sizes[i].width, *height = sizes[i].height;
        return;
    }
    abort();
}

int is_whole_picture(void) {
    unsigned width = state.width, height = state.height;
    vivid_size(&width, &height);
    return width == state.width && height == state.height;
}

static void choose_mode(unsigned *width, unsigned *height) {
    long long wanted = is_set("BOARD_BY_SIZE") ? -1 : state.controls[SENSOR_MODE];
    int of_size = mode_of(*width, *height), has_size = of_size >= 0;
    if (wanted >= 0 && wanted < mode_count()) {
        state.mode = wanted;
        has_size = *width == mode_width(wanted) && *height == mode_height(wanted);
    } else {
        state.mode = has_size ? of_size : 0;
    }
    if (!has_size) *width = mode_width(0), *height = mode_height(0);
}

/* Passes a format of the sensor's to vivid as one of vivid's own, whose buffers are at least or at most as large. */
static int pass_on(int fd, unsigned long request, struct v4l2_format *wanted, struct v4l2_pix_format sensors_own, int at_most) {
    struct v4l2_pix_format *pix = &wanted->fmt.pix;
    unsigned size = sensors_own.bytesperline * sensors_own.height;
    pix->width = sensors_own.width, pix->height = sensors_own.height, pix->pixelformat = sensors_own.pixelformat;
    vivid_size(&pix->width, &pix->height);
    pix->field = V4L2_FIELD_NONE, pix->sizeimage = 0, pix->bytesperline = sensors_own.bytesperline;
    if (pix->height != sensors_own.height) pix->bytesperline = (size / pix->height + (at_most ? 0 : 4)) & ~3u;
    if (real_ioctl(fd, request, wanted)) return -1;
    pix->width = sensors_own.width, pix->height = sensors_own.height;
    pix->bytesperline = sensors_own.bytesperline, pix->sizeimage = size;
    return 0;
}

static struct v4l2_pix_format current_format(void) {
    return (struct v4l2_pix_format){.width = state.width, .height = state.height, .pixelformat = state.pixelformat,
                                    .bytesperline = state.pitch};
}

/* vivid's own memory must hold a frame of the sensor's; of a program's memory vivid must not want more than such a frame. */
int prepare_buffers(int fd, unsigned memory) {
    struct v4l2_format wanted = {.type = V4L2_BUF_TYPE_VIDEO_CAPTURE};
    return pass_on(fd, VIDIOC_S_FMT, &wanted, current_format(), memory == V4L2_MEMORY_USERPTR);
}

int format(int fd, unsigned long request, struct v4l2_format *wanted) {
    struct v4l2_pix_format pix = wanted->fmt.pix;
    if (request == VIDIOC_G_FMT) return pass_on(fd, VIDIOC_TRY_FMT, wanted, current_format(), 0);
    choose_mode(&pix.width, &pix.height);
    if (!has_format(pix.pixelformat)) pix.pixelformat = state.pixelformat;
    unsigned least = pix.width * (pix.pixelformat == V4L2_PIX_FMT_RGBA32 ? 4 : 2);
    if (request == VIDIOC_S_FMT && state.controls[STRIDE]) pix.bytesperline = state.controls[STRIDE];
    if (pix.bytesperline < least) pix.bytesperline = least;
    if (pix.bytesperline > MAX_PITCH) pix.bytesperline = MAX_PITCH;
    if (pass_on(fd, request, wanted, pix, 0)) return -1;
    if (request == VIDIOC_S_FMT) {
        logged("mode %u", state.mode);
        state.width = pix.width, state.height = pix.height, state.pixelformat = pix.pixelformat;
        state.pitch = pix.bytesperline;
        follow_mode(fd);
    }
    keep_state();
    return 0;
}

int describe_format(struct v4l2_fmtdesc *asked) {
    unsigned left = asked->index;
    for (unsigned i = 0; i < LENGTH(formats); i++) {
        if (!has_format(formats[i].format) || left--) continue;
        asked->flags = 0, asked->pixelformat = formats[i].format;
        strcpy((char *)asked->description, formats[i].description);
        return 0;
    }
    return errno = EINVAL, -1;
}

int frame_size(struct v4l2_frmsizeenum *asked) {
    if (!has_format(asked->pixel_format) || asked->index >= mode_count()) return errno = EINVAL, -1;
    asked->type = V4L2_FRMSIZE_TYPE_DISCRETE;
    asked->discrete.width = mode_width(asked->index), asked->discrete.height = mode_height(asked->index);
    return 0;
}

int frame_interval(struct v4l2_frmivalenum *asked) {
    int mode = mode_of(asked->width, asked->height);
    if (!has_format(asked->pixel_format) || mode < 0 || asked->index > 0) return errno = EINVAL, -1;
    asked->type = V4L2_FRMIVAL_TYPE_DISCRETE;
    asked->discrete.numerator = 1, asked->discrete.denominator = mode_fps(mode);
    return 0;
}
