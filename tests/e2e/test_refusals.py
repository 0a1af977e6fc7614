"""A problem on one real host is reported, and no process is left on the others."""

from __future__ import annotations

import shutil

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.slow
# Its port is open as soon as it runs; it does not import TensorFlow.
STUB = ROOT / "tests" / "support" / "stub" / "steps.py"


def test_more_gpus_than_the_host_has_are_refused_before_anything_starts(project):
    project.edit(("gpus = 1\nworkers", "gpus = [1]\nworkers"))
    project.ok("push")
    done = project.tfdeploy("start")
    assert done.returncode == 1
    assert "worker1: worker:1 needs GPU 1, but its host has 1 GPU" in done.stderr


def test_each_worker_of_a_host_gets_its_own_gpu(project):
    project.edit(
        ("gpus = 2\nworkers = 1", 'gpus = 2\nworkers = "per-gpu"'),
        ("python train.py --checkpoint_dir={checkpoint_dir} --steps=400", "python dump.py"),
        ('role = "flags"', 'role = "flags"\nready = "port"'),
    )
    shutil.copy(STUB, project.folder)
    # Each task prints before it is READY, and runs until all of them have printed.
    (project.folder / "dump.py").write_text(
        "import os\n"
        "print('saw', repr(os.environ['CUDA_VISIBLE_DEVICES']), flush=True)\n"
        "import steps\n"
    )
    project.ok("push")
    project.ok("start")
    logs = project.ok("logs").splitlines()
    project.ok("stop")
    devices = {line.split(" | ")[0]: line.split("saw ")[1] for line in logs if "saw " in line}
    assert devices == {
        "ps:0@ps0": "'-1'", "ps:1@ps1": "'-1'",
        "worker:0@chief": "'0'", "worker:1@chief": "'1'", "worker:2@worker1": "'0'",
    }  # fmt: skip


def test_a_pair_that_cannot_reach_each_other_is_named(project):
    # ps0's peers get a machine that does not listen on that port, as behind a wrong NAT.
    project.edit(
        ('address = "ps0"', 'address = "chief"\nports = [2777]'),
        ("train.py --checkpoint_dir={checkpoint_dir} --steps=400", STUB.name),
        ('role = "flags"', 'role = "flags"\nready = "port"'),
    )
    shutil.copy(STUB, project.folder)
    project.ok("push")
    done = project.tfdeploy("start")
    assert done.returncode == 1
    assert "ps:0 on ps0: chief, worker1 can't reach it at chief:2777" in done.stderr
    assert "hosts.ps0.address" in done.stderr
