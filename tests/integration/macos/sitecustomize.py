"""Take from this Python what macOS does not have: the files of /proc, and functions of Linux.

Source: the "Availability" notes of Python's library reference. A process loads this module if the
folder is in its PYTHONPATH.
"""

import os
import resource
import select
import signal
import socket
import sys
import time

MISSING = {
    os: (
        *("copy_file_range", "eventfd", "fdatasync", "getrandom", "getxattr", "memfd_create"),
        *("pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "sched_getaffinity"),
        *("setresuid", "splice", "O_DIRECT", "O_NOATIME", "O_PATH", "O_TMPFILE"),
    ),
    resource: ("prlimit",),
    select: ("epoll", "POLLRDHUP"),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX"),
    socket: (
        *("SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT"),
        *("AF_NETLINK", "AF_PACKET", "MSG_NOSIGNAL"),
    ),
    time: ("CLOCK_BOOTTIME",),
}
for module, names in MISSING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def refuse(event: str, details: tuple) -> None:
    path = details[0] if event in ("open", "os.listdir", "os.scandir") and details else None
    if isinstance(path, str) and (f"{path}/").startswith(("/proc/", "/sys/", "/dev/shm/")):
        raise FileNotFoundError(2, "macOS has no such file", path)


sys.addaudithook(refuse)
