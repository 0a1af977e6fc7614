"""Alive means "holds the lock": taken once, seen by others, dropped with its holder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tfdeploy.agent import lock, records, status
from unit.made import eventually, python

PACKAGE = Path(__file__).parents[2]
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import lock
held = lock.take(sys.argv[2])
lock.adopt(held)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def held(tmp_path):
    """Another process that holds the lock of the task in tmp_path."""
    process = python(HOLD, os.fspath(PACKAGE), os.fspath(tmp_path))
    assert process.said == "held"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lock_that_was_never_taken_has_no_holder(tmp_path):
    assert lock.holder(os.fspath(tmp_path)) is None


def test_the_holder_is_seen_by_others(tmp_path, held):
    assert lock.holder(os.fspath(tmp_path)) == held.pid


def test_a_second_holder_is_refused(tmp_path, held):
    with pytest.raises(BlockingIOError):
        lock.take(os.fspath(tmp_path))
    assert lock.holder(os.fspath(tmp_path)) == held.pid


def test_a_killed_holder_holds_nothing(tmp_path, held):
    held.send_signal(signal.SIGKILL)
    assert eventually(lambda: lock.holder(os.fspath(tmp_path)) is None)
    os.close(lock.take(os.fspath(tmp_path)))


def test_who_took_it_and_has_not_said_who_holds_it_is_nobody_yet(tmp_path):
    (tmp_path / "lock").write_text("4711")
    taken = lock.take(os.fspath(tmp_path))
    assert lock.holder(os.fspath(tmp_path)) == 0
    lock.adopt(taken)
    assert lock.holder(os.fspath(tmp_path)) == os.getpid()
    os.close(taken)
    assert lock.holder(os.fspath(tmp_path)) is None


def test_it_goes_from_hand_to_hand_and_is_never_free(tmp_path):
    taken = lock.take(os.fspath(tmp_path))
    adopt = HOLD.replace("lock.take(sys.argv[2])", "int(sys.argv[3])")
    words = (os.fspath(PACKAGE), os.fspath(tmp_path), str(taken))
    with python(adopt, *words, pass_fds=(taken,)) as heir:
        os.close(taken)
        assert lock.holder(os.fspath(tmp_path)) == heir.pid
        heir.kill()
    assert lock.holder(os.fspath(tmp_path)) is None


def test_children_of_the_holder_do_not_hold_it(tmp_path):
    child_too = HOLD.replace("lock.adopt", "import os; os.set_inheritable(held, True); lock.adopt")
    child_too = child_too.replace(
        'print("held"',
        "import subprocess; child = subprocess.Popen(['sleep', '60'], close_fds=False);"
        ' print(child.pid, "held"',
    )
    process = python(child_too, os.fspath(PACKAGE), os.fspath(tmp_path))
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        assert lock.holder(os.fspath(tmp_path)) is None
    finally:
        os.kill(int(process.said.split()[0]), signal.SIGKILL)


def test_looking_does_not_take_the_lock(tmp_path):
    (tmp_path / "lock").write_text("1")
    assert lock.holder(os.fspath(tmp_path)) is None
    os.close(lock.take(os.fspath(tmp_path)))


def test_a_lock_is_alive_before_its_holders_pid_stands_in_it(tmp_path):
    """The holder writes its pid after it has the lock; who looks in between must not see LOST."""
    wordless = HOLD.replace("lock.adopt(held)\n", "")
    process = python(wordless, os.fspath(PACKAGE), os.fspath(tmp_path))
    try:
        assert process.said == "held"
        assert status.read_state(os.fspath(tmp_path)).state == records.STARTING
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
