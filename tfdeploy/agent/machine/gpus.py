"""Which GPUs of this machine tasks may have: those without a lease and without a foreign process.

Here GPUs are given by their indexes, each with the name of its lease.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from typing import Dict, Iterator, List, Tuple

from ...shared.records import GpuNeed
from ..refusal import Refusal
from . import leases, process
from .devices import gpu_health, vendors
from .devices.nvidia import Gpu, GpuProcess

# The driver frees the memory of a process after its end, and a start passes its leases to
# supervisors only after its checks.
WAIT_S, PAUSE_S = 5.0, 0.1
CHOOSING = "gpu/choosing"  # the lease of a process that takes some of several GPUs
FILLED = 0.5  # of a GPU's memory: TensorFlow, which takes nearly all of it, has no room then
MAX_NAMED = 3
GIBIBYTE = 1 << 30
SHARED_SERVICES = ("nvidia-cuda-mps-server",)  # it runs so that processes can share the GPU


def refusals(need: GpuNeed, host_gpus: Dict[int, str]) -> List[Refusal]:
    """Return why tasks can't have the GPUs that they need now; nothing if they can. Raises Refusal
    if nvidia-smi hangs."""
    gpus = _existing(need, host_gpus)
    leased = {}
    for gpu, resource in gpus.items():
        holder = leases.holder(resource)
        if holder is not None:
            leased[gpu] = leases.taken_refusal("GPU {}".format(gpu), holder)
    free = {gpu: resource for gpu, resource in gpus.items() if gpu not in leased}
    used = foreign_use(free) if free and not need.shared else {}
    return _too_few(gpus, need.count, {**leased, **used, **sick(need)})


def sick(need: GpuNeed) -> Dict[int, Refusal]:
    """Return the refusals of those GPUs with which something may be wrong, if these don't count."""
    if not (need.exclude_sick and need.gpus):
        return {}
    hint = "give the host other GPUs, or set exclude_sick = false"
    problems = gpu_health.problems().items()
    return {gpu: Refusal(words, hint, busy=True) for gpu, words in problems if gpu in need.gpus}


def acquire(need: GpuNeed, host_gpus: Dict[int, str], never: Dict[int, Refusal]) -> Dict[int, int]:
    """Take the leases of GPUs that are free, the first ones if there is a choice, and of those of
    `never` none; return their descriptors by index.

    No other process gets the lease of the same GPU. Waits up to WAIT_S for GPUs whose processes
    have just ended, or whose other start may fail. Raises Refusal, as `refusals` says it.
    """
    deadline = time.monotonic() + WAIT_S
    gpus = _existing(need, host_gpus)
    used = never
    while True:
        own, leased = _lease({gpu: gpus[gpu] for gpu in gpus if gpu not in used}, need.count)
        with ExitStack() as stack:
            stack.callback(leases.release, [*own.values()])
            if len(own) == need.count:
                used = {**never, **(foreign_use(gpus) if own and not need.shared else {})}
                if not used.keys() & own.keys():
                    stack.pop_all()
                    return own
        refused = _too_few(gpus, need.count, {**used, **leased})
        if refused:
            of_runs = {gpu: each for gpu, each in leased.items() if each.held_by}
            of_runs.update(never)
            if _too_few(gpus, need.count, of_runs) or time.monotonic() > deadline:
                raise refused[0]
            time.sleep(PAUSE_S)
            used = never


def _existing(need: GpuNeed, host_gpus: Dict[int, str]) -> Dict[int, str]:
    return {gpu: host_gpus[gpu] for gpu in need.gpus if gpu in host_gpus}


def foreign_use(gpus: Dict[int, str]) -> Dict[int, Refusal]:
    """Return the refusals of those GPUs that processes without a lease use."""
    found = {}
    for gpu in vendors.look():
        if gpus.get(gpu.index) == gpu.resource and is_used(gpu):
            found[gpu.index] = _used_refusal(gpu, computing(gpu))
    return found


def is_used(gpu: Gpu) -> bool:
    """Return whether processes compute on a GPU, or hidden ones fill its memory."""
    return bool(computing(gpu)) or gpu.use.used_bytes >= FILLED * gpu.use.total_bytes > 0


def computing(gpu: Gpu) -> List[GpuProcess]:
    """Return the processes that compute on a GPU, without servers that only share it."""
    return [each for each in gpu.processes if os.path.basename(each.program) not in SHARED_SERVICES]


def holder_of(user: GpuProcess) -> leases.Holder:
    """Return who a process is that uses a GPU, as far as /proc shows it."""
    try:
        owner = process.user_name(os.stat("/proc/{}".format(user.pid)).st_uid)
    except OSError:
        owner = ""
    age_s = leases.process_age_s(user.pid)
    mark = process.read_mark(user.pid) or ("", "", "")
    program = process.command(user.pid) or user.program
    return leases.Holder(user.pid, owner, age_s, *mark, program)


def _used_refusal(gpu: Gpu, users: List[GpuProcess]) -> Refusal:
    holders = [holder_of(user) for user in users[:MAX_NAMED]]
    names = [holder.description for holder in holders]
    if len(users) > MAX_NAMED:
        names.append("{} more".format(len(users) - MAX_NAMED))
    stop = next(filter(None, map(leases.stop_hint, holders)), "")
    used, total = gpu.use.used_bytes / GIBIBYTE, gpu.use.total_bytes / GIBIBYTE
    return Refusal(
        "GPU {} is taken by {}: {:.1f} of its {:.1f} GiB are in use".format(
            gpu.index, "; ".join(names) or "processes that are not visible", used, total
        ),
        "{}; {}use fewer or other GPUs; or set gpus_shared = true, which starts beside it".format(
            leases.WAIT, stop
        ),
        busy=True,
    )


def _too_few(gpus: Dict[int, str], needed: int, taken: Dict[int, Refusal]) -> List[Refusal]:
    """Return the refusals of the GPUs that are taken, as one if there is a choice; nothing if
    enough are left."""
    refused = [taken[gpu] for gpu in gpus if gpu in taken]
    free = len(gpus) - len(refused)
    if free >= min(needed, len(gpus)):  # a GPU that does not exist is another error
        return []
    if needed >= len(gpus):
        return refused
    return [
        Refusal(
            "{} of GPUs {} {} needed, {} free: {}".format(
                needed,
                ", ".join(map(str, gpus)),
                "is" if needed == 1 else "are",
                "none is" if not free else "{} {}".format(free, "is" if free == 1 else "are"),
                "; ".join(_by_holder({gpu: taken[gpu] for gpu in gpus if gpu in taken})),
            ),
            refused[0].hint,
            held_by=next((each.held_by for each in refused if each.held_by), ""),
            busy=True,
        )
    ]


def _by_holder(taken: Dict[int, Refusal]) -> List[str]:
    """Return who has the GPUs, with one sentence for those of one run."""
    groups: Dict[str, List[int]] = {}
    for gpu, refusal in taken.items():
        groups.setdefault(refusal.held_by or refusal.message, []).append(gpu)
    return [
        taken[first].message + (" (and GPU {})".format(", ".join(map(str, more))) if more else "")
        for first, *more in groups.values()
    ]


def _lease(gpus: Dict[int, str], needed: int) -> Tuple[Dict[int, int], Dict[int, Refusal]]:
    """Take up to `needed` leases; return them, and the refusals of GPUs that others have."""
    own: Dict[int, int] = {}
    taken: Dict[int, Refusal] = {}
    with _choosing():
        for gpu, resource in gpus.items():
            if len(own) == needed:
                break
            try:
                own[gpu] = leases.acquire([resource])[0]
            except leases.ResourceTaken as error:
                taken[gpu] = leases.taken_refusal("GPU {}".format(gpu), error.holder)
    return own, taken


@contextmanager
def _choosing() -> Iterator[None]:
    """Keep other processes from choosing GPUs: two that each need several could take half of them,
    and both fail. It is held for milliseconds; after WAIT_S this process chooses beside it."""
    held: List[int] = []
    deadline = time.monotonic() + WAIT_S
    while not held and time.monotonic() < deadline:
        try:
            held = leases.acquire([CHOOSING])
        except leases.ResourceTaken:
            time.sleep(leases.PAUSE_S)
    try:
        yield
    finally:
        leases.release(held)
