// Preloaded into visiond: a disk that fails, and that loses power.
//
// It is about files in folders whose path has "/on-disk". The folder $DISK gets what such a disk would still have after a power cut:
// inode-NUMBER with the synced bytes of each file, and names-NUMBER with the names that a synced folder has, one a line with its
// inode. Sync number $FAIL_SYNC fails and, as in Linux, the bytes count as written from then on. Reading a file whose name is
// $FAIL_READ fails.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MOST 65536

static struct {
    ino_t inode;
    off_t start;
    size_t length;
} dirty[MOST];
static int dirty_count, sync_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length <= 0)
        return 0;
    path[length] = 0;
    return strstr(path, "/on-disk") != NULL;
}

static int disk_file(const char *kind, ino_t inode, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%lu", getenv("DISK"), kind, (unsigned long)inode);
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);
}

static ssize_t note(int fd, ssize_t written, off64_t start) {
    char path[4096];
    struct stat found;
    if (written > 0 && getenv("DISK") && path_of(fd, path, sizeof path) && !fstat(fd, &found)) {
        pthread_mutex_lock(&lock);
        if (dirty_count == MOST)
            abort();
        dirty[dirty_count].inode = found.st_ino;
        dirty[dirty_count].start = start;
        dirty[dirty_count++].length = (size_t)written;
        pthread_mutex_unlock(&lock);
    }
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t start) {
    return note(fd, REAL(pwrite64)(fd, bytes, count, start), start);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    off_t start = lseek(fd, 0, SEEK_CUR);
    return note(fd, REAL(write)(fd, bytes, count), start);
}

// Puts the dirty bytes of a file on the disk, or forgets them.
static void flush(const char *path, ino_t inode, int keep) {
    int from = keep ? open(path, O_RDONLY | O_CLOEXEC) : -1, to = keep ? disk_file("inode", inode, 0) : -1, left = 0;
    for (int i = 0; i < dirty_count; i++) {
        if (dirty[i].inode != inode) {
            dirty[left++] = dirty[i];
            continue;
        }
        char *bytes = malloc(dirty[i].length);
        if (keep && REAL(pread64)(from, bytes, dirty[i].length, dirty[i].start) == (ssize_t)dirty[i].length)
            REAL(pwrite64)(to, bytes, dirty[i].length, dirty[i].start);
        free(bytes);
    }
    dirty_count = left;
    close(from);
    close(to);
}

static int sync_of(int fd, int (*real)(int)) {
    char path[4096];
    struct stat found;
    if (!getenv("DISK") || !path_of(fd, path, sizeof path) || fstat(fd, &found))
        return real(fd);
    const char *failing = getenv("FAIL_SYNC");
    pthread_mutex_lock(&lock);
    int fails = failing && ++sync_count == atoi(failing);
    if (S_ISREG(found.st_mode)) {
        flush(path, found.st_ino, !fails);
    } else if (!fails) {
        int names = disk_file("new", found.st_ino, O_TRUNC);
        DIR *folder = opendir(path);
        for (struct dirent *entry; folder && (entry = readdir(folder));)
            if (entry->d_type == DT_REG)
                dprintf(names, "%lu %s\n", (unsigned long)entry->d_ino, entry->d_name);
        closedir(folder);
        close(names);
        // In one step, because the test may kill visiond here.
        char from[4096], to[4096];
        snprintf(from, sizeof from, "%s/new-%lu", getenv("DISK"), (unsigned long)found.st_ino);
        snprintf(to, sizeof to, "%s/names-%lu", getenv("DISK"), (unsigned long)found.st_ino);
        rename(from, to);
    }
    pthread_mutex_unlock(&lock);
    errno = EIO;
    return fails ? -1 : 0;
}

int fdatasync(int fd) { return sync_of(fd, REAL(fdatasync)); }

int fsync(int fd) { return sync_of(fd, REAL(fsync)); }

ssize_t pread64(int fd, void *bytes, size_t count, off64_t start) {
    char path[4096];
    const char *failing = getenv("FAIL_READ");
    if (failing && path_of(fd, path, sizeof path) && strstr(path, failing)) {
        errno = EIO;
        return -1;
    }
    return REAL(pread64)(fd, bytes, count, start);
}
