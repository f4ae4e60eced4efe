/* The modes of NVIDIA's sensor drivers in the order of their tables (frmfmt in drivers/media/i2c/NAME_mode_tbls.h of Jetson
 * Linux 36), each with the format that NVIDIA's device trees give it. The control sensor_mode is an index into this list; the
 * first mode is the default. */
#include <linux/videodev2.h>
#include <string.h>

#define MAX_MODES 5

struct mode {
    unsigned width, height, fps, format;
};

struct sensor {
    const char *name;
    struct mode modes[MAX_MODES];
};

static const struct sensor sensors[] = {
    /* No sensor of NVIDIA's: small and slow, so that an emulated machine keeps up. vivid has these sizes. */
    {"small", {{640, 360, 15, V4L2_PIX_FMT_SRGGB10}, {320, 180, 15, V4L2_PIX_FMT_SRGGB10}}},
    {"imx219",
     {{3280, 2464, 21, V4L2_PIX_FMT_SRGGB10},
      {3280, 1848, 28, V4L2_PIX_FMT_SRGGB10},
      {1920, 1080, 30, V4L2_PIX_FMT_SRGGB10},
      {1640, 1232, 30, V4L2_PIX_FMT_SRGGB10},
      {1280, 720, 60, V4L2_PIX_FMT_SRGGB10}}},
    {"imx477", {{3840, 2160, 30, V4L2_PIX_FMT_SRGGB10}, {1920, 1080, 60, V4L2_PIX_FMT_SRGGB10}}},
    {"ov5693",
     {{2592, 1944, 30, V4L2_PIX_FMT_SBGGR10}, {2592, 1458, 30, V4L2_PIX_FMT_SBGGR10}, {1280, 720, 120, V4L2_PIX_FMT_SBGGR10}}},
    /* All of one size; the last one is for high dynamic range. */
    {"imx185",
     {{1920, 1080, 30, V4L2_PIX_FMT_SRGGB12},
      {1920, 1080, 30, V4L2_PIX_FMT_SRGGB10},
      {1920, 1080, 60, V4L2_PIX_FMT_SRGGB12},
      {1920, 1080, 60, V4L2_PIX_FMT_SRGGB10},
      {1920, 1080, 30, V4L2_PIX_FMT_SRGGB12}}},
    {"imx274",
     {{3840, 2160, 60, V4L2_PIX_FMT_SRGGB10},
      {1920, 1080, 60, V4L2_PIX_FMT_SRGGB10},
      {3856, 4448, 30, V4L2_PIX_FMT_SRGGB10},
      {1936, 2264, 60, V4L2_PIX_FMT_SRGGB10}}},
};
