"""The verb `look`: report what this host has, and who uses it, as an ordinary user sees it."""

from __future__ import annotations

import os
from typing import Optional

from ...shared.protocol.reports import GpuState, GpuUser, HostState
from .. import paths
from ..machine import gpus, leases, nvidia
from ..queue import places
from ..refusal import Refusal
from . import usage

HIDDEN = "processes of other users are hidden (hidepid): their users and programs are not known"


def look() -> HostState:
    """Report load, memory, disk and GPUs."""
    total, available = usage.memory_bytes(usage.MEMORY)
    disk = os.statvfs(paths.root())
    unseen = [] if os.path.exists("/proc/1") else [HIDDEN]
    try:
        found = nvidia.look()
    except Refusal as hanging:
        found = []
        unseen.append(hanging.message)
    if not found and nvidia.gpu_count():
        unseen.append("nvidia-smi shows none of its {} GPUs".format(nvidia.gpu_count()))
    return HostState(
        load=os.getloadavg()[0],
        cpus=os.cpu_count() or 1,
        used_bytes=total - available,
        total_bytes=total,
        free_bytes=disk.f_bavail * disk.f_frsize,
        gpus=[_gpu_state(gpu) for gpu in found],
        unseen=unseen,
        waiting=len({place.run for place in places.held_places()}),
    )


def _gpu_state(gpu: nvidia.Gpu) -> GpuState:
    holder = leases.holder(gpu.resource)
    users = [_user(holder, None)] if holder else []
    for process in gpus.computing(gpu):
        found = gpus.holder_of(process)
        # A task's processes are those of its user: other users' environments are not readable.
        if not holder or found.user != holder.user:
            users.append(_user(found, process.used_bytes))
    uuid = gpu.resource.partition("/")[2]
    return GpuState(
        index=gpu.index,
        uuid=uuid if uuid.startswith("GPU-") else "",
        name=gpu.name,
        busy_percent=gpu.use.busy_percent,
        used_bytes=gpu.use.used_bytes,
        total_bytes=gpu.use.total_bytes,
        free=holder is None and not gpus.is_used(gpu),
        users=users,
    )


def _user(holder: leases.Holder, used_bytes: Optional[int]) -> GpuUser:
    return GpuUser(
        user=holder.user,
        pid=holder.pid,
        program="" if holder.run else holder.program,
        age_s=holder.age_s,
        used_bytes=used_bytes,
        project=holder.project,
        run=holder.run,
        task=holder.task,
        ends_s=places.seconds_left(holder),
    )
