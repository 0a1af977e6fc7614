/* Preloaded into each process of a task (LD_PRELOAD): which files it writes outside of the task's
 * directory, so that none is lost without a word.
 *
 * The functions below append to the file TFDEPLOY_SAVES the path of each file that they opened for
 * writing or gave its name, and of each folder that they made, with a slash at its end. Each path
 * ends with a zero byte; it is the kernel's: absolute, without symbolic links. The directory `work`
 * beside TFDEPLOY_SAVES is left out; agent/outputs/saves.py decides what of the rest matters.
 *
 * Python and C++ alike, and the commands that they start, open files by these functions. A program
 * that is linked statically (Go) or drops LD_PRELOAD does not, nor do mkstemp() and mkdtemp() of C.
 *
 * A file that is opened for reading costs one comparison. All else needs no memory but a table of
 * fixed size, may run in a signal's handler and between fork() and exec(), and never fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A path that is recorded already is found in a table of hashes, where a newer one may replace it:
 * then it is recorded again. */
#define KNOWN_PATHS 4096
/* At this size the file becomes TFDEPLOY_SAVES.1, in place of an older one. */
#define RECORD_BYTES (512 * 1024)

static char record_file[PATH_MAX], older_file[PATH_MAX];
static char own_folder[PATH_MAX];
static size_t own_size;
static uint64_t known[KNOWN_PATHS];

__attribute__((constructor)) static void read_settings(void)
{
    const char *path = getenv("TFDEPLOY_SAVES"), *name = path ? strrchr(path, '/') : NULL;
    if (!name || strlen(path) > PATH_MAX - sizeof "/work")
        return;
    strcpy(record_file, path);
    stpcpy(stpcpy(older_file, path), ".1");
    own_size = name - path;
    memcpy(own_folder, path, own_size);
    own_size = stpcpy(own_folder + own_size, "/work") - own_folder;
}

/* Stores the path of an open file, and returns its size with the zero byte; 0 without a path. */
static size_t read_path(int file, char path[PATH_MAX])
{
    char link[32] = "/proc/self/fd/", digits[12];
    char *end = link + strlen(link), *digit = digits;
    do
        *digit++ = '0' + file % 10;
    while ((file /= 10));
    while (digit > digits)
        *end++ = *--digit;
    *end = 0;
    ssize_t size = readlink(link, path, PATH_MAX - 1); /* room for a slash */
    if (size <= 0 || size >= PATH_MAX - 1 || path[0] != '/')
        return 0; /* a pipe, for example */
    path[size] = 0;
    return size + 1;
}

static int is_own(const char *path)
{
    return !strncmp(path, own_folder, own_size) && (!path[own_size] || path[own_size] == '/');
}

/* FNV-1a */
static uint64_t hash_of(const char *path)
{
    uint64_t hash = 0xcbf29ce484222325;
    while (*path)
        hash = (hash ^ (unsigned char)*path++) * 0x100000001b3;
    return hash;
}

/* Another process may have moved the file meanwhile. */
static void replace_older(int record)
{
    char path[PATH_MAX];
    if (read_path(record, path) && !strcmp(path, record_file))
        syscall(SYS_renameat, AT_FDCWD, record_file, AT_FDCWD, older_file);
}

static int append(const char *path, size_t size)
{
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
    int record = syscall(SYS_openat, AT_FDCWD, record_file, flags, 0600);
    if (record < 0)
        return 0;
    int is_written = write(record, path, size) == (ssize_t)size;
    if (lseek(record, 0, SEEK_END) > RECORD_BYTES)
        replace_older(record);
    close(record);
    return is_written;
}

static void record_open_file(int file, int is_folder)
{
    char path[PATH_MAX];
    int error = errno;
    size_t size = read_path(file, path);
    if (size && !is_own(path)) {
        if (is_folder)
            strcpy(path + size++ - 1, "/");
        uint64_t hash = hash_of(path), *slot = &known[hash % KNOWN_PATHS];
        if (__atomic_load_n(slot, __ATOMIC_RELAXED) != hash && append(path, size))
            __atomic_store_n(slot, hash, __ATOMIC_RELAXED);
    }
    errno = error;
}

static void record_name(int folder, const char *name)
{
    int error = errno, flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, is_folder = 1;
    int file = syscall(SYS_openat, folder, name, flags | O_DIRECTORY);
    if (file < 0) {
        is_folder = 0;
        file = syscall(SYS_openat, folder, name, flags);
    }
    if (file >= 0) {
        record_open_file(file, is_folder);
        close(file);
    }
    errno = error;
}

static int open_file(int folder, const char *path, int flags, mode_t mode)
{
    int file = syscall(SYS_openat, folder, path, flags, mode);
    if ((flags & (O_WRONLY | O_RDWR)) && file >= 0 && own_size)
        record_open_file(file, 0);
    return file;
}

static FILE *open_stream(FILE *stream, const char *mode)
{
    if ((mode[0] != 'r' || strchr(mode, '+')) && stream && own_size)
        record_open_file(fileno(stream), 0);
    return stream;
}

static int named(int result, int folder, const char *name)
{
    if (!result && own_size)
        record_name(folder, name);
    return result;
}

#define MODE(flags, mode)                             \
    mode_t mode = 0;                                  \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {          \
        va_list more;                                 \
        va_start(more, flags);                        \
        mode = va_arg(more, mode_t);                  \
        va_end(more);                                 \
    }

int open(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return open_file(folder, path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    return open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

int creat64(const char *path, mode_t mode)
{
    return open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

FILE *_IO_fopen(const char *path, const char *mode); /* glibc's fopen(), by its other name */

FILE *fopen(const char *path, const char *mode)
{
    return open_stream(_IO_fopen(path, mode), mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return open_stream(_IO_fopen(path, mode), mode);
}

int rename(const char *from, const char *to)
{
    return named(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to), AT_FDCWD, to);
}

int renameat(int from_folder, const char *from, int folder, const char *to)
{
    return named(syscall(SYS_renameat, from_folder, from, folder, to), folder, to);
}

int renameat2(int from_folder, const char *from, int folder, const char *to, unsigned flags)
{
    return named(syscall(SYS_renameat2, from_folder, from, folder, to, flags), folder, to);
}

int mkdir(const char *path, mode_t mode)
{
    return named(syscall(SYS_mkdirat, AT_FDCWD, path, mode), AT_FDCWD, path);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    return named(syscall(SYS_mkdirat, folder, path, mode), folder, path);
}
