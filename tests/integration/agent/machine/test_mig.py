"""MIG instances, from listings in the format of nvidia-smi: no GPU with MIG was there.

The UUIDs are those of NVIDIA's MIG User Guide (H100, R570), arranged by hand; the elements of -q -x
are those that GPUStack's detector of NVIDIA's GPUs has recorded of driver 575.57.08, with a second
GPU and processes added.
"""

from __future__ import annotations

import os
import sys

import pytest
from support.builders import eventually, make_launch
from support.refusals import start_refusal

from tfdeploy.agent.machine import gpus, leases
from tfdeploy.agent.machine.devices import gpu_health, nvidia, vendors
from tfdeploy.agent.reports import host_state
from tfdeploy.agent.runs import start
from tfdeploy.shared.records import GpuNeed

WHOLE = "GPU-aa11bb22-0000-0000-0000-000000000001"
INSTANCES = [
    "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb",
    "MIG-b4b2228d-6933-5839-bc0e-41ab9edb61c6",
]
LISTED = f"""\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-c08d91cb-e324-655c-71ba-7570956445bc)
  MIG 3g.40gb     Device  0: (UUID: {INSTANCES[0]})
  MIG 1g.10gb     Device  1: (UUID: {INSTANCES[1]})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {WHOLE})
"""
PROCESS = """<process_info>
  <gpu_instance_id>{}</gpu_instance_id><compute_instance_id>{}</compute_instance_id>
  <pid>{}</pid><type>{}</type><process_name>{}</process_name><used_memory>{}</used_memory>
</process_info>"""
DETAILS = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>575.57.08</driver_version>
  <gpu id="00000000:00:09.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <mig_mode><current_mig>Enabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
    <mig_devices>
      <mig_device>
        <index>0</index>
        <gpu_instance_id>1</gpu_instance_id><compute_instance_id>0</compute_instance_id>
        <fb_memory_usage><total>40448 MiB</total><reserved>0 MiB</reserved>
          <used>298 MiB</used><free>40151 MiB</free></fb_memory_usage>
      </mig_device>
      <mig_device>
        <index>1</index>
        <gpu_instance_id>9</gpu_instance_id><compute_instance_id>0</compute_instance_id>
        <fb_memory_usage><total>9984 MiB</total><reserved>0 MiB</reserved>
          <used>12 MiB</used><free>9972 MiB</free></fb_memory_usage>
      </mig_device>
    </mig_devices>
    <fb_memory_usage><total>81920 MiB</total><reserved>446 MiB</reserved>
      <used>3703 MiB</used><free>77771 MiB</free></fb_memory_usage>
    <utilization><gpu_util>N/A</gpu_util></utilization>
    <remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>
    <processes>{}</processes>
  </gpu>
  <gpu id="00000000:00:0A.0">
    <product_name>NVIDIA H100 80GB HBM3</product_name>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
    <mig_devices>None</mig_devices>
    <fb_memory_usage><total>81920 MiB</total><used>700 MiB</used></fb_memory_usage>
    <utilization><gpu_util>37 %</gpu_util></utilization>
    <processes></processes>
  </gpu>
</nvidia_smi_log>
"""


@pytest.fixture
def divided(tmp_path, monkeypatch):
    """A function that gives this machine the recorded GPUs, with these processes on the first."""
    (tmp_path / "gpu0" / "mig" / "gi1").mkdir(parents=True)
    monkeypatch.setattr(nvidia, "INSTANCES", str(tmp_path / "gpu*/mig/gi*"))
    monkeypatch.setattr(gpus, "WAIT_S", 0.0)
    tool = tmp_path / "nvidia-smi"

    def divided(*processes):
        details = DETAILS.format("".join(PROCESS.format(*each) for each in processes))
        tool.write_text(f"#!/bin/sh\ncase $1 in\n-L) cat <<E\n{LISTED}E\n;;\n"
                        f"-q) cat <<E\n{details}E\n;;\nesac\n")  # fmt: skip
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return divided


def test_each_instance_counts_as_a_gpu_and_its_gpu_does_not(divided):
    divided()
    assert vendors.resources() == {
        0: f"gpu/{INSTANCES[0]}",
        1: f"gpu/{INSTANCES[1]}",
        2: f"gpu/{WHOLE}",
    }
    assert [gpu.name for gpu in vendors.listed()] == [
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA H100 80GB HBM3",
    ]


def test_names_of_older_drivers_are_listed():
    # Source: nvidia-smi -L of an A100, in a job script of the Argonne Leadership Computing Facility
    gpu = "GPU-2fa5cf01-9520-1bc1-995b-cc0c6d9bca7c"
    [found] = nvidia.parse_listing(
        f"GPU 0: A100-SXM4-40GB (UUID: {gpu})\n  MIG 1c.3g.20gb Device 0: (UUID: MIG-{gpu}/1/0)\n"
    )
    assert (found.resource, found.name) == (
        f"gpu/MIG-{gpu}/1/0",
        "A100-SXM4-40GB MIG 1c.3g.20gb",
    )
    leases.release(leases.acquire([found.resource]))


def test_an_instance_that_a_foreign_process_uses_is_not_given(divided, root):
    divided((1, 0, os.getpid(), "C", "python3", "286 MiB"), (9, 0, 1, "G", "Xorg", "4 MiB"))
    need = GpuNeed([0, 1, 2], 1)
    own = gpus.acquire(need, vendors.resources(), {})
    assert [*own] == [1]
    assert leases.holder(f"gpu/{INSTANCES[1]}").pid == os.getpid()
    leases.release([*own.values()])
    state = host_state.look()
    assert [(gpu.uuid, gpu.free) for gpu in state.gpus] == [
        (INSTANCES[0], False),
        (INSTANCES[1], True),
        (WHOLE, True),
    ]
    [user] = state.gpus[0].users
    assert (user.pid, user.used_bytes) == (os.getpid(), 286 << 20)


def test_a_task_sees_its_instance_by_uuid(divided, release, monkeypatch):
    divided()
    started = []
    monkeypatch.setattr(start, "_fork_supervisor", lambda launch, inherited: started.append(launch))
    of_all = {"gpu_choice": [0, 1, 2], "argv": [sys.executable], "port": None}
    start.start_tasks([make_launch(index=n, gpus=[n], **of_all) for n in range(3)])
    visible = [launch.process.env["CUDA_VISIBLE_DEVICES"] for launch in started]
    assert visible == [*INSTANCES, WHOLE]
    assert "needs GPU 3, but its host has 3 GPUs" in start_refusal(gpus=[3])[0]


def test_the_use_of_an_instance_is_unknown_and_its_memory_is_read(divided):
    divided()
    sampler = vendors.sampler([1, 2])
    assert eventually(sampler.read)
    seen = [(gpu.index, gpu.busy_percent, gpu.used_bytes >> 20) for gpu in sampler.read()]
    assert seen == [(1, None, 12), (2, 37.0, 700)]
    sampler.close()


def test_what_is_wrong_with_a_gpu_is_wrong_with_its_instances(divided):
    divided()
    assert [*gpu_health.problems()] == [0, 1]
    listing = nvidia.run_nvidia_smi(*nvidia.DETAILS)
    assert [index for index, _ in gpu_health.parse(listing, {}, [1, 2])] == [1]
