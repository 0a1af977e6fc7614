"""Machines for the tests of init."""

from __future__ import annotations

from tfdeploy.init.machine import Machine

GB = 10**9


def machine(name, gpus=0, **more):
    """Return a machine with this number of GPUs and a Python with TensorFlow."""
    usual = {
        "user": "",
        "is_local": False,
        "cpus": 8,
        "memory_bytes": 64 * GB,
        "free_bytes": 100 * GB,
        "python": "python3",
        "python_version": "3.11.2",
        "framework": "2.21.0",
    }
    return Machine(name=name, gpus=("NVIDIA H100",) * gpus, **{**usual, **more})
