"""Everything is checked before anything starts, and each refusal says what to do."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from tfdeploy.agent import paths, start
from tfdeploy.agent.refusal import Refusal
from unit.made import launch


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


def test_a_task_starts_only_once(release):
    os.makedirs(paths.task("p", "r", "worker:0"))
    assert refused() == ("worker:0 of run r was started before", "")


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


def test_a_port_is_free_again_once_its_connections_have_ended():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(listener.getsockname()):
            listener.accept()[0].close()
    assert start._is_free(port)


@pytest.mark.parametrize("program", ["no-such-program", "/no/program", "./gone"])
def test_a_program_that_is_not_here_is_named(release, program):
    assert refused(argv=[program]) == (
        f"the program {program} of worker:0 is not on this host",
        "give its absolute path, or set the host's python",
    )


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


def shown(release, tmp_path, checkpoint_dir):
    """What a task sees in its directory: {path: what it links to}."""
    work = tmp_path / "work"
    work.mkdir()
    start._link_release(launch(checkpoint_dir=checkpoint_dir), os.fspath(work))
    return {
        path.relative_to(work).as_posix(): path.readlink().relative_to(release).as_posix()
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
