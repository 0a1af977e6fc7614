"""A GPU or port of this machine is held by one live run, whoever's: abstract unix sockets.

An abstract name is unique within a network namespace, across all users, and goes with the last
descriptor of its socket: never stale, no file, no permission. (Source: unix(7).) Who connects to
one learns by SO_PEERCRED which process called listen() last. Containers that have a network of
their own don't see each other's leases.

Resources are `port/2222`, `gpu/GPU-5f1c…` (the UUID that nvidia-smi lists) or `gpu/0`.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import struct
import subprocess
import time
from dataclasses import dataclass

from . import TYPE_CHECKING, process
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence, Tuple

PREFIX = b"\0tfdeploy/"
BACKLOG = 128
TRIES = 10
PAUSE_S = 0.01
CREDENTIALS = struct.Struct("iII")  # pid, uid, gid: `struct ucred` of unix(7)
SUPERVISED = re.compile(rb"[\0 ]supervise[\0 ][^\0]*/([\w.-]+)/runs/([\w.-]+)/(\w+)-(\d+)\0")
GPU = re.compile(r"^GPU (\d+):(?:.*\(UUID: (GPU-[\w-]+)\))?", re.M | re.ASCII)


@dataclass(frozen=True)
class Holder:
    """Who answers for a lease, as far as it can be seen from here.

    `pid` is 0 where the process doesn't answer or is out of sight, `user` is "" where nobody
    answers. `since_s` is how many seconds ago the process started. `project`, `run` and `task` are
    "" where it is no supervisor or its command line is hidden.
    """

    pid: int = 0
    user: str = ""
    since_s: Optional[float] = None
    project: str = ""
    run: str = ""
    task: str = ""

    @property
    def described(self) -> str:
        """`worker:0 of run 20261121-080000-ab12 of digits, started by alice 2h ago`."""
        if self.task:
            who = "{} of run {} of {}".format(self.task, self.run, self.project)
        elif self.pid:
            who = "pid {}".format(self.pid)
        else:
            who = "a process that can't be seen from here"
        since = " {} ago".format(_age(self.since_s)) if self.since_s is not None else ""
        return who + (", started by {}{}".format(self.user, since) if self.user else "")


class Taken(Exception):
    """Another process has `resource`; `holder` says which."""

    def __init__(self, resource: str, holder: Holder) -> None:
        super().__init__("{} is taken by {}".format(resource, holder.described))
        self.resource = resource
        self.holder = holder


def hold(resources: Sequence[str]) -> List[int]:
    """Take every lease or none; one descriptor for each resource, in their order.

    A lease lasts for as long as any process has its descriptor open; children don't inherit it
    unless they are told to. Raises Taken, and OSError for a name that is too long (98 bytes).
    """
    leases: Dict[str, socket.socket] = {}
    try:
        # In one order, so that of those who want the same at the same moment one gets all.
        for resource in sorted(resources):
            leases[resource] = _take(resource)
    except BaseException:
        for lease in leases.values():
            lease.close()
        raise
    return [leases[resource].detach() for resource in resources]


def adopt(descriptors: Sequence[int]) -> None:
    """Call in the process that inherited them: from now on it is the one who answers for them.

    Its children don't inherit them. (listen() again renews what SO_PEERCRED tells: unix(7).)
    """
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
        with _socket(descriptor) as lease:
            lease.listen(BACKLOG)


def answer(descriptors: Sequence[int]) -> None:
    """Let those go who asked for the holder: the kernel has told them. Never blocks.

    Call it now and then: who asks while BACKLOG others wait sees that there is a holder, not who.
    """
    for descriptor in descriptors:
        with _socket(descriptor) as lease:
            for _ in range(BACKLOG + 1):
                try:
                    lease.accept()[0].close()
                except OSError:  # nobody waits any more
                    break


def release(descriptors: Sequence[int]) -> None:
    """Close them. A lease is free once no other process has its descriptor open either."""
    for descriptor in descriptors:
        os.close(descriptor)


def holder(resource: str) -> Optional[Holder]:
    """Who holds it, or None where it is free or became free meanwhile. Never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_name(resource))
            told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        except ConnectionRefusedError:
            return None
        except OSError:  # too many ask already, or we may not
            return Holder()
    pid, uid, _ = CREDENTIALS.unpack(told)
    project, run, task = _work(pid)
    return Holder(pid, _user(uid), _since_s(pid), project, run, task)


def refused(resource: str, holder: Holder) -> Refusal:
    """What to say to who wanted it."""
    end = ", end it with tfdeploy stop --run {}".format(holder.run) if holder.run else ""
    named = resource.replace("port/", "port ").replace("gpu/", "GPU ")
    return Refusal(
        "{} is taken by {}".format(named, holder.described),
        "wait for its end{}, or give the host other ports or GPUs "
        '(ports = "auto" finds free ones)'.format(end),
        held_by=holder.run,
    )


def gpu_uuids() -> Dict[int, str]:
    """The resource of each GPU here by its id, as nvidia-smi lists them; {} where there is none."""
    return parsed_gpus(nvidia_smi("-L"))


def nvidia_smi(*words: str) -> str:
    """What it says; "" where there is none, or where it hangs."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def parsed_gpus(listed: str) -> Dict[int, str]:
    """Read `GPU 0: NVIDIA H100 (UUID: GPU-5f1c…)`, one a line; MIG's parts stand indented. Pure."""
    return {int(number): "gpu/{}".format(uuid or number) for number, uuid in GPU.findall(listed)}


def _take(resource: str) -> socket.socket:
    for _ in range(TRIES):
        lease = _bound(resource)
        if lease is not None:
            return lease
        found = holder(resource)
        if found is not None:
            raise Taken(resource, found)
        time.sleep(PAUSE_S)  # it ended just now, or has its name and does not listen yet
    raise Taken(resource, Holder())


def _bound(resource: str) -> Optional[socket.socket]:
    lease = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lease.setblocking(False)
        lease.bind(_name(resource))
        lease.listen(BACKLOG)
    except OSError as error:
        lease.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return lease


def _name(resource: str) -> bytes:
    return PREFIX + resource.encode()


def _socket(descriptor: int) -> socket.socket:
    """The same socket by a descriptor of its own, which may be closed."""
    lease = socket.socket(fileno=os.dup(descriptor))
    lease.setblocking(False)
    return lease


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _since_s(pid: int) -> Optional[float]:
    """Source: proc(5): field 22 of stat is the start, in clock ticks since the boot."""
    fields = process.stat(pid)
    if not fields:
        return None
    began_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def _work(pid: int) -> Tuple[str, str, str]:
    """Project, run and task of a supervisor: `tfdeploy supervise <its task's folder>`, as it calls
    itself, or `python <agent> supervise <its task's folder> …`, as it is run.

    Anyone may write into their own command line, so nothing but plain names is taken from it.
    """
    found = SUPERVISED.search(process.read(pid, "cmdline"))
    if not found:
        return "", "", ""
    project, run, job, index = (word.decode() for word in found.groups())
    return project, run, "{}:{}".format(job, index)


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return "{}{}".format(int(seconds // size), unit)
    return "{}s".format(int(seconds))
