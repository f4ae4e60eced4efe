/* Makes the character devices of NVIDIA's capture channels: channel COUNT
 *
 * As in fusa-capture/capture-vi-channel.c of drivers/media/platform/tegra/camera, /dev/capture-vi-channel0 and on have one major
 * number that the kernel chooses, and that is called capture-vi-channel in /proc/devices. A channel can be opened once at a
 * time; another program gets EBUSY. As by NVIDIA's udev rules, the group video may open them.
 *
 * Such a device needs no kernel module of its own: this is a driver in a program, by the kernel's CUSE (fs/fuse/cuse.c). Each
 * open /dev/cuse registers one minor number. Names must differ, so the first device, whose name /proc/devices shows, has no
 * number in it. The devices are there until the program is ended by SIGTERM.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME "capture-vi-channel"
#define MAX_CHANNELS 8

static int is_open[MAX_CHANNELS];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void reply(int fd, unsigned long long request, int error, const void *data, size_t length, const char *more) {
    size_t more_length = more ? strlen(more) + 1 : 0;
    struct fuse_out_header header = {sizeof header + length + more_length, error, request};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)data, length}, {(void *)more, more_length}};
    /* A program that was killed waits for no answer. */
    if (writev(fd, parts, 3) < 0 && errno != ENOENT) die("channel: cannot answer the kernel");
}

/* The kernel makes the device within the answer to its first request. Returns its major number. */
static unsigned make_device(int fd, int number, unsigned major_number, unsigned long long request) {
    char info[64], name[40], path[64];
    struct cuse_init_out device = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_read = 4096,
                                   .max_write = 4096, .dev_major = major_number, .dev_minor = number};
    struct group *video = getgrnam("video");
    unsigned minor_number;
    snprintf(name, sizeof name, number ? NAME "%d" : NAME, number);
    snprintf(info, sizeof info, "DEVNAME=%s", name);
    reply(fd, request, 0, &device, sizeof device, info);
    snprintf(path, sizeof path, "/sys/class/cuse/%s/dev", name);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%u:%u", &major_number, &minor_number) != 2) die(path);
    fclose(file);
    snprintf(path, sizeof path, "/dev/" NAME "%d", number);
    if (!number && mknod(path, S_IFCHR | 0600, makedev(major_number, minor_number))) die(path);
    if (chown(path, 0, video ? video->gr_gid : 0) || chmod(path, 0660)) die(path);
    return major_number;
}

static void serve(int fd, int number) {
    static char data[65536];
    const struct fuse_in_header *header = (void *)data;
    struct fuse_open_out opened = {0};
    if (read(fd, data, sizeof data) < (ssize_t)sizeof *header) return;
    switch (header->opcode) {
    case FUSE_OPEN:
        reply(fd, header->unique, is_open[number] ? -EBUSY : 0, &opened, is_open[number] ? 0 : sizeof opened, NULL);
        is_open[number] = 1;
        return;
    case FUSE_RELEASE:
        is_open[number] = 0;
        reply(fd, header->unique, 0, NULL, 0, NULL);
        return;
    case FUSE_INTERRUPT: return;
    default: reply(fd, header->unique, -ENOTTY, NULL, 0, NULL);
    }
}

static void end(int signal) {
    (void)signal;
    unlink("/dev/" NAME "0");
    _exit(0);
}

int main(int count, char **arguments) {
    struct pollfd devices[MAX_CHANNELS];
    char data[65536];
    int channels = count == 2 ? atoi(arguments[1]) : 0;
    unsigned major_number = 0;
    if (channels < 1 || channels > MAX_CHANNELS) return fprintf(stderr, "usage: channel COUNT\n"), 2;
    signal(SIGTERM, end);
    for (int i = 0; i < channels; i++) {
        devices[i].fd = open("/dev/cuse", O_RDWR | O_CLOEXEC), devices[i].events = POLLIN;
        if (devices[i].fd < 0 || read(devices[i].fd, data, sizeof data) < 0) die("/dev/cuse");
        major_number = make_device(devices[i].fd, i, major_number, ((struct fuse_in_header *)data)->unique);
    }
    while (poll(devices, channels, -1) >= 0 || errno == EINTR)
        for (int i = 0; i < channels; i++)
            if (devices[i].revents & POLLIN) serve(devices[i].fd, i);
    die("channel: poll");
}
