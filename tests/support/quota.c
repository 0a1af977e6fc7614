/* A disk quota for the files below a folder, for programs that load this library before others.

   $QUOTA_BELOW is the folder. What takes space there (a new file or folder, a write) is counted in
   the file $QUOTA_COUNT, for all processes together, and refused with EDQUOT when more than
   $QUOTA_AFTER of them were counted, as by a file system with quotas. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

static long *count, after;
static const char *below;

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("QUOTA_COUNT");
    int descriptor = file ? REAL(open, file, O_RDWR) : -1;
    if (descriptor < 0)
        return;
    void *shared = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    below = strdup(getenv("QUOTA_BELOW")); /* a process may overwrite its variables */
    after = atol(getenv("QUOTA_AFTER"));
    count = shared == MAP_FAILED ? NULL : shared;
}

static int refuses(const char *path)
{
    if (!count || strncmp(path, below, strlen(below)) != 0)
        return 0;
    if (__sync_add_and_fetch(count, 1) <= after)
        return 0;
    errno = EDQUOT;
    return 1;
}

static int refuses_at(int folder, const char *name)
{
    char path[2 * PATH_MAX] = "", link[64];
    if (name[0] != '/') {
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
                 folder);
        if (readlink(link, path, PATH_MAX) < 0)
            return 0;
        strcat(path, "/");
    }
    strncat(path, name, PATH_MAX - 1);
    return refuses(path);
}

static int refuses_write(int descriptor)
{
    char path[PATH_MAX] = "", link[64];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (!count || readlink(link, path, sizeof path - 1) < 0) {
        errno = before;
        return 0;
    }
    return refuses(path);
}

static int refuses_open(int folder, const char *name, int flags)
{
    int before = errno;
    if (!(flags & O_CREAT) || faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    errno = before;
    return refuses_at(folder, name);
}

#define OPEN(name)                                                                                \
    int name(const char *path, int flags, ...)                                                    \
    {                                                                                             \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode_t mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                             \
        return refuses_open(AT_FDCWD, path, flags) ? -1 : REAL(name, path, flags, mode);          \
    }
#define OPENAT(name)                                                                              \
    int name(int folder, const char *path, int flags, ...)                                        \
    {                                                                                             \
        va_list rest;                                                                             \
        va_start(rest, flags);                                                                    \
        mode_t mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                             \
        return refuses_open(folder, path, flags) ? -1 : REAL(name, folder, path, flags, mode);    \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int mkdir(const char *path, mode_t mode)
{
    return access(path, F_OK) != 0 && refuses_at(AT_FDCWD, path) ? -1 : REAL(mkdir, path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    int exists = faccessat(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    return !exists && refuses_at(folder, path) ? -1 : REAL(mkdirat, folder, path, mode);
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    return size && refuses_write(descriptor) ? -1 : REAL(write, descriptor, data, size);
}
