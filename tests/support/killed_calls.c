/* Kill the process that loads this library at one of its calls that others can see.

   Preloaded (LD_PRELOAD). The folder KILLED_CALLS has a file `at` with a number N and a part of a
   command line: the first process whose command line contains it takes the file, and is killed just
   before its N-th call (N = 0: never). Each of its calls is a line of the file `calls`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#undef open64
#undef openat64
#define EXPORT __attribute__((visibility("default")))

static pid_t known;       /* the process about which `is_victim` is */
static int is_victim;
static long last;         /* the number of the call at which it is killed */
static atomic_long count;
static char calls[4096];

static size_t read_file(const char *path, char *text, size_t size) {
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : syscall(SYS_read, file, text, size - 1);
    if (file >= 0) syscall(SYS_close, file);
    text[length > 0 ? length : 0] = 0;
    return length > 0 ? length : 0;
}

/* Is this the process to be killed? */
static int watched(void) {
    char path[4096], order[256], command[8192], *folder = getenv("KILLED_CALLS"), *part;
    pid_t self = syscall(SYS_getpid);
    if (known == self || !folder) return known == self && is_victim;
    snprintf(path, sizeof path, "%s/at", folder);
    if (!read_file(path, order, sizeof order)) return 0;
    size_t length = read_file("/proc/self/cmdline", command, sizeof command);
    for (size_t at = 0; at + 1 < length; at++)
        if (!command[at]) command[at] = ' ';
    part = strchr(order, ' ');
    if (!part || !strstr(command, part + 1)) return 0;
    known = self;
    is_victim = !syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    last = atol(order);
    snprintf(calls, sizeof calls, "%s/calls", folder);
    return is_victim;
}

static void seen(const char *call, const char *what) {
    char line[4400];
    int saved = errno;
    if (watched()) {
        long number = atomic_fetch_add(&count, 1) + 1;
        int length = snprintf(line, sizeof line, "%s %s\n", call, what);
        int file = syscall(SYS_openat, AT_FDCWD, calls, O_WRONLY | O_CREAT | O_APPEND, 0600);
        syscall(SYS_write, file, line, length);
        syscall(SYS_close, file);
        if (number == last) syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    }
    errno = saved;
}

/* Of what a descriptor is; the standard streams show nothing that is used later. */
static void seen_at(const char *call, int descriptor) {
    char link[64], path[4096];
    if (descriptor < 3 || !watched()) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (strncmp(path, "anon_inode", 10) && strncmp(path, "/dev/", 5)) seen(call, path);
}

#define NEXT(name) ((__typeof__(&name))next_of(&next_##name, #name))
static void *next_of(void **next, const char *name) {
    if (!*next) *next = dlsym(RTLD_NEXT, name);
    return *next;
}

#define CALL(type, name, types, see, words) \
    static void *next_##name; \
    EXPORT type name types { see; return NEXT(name) words; }

static void seen_open(const char *path, int flags) {
    if (flags & (O_CREAT | O_WRONLY | O_RDWR) && strncmp(path, "/dev/", 5)) seen("open", path);
}

#define OPEN(name, types, words) \
    static void *next_##name; \
    EXPORT int name types { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        seen_open(path, flags); \
        return NEXT(name) words; \
    }
OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

CALL(ssize_t, write, (int fd, const void *data, size_t size), seen_at("write", fd), (fd, data, size))
CALL(ssize_t, writev, (int fd, const struct iovec *v, int n), seen_at("write", fd), (fd, v, n))
CALL(ssize_t, send, (int fd, const void *data, size_t size, int flags), seen_at("send", fd),
     (fd, data, size, flags))
CALL(ssize_t, sendto,
     (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t n),
     seen_at("send", fd), (fd, data, size, flags, to, n))
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), seen_at("send", fd),
     (fd, m, flags))
CALL(int, connect, (int fd, const struct sockaddr *to, socklen_t n), seen_at("connect", fd),
     (fd, to, n))
CALL(int, bind, (int fd, const struct sockaddr *to, socklen_t n), seen_at("bind", fd), (fd, to, n))
CALL(int, ftruncate64, (int fd, off64_t size), seen_at("ftruncate", fd), (fd, size))
CALL(int, fsync, (int fd), seen_at("fsync", fd), (fd))
CALL(int, fchmod, (int fd, mode_t mode), seen_at("fchmod", fd), (fd, mode))
CALL(int, futimens, (int fd, const struct timespec t[2]), seen_at("utime", fd), (fd, t))
CALL(int, chmod, (const char *path, mode_t mode), seen("chmod", path), (path, mode))
CALL(int, utimensat, (int at, const char *path, const struct timespec t[2], int flags),
     seen("utime", path), (at, path, t, flags))
CALL(int, rename, (const char *from, const char *to), seen("rename", to), (from, to))
CALL(int, renameat, (int at, const char *from, int other, const char *to), seen("rename", to),
     (at, from, other, to))
CALL(int, link, (const char *from, const char *to), seen("link", to), (from, to))
CALL(int, linkat, (int at, const char *from, int other, const char *to, int flags),
     seen("link", to), (at, from, other, to, flags))
CALL(int, symlink, (const char *target, const char *path), seen("symlink", path), (target, path))
CALL(int, symlinkat, (const char *target, int at, const char *path), seen("symlink", path),
     (target, at, path))
CALL(int, unlink, (const char *path), seen("unlink", path), (path))
CALL(int, unlinkat, (int at, const char *path, int flags), seen("unlink", path), (at, path, flags))
CALL(int, rmdir, (const char *path), seen("rmdir", path), (path))
CALL(int, mkdir, (const char *path, mode_t mode), seen("mkdir", path), (path, mode))
CALL(int, mkdirat, (int at, const char *path, mode_t mode), seen("mkdir", path), (at, path, mode))
CALL(int, kill, (pid_t pid, int number), seen("kill", ""), (pid, number))
CALL(pid_t, fork, (void), seen("fork", ""), ())

/* The function from which vfork was called must not return in the child: this one is a fork. */
EXPORT pid_t vfork(void) {
    return fork();
}
