/* Controls. tegracam_ctrls.c, vi/channel.c, include/media/tegra-v4l2-camera.h, and the kernel's v4l2-ctrls-core.c:
 *
 * - Gain, exposure and frame rate start at the least value of their range, not at the default: the driver makes them with 0
 *   and then narrows the range. The rate's range is that of the sensor's mode.
 * - The kernel moves a number into its range; it refuses a menu's item that does not exist.
 * - While buffers exist, bypass_mode cannot be changed. A value that is the stored one already changes nothing.
 * - Sensor Image Properties and Sensor Control Properties are arrays of 30 structures, of which those of the modes are filled,
 *   and as many elements counted.
 *
 * Gain and exposure are imx219's for every sensor. The test pattern is there with BOARD_TEST_PATTERN=1.
 */
#include "board.h"
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* vivid's control for its picture, which is called Test Pattern as well (VIVID_CID_TEST_PATTERN in vivid-ctrls.c). */
#define VIVIDS_PICTURE 0x00f0f000
#define BASE (V4L2_CTRL_CLASS_CAMERA | 0x2000)
#define MAX_SENSOR_MODES 30
/* Gain and rate have a factor in the device tree. */
#define GAIN_FACTOR 16
#define RATE_FACTOR 1000000
#define LEAST_RATE (2 * RATE_FACTOR)
#define READ_ONLY V4L2_CTRL_FLAG_READ_ONLY
#define ARRAY (V4L2_CTRL_FLAG_READ_ONLY | V4L2_CTRL_FLAG_HAS_PAYLOAD)

/* One mode's part of the two arrays, as C lays it out: 64 bits stand at multiples of eight bytes. */
struct image_properties {
    uint32_t width, height, line_length, pixel_format, embedded_metadata_height, reserved[11];
};
struct control_properties {
    uint32_t gain_factor, framerate_factor, inherent_gain, min_gain, max_gain, min_hdr_ratio, max_hdr_ratio;
    uint32_t min_framerate, max_framerate;
    uint64_t min_exposure, max_exposure;
    uint32_t step_gain, step_framerate, exposure_factor;
    uint64_t step_exposure;
    uint32_t default_gain, default_framerate;
    uint64_t default_exposure;
    uint32_t is_interlaced, interlace_type, reserved[10];
};
_Static_assert(sizeof(struct image_properties) == 64 && sizeof(struct control_properties) == 144, "as the driver's");

/* The ranges of gain and exposure end one above the sensor's. */
static const struct control {
    unsigned id, type, flags;
    const char *name;
    long long minimum, maximum, initial;
} controls[CONTROLS] = {
    [SENSOR_MODE] = {BASE + 8, V4L2_CTRL_TYPE_INTEGER64, 0, "Sensor Mode", 0, INT_MAX, 0},
    [GAIN] = {BASE + 9, V4L2_CTRL_TYPE_INTEGER64, 0, "Gain", 16, 171, 16},
    [EXPOSURE] = {BASE + 10, V4L2_CTRL_TYPE_INTEGER64, 0, "Exposure", 13, 683710, 2495},
    [FRAME_RATE] = {BASE + 11, V4L2_CTRL_TYPE_INTEGER64, 0, "Frame Rate", LEAST_RATE, 0, 0},
    [BYPASS] = {BASE + 100, V4L2_CTRL_TYPE_INTEGER_MENU, 0, "Bypass Mode", 0, 1, 0},
    [OVERRIDE] = {BASE + 101, V4L2_CTRL_TYPE_INTEGER_MENU, 0, "Override Enable", 0, 1, 0},
    [IMAGE_PROPERTIES] = {BASE + 106, V4L2_CTRL_TYPE_U32, ARRAY, "Sensor Image Properties", 0, UINT_MAX, 0},
    [CONTROL_PROPERTIES] = {BASE + 107, V4L2_CTRL_TYPE_U32, ARRAY, "Sensor Control Properties", 0, UINT_MAX, 0},
    [STRIDE] = {BASE + 110, V4L2_CTRL_TYPE_INTEGER, 0, "Preferred Stride", 0, 65535, 0},
    [SENSOR_MODES] = {BASE + 130, V4L2_CTRL_TYPE_INTEGER, READ_ONLY, "Sensor Modes", 0, MAX_SENSOR_MODES, MAX_SENSOR_MODES},
    [TEST_PATTERN] = {V4L2_CID_TEST_PATTERN, V4L2_CTRL_TYPE_MENU, 0, "Test Pattern", 0, 1, 0},
};

const char *control_name(int which) { return controls[which].name; }

static int is_there(int which) { return which != TEST_PATTERN || is_set("BOARD_TEST_PATTERN"); }
static int is_array(int which) { return controls[which].type == V4L2_CTRL_TYPE_U32; }
static int is_long(int which) { return controls[which].type == V4L2_CTRL_TYPE_INTEGER64; }

static long long maximum(int which) {
    if (which == SENSOR_MODE) return mode_count();
    return which == FRAME_RATE ? (long long)mode_fps(state.range_mode) * RATE_FACTOR : controls[which].maximum;
}

long long default_value(int which) { return which == FRAME_RATE ? maximum(which) : controls[which].initial; }

static long long clamped(int which, long long value) {
    if (value < controls[which].minimum) return controls[which].minimum;
    return value > maximum(which) ? maximum(which) : value;
}

void initial_controls(void) {
    for (int i = 0; i < CONTROLS; i++) state.controls[i] = controls[i].initial;
    for (int i = GAIN; i <= FRAME_RATE; i++) state.controls[i] = controls[i].minimum;
    state.controls[SENSOR_MODES] = mode_count();
}

/* Shows 100 % colour bars, or what vivid showed before. */
static void show_pattern(int fd, int is_on) {
    struct v4l2_control picture = {.id = VIVIDS_PICTURE};
    if (is_on) {
        if (real_ioctl(fd, VIDIOC_G_CTRL, &picture)) abort();
        state.picture = picture.value;
    }
    picture.value = is_on ? 1 : state.picture;
    if (real_ioctl(fd, VIDIOC_S_CTRL, &picture)) abort();
    logged("test pattern %d", is_on);
}

static int set_control(int fd, int which, long long value) {
    int is_menu = controls[which].type == V4L2_CTRL_TYPE_INTEGER_MENU || controls[which].type == V4L2_CTRL_TYPE_MENU;
    if (controls[which].flags & READ_ONLY) return errno = EACCES, -1;
    if (is_menu && value != clamped(which, value)) return errno = ERANGE, -1;
    value = clamped(which, value);
    if (state.controls[which] == value) return 0;
    if (which == BYPASS && has_buffers()) return errno = EBUSY, -1;
    state.controls[which] = value;
    if (which == BYPASS) logged("bypass %lld", value);
    if (which == TEST_PATTERN) show_pattern(fd, value);
    if (which >= GAIN && which <= FRAME_RATE && has_power()) program_sensor(fd, which, value);
    keep_state();
    return 0;
}

void follow_mode(int fd) {
    state.range_mode = state.mode;
    set_control(fd, FRAME_RATE, state.controls[FRAME_RATE]);
}

static int control_of(unsigned id) {
    for (int i = 0; i < CONTROLS; i++)
        if (controls[i].id == id && is_there(i)) return i;
    return -1;
}

static unsigned bytes_of_mode(int which) {
    return which == IMAGE_PROPERTIES ? sizeof(struct image_properties) : sizeof(struct control_properties);
}

int query(struct v4l2_query_ext_ctrl *asked) {
    unsigned flags = asked->id & (V4L2_CTRL_FLAG_NEXT_CTRL | V4L2_CTRL_FLAG_NEXT_COMPOUND), id = asked->id & ~flags;
    for (int i = 0; i < CONTROLS; i++) {
        if (!is_there(i) || (flags ? controls[i].id <= id : controls[i].id != id)) continue;
        if (flags == V4L2_CTRL_FLAG_NEXT_CTRL && is_array(i)) continue;
        if (flags == V4L2_CTRL_FLAG_NEXT_COMPOUND && !is_array(i)) continue;
        memset(asked, 0, sizeof *asked);
        asked->id = controls[i].id, asked->type = controls[i].type, asked->flags = controls[i].flags, asked->step = 1;
        asked->elem_size = is_long(i) ? 8 : 4, asked->elems = 1;
        asked->minimum = controls[i].minimum, asked->maximum = maximum(i), asked->default_value = default_value(i);
        strcpy(asked->name, controls[i].name);
        if (is_array(i)) {
            asked->nr_of_dims = 2, asked->dims[0] = MAX_SENSOR_MODES, asked->dims[1] = bytes_of_mode(i) / 4;
            asked->elems = mode_count() * asked->dims[1];
        }
        return 0;
    }
    return errno = EINVAL, -1;
}

int query_menu(struct v4l2_querymenu *item) {
    static const char *const patterns[] = {"Disabled", "Color Bars"};
    int which = control_of(item->id);
    if (which < 0 || item->index > maximum(which)) return errno = EINVAL, -1;
    if (controls[which].type == V4L2_CTRL_TYPE_INTEGER_MENU) return item->value = item->index, 0;
    if (controls[which].type != V4L2_CTRL_TYPE_MENU) return errno = EINVAL, -1;
    return strcpy((char *)item->name, patterns[item->index]), 0;
}

static void write_properties(int which, char *to) {
    for (unsigned i = 0; i < mode_count(); i++, to += bytes_of_mode(which)) {
        struct image_properties image = {mode_width(i), mode_height(i), mode_width(i) + 168, mode_format(i)};
        /* What a device tree can say, and what the driver makes of it. */
        if (image.pixel_format == V4L2_PIX_FMT_RGBA32) image.pixel_format = V4L2_PIX_FMT_RGB24;
        struct control_properties control = {
            .gain_factor = GAIN_FACTOR, .framerate_factor = RATE_FACTOR, .exposure_factor = 1000000,
            .min_hdr_ratio = 1, .max_hdr_ratio = 1,
            .min_gain = 16, .max_gain = 170, .step_gain = 1, .default_gain = 16,
            .min_framerate = LEAST_RATE, .max_framerate = mode_fps(i) * RATE_FACTOR, .step_framerate = 1,
            .default_framerate = mode_fps(i) * RATE_FACTOR,
            .min_exposure = 13, .max_exposure = 683709, .step_exposure = 1, .default_exposure = 2495,
        };
        memcpy(to, which == IMAGE_PROPERTIES ? (void *)&image : (void *)&control, bytes_of_mode(which));
    }
}

int access_controls(int fd, struct v4l2_ext_controls *all, int sets) {
    for (unsigned i = 0; i < all->count; i++) {
        struct v4l2_ext_control *one = &all->controls[i];
        int which = control_of(one->id);
        if (which < 0) return all->error_idx = i, errno = EINVAL, -1;
        if (is_array(which) && !sets) {
            unsigned wanted = one->size;
            one->size = mode_count() * bytes_of_mode(which);
            if (wanted < one->size) return all->error_idx = all->count, errno = ENOSPC, -1;
            write_properties(which, one->ptr);
            continue;
        }
        if (sets && set_control(fd, which, is_long(which) ? one->value64 : one->value)) return all->error_idx = i, -1;
        if (is_long(which)) one->value64 = state.controls[which];
        else one->value = state.controls[which];
    }
    return 0;
}
