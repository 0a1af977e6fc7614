"""Leases: one live run of any user holds a GPU or port of this machine, by an abstract Unix socket.

An abstract name is unique within a network namespace, for all users. It disappears with the last
descriptor of its socket, so a lease is never stale and needs no file and no permission. A process
that connects to a lease learns from SO_PEERCRED which process called listen() last. Source:
unix(7). Containers with their own network do not see each other's leases.

Resources are named `port/2222`, `gpu/GPU-5f1c…` or `gpu/MIG-77f3…` (the UUID from nvidia-smi),
`gpu/AMD-4002` (the id from amdkfd) or `gpu/0`.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time
from typing import Dict, List, Optional, Sequence, Tuple

from ...shared.protocol.record import Record
from ..refusal import Refusal
from . import process

PREFIX = b"\0tfdeploy/"
BACKLOG = 128
TRIES = 10
PAUSE_S = 0.01
CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: `struct ucred` of unix(7)
SUPERVISOR_COMMAND = re.compile(
    rb"[\0 ]supervise[\0 ][^\0]*/([\w.-]+)/runs/([\w.-]+)/(\w+)-(\d+)\0"
)


# For a port or GPU that is in use: the queue waits for other programs, too.
WAIT = "wait for it with --queue or --wait 1h"
SAYS = re.compile(rb" @tfdeploy/(queue|ends)/")  # see queue/places.py


class Holder(Record):
    """The process that holds a lease, as far as this process can see it.

    `pid` is 0 if the process is hidden or did not accept the query, `user` is "" in the latter
    case. `age_s` is how many seconds ago the process started. `project`, `run` and `task` are ""
    if the process is not a supervisor or its command line is hidden. `program` is its command.
    """

    pid: int = 0
    user: str = ""
    age_s: Optional[float] = None
    project: str = ""
    run: str = ""
    task: str = ""
    program: str = ""

    @property
    def description(self) -> str:
        """For example `worker:0 of run 20261121-080000-ab12 of digits, started by alice 2h ago`."""
        if self.task:
            name = "{} of run {} of {}".format(self.task, self.run, self.project)
        elif self.pid:
            program = " ({})".format(self.program) if self.program else ""
            name = "pid {}{}".format(self.pid, program)
        else:
            name = "a hidden process"
        age = " {} ago".format(format_age(self.age_s)) if self.age_s is not None else ""
        return name + (", started by {}{}".format(self.user, age) if self.user else "")


class ResourceTaken(Exception):
    """Another process, `holder`, holds `resource`."""

    def __init__(self, resource: str, holder: Holder) -> None:
        super().__init__("{} is taken by {}".format(resource, holder.description))
        self.resource = resource
        self.holder = holder


def acquire(resources: Sequence[str]) -> List[int]:
    """Take the leases of all `resources` or none; return their descriptors in the same order.

    A lease lasts as long as any process has its descriptor open. Children do not inherit it by
    default. Raises ResourceTaken, and OSError for a name that is longer than 98 bytes.
    """
    leases: Dict[str, socket.socket] = {}
    try:
        # In sorted order: of two processes that want the same resources, one gets all of them.
        for resource in sorted(resources):
            leases[resource] = _take(resource)
    except BaseException:
        for lease in leases.values():
            lease.close()
        raise
    return [leases[resource].detach() for resource in resources]


def adopt(descriptors: Sequence[int]) -> None:
    """Become the holder of inherited leases. The children of this process do not inherit them.

    Calling listen() again updates what SO_PEERCRED returns: unix(7).
    """
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
        with _duplicate(descriptor) as lease:
            lease.listen(BACKLOG)


def drop_queries(descriptors: Sequence[int]) -> None:
    """Close the connections of processes that queried the holder. Never blocks.

    The kernel has already answered them. Call this regularly: while BACKLOG connections wait, a
    further query learns that there is a holder but not which one.
    """
    for descriptor in descriptors:
        with _duplicate(descriptor) as lease:
            for _ in range(BACKLOG + 1):
                try:
                    lease.accept()[0].close()
                except OSError:  # no connection is waiting
                    break


def release(descriptors: Sequence[int]) -> None:
    """Close leases. A lease is free when no other process has its descriptor open either."""
    for descriptor in descriptors:
        os.close(descriptor)


def holder(resource: str) -> Optional[Holder]:
    """Return the holder of a lease, or None if it is free or has just become free. Never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as query:
        query.setblocking(False)
        try:
            query.connect(_socket_name(resource))
            peer = query.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        except ConnectionRefusedError:
            return None
        except OSError:  # the backlog is full, or the connection is not permitted
            return Holder()
    pid, uid, _ = CREDENTIALS.unpack(peer)
    project, run, task = _supervised_task(pid)
    return Holder(pid, process.user_name(uid), process_age_s(pid), project, run, task)


def is_held(resource: str) -> bool:
    """Return whether a process holds a lease. This is much faster than to learn which one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as query:
        query.setblocking(False)
        return query.connect_ex(_socket_name(resource)) != errno.ECONNREFUSED


def holders() -> List[Holder]:
    """Return the holders of all leases of this machine, without names that only say something.

    Source: proc(5), /proc/net/unix: an abstract name starts with @ there.
    """
    with open("/proc/net/unix", "rb") as table:
        lines = [each for each in table if b" @tfdeploy/" in each and not SAYS.search(each)]
    names = {line.split()[-1][len(PREFIX) :] for line in lines}
    found = (holder(name.decode(errors="replace")) for name in sorted(names))
    return [each for each in found if each]


def stop_hint(holder: Holder) -> str:
    """Return how the holder's run is stopped, with a semicolon; "" if this user can't stop it."""
    if not holder.run or holder.user != process.user_name(os.geteuid()):
        return ""
    return "stop it in the folder of project {} with tfdeploy stop --run {}; ".format(
        holder.project, holder.run
    )


def taken_refusal(name: str, holder: Holder) -> Refusal:
    """Return the refusal for a task that needs `name`, such as "GPU 0", while `holder` has it."""
    other = "use fewer or other GPUs" if name.startswith("GPU") else 'set ports = "auto"'
    return Refusal(
        "{} is taken by {}".format(name, holder.description),
        "{}; {}or {}".format(WAIT, stop_hint(holder), other),
        held_by=holder.run,
        busy=True,
    )


def port(number: int) -> str:
    """Return the name of a port's lease."""
    return "port/{}".format(number)


def title(resource: str) -> str:
    """Return a resource in words, for example `port 2222`. Only nvidia-smi knows a GPU's index."""
    return "a GPU" if resource.startswith("gpu/") else resource.replace("/", " ")


def _take(resource: str) -> socket.socket:
    for _ in range(TRIES):
        lease = _bind(resource)
        if lease is not None:
            return lease
        current = holder(resource)
        if current is not None:
            raise ResourceTaken(resource, current)
        time.sleep(PAUSE_S)  # the holder has just ended, or has bound the name and not listened yet
    raise ResourceTaken(resource, Holder())


def _bind(resource: str) -> Optional[socket.socket]:
    """Return the lease's socket, or None if the name is in use."""
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.setblocking(False)
        lease.bind(_socket_name(resource))
        lease.listen(BACKLOG)
    except OSError as error:
        lease.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return lease


def _socket_name(resource: str) -> bytes:
    return PREFIX + resource.encode()


def _duplicate(descriptor: int) -> socket.socket:
    """Return the same socket with its own descriptor; closing it leaves `descriptor` open."""
    lease = socket.socket(fileno=os.dup(descriptor))
    lease.setblocking(False)
    return lease


def process_age_s(pid: int) -> Optional[float]:
    """Return the age of a process. Source: proc(5), stat field 22: start in clock ticks."""
    fields = process.stat(pid)
    if not fields:
        return None
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)


def _supervised_task(pid: int) -> Tuple[str, str, str]:
    """Return project, run and task of a supervisor; empty strings for any other process.

    A supervisor's command line is `tfdeploy supervise <task's folder>`, or `python <agent>
    supervise <task's folder> …` if it was not forked. Any process can write anything into its own
    command line, so only plain names are accepted.
    """
    match = SUPERVISOR_COMMAND.search(process.read(pid, "cmdline"))
    if not match:
        return "", "", ""
    project, run, job, index = (word.decode() for word in match.groups())
    return project, run, "{}:{}".format(job, index)


def format_age(seconds: float) -> str:
    """Return a duration such as `3h`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return "{}{}".format(int(seconds // size), unit)
    return "{}s".format(int(seconds))
