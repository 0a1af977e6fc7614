"""Hosts whose memory or number of processes is limited, or that stand still for a while."""

from __future__ import annotations

import pytest
from support.machines import MACHINES
from support.sites import training
from support.waiting import until

pytestmark = pytest.mark.slow

HOSTS = {"ps0": {"ps": 1}, "chief": {"workers": 1}, "worker1": {"workers": 1}}
MEMORY = ("--memory=400m", "--memory-swap=400m")
NO_MEMORY_LIMIT = ("--memory=64g", "--memory-swap=64g")
UNDISTURBED = dict.fromkeys(("ps:0", "worker:0", "worker:1"), ("READY", 0))


def step(site):
    """Return the chief's last step."""
    return site.step("worker:0", "chief")


def states(site):
    return {task: (each["state"], each["restarts"]) for task, each in site.tasks().items()}


def test_a_task_that_the_kernel_kills_for_memory_says_so(tmp_path):
    flags = ("--grow_mb=10", "--save_steps=5")
    with (
        training(tmp_path, "train_stub.py", *flags, hosts=HOSTS) as site,
        MACHINES["chief"].limited(*MEMORY, lifted=NO_MEMORY_LIMIT),
    ):
        site.start()
        site.until(lambda: site.tasks()["worker:0"]["restarts"], "the chief's restart")
        tasks = site.tasks()
        reason = tasks["worker:0"]["reason"]
        assert "killed by SIGKILL: the kernel killed 1 process for lack of memory; the" in reason
        assert [tasks[task]["restarts"] for task in ("ps:0", "worker:1")] == [0, 0]
        site.until(lambda: site.restored_steps("worker:0", "chief"), "a restored checkpoint")
        assert "have exited" in site.ok("stop")
        assert "model.ckpt-" in site.ok("collect")


def test_a_host_out_of_processes_is_named_and_one_that_stands_still_is_no_failure(tmp_path):
    limits = {"restart": {"frozen_timeout_s": 8, "stall_timeout_s": 12}}
    options = {"orphan_timeout_s": 600}
    with training(tmp_path, "train_stub.py", hosts=HOSTS, top=limits, training=options) as site:
        site.start()
        _assert_check_names_a_host_that_starts_no_more_processes(site)
        _assert_a_host_that_stands_still_is_no_failure_of_its_task(site)
        assert "have exited" in site.ok("stop")


def _assert_check_names_a_host_that_starts_no_more_processes(site):
    site.ok("status")  # its agent stays, so that the next command needs no new process
    limit = f"--pids-limit={MACHINES['chief'].process_count}"
    with MACHINES["chief"].limited(limit, lifted=["--pids-limit=-1"]):
        done = site.tf("check")
        assert done.returncode == 1
        assert "chief: can't start another process or thread: Resource temp" in done.stderr
        assert "its limit of processes is reached" in done.stderr
        assert states(site) == UNDISTURBED


def _assert_a_host_that_stands_still_is_no_failure_of_its_task(site):
    """As a virtual machine that is paused: all clocks go on, and nothing runs."""
    first = step(site)
    with MACHINES["worker1"].paused():
        # 180 steps of 0.1 s: longer than all limits.
        until(
            lambda: step(site) > first + 180, "180 steps",
            lambda: step(site), every_s=0.3,
        )  # fmt: skip
    before = site.step("worker:1", "worker1")
    site.wait_for_step("worker:1", "worker1", beyond=before + 60)
    assert states(site) == UNDISTURBED
