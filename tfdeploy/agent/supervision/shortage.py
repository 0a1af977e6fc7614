"""Say what the host lacks when the kernel refuses something, or ends a process: space, memory, a
larger limit of processes."""

from __future__ import annotations

import errno
import os
import re
import resource
from typing import Iterator, Optional

from ...shared.filesystem import read_if_possible
from ..refusal import Refusal

# What Python raises, without an error number, if it cannot start a thread.
V1_LIMIT = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
V2_LIMIT = ("/sys/fs/cgroup", "memory.max")
MEBIBYTE, NO_LIMIT = 1 << 20, 1 << 50  # version 1 has no word for no limit
NO_THREAD = "can't start new thread"
WRITES = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
# fork(2): EAGAIN for a limit of processes, ENOMEM for memory. Both may be gone a moment later.
TEMPORARY = (errno.EAGAIN, errno.ENOMEM)
HINTS = {
    errno.EROFS: "repair or remount its file system; status, logs, stop and scp work until then",
    errno.ENOSPC: "tfdeploy runs shows what uses its disk, tfdeploy prune frees space",
    errno.EDQUOT: "tfdeploy runs shows what uses its disk, tfdeploy prune frees space",
    errno.EIO: "its disk reports errors, see dmesg there",
    errno.EAGAIN: "its limit of processes is reached: ulimit -u, or pids.max of a control group",
    errno.ENOMEM: "it has no memory left; free shows its use, and a control group may limit it",
}


def find(error: Exception) -> Optional[Refusal]:
    """Return what the host lacks, as a message with a hint; None if that is not the error."""
    number = _number(error)
    if number not in HINTS:
        return None
    return Refusal("{}: {}".format(_attempt(error, number), os.strerror(number)), HINTS[number])


def is_temporary(error: Exception) -> bool:
    """Return whether a later attempt to start a process may succeed."""
    return _number(error) in TEMPORARY


def oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since the machine started,
    on all of it and in all control groups; 0 if it does not say (Linux before 4.13).

    Source: linux/mm/vmstat.c, the counter OOM_KILL.
    """
    found = re.search(rb"^oom_kill (\d+)$", read_if_possible("/proc/vmstat"), re.M)
    return int(found[1]) if found else 0


def describe_oom_kill(kills: int) -> str:
    """Return what is known about the death by SIGKILL of the largest child that this process has
    waited for, while the kernel killed `kills` processes for lack of memory; "" for no kill."""
    if kills <= 0:
        return ""
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    what = "1 process" if kills == 1 else "{} processes".format(kills)
    text = ": the kernel killed {} for lack of memory; the task had used up to {:.0f} MiB"
    return text.format(what, used) + _of_limit()


def _of_limit() -> str:
    """Return how much memory there is for the task: its control group's smallest limit, or all of
    the host's; "" if neither can be read. Source: linux/Documentation/admin-guide, cgroup-v1 and
    cgroup-v2."""
    limits = [int(each) for each in _group_limits() if each.strip().isdigit()]
    total = re.search(rb"^MemTotal: +(\d+) kB", read_if_possible("/proc/meminfo"), re.M)
    host = int(total[1]) << 10 if total else 0
    if limits and min(limits) < (host or NO_LIMIT):
        return " of the {:.0f} MiB that its control group allows".format(min(limits) / MEBIBYTE)
    return " of the host's {:.0f} MiB".format(host / MEBIBYTE) if host else ""


def _group_limits() -> Iterator[bytes]:
    """Yield the limits of this process's control groups, of either version, and their parents."""
    groups = read_if_possible("/proc/self/cgroup")
    for controller, path in re.findall(rb"^\d+:(memory|):(.*)$", groups, re.M):
        root, name = V1_LIMIT if controller else V2_LIMIT
        parts = path.decode(errors="replace").strip("/").split("/")
        for count in range(len(parts) + 1):
            yield read_if_possible("/".join([root, *filter(None, parts[:count]), name]))


def _number(error: Exception) -> int:
    if isinstance(error, OSError):
        return error.errno or 0
    is_limit = isinstance(error, RuntimeError) and str(error) == NO_THREAD
    return errno.EAGAIN if is_limit else errno.ENOMEM if isinstance(error, MemoryError) else 0


def _attempt(error: Exception, number: int) -> str:
    if number in TEMPORARY:
        return "can't start another process or thread"
    path = getattr(error, "filename2", None) or getattr(error, "filename", None) or "a file"
    return "can't {} {}".format("write" if number in WRITES else "use", path)
