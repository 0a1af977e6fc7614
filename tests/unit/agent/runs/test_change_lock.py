"""The lock of a change: who has it, and who only asks."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import change_lock


@pytest.fixture
def changing(root, monkeypatch):
    """Return a function that starts a change of a run, which lasts until it is closed."""
    os.makedirs(paths.run("p", "r"))
    monkeypatch.setattr(change_lock, "caller_interrupts", lambda seconds: False)

    def start(by):
        change = change_lock.change("p", "r", by)
        next(change)
        return change

    return start


def test_the_second_one_is_told_by_whom_since_when_and_how_to_end_it(changing):
    first = changing("ann@desk in /home/ann/mnist")
    with pytest.raises(Refusal) as refused:
        changing("ben@laptop in /home/ben")
    assert "by ann@desk in /home/ann/mnist since 2" in refused.value.message
    assert f"kill {os.getpid()} on this host" in refused.value.hint
    first.close()
    changing("ben@laptop in /home/ben").close()


def test_one_who_changes_a_run_answers_again_and_again(changing):
    """So it ends with a connection that is dead."""
    first = changing("ann@desk")
    assert [type(next(first)).__name__ for _ in range(3)] == ["Done"] * 3


def test_those_who_only_ask_refuse_nobody_and_name_nobody_who_has_ended(changing):
    changing("ann@old").close()
    asking = change_lock._acquire("p", "r", change_lock.fcntl.LOCK_SH)
    change_lock.refuse_if_held("p", "r")
    with pytest.raises(Refusal) as refused:
        changing("ben@laptop")
    assert "ann@old" not in refused.value.message
    os.close(asking)
