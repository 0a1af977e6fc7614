"""The GPUs of this machine: NVIDIA's, or without nvidia-smi those of AMD, if ROCm is installed.

Each raises Refusal if nvidia-smi hangs or fails, except `listed_if_possible` and `sampler`.
"""

from __future__ import annotations

import shutil
from typing import Dict, List, Optional, Protocol, Sequence, Tuple

from ....shared.protocol.reports import GpuUse
from ....shared.records import VISIBLE, visible_devices
from ...refusal import Refusal
from . import amd, nvidia
from .nvidia import Gpu, ListedGpu


class GpuUseSampler(Protocol):
    """How busy GPUs are, looked at every `every_s` seconds. `read` returns what was seen last, each
    time the same list, and looks again if it is time."""

    every_s: float

    def read(self) -> List[GpuUse]: ...

    def close(self) -> None: ...


def listed() -> List[ListedGpu]:
    return [*amd.look()] if _are_amds() else nvidia.listed()


def listed_if_possible() -> Tuple[List[ListedGpu], Optional[Refusal]]:
    """Return the GPUs; none, and why, if they can't be listed."""
    try:
        return listed(), None
    except Refusal as failure:
        return [], failure


def resources() -> Dict[int, str]:
    """Return the name of each GPU's lease by the GPU's index."""
    return {gpu.index: gpu.resource for gpu in listed()}


def look() -> List[Gpu]:
    return amd.look() if _are_amds() else nvidia.look()


def sampler(indexes: Sequence[int] = (), every_s: float = nvidia.SAMPLE_EVERY_S) -> GpuUseSampler:
    """Return what tells how busy the GPUs are: those of `indexes`, or all."""
    return amd.AmdSampler(indexes, every_s) if _are_amds() else nvidia.GpuSampler(indexes, every_s)


def variables(gpus: Sequence[int], names: Dict[int, str]) -> Dict[str, str]:
    """Return the variables that show a process only these GPUs; `names` are `resources`."""
    if gpus and _are_amds():
        return amd.variables(gpus)
    uuids = [names[gpu].partition("/")[2] for gpu in gpus if gpu in names]
    return {VISIBLE: visible_devices(uuids if nvidia.is_divided() else gpus)}


def _are_amds() -> bool:
    return amd.is_installed() and not shutil.which("nvidia-smi")
