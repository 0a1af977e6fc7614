"""Which record of a trial counts."""

from __future__ import annotations

from tfdeploy.shared.trials import (
    FAILED,
    LOST,
    RUNNING,
    SUCCEEDED,
    TrialRecord,
    newest,
    shorten,
    to_line,
)


def test_what_the_chief_heard_counts_more_than_the_start_that_a_slot_recorded():
    heard = TrialRecord(0, 1, RUNNING, "worker:1", value=0.5, rungs=[0.5])
    own = TrialRecord(0, 1, RUNNING, "worker:1")
    assert newest([heard, own]) == newest([own, heard]) == {0: heard}


def test_a_success_counts_more_than_a_loss_and_another_attempt_more_than_both():
    records = [TrialRecord(0, 1, state, "worker:1") for state in (SUCCEEDED, LOST, FAILED)]
    assert newest(records)[0].state == SUCCEEDED
    again = TrialRecord(0, 2, RUNNING, "worker:2")
    assert newest([again, *records])[0] == again


def test_a_journal_that_is_too_long_keeps_the_newest_record_of_each_trial():
    ended = [TrialRecord(n, 1, SUCCEEDED, "worker:0") for n in range(2000)]
    started = [TrialRecord(n, 1, RUNNING, "worker:0") for n in range(2000)]
    lines = [to_line(each) for each in (*started, *ended)]
    assert shorten(lines) == lines[2000:]
