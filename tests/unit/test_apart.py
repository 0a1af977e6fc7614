"""What is begun apart shares nothing with who began it, and shows its own name to everyone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unit.kept import children
from unit.made import eventually, python

PACKAGE = os.fspath(Path(__file__).parents[2])
BEGIN = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import apart
log, title = sys.argv[2], sys.argv[3].replace("LONG", "x" * 100000)
read_end, write_end = os.pipe()
stray = os.open(os.devnull, os.O_RDONLY)
def work():
    print("to the log", flush=True)
    os.write(write_end, "{} {}".format(os.getpid(), os.environ["WHO"]).encode())
    os.close(write_end)
    WORK
apart.begin(work, title, log, [write_end])
os.close(write_end)
print(os.read(read_end, 99).decode(), flush=True)
sys.stdin.read()
"""
TITLE = "tfdeploy supervise /home/ada lovelace/.tfdeploy/digits/runs/r-1/worker-0"


@pytest.fixture
def begun(tmp_path):
    """(who began it, the pid of what was begun, its log), with this as its work."""
    processes = []

    def begin(work="time.sleep(60)", title=TITLE, **environment):
        log, code = tmp_path / "log", BEGIN.replace("WORK", work)
        process = python(
            code, PACKAGE, os.fspath(log), title, stdin=-1,
            env={**os.environ, "WHO": "ada", **environment},
        )  # fmt: skip
        processes.append(process)
        pid, who = process.said.split()
        assert who == environment.get("WHO", "ada")
        return process, int(pid), log

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        if Path(f"/proc/{process.said.split()[0]}").exists():
            os.kill(int(process.said.split()[0]), 9)


def shown(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0")


def stat(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


@pytest.mark.parametrize("title", [TITLE, "x", "ü" * 200])
def test_it_goes_by_its_own_name(begun, title):
    _, pid, _ = begun(title=title, ROOM="r" * 500)
    assert shown(pid) == title.encode()


def test_a_name_that_has_no_room_is_left_out(begun):
    process, pid, _ = begun(title="LONG")
    assert shown(pid) == shown(process.pid)


def test_what_began_it_keeps_its_name_and_has_no_child(begun):
    process, pid, _ = begun()
    assert PACKAGE.encode() in shown(process.pid)
    assert children(process.pid) == {}
    assert stat(pid)[3] == str(pid)  # the session


def test_it_has_nothing_open_but_what_it_is_given(begun, tmp_path):
    _, pid, log = begun()

    def found():
        return [os.readlink(entry) for entry in sorted(Path(f"/proc/{pid}/fd").iterdir())]

    # What it was given is closed by its work.
    assert eventually(lambda: found() == [os.devnull, os.fspath(log), os.fspath(log)])
    assert log.read_text() == "to the log\n"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_it_outlives_who_began_it(begun):
    process, pid, _ = begun()
    process.stdin.close()
    assert process.wait(10) == 0
    assert shown(pid) == TITLE.encode()


def test_what_goes_wrong_in_it_is_in_its_log_and_nowhere_else(begun):
    process, pid, log = begun("raise ValueError('gone wrong')")
    assert eventually(lambda: "ValueError: gone wrong" in log.read_text())
    assert eventually(lambda: not Path(f"/proc/{pid}").exists())  # nobody has to wait for it
    process.stdin.close()
    assert process.wait(10) == 0
