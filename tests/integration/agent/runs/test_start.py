"""Everything is checked before any task starts, and each refusal says what to do."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.builders import change_launch, make_launch, start_python
from support.ports import free_port
from support.refusals import start_refusal

from tfdeploy.agent import paths
from tfdeploy.agent.machine import leases
from tfdeploy.agent.queue import resources
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import start

HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.machine import leases
leases.adopt(leases.acquire([sys.argv[2]]))
print("held", flush=True)
time.sleep(60)
"""
PACKAGE = os.fspath(Path(__file__).parents[4])


@pytest.fixture
def hold_lease():
    """A function that starts a process with a lease and some words in its command line."""
    with ExitStack() as stack:

        def hold(resource, *words):
            process = stack.enter_context(start_python(HOLD, PACKAGE, resource, *words, ""))
            stack.callback(process.kill)
            assert process.first_line == "held"
            return process

        yield hold


def test_a_lease_of_another_run_is_refused_at_once_and_names_the_run(release, hold_lease):
    port = free_port()
    hold_lease(f"port/{port}", "supervise", "/home/ada/digits/runs/r-7/ps-3")
    with pytest.raises(
        Refusal, match=f"^port {port} is taken by ps:3 of run r-7 of digits, "
    ) as refused:
        start.start_tasks([make_launch(argv=[sys.executable], port=port)])
    assert refused.value.held_by == "r-7"
    stop = "stop it in the folder of project digits with tfdeploy stop --run r-7"
    assert refused.value.hint == f'{leases.WAIT}; {stop}; or set ports = "auto"'


def test_a_lease_of_a_concurrent_start_is_waited_for(release, hold_lease, monkeypatch):
    monkeypatch.setattr(resources, "HANDOVER_S", 0.2)
    port = free_port()
    other = hold_lease(f"port/{port}")
    with pytest.raises(Refusal, match=f"^port {port} is taken by pid {other.pid}, ") as refused:
        start.start_tasks([make_launch(argv=[sys.executable], port=port)])
    assert refused.value.held_by == ""
    assert "--run ," not in refused.value.hint


def test_no_lease_is_held_if_one_of_them_is_refused(release, hold_lease):
    first, second = free_port(), free_port()
    hold_lease(f"port/{second}", "supervise", "/home/ada/digits/runs/r-7/ps-3")
    with pytest.raises(Refusal):
        start.start_tasks([make_launch(argv=[sys.executable], index=n, port=port)
                     for n, port in enumerate((first, second))])  # fmt: skip
    assert leases.holder(f"port/{first}") is None
    assert not os.path.exists(paths.task("p", "r", "worker:0"))


def test_a_program_may_be_below_the_home_directory(release, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert start_refusal(argv=["~/tf/python"])[0] == (
        f"the program {tmp_path}/tf/python of worker:0 is not on this host"
    )
    (tmp_path / "tf").symlink_to(os.path.dirname(sys.executable))
    # The program exists now; the GPU, which is checked next, does not.
    assert "its host has no GPU" in start_refusal(argv=["~/tf/python"], gpus=[9])[0]


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """A function that gives this host an nvidia-smi with `count` GPUs (None: no nvidia-smi)."""

    def provide(count):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if count is not None:
            lines = "".join(f"echo 'GPU {gpu}: NVIDIA (UUID: GPU-1)'\n" for gpu in range(count))
            (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{lines}")
            (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", os.fspath(folder))

    return provide


@pytest.mark.parametrize(
    ("count", "missing", "found"), [(None, 0, "no GPU"), (0, 0, "no GPU"), (2, 2, "2 GPUs")]
)
def test_a_missing_gpu_is_reported_with_the_number_of_gpus(release, gpus, count, missing, found):
    gpus(count)
    assert start_refusal(gpus=[0, 2]) == (
        f"worker:0 needs GPU {missing}, but its host has {found}",
        "correct the host's gpus: nvidia-smi -L lists them, or rocm-smi",
    )


def choosing():
    """Return launches of three tasks that choose of four GPUs."""
    return [make_launch(argv=[sys.executable], index=n, gpus=[n], gpu_choice=[0, 1, 2, 3])
            for n in range(3)]  # fmt: skip


def test_a_count_of_gpus_that_is_too_large_is_refused(release, gpus):
    gpus(2)
    with pytest.raises(Refusal, match=r"^its tasks need 3 GPUs, but its host has 2 GPUs$") as why:
        start.start_tasks(choosing())
    assert why.value.hint == "set the host's gpus = 2, and start fewer tasks with GPUs there"


def test_a_run_waits_only_for_gpus_that_exist(release, gpus, monkeypatch):
    gpus(3)
    waiting = []

    def enter_queue(launches, found):
        waiting.extend(launches)
        raise Refusal("nothing starts")

    monkeypatch.setattr(resources, "enter_queue", enter_queue)
    with pytest.raises(Refusal, match=r"^nothing starts$"):
        start.start_tasks([change_launch(launch, submitted=1) for launch in choosing()])
    assert [launch.gpus.choice for launch in waiting] == [[0, 1, 2]] * 3


def test_existing_gpus_are_accepted(release, gpus):
    gpus(2)
    valid = make_launch(index=9, argv=[sys.executable], gpus=[1, 0])
    with pytest.raises(Refusal, match=r"^worker:0 needs GPU 2, "):
        start.start_tasks([valid, make_launch(argv=[sys.executable], gpus=[2])])
