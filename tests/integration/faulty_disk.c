/* A disk that fails or is slow, for the process that loads this library (LD_PRELOAD).

   LAVANT_FAULTY_DISK names a directory: of files below it, `fsync`, `fdatasync` and `pwrite` do what the file named by
   LAVANT_DISK_FAULT says, which is read at each call: "eio" fails with EIO, a number sleeps for so many milliseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fails(int descriptor) {
    const char *directory = getenv("LAVANT_FAULTY_DISK"), *order = getenv("LAVANT_DISK_FAULT");
    char link[64], path[PATH_MAX + 1], text[32];
    if (directory == NULL || order == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 0) return 0;
    path[length] = 0;
    if (strncmp(path, directory, strlen(directory)) != 0) return 0;
    int file = open(order, O_RDONLY);
    if (file < 0) return 0;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size <= 0) return 0;
    text[size] = 0;
    if (strncmp(text, "eio", 3) == 0) {
        errno = EIO;
        return 1;
    }
    long ms = atol(text);
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
    return 0;
}

int fsync(int descriptor) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return fails(descriptor) ? -1 : real(descriptor);
}

int fdatasync(int descriptor) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return fails(descriptor) ? -1 : real(descriptor);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    return fails(descriptor) ? -1 : real(descriptor, data, size, offset);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return fails(descriptor) ? -1 : real(descriptor, data, size, offset);
}
