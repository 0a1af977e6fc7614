"""GPUs of a machine, from the output of a fake nvidia-smi."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent.machine.devices import nvidia

LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5f1c0e6b-1111-2222-3333-444455556666)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aa11bb22-0000-0000-0000-000000000001)
GPU 10: A GPU without a UUID
"""


def test_gpus_are_parsed_with_index_uuid_and_name():
    found = nvidia.parse_listing(LISTED)
    assert [(gpu.index, gpu.resource, gpu.name) for gpu in found] == [
        (0, "gpu/GPU-5f1c0e6b-1111-2222-3333-444455556666", "NVIDIA H100 80GB HBM3"),
        (1, "gpu/GPU-aa11bb22-0000-0000-0000-000000000001", "NVIDIA A100-SXM4-40GB"),
        (10, "gpu/10", "A GPU without a UUID"),
    ]


@pytest.mark.parametrize(
    "text", ["", "No devices found.\n", "NVIDIA-SMI has failed because it couldn't communicate\n"]
)
def test_output_without_gpus_yields_no_resource(text):
    assert nvidia.parse_listing(text) == []


def test_gpus_are_listed_by_nvidia_smi(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$*" = -L ] && cat <<E\n{LISTED}E\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert len(nvidia.listed()) == 3


@pytest.mark.parametrize("answer", ["No devices were found", "No devices found."])
def test_a_machine_without_gpus_is_no_error(tmp_path, monkeypatch, answer):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{answer}'\nexit 6\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert nvidia.listed() == []


def test_the_lines_of_an_h200_are_parsed():
    """As the driver 580.159.04 printed them, while a program of PyTorch had 20 GiB."""
    [gpu] = nvidia.parse_look(
        "0, 97, 21007, 143771, GPU-5f1c0e6b-1111-2222-3333-444455556666, NVIDIA H200\n",
        "GPU-5f1c0e6b-1111-2222-3333-444455556666, 1318, 20998, /opt/torch/bin/python3\n",
    )
    assert (gpu.index, gpu.name, gpu.use.busy_percent) == (0, "NVIDIA H200", 97.0)
    assert gpu.use.total_bytes == 143771 << 20
    [process] = gpu.processes
    assert (process.pid, process.used_bytes) == (1318, 20998 << 20)


def test_a_machine_without_nvidia_smi_has_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert nvidia.listed() == []
