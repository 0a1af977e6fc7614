"""AMD's GPUs, as the kernel's drivers amdkfd and amdgpu describe them below /sys.

rocm-smi reads the same files, but takes a second, and does not say how much memory of which GPU a
process has. ROCm numbers the GPUs in the order of the nodes. Source: kfd_topology.c and
kfd_process.c in drivers/gpu/drm/amd/amdkfd of Linux, and its Documentation/gpu/amdgpu.
"""

from __future__ import annotations

import glob
import os
import shutil
import time
from typing import Dict, Iterator, List, Sequence, Tuple

from ....shared.filesystem import read_if_possible
from ....shared.protocol.reports import GpuUse
from ....shared.records import VISIBLE, visible_devices
from .nvidia import MEBIBYTE, Gpu, GpuProcess

SYS = "/sys/class"
ROCM = "/opt/rocm"
USE = ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total")
# ROCm may give a process a little memory of each GPU that it sees, also of those it does not use.
UNUSED_BYTES = 64 * MEBIBYTE


def is_installed() -> bool:
    """Return whether this machine has ROCm: without it, a GPU of AMD only draws."""
    return os.path.isdir(ROCM) or shutil.which("rocm-smi") is not None


def look() -> List[Gpu]:
    """Return all GPUs that this user may see."""
    found: List[Gpu] = []
    processes = _processes()
    for index, (gpu_id, values) in enumerate(_nodes()):
        device = "drm/renderD{}/device".format(values.get("drm_render_minor"))
        # Partitions of a GPU have one unique_id, but each its own id.
        resource = "gpu/AMD-{}".format(gpu_id or index)
        version = values.get("gfx_target_version", 0)  # 90010 is gfx90a
        parts = version // 10000, version // 100 % 100, version % 100
        name = _read(device, "product_name") or "gfx{}{}{:x}".format(*parts)
        busy, used, total = (_read(device, file) for file in USE)
        busy_percent = float(busy) if busy.isdecimal() else None  # a partition does not report it
        use = GpuUse(index, busy_percent, int(used or 0), int(total or 0))
        title = name if name.startswith("AMD") else "AMD " + name
        found.append(Gpu(index, resource, title, use, processes.get(gpu_id, [])))
    return found


def variables(gpus: Sequence[int]) -> Dict[str, str]:
    """Return the variables that show a process only these GPUs: ROCm's own, after which HIP numbers
    those that are left. Source: ROCm's documentation, GPU isolation techniques."""
    left = visible_devices(range(len(gpus)))
    shown = {"ROCR_VISIBLE_DEVICES": visible_devices(gpus)}
    return {**shown, "HIP_VISIBLE_DEVICES": left, VISIBLE: left}


class AmdSampler:
    """A GpuUseSampler of the GPUs of `indexes`, or all (vendors.py)."""

    def __init__(self, indexes: Sequence[int], every_s: float) -> None:
        self.every_s = every_s
        self._indexes, self._next_at = indexes, 0.0
        self._found: List[GpuUse] = []

    def read(self) -> List[GpuUse]:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self.every_s
            uses = [gpu.use for gpu in look()]
            self._found = [use for use in uses if not self._indexes or use.index in self._indexes]
        return self._found

    def close(self) -> None:
        pass


def _nodes() -> Iterator[Tuple[str, Dict[str, int]]]:
    """Yield the id and the properties of each node that is a GPU."""
    folders = glob.glob(os.path.join(SYS, "kfd/kfd/topology/nodes/*"))
    for folder in sorted(folders, key=lambda each: int(os.path.basename(each))):
        rows = [line.split() for line in _read(folder, "properties").splitlines()]
        values = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}
        if values.get("simd_count"):  # a processor has none
            yield _read(folder, "gpu_id"), values


def _processes() -> Dict[str, List[GpuProcess]]:
    """Return the processes that use each GPU, by its id."""
    found: Dict[str, List[GpuProcess]] = {}
    for path in glob.glob(os.path.join(SYS, "kfd/kfd/proc/*/vram_*")):
        folder, _, gpu_id = path.rpartition("/vram_")
        used_bytes = int(_read(path) or 0)
        if used_bytes > UNUSED_BYTES:
            user = GpuProcess(int(os.path.basename(folder)), "", used_bytes)
            found.setdefault(gpu_id, []).append(user)
    return found


def _read(*path: str) -> str:
    """Return what a file below /sys has; "" if it does not exist or may not be read."""
    return read_if_possible(os.path.join(SYS, *path)).decode(errors="replace").strip()
