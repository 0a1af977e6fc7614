"""The processes of a task, real ones: found by their mark wherever they went, ended, verified."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import pytest

from tfdeploy.agent import process
from unit.made import eventually, python

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
# Starts a child in a session of its own, says its pid, and ends.
ORPHAN = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]],"
    " start_new_session=True, stdout=subprocess.DEVNULL); print(child.pid, flush=True)"
)


@pytest.fixture
def mark(tmp_path):
    """A mark that nothing else carries; what carries it at the end is killed."""
    value = process.mark("p", tmp_path.name, "worker:0")
    yield value
    for pid in process.members(value):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(mark):
    """Start Python processes that carry the mark, or another one."""
    started = []

    def one(code, *words, value=mark, **options):
        started.append(python(code, *words, env={**os.environ, process.MARK: value}, **options))
        return started[-1]

    yield one
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


# Found


def test_members_are_the_processes_with_the_mark(mark, start):
    both = [start(SLEEP).pid, start(SLEEP).pid]
    start(SLEEP, value=mark + "0")
    assert sorted(process.members(mark)) == sorted(both)


def test_a_child_of_its_own_session_whose_parent_ended_is_a_member(mark, start):
    parent = start(ORPHAN, SLEEP)
    parent.wait()
    assert process.members(mark) == [int(parent.said)]


def test_a_process_that_dropped_the_mark_is_a_member_by_its_session(mark, start):
    leader = start(
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c',"
        " sys.argv[1]], env={}, stdout=subprocess.DEVNULL);"
        " print(child.pid, flush=True); child.wait()",
        SLEEP,
        start_new_session=True,
    )
    child = int(leader.said)
    assert process.members(mark) == [leader.pid]
    assert sorted(process.members(mark, leader.pid)) == sorted([leader.pid, child])
    os.kill(child, signal.SIGKILL)


def test_a_process_that_ended_is_no_member_even_before_its_parent_looked(mark, start):
    dead = start("print('ready', flush=True)")
    assert eventually(lambda: process.members(mark) == [])
    assert dead.wait() == 0


# Ended


def test_end_asks_politely(mark, start):
    one = start(SLEEP)
    assert process.end(mark, None, 5.0) == []
    assert one.wait() == -signal.SIGTERM


def test_end_waits_for_a_process_that_saves_first(mark, start, tmp_path):
    saved = tmp_path / "saved"
    start(
        "import signal, sys, time\n"
        "def save(*_):\n time.sleep(0.1); open(sys.argv[1], 'w').close(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save); print('ready', flush=True); time.sleep(60)",
        str(saved),
    )
    assert process.end(mark, None, 5.0) == []
    assert saved.exists()


def test_end_kills_what_ignores_it(mark, start):
    deaf = start(DEAF)
    began = time.monotonic()
    assert process.end(mark, None, 0.2) == []
    assert time.monotonic() - began >= 0.2
    assert deaf.wait() == -signal.SIGKILL


def test_end_reaches_children_of_their_own_sessions(mark, start):
    parent = start(ORPHAN, DEAF)
    parent.wait()
    assert process.end(mark, None, 0.1) == []
    assert not os.path.exists(f"/proc/{parent.said}") or process.members(mark) == []


def test_end_touches_nothing_else(mark, start):
    other = start(SLEEP, value=mark + "0")
    start(SLEEP)
    process.end(mark, None, 1.0)
    assert other.poll() is None


def test_end_of_nothing_is_at_once(mark):
    forever = 1e9
    assert process.end(mark, None, forever) == []


# Who holds a port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_holder_of_a_port_is_found(family):
    with socket.socket(family) as listener:
        listener.bind(("", 0))
        listener.listen()
        assert process.holder(listener.getsockname()[1]) == os.getpid()


def test_a_port_that_is_only_connected_to_has_no_holder():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as connection:
            assert process.holder(connection.getsockname()[1]) is None
        port = listener.getsockname()[1]
    assert process.holder(port) is None


def test_the_holder_may_be_another_process(start):
    other = start(
        "import socket, time; s = socket.create_server(('', 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    assert process.holder(int(other.said)) == other.pid


# Described


def test_a_process_of_ours_is_described_with_its_task(start):
    one = start(SLEEP, value="digits/r-1/worker:0")
    text = process.described(one.pid)
    assert text.startswith(f"pid {one.pid} (")
    assert text.endswith("), worker:0 of run r-1 of digits")


def test_any_other_process_is_described_by_its_command():
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as one:
        assert eventually(lambda: "sleep" in process.described(one.pid))
        assert process.described(one.pid) == f"pid {one.pid} (sleep 60)"
        one.kill()


def test_a_process_that_is_gone_is_described_by_its_pid():
    assert process.described(2**22 + 1) == "pid 4194305"
