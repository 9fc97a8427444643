// Preloaded: reads or writes of files below $FAULTY_DIR go wrong, as they do on a disk that dies. $FAULTY says how:
// "read": reads fail with EIO; "write": writes do; "turned": what is read has one bit turned round.
// The kernel's asynchronous I/O is refused, so that everything comes by here.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*call)(long, ...);

static call next(void) {
    static call found;
    if (!found)
        found = (call)dlsym(RTLD_NEXT, "syscall");
    return found;
}

static int is_meant(int fd, const char *fault) {
    const char *dir = getenv("FAULTY_DIR"), *what = getenv("FAULTY");
    char link[64], path[4096];
    if (!dir || !what || strcmp(what, fault))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return strncmp(path, dir, strlen(dir)) == 0;
}

ssize_t pread64(int fd, void *to, size_t count, off64_t at) {
    int saved = errno;
    if (is_meant(fd, "read")) {
        errno = EIO;
        return -1;
    }
    int turned = is_meant(fd, "turned");
    errno = saved;
    ssize_t n = next()(SYS_pread64, fd, to, count, at);
    if (n > 0 && turned)
        ((char *)to)[n / 2] ^= 4;
    return n;
}

ssize_t pread(int fd, void *to, size_t count, off_t at) { return pread64(fd, to, count, at); }

ssize_t pwrite64(int fd, const void *from, size_t count, off64_t at) {
    int saved = errno;
    if (is_meant(fd, "write")) {
        errno = EIO;
        return -1;
    }
    errno = saved;
    return next()(SYS_pwrite64, fd, from, count, at);
}

ssize_t pwrite(int fd, const void *from, size_t count, off_t at) { return pwrite64(fd, from, count, at); }

long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_io_setup) {
        errno = ENOSYS;
        return -1;
    }
    return next()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
