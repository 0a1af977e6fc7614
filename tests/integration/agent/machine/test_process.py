"""Real processes of a task: found by their mark, session or ancestor, ended, and described."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time

import pytest
from support.builders import end_processes, eventually, start_python

from tfdeploy.agent.machine import process

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
# Starts a child in its own session, prints its pid, and ends.
ORPHAN = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c', sys.argv[1]],"
    " start_new_session=True, stdout=subprocess.DEVNULL); print(child.pid, flush=True)"
)


@pytest.fixture
def mark():
    """A mark that no other process of the machine has; those that have it at the end are killed."""
    value = process.mark("p", secrets.token_hex(8), "worker:0")
    yield value
    for pid in process.task_processes(value):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(mark):
    """Start Python processes with the mark, or with another one."""
    started = []

    def start_process(code, *arguments, value=mark, **options):
        started.append(
            start_python(code, *arguments, env={**os.environ, process.MARK: value}, **options)
        )
        return started[-1]

    yield start_process
    end_processes(started)


# Finding processes


def test_a_process_that_a_signal_has_stopped_is_found_also_below_a_shell(start):
    words = ["sh", "-c", f"'{sys.executable}' -S -c 'import time; time.sleep(60)'; true"]
    with subprocess.Popen(words) as shell:
        eventually(lambda: process.read(shell.pid, f"task/{shell.pid}/children").strip())
        child = int(process.read(shell.pid, f"task/{shell.pid}/children"))
        assert process.find_stopped(shell.pid) is None
        os.kill(child, signal.SIGSTOP)
        eventually(lambda: process.find_stopped(shell.pid) == child)
        os.kill(child, signal.SIGKILL)


def test_processes_with_the_mark_belong_to_the_task(mark, start):
    pids = [start(SLEEP).pid, start(SLEEP).pid]
    start(SLEEP, value=mark + "0")
    assert sorted(process.task_processes(mark)) == sorted(pids)


def test_an_orphan_in_its_own_session_belongs_to_the_task(mark, start):
    parent = start(ORPHAN, SLEEP)
    parent.wait()
    assert process.task_processes(mark) == [int(parent.first_line)]


def test_a_process_without_the_mark_belongs_by_its_session(mark, start):
    leader = start(
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c',"
        " sys.argv[1]], env={}, stdout=subprocess.DEVNULL);"
        " print(child.pid, flush=True); child.wait()",
        SLEEP,
        start_new_session=True,
    )
    child = int(leader.first_line)
    assert process.task_processes(mark) == [leader.pid]
    assert sorted(process.task_processes(mark, leader.pid)) == sorted([leader.pid, child])
    os.kill(child, signal.SIGKILL)


def test_a_zombie_does_not_belong_to_the_task(mark, start):
    dead = start("print('ready', flush=True)")
    assert eventually(lambda: process.task_processes(mark) == [])
    assert dead.wait() == 0


# Ending processes


def test_end_all_sends_sigterm_first(mark, start):
    one = start(SLEEP)
    assert process.end_all(mark, None, 60.0) == []
    assert one.wait() == -signal.SIGTERM


def test_end_all_waits_for_a_process_that_saves_first(mark, start, tmp_path):
    saved = tmp_path / "saved"
    start(
        "import signal, sys, time\n"
        "def save(*_):\n time.sleep(0.1); open(sys.argv[1], 'w').close(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, save); print('ready', flush=True); time.sleep(60)",
        str(saved),
    )
    assert process.end_all(mark, None, 60.0) == []
    assert saved.exists()


def test_end_all_kills_a_process_that_ignores_sigterm(mark, start):
    deaf = start(DEAF)
    started = time.monotonic()
    assert process.end_all(mark, None, 0.2) == []
    assert time.monotonic() - started >= 0.2
    assert deaf.wait() == -signal.SIGKILL


def test_end_all_reaches_children_in_their_own_sessions(mark, start):
    parent = start(ORPHAN, DEAF)
    parent.wait()
    assert process.end_all(mark, None, 0.1) == []
    assert not os.path.exists(f"/proc/{parent.first_line}") or process.task_processes(mark) == []


def test_end_all_does_not_touch_other_processes(mark, start):
    other = start(SLEEP, value=mark + "0")
    start(SLEEP)
    process.end_all(mark, None, 1.0)
    assert other.poll() is None


def test_end_all_returns_at_once_without_processes(mark):
    forever = 1e9
    assert process.end_all(mark, None, forever) == []


# The holder of a port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_holder_of_a_port_is_found(family):
    with socket.socket(family) as listener:
        listener.bind(("", 0))
        listener.listen()
        assert process.port_holder(listener.getsockname()[1]) == os.getpid()


def test_a_port_of_an_outgoing_connection_has_no_holder():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as connection:
            assert process.port_holder(connection.getsockname()[1]) is None
        port = listener.getsockname()[1]
    assert process.port_holder(port) is None


def test_the_holder_of_a_port_can_be_another_process(start):
    other = start(
        "import socket, time; s = socket.create_server(('', 0)); "
        "print(s.getsockname()[1], flush=True); time.sleep(60)"
    )
    assert process.port_holder(int(other.first_line)) == other.pid


def test_a_likely_holder_is_found_and_another_process_as_well(start):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert process.port_holder(port, likely=os.getpid()) == os.getpid()
        assert process.port_holder(port, likely=start(SLEEP).pid) == os.getpid()


# Descriptions


def test_a_process_of_a_task_is_described_with_its_task(start):
    one = start(SLEEP, value="digits/r-1/worker:0")
    text = process.describe(one.pid)
    assert text.startswith(f"pid {one.pid} (")
    assert text.endswith("), worker:0 of run r-1 of digits")


def test_another_process_is_described_by_its_command():
    with subprocess.Popen(["sleep", "60"], env={"PATH": os.environ["PATH"]}) as one:
        assert eventually(lambda: "sleep" in process.describe(one.pid))
        assert process.describe(one.pid) == f"pid {one.pid} (sleep 60)"
        one.kill()


def test_an_ended_process_is_described_by_its_pid():
    assert process.describe(2**22 + 1) == "pid 4194305"
