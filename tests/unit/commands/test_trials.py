"""The table of trials: which one is best, and what of each is fetched."""

from __future__ import annotations

import pytest
from support.builders import make_run

from tfdeploy.commands.trials import TrialsResult, list_trials
from tfdeploy.output.console import Console
from tfdeploy.output.trial_table import print_trials
from tfdeploy.shared.trials import BAD, FAILED, RUNNING, SUCCEEDED, WAITING, TrialRecord, to_line

POINTS = "".join(f"{{lr = '{n}'}}, " for n in range(4))


@pytest.fixture
def result(tmp_path):
    """Return a function that returns the table of a run with these records."""

    def make(*records, objective="acc:max") -> TrialsResult:
        top = f"[trials]\nobjective = '{objective}'\npoints = [{POINTS}]\n"
        run = make_run(tmp_path, top=top)
        journal = run.folder / "logs" / "worker-0.trials.jsonl"
        journal.parent.mkdir(parents=True)
        journal.write_bytes(b"".join(map(to_line, records)))
        return list_trials(None, run)

    return make


def record(number, state, value=None, **more):
    return TrialRecord(number, 1, state, "worker:0", value=value, **more)


def test_a_trial_that_failed_is_never_above_the_best_one(result):
    found = result(record(0, FAILED, 0.9), record(1, SUCCEEDED, 0.5), record(2, BAD, 0.6))
    assert ([t.number for t in found.trials], found.best) == ([2, 1, 3, 0], 2)


def test_a_slot_does_not_say_how_the_trials_of_others_are(tmp_path):
    """What was collected of one is what its host sent."""
    tables = "".join(f"[hosts.{h}]\naddress = '{h}'\nworkers = 1\n" for h in "abc")
    run = make_run(
        tmp_path, hosts=tables, top=f"[trials]\nobjective = 'acc:max'\npoints = [{POINTS}]\n"
    )
    (run.folder / "logs").mkdir(parents=True)
    forged = [TrialRecord(n, 9, SUCCEEDED, f"worker:{n}", value=9.0) for n in (1, 2)]
    (run.folder / "logs" / "worker-1.trials.jsonl").write_bytes(b"".join(map(to_line, forged)))
    states = {trial.number: trial.state for trial in list_trials(None, run).trials}
    assert (states[1], states[2]) == (SUCCEEDED, WAITING)


def test_the_smallest_value_may_be_best(result):
    found = result(record(1, SUCCEEDED, 0.5), record(2, RUNNING, 0.4), objective="loss:min")
    assert ([t.number for t in found.trials], found.best) == ([2, 1, 0, 3], 1)


def test_all_files_of_the_best_one_are_fetched_and_scalars_and_logs_of_others(result):
    found = result(record(0, SUCCEEDED, 0.5), record(1, SUCCEEDED, 0.6))
    paths = ("trials/1/model.bin", "trials/0/model.bin", "trials/0/log.csv", "trials/0.log")
    assert [found.keeps("worker:0", path) for path in paths] == [True, False, True, True]
    assert all(found.keeps("worker:0", path, every=True) for path in paths)


def test_what_an_older_attempt_left_in_another_slot_is_not_fetched(result):
    found = result(record(0, FAILED), TrialRecord(0, 2, SUCCEEDED, "worker:0", value=0.5))
    for every in (False, True):
        assert found.keeps("worker:0", "trials/0/model.bin", every=every)
        assert not found.keeps("worker:1", "trials/0/model.bin", every=every)
        assert found.keeps("worker:1", "notes.txt", every=every)


def test_a_column_for_reasons_is_shown_if_there_is_any(result, capsys):
    again = TrialRecord(0, 2, SUCCEEDED, "worker:0", value=0.5, step=3, seconds=7.0)
    print_trials(Console(), result(record(0, FAILED), again))
    header, first, *_, summary = capsys.readouterr().out.splitlines()
    assert header.split()[-1] == "REASON"
    shown = ["0", "0.5", "3", "7s", "SUCCEEDED", "0", "w", "worker:0", "attempt", "2"]
    assert first.split() == shown
    assert summary == "4 trials: 1 succeeded, 3 waiting; best: trial 0 with 0.5 (lr=0)"
