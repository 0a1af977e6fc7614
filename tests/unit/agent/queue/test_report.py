"""What the queue says: one short reason for each run, and only of places that somebody has."""

from __future__ import annotations

import os
import pwd
import secrets
import socket

import pytest
from support.builders import make_launch

from tfdeploy.agent.machine import leases
from tfdeploy.agent.machine.devices import vendors
from tfdeploy.agent.queue import places, report, resources
from tfdeploy.agent.queue.places import Place
from tfdeploy.agent.refusal import Refusal
from tfdeploy.shared.records import GpuNeed

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def gpus(monkeypatch):
    """The resources of four GPUs that nvidia-smi lists, and that no other test uses."""
    names = {index: f"gpu/GPU-{secrets.token_hex(4)}" for index in range(4)}
    monkeypatch.setattr(vendors, "resources", lambda: names)
    monkeypatch.setattr(vendors, "look", list)  # no other program uses them
    return names


@pytest.fixture
def take():
    """A function that takes leases, which end with the test."""
    taken = []

    def take(*names):
        taken.extend(leases.acquire(names))

    yield take
    leases.release(taken)


@pytest.fixture
def wait(take):
    """A function that lets a run of some tasks wait for all of these resources."""

    def wait(run, *resources, submitted=1, tasks=1):
        names = [f"worker:{index}" for index in range(tasks)]
        own = [Place(each, 1, submitted, run, task) for each in resources for task in names]
        take(*(place.lease for place in own))
        return own

    return wait


def reasons(*runs):
    found = {run.run: run.reason for run in report.list_queue().runs}
    return [found[run] for run in runs]


def test_a_run_has_one_reason_that_counts_runs_and_names_gpus_by_their_index(gpus, wait, take):
    take(gpus[2])
    for number, run in enumerate(["ra", "rb", "rc", "rd"]):
        wait(run, *gpus.values(), submitted=number, tasks=3)
    [first, second, *_, fourth] = reasons("ra", "rb", "rc", "rd")
    assert first.startswith(f"GPU 2 is taken by pid {os.getpid()}")
    assert second == f"second for GPU 0, behind {ME}'s run ra"
    assert fourth == f"number 4 for GPU 0, behind {ME}'s run rc"


def test_a_run_that_holds_what_it_waits_for_is_named_once(gpus, wait, monkeypatch):
    wait("ra", gpus[0], submitted=1)
    wait("rb", gpus[0], submitted=2)
    holder, ours = leases.holder, leases.Holder(user=ME, run="ra", task="worker:0")
    monkeypatch.setattr(leases, "holder", lambda each: ours if each == gpus[0] else holder(each))
    launch = make_launch(run="rb", submitted=2, gpus=[0], waits_for=[gpus[0]])
    assert report.explain(launch) == f"second for GPU 0, behind {ME}'s run ra"


def test_a_port_that_a_program_without_a_lease_has_is_named_with_its_process(gpus, wait):
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        wait("ra", f"port/{port}")
        [reason] = reasons("ra")
    assert reason.startswith(f"port {port} for worker:0 is taken by pid {os.getpid()}")
    assert reasons("ra") == ["comes next"]


def test_a_gpu_that_nvidia_smi_does_not_list_has_no_uuid_in_its_name(gpus, wait):
    for run in ("ra", "rb"):
        wait(run, "gpu/GPU-5f1c2d3e", submitted=1)
    assert reasons("ra", "rb") == ["comes next", f"second for a GPU, behind {ME}'s run ra"]


def test_how_long_a_run_waits_is_what_the_kernel_says(gpus, wait):
    wait("ra", gpus[0], submitted=1)
    [waiting] = [run for run in report.list_queue().runs if run.run == "ra"]
    assert waiting.age_s < 86_400 * 365
    assert (waiting.submitted, waiting.user, waiting.project) == (1, ME, "")


FORGED = [
    pytest.param("{name}", socket.SOCK_STREAM, id="a socket that does not listen"),
    pytest.param("{name}", socket.SOCK_DGRAM, id="a datagram socket"),
    pytest.param("\n0: 1 0 1 1 1 1 @tfdeploy/{port}", socket.SOCK_STREAM, id="a line of its own"),
    pytest.param("{name}\x1b[31m", socket.SOCK_STREAM, id="control characters"),
    pytest.param("{name}\0", socket.SOCK_STREAM, id="another end"),
    pytest.param("x @tfdeploy/{port}", socket.SOCK_STREAM, id="a part of a name"),
]


@pytest.mark.parametrize(("form", "kind"), FORGED)
def test_a_name_that_shows_nobody_takes_no_turn(wait, gpus, form, kind):
    """Whoever makes a place must be seen."""
    port = f"port/{secrets.randbelow(10_000) + 70_000}"
    own = wait("ra", port)
    forged = Place(port, 0, 0, "f", "w:0").lease
    name = form.format(name=forged, port=forged)
    with socket.socket(socket.AF_UNIX, kind) as stranger:
        stranger.bind(b"\0tfdeploy/" + name.encode())
        assert places.is_first(own)
        assert places.first_places()[port] == own[0]
        assert reasons("ra") == ["comes next"]
        assert "f" not in {run.run for run in report.list_queue().runs}


def test_a_file_that_looks_like_a_place_takes_no_turn(wait, gpus, tmp_path, monkeypatch):
    port = f"port/{secrets.randbelow(10_000) + 70_000}"
    own = wait("ra", port)
    forged = "@tfdeploy/" + Place(port, 0, 0, "f", "w:0").lease
    monkeypatch.chdir(tmp_path)
    os.makedirs(os.path.dirname(forged))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(forged)
        stranger.listen()
        assert places.is_first(own)
        assert reasons("ra") == ["comes next"]


def test_a_lie_about_the_end_of_another_process_is_not_believed_and_ends_nothing(take):
    at = 2_000_000_000
    take(places.END_LEASE.format(os.getpid(), at))
    assert places.announce_end(at) == []
    somebody = leases.Holder(pid=1)
    take(places.END_LEASE.format(1, at))
    assert places.seconds_left(somebody) is None


def test_a_run_is_not_refused_for_its_own_place_or_if_enough_gpus_are_left(gpus, wait):
    wait("ra", gpus[0])
    assert resources.require_unawaited("ra", [], GpuNeed([0], 1))
    assert resources.require_unawaited("rb", [], GpuNeed([0, 1], 1))
    with pytest.raises(Refusal, match=r"a run in the queue waits for GPU 0"):
        resources.require_unawaited("rb", [], GpuNeed([0, 1], 2))
