"""AMD's GPUs, from files in the format of the kernel: no GPU of AMD was there.

The properties of the nodes are those of one GPU of a machine with MI210, recorded in
ROCm/k8s-device-plugin (testdata/topo-mi210-xgmi-pcie), without those that are not read. Ids, use
and processes are written in the formats of kfd_topology.c, kfd_process.c and amdgpu_pm.c.
"""

from __future__ import annotations

import os
import sys

import pytest
from support.builders import make_launch
from support.refusals import start_refusal

from tfdeploy.agent.machine import gpus, leases
from tfdeploy.agent.machine.devices import amd, vendors
from tfdeploy.agent.preflight import machine_facts
from tfdeploy.agent.reports import host_state
from tfdeploy.agent.runs import start
from tfdeploy.shared.records import GpuNeed

CPU = """cpu_cores_count 64
simd_count 0
gfx_target_version 0
drm_render_minor 0
"""
GPU = """cpu_cores_count 0
simd_count 416
mem_banks_count 1
gfx_target_version 90010
vendor_id 4098
device_id 29711
location_id 25344
domain 0
drm_render_minor {minor}
unique_id 1801979520617338022
"""
TOTAL = 68_702_699_520


@pytest.fixture
def sysfs(tmp_path, monkeypatch):
    """A folder as /sys/class of a machine with two processors, three GPUs of AMD, and ROCm."""
    nodes = tmp_path / "kfd" / "kfd" / "topology" / "nodes"
    minors = {2: 128, 10: 130, 3: 129}  # the order of names is not that of numbers
    for node in (0, 1, *minors):
        folder = nodes / str(node)
        folder.mkdir(parents=True)
        is_gpu = node in minors
        (folder / "gpu_id").write_text(f"{4000 + node}\n" if is_gpu else "0\n")
        (folder / "properties").write_text(GPU.format(minor=minors[node]) if is_gpu else CPU)
    for minor in minors.values():
        device = tmp_path / "drm" / f"renderD{minor}" / "device"
        device.mkdir(parents=True)
        for name, value in ("gpu_busy_percent", 0), ("mem_info_vram_used", 11_000_000):
            (device / name).write_text(f"{value}\n")
        (device / "mem_info_vram_total").write_text(f"{TOTAL}\n")
    rocm_smi = tmp_path / "bin" / "rocm-smi"
    rocm_smi.parent.mkdir()
    rocm_smi.write_text("#!/bin/sh\nexit 1\n")
    rocm_smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{rocm_smi.parent}:/usr/bin:/bin")
    monkeypatch.setattr(amd, "SYS", str(tmp_path))
    monkeypatch.setattr(gpus, "WAIT_S", 0.0)
    return tmp_path


def use(sysfs, pid, **used_bytes):
    folder = sysfs / "kfd" / "kfd" / "proc" / str(pid)
    folder.mkdir(parents=True)
    for gpu_id, count in used_bytes.items():
        (folder / f"vram_{gpu_id.lstrip('_')}").write_text(f"{count}\n")


def test_gpus_are_listed_in_the_order_of_rocm(sysfs):
    assert vendors.resources() == {0: "gpu/AMD-4002", 1: "gpu/AMD-4003", 2: "gpu/AMD-4010"}
    (sysfs / "drm/renderD129/device/product_name").write_text("AMD Instinct MI210\n")
    assert machine_facts.explore([], "tensorflow", False).gpus == {
        "0": "AMD gfx90a",
        "1": "AMD Instinct MI210",
        "2": "AMD gfx90a",
    }


def test_without_rocm_or_with_nvidia_smi_they_do_not_count(sysfs):
    (sysfs / "bin" / "rocm-smi").rename(sysfs / "bin" / "nvidia-smi")
    assert vendors.resources() == {}
    (sysfs / "bin" / "nvidia-smi").unlink()
    assert vendors.resources() == {}


def test_a_gpu_that_a_foreign_process_uses_is_taken_and_named_with_its_user(sysfs, root):
    use(sysfs, os.getpid(), _4002=3 << 30, _4003=30 << 20, _4010=0)
    own = gpus.acquire(GpuNeed([0, 1, 2], 1), vendors.resources(), {})
    leases.release([*own.values()])
    assert [*own] == [1]
    [refusal] = gpus.refusals(GpuNeed([0], 1), vendors.resources())
    assert refusal.message.startswith(f"GPU 0 is taken by pid {os.getpid()} (")
    first, second, _ = host_state.look().gpus
    [user] = first.users
    assert (user.pid, user.used_bytes, first.free, second.free) == (
        os.getpid(),
        3 << 30,
        False,
        True,
    )
    assert user.user


def test_a_task_sees_its_gpus_and_hip_numbers_them_anew(sysfs, release, monkeypatch):
    started = []
    monkeypatch.setattr(start, "_fork_supervisor", lambda launch, inherited: started.append(launch))
    start.start_tasks([make_launch(argv=[sys.executable], gpus=[1, 2], port=None)])
    env = started[0].process.env
    assert env["ROCR_VISIBLE_DEVICES"] == "1,2"
    assert env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "needs GPU 3, but its host has 3 GPUs" in start_refusal(gpus=[3])[0]


def test_use_and_memory_are_read_now_and_then_and_may_be_unknown(sysfs):
    (sysfs / "drm/renderD129/device/gpu_busy_percent").write_text("97\n")
    for name in ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total"):
        (sysfs / "drm/renderD130/device" / name).unlink()
    sampler = vendors.sampler([1, 2], every_s=600.0)
    seen = [(gpu.index, gpu.busy_percent, gpu.total_bytes) for gpu in sampler.read()]
    assert seen == [(1, 97.0, TOTAL), (2, None, 0)]
    assert sampler.read() is sampler.read()
    sampler.close()
