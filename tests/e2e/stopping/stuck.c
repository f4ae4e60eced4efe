// Preloaded into visiond: an output that hangs for good, as a stuck disk or a resolver without an answer.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void hang(void) {
    for (;;)
        pause();
}

static void hang_if_stuck(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = 0;
    if (strstr(path, "/stuck-"))
        hang();
}

// A host whose name begins with "stuck" is never resolved.
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    if (node && !strncmp(node, "stuck", 5))
        hang();
    return REAL(getaddrinfo)(node, service, hints, found);
}

// A file whose name begins with "stuck-" is never written.
ssize_t write(int fd, const void *bytes, size_t count) {
    hang_if_stuck(fd);
    return REAL(write)(fd, bytes, count);
}

// A file in a folder whose name begins with "stuck-" is written, and never synced.
int fdatasync(int fd) {
    hang_if_stuck(fd);
    return REAL(fdatasync)(fd);
}

int fsync(int fd) {
    hang_if_stuck(fd);
    return REAL(fsync)(fd);
}

// A small send buffer, which a server that does not read soon fills.
int connect(int fd, const struct sockaddr *address, socklen_t length) {
    int bytes = 4096;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return REAL(connect)(fd, address, length);
}
