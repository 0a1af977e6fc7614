"""The GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import os
import re
import subprocess

from .. import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Dict

NVIDIA_SMI_S = 30.0
GPU = re.compile(r"^GPU (\d+):(?:.*\(UUID: (GPU-[\w-]+)\))?", re.M | re.ASCII)


def gpu_resources() -> Dict[int, str]:
    """Return the name of each GPU's lease by the GPU's index; {} without nvidia-smi."""
    return parse_gpus(run_nvidia_smi("-L"))


def gpu_count() -> int:
    """Return the number of GPUs of this machine without nvidia-smi, which can take a second."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def run_nvidia_smi(*arguments: str) -> str:
    """Return the output of nvidia-smi, or "" if it does not exist or does not end within 30 s."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=NVIDIA_SMI_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def parse_gpus(listing: str) -> Dict[int, str]:
    """Parse lines such as `GPU 0: NVIDIA H100 (UUID: GPU-5f1c…)`. Pure.

    Indented lines are MIG partitions and are skipped.
    """
    return {int(number): "gpu/{}".format(uuid or number) for number, uuid in GPU.findall(listing)}
