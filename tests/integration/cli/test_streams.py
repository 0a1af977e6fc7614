"""A command whose standard output or standard error has no reader, is full or closed."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import contextmanager

import pytest
from support import command_line, evidence
from support.builders import hosts_toml
from support.command_line import REAL
from support.projects import environment
from support.trusting import trust

HOST = '[hosts.here]\ntransport = "local"\npython = "python3.99"\nworkers = 1'


@contextmanager
def unread():
    """Yield a descriptor to which nobody listens."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def run_unread(project, *words):
    """Run a command without a reader; return its exit code and its standard error."""
    evidence.used(project)
    with unread() as output, tempfile.TemporaryFile("w+") as errors, open(os.devnull) as nothing:
        streams = (nothing.fileno(), output, errors.fileno())
        code = command_line.start(
            *words, cwd=project.folder, env=environment(project.folder), streams=streams
        ).wait()
        errors.seek(0)
        return code, errors.read()


def test_a_command_without_a_reader_does_its_work(local):
    project = local.pushed("--hold")
    assert run_unread(project, "start") == (0, "")
    assert {task["state"] for task in project.status().values()} == {"READY"}
    for words in ["status"], ["status", "--json"], ["logs"]:
        assert run_unread(project, *words) == (0, "")
    code, errors = run_unread(project, "exec", "worker", "--", "false")
    assert (code, errors.count("the command exited with 1")) == (1, 1)
    assert run_unread(project, "collect")[0] == 0
    assert list(project.run_folder.glob("checkpoints/*"))
    with unread() as output, open(os.devnull) as nothing:
        streams = (nothing.fileno(), output, output)
        env = environment(project.folder)
        assert command_line.start("stop", cwd=project.folder, env=env, streams=streams).wait() == 0
    assert {task["state"] for task in project.status().values()} == {"STOPPED"}


@pytest.mark.parametrize("words", [["logs", "-f"], ["watch"]])
def test_what_only_shows_a_run_ends_with_its_reader_although_nothing_happens(local, words):
    project = local.started("--hold")
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, open(os.devnull) as nothing:
        command = command_line.start(
            *words, cwd=project.folder, env=environment(project.folder),
            streams=(nothing.fileno(), writing, errors.fileno()),
        )  # fmt: skip
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        assert command.wait() == 0
        errors.seek(0)
        assert errors.read() == ""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(hosts_toml(HOST))
    return tmp_path


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_changes_no_exit_code(folder, closed):
    command = " ".join([*REAL, "plan", "--json", closed])
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_hosts_that_are_looked_at_once_keep_their_errors_without_a_reader(folder):
    trust(folder / "hosts.toml")
    with unread() as output:
        done = subprocess.run([*REAL, "hosts"], stdout=output, stderr=subprocess.PIPE, cwd=folder)
    assert done.returncode == 1
    assert b"python3.99" in done.stderr


def test_a_full_disk_ends_a_command_with_one_sentence(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*REAL, "plan"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=folder
        )
    assert done.returncode == 1
    assert done.stderr == "error: standard output can't be written: No space left on device\n"
