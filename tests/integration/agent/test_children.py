"""A detached process shares nothing with its creator, and ps shows its own title."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.builders import eventually, start_python

from integration.agent.supervised_task import children

PACKAGE = os.fspath(Path(__file__).parents[3])
DETACH = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import children
log, title = sys.argv[2], sys.argv[3].replace("LONG", "x" * 100000)
read_end, write_end = os.pipe()
stray = os.open(os.devnull, os.O_RDONLY)
def work():
    print("to the log", flush=True)
    os.write(write_end, "{} {}".format(os.getpid(), os.environ["CREATOR"]).encode())
    os.close(write_end)
    WORK
children.run_detached(work, title, log, [write_end])
os.close(write_end)
print(open(read_end).read(), flush=True)
sys.stdin.read()
"""
TITLE = "tfdeploy supervise /home/ada lovelace/.tfdeploy/digits/runs/r-1/worker-0"


@pytest.fixture
def detach(tmp_path):
    """Detach a process that runs `work`; return its creator, its pid and its log."""
    processes = []

    def start(work="time.sleep(60)", title=TITLE, **environment):
        log, code = tmp_path / "log", DETACH.replace("WORK", work)
        process = start_python(
            code, PACKAGE, os.fspath(log), title, stdin=-1,
            env={**os.environ, "CREATOR": "ada", **environment},
        )  # fmt: skip
        processes.append(process)
        pid, creator = process.first_line.split()
        assert creator == environment.get("CREATOR", "ada")
        return process, int(pid), log

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if Path(f"/proc/{process.first_line.split()[0]}").exists():
            os.kill(int(process.first_line.split()[0]), 9)


def command_line(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")


def stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.mark.parametrize("title", [TITLE, "x", "ü" * 200])
def test_a_detached_process_shows_its_title(detach, title):
    _, pid, _ = detach(title=title, ROOM="r" * 500)
    assert command_line(pid) == title.encode()


def test_a_title_that_is_too_long_is_left_out(detach):
    process, pid, _ = detach(title="LONG")
    assert command_line(pid) == command_line(process.pid)


def test_the_creator_keeps_its_title_and_has_no_child(detach):
    process, pid, _ = detach()
    assert PACKAGE.encode() in command_line(process.pid)
    assert children(process.pid) == {}
    assert stat(pid)[3] == str(pid)  # the session


def test_a_detached_process_has_only_the_given_descriptors(detach, tmp_path):
    _, pid, log = detach()

    def open_files():
        return [os.readlink(entry) for entry in sorted(Path(f"/proc/{pid}/fd").iterdir())]

    # The work has closed the descriptor that it was given: its creator has read to the end.
    assert open_files() == [os.devnull, os.fspath(log), os.fspath(log)]
    assert log.read_text() == "to the log\n"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_a_detached_process_outlives_its_creator(detach):
    process, pid, _ = detach()
    process.stdin.close()
    assert process.wait(60) == 0
    assert command_line(pid) == TITLE.encode()


def test_an_exception_goes_to_the_log_only(detach):
    process, pid, log = detach("raise ValueError('gone wrong')")
    assert eventually(lambda: "ValueError: gone wrong" in log.read_text())
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())  # init reaps it
    process.stdin.close()
    assert process.wait(60) == 0
