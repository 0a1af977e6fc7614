"""How trials are handed out: each once, again if its slot is lost, and not if all fail."""

from __future__ import annotations

import pytest
from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent.supervision.trials import board as boards
from tfdeploy.agent.supervision.trials.board import LOST_AFTER_S, Board
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.records import TrialSettings
from tfdeploy.shared.trials import (
    BAD,
    FAILED,
    IDLE,
    INTERRUPTED,
    LOST,
    OVER,
    RUNNING,
    SUCCEEDED,
    TrialRecord,
)

TASKS = ["worker:0", "worker:1", "worker:2"]


class Clock:
    now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


class Journal:
    """What is recorded, and what was recorded on the chief's host before."""

    def __init__(self, before=()):
        self.before, self.records = before, []

    def add(self, record):
        self.records.append(record)

    def on_this_host(self):
        return list(self.before)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(boards, "time", clock)
    return clock


class Slots:
    """The slots of a run with a board: each reports what it has."""

    def __init__(self, points, before=(), age_s=0.0, **settings):
        trials = TrialSettings([{"lr": str(n)} for n in range(points)], **settings)
        heartbeat = make_heartbeat_settings(tasks=TASKS, needed=[])
        self.journal = Journal(before)
        launch = make_launch(heartbeat=heartbeat, trials=trials, age_s=age_s)
        self.board = Board(launch, self.journal)
        self.has = {task: TrialRecord(IDLE, 0, "", task) for task in TASKS}

    def ask(self, slot, recorded=()):
        """Report what the slot has; return the trial and the attempt that it gets."""
        order = self.board.report(slot, self.has[slot], recorded)
        if order.trial >= 0:
            self.has[slot] = TrialRecord(order.trial, order.attempt, RUNNING, slot)
        return order

    def end(self, slot, state=SUCCEEDED, **more):
        self.has[slot] = replace(self.has[slot], **{"state": state, "exit": 0, **more})
        return self.ask(slot)

    def state(self, trial):
        return [each.state for each in self.journal.records if each.trial == trial]


def test_each_slot_gets_another_trial_until_none_is_left(clock):
    slots = Slots(4)
    assert [slots.ask(task).trial for task in TASKS] == [0, 1, 2]
    assert slots.end("worker:1").trial == 3
    assert slots.end("worker:0").trial == IDLE
    assert slots.end("worker:2").trial == IDLE
    assert [slots.end("worker:1").trial, *(slots.ask(t).trial for t in TASKS)] == [OVER] * 4


def test_a_repeated_message_changes_nothing(clock):
    slots = Slots(4)
    slots.ask("worker:1")
    ended = replace(slots.has["worker:1"], state=SUCCEEDED, exit=0)
    first = slots.board.report("worker:1", ended)
    assert slots.board.report("worker:1", ended) == first
    assert slots.board.report("worker:1", TrialRecord(IDLE, 0, "", "worker:1")) == first
    assert slots.state(0) == [RUNNING, SUCCEEDED]


def test_a_trial_of_a_lost_slot_goes_to_another_one_after_a_time(clock):
    slots = Slots(2)
    assert [slots.ask("worker:1").trial, slots.ask("worker:2").trial] == [0, 1]
    clock.now += 119.0
    slots.ask("worker:2")
    assert slots.ask("worker:0").trial == IDLE
    clock.now += 2.0
    order = slots.ask("worker:0")
    assert (order.trial, order.attempt) == (0, 2)
    assert slots.state(0) == [RUNNING, LOST, RUNNING]
    assert next(r for r in slots.journal.records if r.state == LOST).seconds == 121.0


def test_a_slot_that_returns_does_not_have_its_trial_any_more(clock):
    slots = Slots(1)
    slots.ask("worker:1")
    clock.now += 121.0
    slots.ask("worker:0")
    assert slots.end("worker:1", value=9.0).trial == IDLE
    assert slots.end("worker:0").trial == OVER
    assert slots.state(0)[-1] == SUCCEEDED
    assert [each.value for each in slots.journal.records] == [None] * 4


@pytest.mark.parametrize(
    ("exit_code", "state", "attempts"), [(-9, FAILED, 2), (137, FAILED, 2), (1, FAILED, 1)]
)
def test_only_a_trial_that_was_killed_is_tried_again(clock, exit_code, state, attempts):
    slots = Slots(1)
    slots.ask("worker:0")
    for _ in range(attempts):
        order = slots.end("worker:0", state, exit=exit_code, reason="its end")
    assert order.trial == OVER
    assert order.failure == "no trial succeeded; the last one: its end"
    assert slots.state(0).count(RUNNING) == attempts


def test_a_slot_on_a_full_disk_gets_no_trial(clock):
    slots = Slots(2)
    slots.ask("worker:1")
    assert slots.end("worker:1", FAILED, exit=1, is_full=True).trial == IDLE
    assert slots.ask("worker:0").trial == 0
    assert slots.end("worker:0").trial == 1


def test_a_trial_whose_host_is_full_is_tried_until_a_host_is_not(clock):
    """Each slot of a full host fails once; these are no attempts of the trial."""
    slots = Slots(1)
    for task in ("worker:1", "worker:2"):
        assert slots.ask(task).trial == 0
        slots.end(task, FAILED, exit=1, is_full=True)
    assert slots.ask("worker:0").trial == 0
    assert slots.end("worker:0").failure == ""


def test_a_run_ends_when_the_disks_of_all_slots_that_answer_are_full(clock):
    slots = Slots(2)
    for task in TASKS[:2]:
        slots.ask(task)
        assert slots.end(task, FAILED, exit=1, is_full=True).trial == IDLE
    clock.now += LOST_AFTER_S + 1
    slots.ask("worker:0")  # worker:2 is never heard
    assert slots.ask("worker:1").failure == "the disks of all slots that answer are full"


def test_after_a_failure_the_others_wait_for_a_success(clock):
    slots = Slots(9)
    slots.ask("worker:0")
    assert slots.end("worker:0", FAILED, exit=2, reason="exit 2: no such option").trial == 1
    assert slots.ask("worker:1").trial == IDLE
    assert slots.end("worker:0").trial == 2
    assert slots.ask("worker:1").trial == 3


def test_ten_failures_of_the_same_way_stop_the_rest(clock):
    slots = Slots(30)
    order = slots.ask("worker:0")
    for number in range(10):
        assert order.trial == number
        reason = f"exit 1: ValueError: {number} is too large"
        order = slots.end("worker:0", FAILED, exit=1, reason=reason)
    assert order.trial == OVER
    assert order.failure == (
        "10 trials in a row failed in the same way: exit 1: ValueError: 9 is too large"
    )


def test_failures_of_other_ways_do_not_stop_the_rest(clock):
    slots = Slots(30)
    slots.ask("worker:0")
    for number in range(29):
        error = "ValueError" if number % 2 else "KeyError"
        slots.end("worker:0", FAILED, exit=1, reason=f"exit 1: {error}: x")
    assert slots.end("worker:0", FAILED, exit=1).failure.startswith("no trial succeeded")


def test_an_objective_that_nobody_writes_stops_the_rest_after_the_first_trials(clock):
    slots = Slots(30, objective="val_acc")
    for task in TASKS:
        slots.ask(task)
    assert slots.end("worker:0", reason="it wrote no val_acc").trial == IDLE
    assert slots.end("worker:1", reason="it wrote no val_acc").trial == IDLE
    order = slots.end("worker:2", reason="it wrote no val_acc; it wrote loss")
    assert (order.trial, order.failure) == (OVER, "trial 2: it wrote no val_acc; it wrote loss")


def test_an_objective_that_one_trial_did_not_write_stops_nothing(clock):
    slots = Slots(30, objective="val_acc")
    slots.ask("worker:0")
    assert slots.end("worker:0", value=0.5, rungs=[0.5]).trial == 1
    assert slots.end("worker:0", reason="its val_acc is no number").trial == 2


def test_in_a_run_that_was_not_resumed_no_host_has_recorded_anything(clock):
    slots = Slots(2)
    slots.ask("worker:2", recorded=[TrialRecord(n, 1, SUCCEEDED, "", value=9.0) for n in (0, 1)])
    assert slots.has["worker:2"].trial == 0
    assert slots.ask("worker:1").trial == 1


def test_a_first_trial_without_a_number_stops_nothing(clock):
    """It has written the objective: only its parameters are bad."""
    slots = Slots(3, objective="val_acc")
    slots.ask("worker:0")
    order = slots.end("worker:0", rungs=[None, None], reason="its val_acc is no number")
    assert (order.trial, slots.ask("worker:1").trial) == (1, 2)


def test_a_value_is_recorded_even_if_no_other_one_follows(clock):
    slots = Slots(1)
    slots.ask("worker:1")
    for value, later_s in ((0.1, 0.0), (0.2, 0.0), (0.2, boards.RECORD_EVERY_S + 1)):
        clock.now += later_s
        slots.has["worker:1"] = replace(slots.has["worker:1"], value=value)
        slots.ask("worker:1")
    assert [each.value for each in slots.journal.records] == [None, 0.1, 0.2]


def test_a_resumed_run_continues_with_what_was_recorded(clock):
    before = [
        TrialRecord(0, 1, SUCCEEDED, "worker:0", exit=0),
        TrialRecord(1, 1, INTERRUPTED, "worker:0"),
        TrialRecord(2, 1, RUNNING, "worker:1"),  # of another host
    ]
    slots = Slots(4, before, age_s=60.0)
    assert slots.ask("worker:0").trial == IDLE
    assert slots.ask("worker:1", [TrialRecord(2, 1, SUCCEEDED, "worker:1", exit=0)]).trial == IDLE
    found = [(slots.ask(task).trial, slots.has[task].attempt) for task in ("worker:2", "worker:0")]
    assert found == [(1, 2), (3, 1)]


def test_a_resumed_run_waits_for_silent_slots_and_left_out_hosts_only_for_a_time(clock):
    slots = Slots(2, [TrialRecord(0, 1, RUNNING, "worker:1")], age_s=60.0)
    assert slots.ask("worker:0").trial == IDLE
    slots.ask("worker:1")
    assert [slots.ask("worker:2").trial, slots.ask("worker:0").trial] == [1, IDLE]
    clock.now += 121.0
    slots.ask("worker:2")
    assert (slots.ask("worker:0").trial, slots.has["worker:0"].attempt) == (0, 2)


def test_a_bad_trial_ends_early_and_counts(clock):
    slots = Slots(9, objective="acc", stop_bad=True)
    for task, value in zip(TASKS, [0.9, 0.5, 0.1], strict=True):
        slots.ask(task)
        slots.has[task] = replace(slots.has[task], rungs=[value], value=value)
    assert [slots.ask(task).stop for task in TASKS] == [
        "", "", "2 of 3 trials were better at value 1",
    ]  # fmt: skip
    slots.has["worker:2"] = replace(slots.has["worker:2"], rungs=[0.1], value=0.1)
    assert slots.ask("worker:2").stop  # until it has ended
    assert slots.end("worker:2", BAD, exit=-15).trial == 3
    assert slots.state(2) == [RUNNING, RUNNING, BAD]
