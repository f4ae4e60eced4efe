/* What the parts of the imitated driver share. See board.c. */
#include <linux/videodev2.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define SECOND 1000000000LL

/* In the order of their numbers, in which the driver lists them. */
enum {
    SENSOR_MODE,
    GAIN,
    EXPOSURE,
    FRAME_RATE,
    BYPASS,
    OVERRIDE,
    IMAGE_PROPERTIES,
    CONTROL_PROPERTIES,
    STRIDE,
    SENSOR_MODES,
    TEST_PATTERN,
    CONTROLS
};

/* What the driver keeps from one program to the next. */
struct state {
    long long controls[CONTROLS];
    /* The sensor's mode, which TRY_FMT changes as well, and the one that the ranges of its controls are of. */
    unsigned mode, range_mode;
    /* The format: size and distance of rows. */
    unsigned width, height, pixelformat, pitch;
    /* vivid's own test picture, while the sensor's test pattern is in its place. */
    int picture;
};

/* board.c */
extern struct state state;
int real_ioctl(int fd, unsigned long request, void *argument);
void logged(const char *format, ...) __attribute__((format(printf, 1, 2)));
void keep_state(void);
int is_set(const char *variable);

/* format.c */
void choose_sensor(void);
const char *sensor_name(void);
unsigned mode_count(void);
unsigned mode_width(unsigned mode), mode_height(unsigned mode), mode_fps(unsigned mode), mode_format(unsigned mode);
int format(int fd, unsigned long request, struct v4l2_format *wanted);
int describe_format(struct v4l2_fmtdesc *asked);
int frame_size(struct v4l2_frmsizeenum *asked);
int frame_interval(struct v4l2_frmivalenum *asked);
/* To be called before vivid makes buffers of this kind, V4L2_MEMORY_*. */
int prepare_buffers(int fd, unsigned memory);
/* Whether vivid draws the whole picture and not a part of it. */
int is_whole_picture(void);

/* controls.c */
void initial_controls(void);
/* Takes over the ranges of the sensor's mode, and moves values into them. */
void follow_mode(int fd);
/* The driver's default for a control in the mode whose ranges are in force. */
long long default_value(int which);
const char *control_name(int which);
int query(struct v4l2_query_ext_ctrl *asked);
int query_menu(struct v4l2_querymenu *item);
int access_controls(int fd, struct v4l2_ext_controls *all, int sets);

/* stream.c */
int request_buffers(int fd, struct v4l2_requestbuffers *wanted);
int queue(int fd, struct v4l2_buffer *buffer);
int start(int fd, void *kind);
int stop(int fd, void *kind);
int dequeue(int fd, struct v4l2_buffer *buffer);
int has_buffers(void), has_power(void);
void program_sensor(int fd, int which, long long value);
/* Remembers where a buffer of vivid's is mapped. */
void remember_mapping(long long offset, void *at);
