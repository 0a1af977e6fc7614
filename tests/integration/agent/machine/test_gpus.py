"""Which GPUs tasks get beside other runs and other people, with a stand-in for nvidia-smi."""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import end_processes, make_launch, start_python
from support.nvidia_smi import StubNvidiaSmi
from support.refusals import start_refusal

from tfdeploy.agent.machine import gpus, leases
from tfdeploy.agent.machine.devices import nvidia, vendors
from tfdeploy.agent.queue import places, report
from tfdeploy.agent.queue.places import Place
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import start
from tfdeploy.shared.records import GpuNeed

USER = pwd.getpwuid(os.getuid()).pw_name
GONE = 1 << 22  # no pid is larger (proc(5), pid_max)
IMPORT = f"import sys; sys.path.insert(0, {os.fspath(Path(__file__).parents[4])!r})\n"
# Waits for a line of input, takes one of the GPUs, prints it or why not, and keeps it.
RACE = IMPORT + (
    "from tfdeploy.agent.machine import gpus, leases\n"
    "from tfdeploy.agent.machine.devices import vendors\n"
    "from tfdeploy.agent.refusal import Refusal\n"
    "from tfdeploy.shared.records import GpuNeed\n"
    "gpus.WAIT_S = float(sys.argv[1]); need = GpuNeed([0, 1, 2, 3], int(sys.argv[2]))\n"
    "print('ready', flush=True); sys.stdin.readline()\n"
    "try:\n own = gpus.acquire(need, vendors.resources(), {}); leases.adopt([*own.values()])\n"
    " print(*own, flush=True)\n"
    "except Refusal as refusal: print(refusal.message, flush=True)\n"
    "sys.stdin.readline()"
)


@pytest.fixture
def provide(tmp_path, monkeypatch):
    """A function that gives this machine a number of GPUs."""
    monkeypatch.setattr(gpus, "WAIT_S", 0.0)

    def provide(count):
        stub = StubNvidiaSmi(tmp_path / "nvidia", count)
        monkeypatch.setenv("PATH", f"{stub.folder}:{os.environ['PATH']}")
        return stub

    return provide


@pytest.fixture
def stranger():
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def take(wanted, count, shared=False):
    """Take GPUs, give them back, and return their indexes."""
    own = gpus.acquire(GpuNeed(wanted, count, shared), vendors.resources(), {})
    leases.release([*own.values()])
    return [*own]


def refusal(wanted, count=1):
    """Return the message that refuses GPUs. The queue and `check` use the same words."""
    need = GpuNeed(wanted, count)
    with pytest.raises(Refusal) as refused:
        gpus.acquire(need, vendors.resources(), {})
    assert refused.value.busy
    for each in gpus.refusals(need, vendors.resources()):
        assert without_age(each.message) == without_age(refused.value.message)
    return refused.value.message


def without_age(message):
    return re.sub(r"\d+[smhd] ago", "", message)


def test_a_gpu_of_a_foreign_process_is_taken_and_the_process_is_named(provide, stranger, release):
    provide(2).use(1, stranger, mib=71680)
    message = refusal([1])
    assert re.fullmatch(
        rf"GPU 1 is taken by pid {stranger} \(sleep 600\), started by {USER} \d+s ago: "
        r"70\.0 of its 79\.6 GiB are in use",
        message,
    )
    assert without_age(start_refusal(gpus=[1])[0]) == without_age(message)


def test_the_queue_names_the_foreign_process_that_a_run_waits_for(provide, stranger):
    stub = provide(2)
    stub.use(1, stranger, mib=71680)
    held = places.enter([Place(stub.resource(gpu), 1, 1, "waits", "worker:0") for gpu in (0, 1)])
    [waiting] = [run for run in report.list_queue().runs if run.run == "waits"]
    leases.release(held)
    assert without_age(waiting.reason) == without_age(refusal([1]))


def test_a_gpu_of_a_foreign_process_is_used_if_it_is_shared(provide, stranger):
    provide(1).use(0, stranger)
    assert take([0], 1, shared=True) == [0]
    assert gpus.refusals(GpuNeed([0], 1, True), vendors.resources()) == []


def test_several_foreign_processes_are_named_up_to_three(provide, stranger):
    stub = provide(1)
    for each in range(5):
        stub.use(0, GONE + each, mib=1000, program=f"/usr/bin/trainer{each}")
    names = "; ".join(f"pid {GONE + each} (/usr/bin/trainer{each})" for each in range(3))
    assert refusal([0]) == f"GPU 0 is taken by {names}; 2 more: 4.9 of its 79.6 GiB are in use"


def test_a_process_of_a_hidden_user_is_named_by_its_pid(provide):
    provide(1).use(0, GONE, mib="[N/A]", program="[Insufficient Permissions]")
    assert refusal([0]).startswith(f"GPU 0 is taken by pid {GONE}: 0.0 of its 79.6 GiB")


def test_a_full_gpu_without_visible_processes_is_taken(provide):
    provide(1).set(0, used=71680)
    assert refusal([0]).startswith("GPU 0 is taken by processes that are not visible: 70.0 of its")


@pytest.mark.parametrize("used", [400, 4000])
def test_a_gpu_with_a_desktop_is_free(provide, used):
    provide(1).set(0, used=used)  # its processes are of type G, which --query-compute-apps omits
    assert take([0], 1) == [0]


def test_the_server_that_shares_a_gpu_is_no_stranger(provide):
    provide(1).use(0, GONE, mib=30, program="/usr/bin/nvidia-cuda-mps-server")
    assert take([0], 1) == [0]


def test_a_gpu_is_waited_for_until_the_driver_has_freed_it(provide, stranger, monkeypatch):
    stub = provide(1)
    stub.use(0, stranger)
    monkeypatch.setattr(gpus, "WAIT_S", 600.0)
    monkeypatch.setattr(gpus.time, "sleep", lambda pause_s: stub.leave(0))
    assert take([0], 1) == [0]


def test_a_stranger_between_check_and_start_is_found(provide, stranger, release):
    stub = provide(1)
    need = GpuNeed([0], 1)
    assert gpus.refusals(need, vendors.resources()) == []
    stub.use(0, stranger)
    assert f"GPU 0 is taken by pid {stranger}" in start_refusal(gpus=[0])[0]
    assert leases.holder(stub.resource(0)) is None


def test_an_nvidia_smi_that_hangs_is_named_and_leaves_no_lease(provide, release, monkeypatch):
    monkeypatch.setattr(nvidia, "NVIDIA_SMI_S", 0.3)
    stub = provide(1)
    stub.behave(hangs_at="--query-compute-apps")
    message, hint = start_refusal(gpus=[0])
    assert message == "nvidia-smi does not answer within 0.3 s, so its GPUs can't be used"
    assert "reboot" in hint
    monkeypatch.setattr(nvidia, "NVIDIA_SMI_S", 30.0)
    stub.behave()
    assert take([0], 1) == [0]


def test_a_host_without_nvidia_smi_has_no_gpu(provide, release):
    (provide(1).folder / "nvidia-smi").unlink()
    assert start_refusal(gpus=[0])[0] == "worker:0 needs GPU 0, but its host has no GPU"


def test_an_nvidia_smi_that_fails_is_quoted(provide, release):
    provide(1).behave("fails")
    message, hint = start_refusal(gpus=[0])
    assert message.startswith("nvidia-smi fails: NVIDIA-SMI has failed because it couldn't communi")
    assert "reboot" in hint


def test_the_first_free_gpus_are_chosen(provide, stranger):
    stub = provide(4)
    stub.use(0, stranger)
    with leased(stub.resource(2)):
        assert take([0, 1, 2, 3], 1) == [1]
        assert take([0, 1, 2, 3], 2) == [1, 3]
        assert refusal([0, 1, 2, 3], 3).startswith(
            "3 of GPUs 0, 1, 2, 3 are needed, 2 are free: GPU 0 is taken by "
        )


def test_a_refused_choice_names_who_has_each_gpu(provide, stranger):
    stub = provide(2)
    stub.use(1, stranger)
    with leased(stub.resource(0)):
        message = refusal([0, 1])
    assert re.fullmatch(
        r"1 of GPUs 0, 1 is needed, none is free: GPU 0 is taken by pid \d+, .*; "
        r"GPU 1 is taken by pid \d+ \(sleep 600\), .*",
        message,
    )


def test_several_gpus_of_one_run_have_one_sentence():
    taken = {gpu: Refusal(f"GPU {gpu} is taken by x", held_by="r") for gpu in (0, 1, 3)}
    taken[2] = Refusal("GPU 2 is taken by y")
    [refused] = gpus._too_few(dict.fromkeys(range(4), ""), 1, taken)
    assert refused.message == (
        "1 of GPUs 0, 1, 2, 3 is needed, none is free: "
        "GPU 0 is taken by x (and GPU 1, 3); GPU 2 is taken by y"
    )


def test_tasks_see_the_gpus_that_were_chosen(provide, stranger, release, monkeypatch):
    stub = provide(4)
    stub.use(0, stranger)
    started = []
    monkeypatch.setattr(start, "_fork_supervisor", lambda launch, inherited: started.append(launch))
    tasks = [
        make_launch(index=n, argv=[sys.executable], gpus=[n], gpu_choice=[0, 1, 2, 3], port=None)
        for n in range(2)
    ]
    start.start_tasks(tasks)
    assert [launch.gpus.indexes for launch in started] == [[1], [2]]
    assert [launch.process.env["CUDA_VISIBLE_DEVICES"] for launch in started] == ["1", "2"]


@pytest.fixture
def race(provide):
    """A function that lets processes take some of four GPUs at the same moment, and returns what
    each of them prints."""
    provide(4)
    started = []

    def race(count, needed, wait_s):
        words = [str(wait_s), str(needed)]
        started.extend(start_python(RACE, *words, stdin=subprocess.PIPE) for _ in range(count))
        for process in started:
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in started]

    yield race
    for process in started:
        process.stdin.close()
    end_processes(started)


def test_of_twenty_racing_starts_four_get_four_gpus(race):
    answers = race(20, 1, 1.0)
    assert sorted(answer for answer in answers if answer.isdecimal()) == ["0", "1", "2", "3"]
    refused = [answer for answer in answers if not answer.isdecimal()]
    assert len(refused) == 16
    assert all("1 of GPUs 0, 1, 2, 3 is needed, none is free" in answer for answer in refused)


def test_of_racing_starts_with_three_gpus_each_one_gets_all_of_them(race):
    answers = race(6, 3, 1.0)
    assert sum(answer == "0 1 2" for answer in answers) == 1
    assert sum("3 of GPUs 0, 1, 2, 3 are needed" in answer for answer in answers) == 5


class leased:
    """A context in which this process holds a lease."""

    def __init__(self, resource):
        self.resource = resource

    def __enter__(self):
        self.descriptors = leases.acquire([self.resource])

    def __exit__(self, *_):
        leases.release(self.descriptors)


def test_sick_gpus_are_not_taken_if_they_do_not_count(provide):
    failed = "<remapped_row_failure>Yes</remapped_row_failure>"
    provide(2).describe(0, f"<remapped_rows>{failed}</remapped_rows>")
    need = GpuNeed([0, 1], 1, exclude_sick=True)
    sick = gpus.sick(need)
    assert [each.message for each in sick.values()] == [
        "GPU 0 (NVIDIA H100 80GB HBM3): a broken part of its memory can't be replaced"
    ]
    own = gpus.acquire(need, vendors.resources(), sick)
    leases.release([*own.values()])
    assert [*own] == [1]
    both = GpuNeed([0, 1], 2, exclude_sick=True)
    with pytest.raises(Refusal, match=r"GPU 0 .* a broken part"):
        gpus.acquire(both, vendors.resources(), sick)
    assert [each.message for each in gpus.refusals(both, vendors.resources())] == [sick[0].message]
    assert gpus.sick(GpuNeed([0, 1], 1)) == {}
