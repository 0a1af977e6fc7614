"""Everything is checked before anything starts, and each refusal says what to do."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tfdeploy.agent import leases, lock, paths, start
from tfdeploy.agent.refusal import Refusal
from unit.kept import free_port
from unit.made import circle, launch, python


@pytest.fixture
def release(root):
    """The release that launches ask for."""
    folder = root / "p" / "releases" / "f00d"
    folder.mkdir(parents=True)
    (folder / "run").write_text("#!/bin/sh\n")
    return folder


def refused(**changes):
    """What start says to two launches, of which the second is changed; nothing has begun then."""
    fine = launch(index=9, argv=[sys.executable])
    with pytest.raises(Refusal) as no:
        start.start([fine, launch(**{"argv": [sys.executable], **changes})])
    assert not os.path.exists(paths.task("p", "r", "worker:9"))
    return no.value.message, no.value.hint


def test_a_release_that_is_not_here_is_asked_for(release):
    assert refused(release="gone") == (
        "release gone is not on this host",
        "tfdeploy push sends it there",
    )


def test_a_data_set_that_is_not_here_is_asked_for(release):
    (release.parent / "b-1").mkdir()
    assert refused(data={"b": "b-1", "data/a": "data-a-1"}) == (
        "data set data/a (data-a-1) is not on this host",
        "tfdeploy push sends it there",
    )


def test_a_task_that_goes_is_not_begun_beside_itself(release):
    task_dir = paths.task("p", "r", "worker:0")
    os.makedirs(task_dir)
    held = lock.take(task_dir)
    assert refused() == (
        "worker:0 of run r is going already",
        "tfdeploy status --run r shows it, tfdeploy stop --run r ends it",
    )
    os.close(held)


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_a_taken_port_is_told_with_its_holder(release, address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        message, hint = refused(port=port)
    assert message.startswith(f"port {port} for worker:0 is taken by pid {os.getpid()} (")
    assert hint == "stop that one, or give the host other ports"


def test_the_port_of_the_run_itself_is_looked_at_where_its_chief_is(release):
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        assert refused(circle=circle(port=port))[0].startswith(f"port {port} for worker:0 is taken")
        ps = refused(job="ps", argv=["gone"], circle=circle(port=port))[0]
    assert ps == "the program gone of ps:0 is not on this host"


HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import leases
leases.adopt(leases.hold([sys.argv[2]]))
print("held", flush=True)
time.sleep(60)
"""
PACKAGE = os.fspath(Path(__file__).parents[2])


@pytest.fixture
def holding():
    """Another process that has a lease, behind a command line of its own."""
    with ExitStack() as stack:

        def hold(resource, *words):
            process = stack.enter_context(python(HOLD, PACKAGE, resource, *words, ""))
            stack.callback(process.kill)
            assert process.said == "held"
            return process

        yield hold


def test_what_another_run_has_is_refused_at_once_and_names_it(release, holding):
    port = free_port()
    holding(f"port/{port}", "supervise", "/home/ada/digits/runs/r-7/ps-3")
    with pytest.raises(
        Refusal, match=f"^port {port} is taken by ps:3 of run r-7 of digits, "
    ) as no:
        start.start([launch(argv=[sys.executable], port=port)])
    assert no.value.held_by == "r-7"
    assert no.value.hint.startswith("wait for its end, end it with tfdeploy stop --run r-7, or ")


def test_what_a_start_beside_us_has_is_waited_for_a_moment(release, holding, monkeypatch):
    monkeypatch.setattr(start, "HANDOVER_S", 0.2)
    port = free_port()
    other = holding(f"port/{port}")
    with pytest.raises(Refusal, match=f"^port {port} is taken by pid {other.pid}, ") as no:
        start.start([launch(argv=[sys.executable], port=port)])
    assert no.value.held_by == ""
    assert "--run ," not in no.value.hint


def test_nothing_is_kept_of_what_could_not_all_be_had(release, holding):
    first, second = free_port(), free_port()
    holding(f"port/{second}", "supervise", "/home/ada/digits/runs/r-7/ps-3")
    with pytest.raises(Refusal):
        start.start([launch(argv=[sys.executable], index=n, port=port)
                     for n, port in enumerate((first, second))])  # fmt: skip
    assert leases.holder(f"port/{first}") is None
    assert not os.path.exists(paths.task("p", "r", "worker:0"))


@pytest.mark.parametrize("program", ["no-such-program", "/no/program", "./gone"])
def test_a_program_that_is_not_here_is_named(release, program):
    assert refused(argv=[program]) == (
        f"the program {program} of worker:0 is not on this host",
        "give its absolute path, or set the host's python",
    )


def test_a_program_may_lie_below_the_home(release, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert refused(argv=["~/tf/python"])[0] == (
        f"the program {tmp_path}/tf/python of worker:0 is not on this host"
    )
    (tmp_path / "tf").symlink_to(os.path.dirname(sys.executable))
    # It is there; what is looked at after the program is not.
    assert "nvidia-smi lists 0 here" in refused(argv=["~/tf/python"], gpus=[9])[0]


def test_a_program_of_the_release_must_be_executable(release):
    assert refused(argv=["./run"])[0] == "the program ./run of worker:0 is not on this host"
    (release / "run").chmod(0o755)
    start._check_program(launch(argv=["./run"]), os.fspath(release))


def test_a_program_is_looked_for_on_the_launchs_own_path(release, tmp_path):
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o755)
    start._check_program(launch(argv=["mine"], env={"PATH": os.fspath(tmp_path)}), "/")
    assert refused(argv=["mine"])[0] == "the program mine of worker:0 is not on this host"


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """Give this host an nvidia-smi that lists some GPUs, or none at all."""

    def have(count):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if count is not None:
            lines = "".join(f"echo 'GPU {gpu}: NVIDIA (UUID: GPU-1)'\n" for gpu in range(count))
            (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{lines}")
            (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", os.fspath(folder))

    return have


@pytest.mark.parametrize(("count", "found"), [(None, 0), (0, 0), (2, 2)])
def test_a_gpu_that_is_not_there_is_told_with_how_many_are(release, gpus, count, found):
    gpus(count)
    assert refused(gpus=[0, 2]) == (
        f"worker:0 is to have GPU {0 if not found else 2}, and nvidia-smi lists {found} here",
        "correct the host's gpus",
    )


def test_gpus_that_are_there_are_accepted(release, gpus):
    gpus(2)
    fine = launch(index=9, argv=[sys.executable], gpus=[1, 0])
    with pytest.raises(Refusal, match=r"^worker:0 is to have GPU 2, "):
        start.start([fine, launch(argv=[sys.executable], gpus=[2])])


def shown(release, tmp_path, checkpoint_dir, data=None):
    """What a task sees in its directory: {path: what it links to}."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    order = launch(checkpoint_dir=checkpoint_dir, data=data or {})
    start._link_releases(order, os.fspath(work))
    return {
        path.relative_to(work).as_posix(): os.path.relpath(path.readlink(), release)
        for path in work.rglob("*")
        if path.is_symlink()
    }


@pytest.mark.parametrize("checkpoint_dir", ["out", "./out", "out/deep", "/elsewhere", "data2"])
def test_the_release_is_shown_in_the_tasks_directory(release, tmp_path, checkpoint_dir):
    (release / "data").mkdir()
    assert shown(release, tmp_path, checkpoint_dir) == {"run": "run", "data": "data"}


def test_what_the_task_saves_never_lands_in_the_release(release, tmp_path):
    (release / "out" / "deep").mkdir(parents=True)
    (release / "out" / "old").write_text("")
    (release / "out" / "deep" / "older").write_text("")
    assert shown(release, tmp_path, "out/deep") == {"run": "run", "out/old": "out/old"}


def test_a_folder_that_is_saved_into_is_not_the_releases(release, tmp_path):
    (release / "out").mkdir()
    assert shown(release, tmp_path, "out/") == {"run": "run"}


def test_a_file_that_tells_the_role_is_the_tasks_own(release, tmp_path):
    (release / "config").mkdir()
    (release / "config" / "net.json").write_text("")
    order = launch(checkpoint_dir="out", files={"config/cluster.json": "{}"})
    work = tmp_path / "work"
    for _ in range(2):  # as it goes on
        work.mkdir(exist_ok=True)
        start._link_releases(order, os.fspath(work))
        start._write_files(order, os.fspath(work))
    assert (work / "config" / "cluster.json").read_text() == "{}"
    assert (work / "config" / "net.json").is_symlink()
    assert [path.name for path in (release / "config").iterdir()] == ["net.json"]


def test_a_link_leads_to_a_folder_that_is_there_and_follows_when_it_moves(tmp_path):
    work = tmp_path / "evaluator-0" / "work"
    for path in ("../../../worker-0/work/out/saved", "../../../replica"):
        start._link_paths(launch(links={"out/saved": path}), os.fspath(work))
        assert (work / "out" / "saved").readlink() == Path(path)
        assert (work / "out" / "saved").is_dir()
    assert (tmp_path / "worker-0" / "work" / "out" / "saved").is_dir()


def test_what_the_task_has_itself_at_a_links_place_stays(tmp_path):
    (tmp_path / "out").mkdir()
    start._link_paths(launch(links={"out": "../replica"}), os.fspath(tmp_path))
    assert not (tmp_path / "out").is_symlink()


def test_what_a_task_has_written_stays_when_it_goes_on(release, tmp_path):
    (release / "data").mkdir()
    shown(release, tmp_path, "out")
    work = tmp_path / "work"
    (work / "run").unlink()
    (work / "run").write_text("its own")
    (work / "out").mkdir()
    (work / "out" / "checkpoint").write_text("")
    assert shown(release, tmp_path, "out") == {"data": "data"}
    assert (work / "run").read_text() == "its own"
    assert (work / "out" / "checkpoint").exists()


def test_data_sets_are_shown_at_their_places_beside_what_the_release_has_there(release, tmp_path):
    (release / "data" / "deep").mkdir(parents=True)
    (release / "data" / "labels").write_text("")
    data = {"data/a": "data-a-1", "data/deep/er/b": "b-1", "c": "c-1"}
    assert shown(release, tmp_path, "out", data) == {
        "run": "run",
        "data/labels": "data/labels",
        "data/a": "../data-a-1",
        "data/deep/er/b": "../b-1",
        "c": "../c-1",
    }


def test_a_task_that_goes_on_sees_the_same_data(release, tmp_path):
    data = {"data/a": "data-a-1"}
    assert shown(release, tmp_path, "out", data) == shown(release, tmp_path, "out", data)
