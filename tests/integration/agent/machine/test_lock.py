"""Task locks: one holder at a time, visible to other processes, released when it ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.builders import eventually, start_python

from tfdeploy.agent.machine import lock
from tfdeploy.agent.reports import status
from tfdeploy.shared import records

PACKAGE = Path(__file__).parents[4]
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.machine import lock
held = lock.acquire(sys.argv[2])
lock.adopt(held)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of the task in tmp_path."""
    process = start_python(HOLD, os.fspath(PACKAGE), os.fspath(tmp_path))
    assert process.first_line == "held"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lock_that_was_never_taken_has_no_holder(tmp_path):
    assert lock.holder(os.fspath(tmp_path)) is None


def test_another_process_sees_the_holder(tmp_path, holder):
    assert lock.holder(os.fspath(tmp_path)) == holder.pid


def test_a_second_holder_is_refused(tmp_path, holder):
    with pytest.raises(BlockingIOError):
        lock.acquire(os.fspath(tmp_path))
    assert lock.holder(os.fspath(tmp_path)) == holder.pid


def test_a_killed_holder_holds_nothing(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    assert eventually(lambda: lock.holder(os.fspath(tmp_path)) is None)
    os.close(lock.acquire(os.fspath(tmp_path)))


def test_the_holder_is_0_until_it_has_written_its_pid(tmp_path):
    (tmp_path / "lock").write_text("4711")
    descriptor = lock.acquire(os.fspath(tmp_path))
    assert lock.holder(os.fspath(tmp_path)) == 0
    lock.adopt(descriptor)
    assert lock.holder(os.fspath(tmp_path)) == os.getpid()
    os.close(descriptor)
    assert lock.holder(os.fspath(tmp_path)) is None


def test_a_lock_is_never_free_while_it_is_handed_over(tmp_path):
    descriptor = lock.acquire(os.fspath(tmp_path))
    adopt_code = HOLD.replace("lock.acquire(sys.argv[2])", "int(sys.argv[3])")
    arguments = (os.fspath(PACKAGE), os.fspath(tmp_path), str(descriptor))
    with start_python(adopt_code, *arguments, pass_fds=(descriptor,)) as heir:
        os.close(descriptor)
        assert lock.holder(os.fspath(tmp_path)) == heir.pid
        heir.kill()
    assert lock.holder(os.fspath(tmp_path)) is None


def test_children_of_the_holder_do_not_hold_it(tmp_path):
    code = HOLD.replace("lock.adopt", "import os; os.set_inheritable(held, True); lock.adopt")
    code = code.replace(
        'print("held"',
        "import subprocess; child = subprocess.Popen(['sleep', '600'], close_fds=False);"
        ' print(child.pid, "held"',
    )
    process = start_python(code, os.fspath(PACKAGE), os.fspath(tmp_path))
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        # exec() may still be closing the child's copy when the parent has learned that it worked.
        assert eventually(lambda: lock.holder(os.fspath(tmp_path)) is None)
    finally:
        os.kill(int(process.first_line.split()[0]), signal.SIGKILL)


def test_checking_the_holder_does_not_take_the_lock(tmp_path):
    (tmp_path / "lock").write_text("1")
    assert lock.holder(os.fspath(tmp_path)) is None
    os.close(lock.acquire(os.fspath(tmp_path)))


def test_a_task_is_starting_while_its_supervisor_has_not_written_its_pid(tmp_path):
    """A status between locking and writing the pid must not be LOST."""
    without_pid = HOLD.replace("lock.adopt(held)\n", "")
    process = start_python(without_pid, os.fspath(PACKAGE), os.fspath(tmp_path))
    try:
        assert process.first_line == "held"
        assert status.read_state(os.fspath(tmp_path)).state == records.STARTING
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
