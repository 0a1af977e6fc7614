"""Trials in a report: the table, and each trial as a line of its own."""

from __future__ import annotations

import pytest
from support.finished import START, finished_run

from tfdeploy.branches.measuring.run_report import page, trials
from tfdeploy.branches.measuring.run_report.facts import gather
from tfdeploy.commands.trials import list_trials
from tfdeploy.shared.trials import FAILED, SUCCEEDED, TrialRecord, to_line

POINTS = "{lr = '0.001', net = 'a'}, {lr = '0.1', net = 'b'}, {lr = '0.01', net = 'a'}"


@pytest.fixture
def facts(tmp_path):
    """Return a function that gathers the facts of a run whose slot ran these trials."""

    def make(*values, mode="max"):
        top = f"[trials]\nobjective = 'acc:{mode}'\npoints = [{POINTS}]\n"
        run = finished_run(tmp_path, hosts="[hosts.a]\nworkers = 2", top=top)
        records = [
            TrialRecord(n, 1, FAILED if value is None else SUCCEEDED, "worker:0", value=value,
                        at=START + 10.0 * (n + 1)) for n, value in enumerate(values)
        ]  # fmt: skip
        journal = run.folder / "logs" / "worker-0.trials.jsonl"
        journal.write_bytes(b"".join(map(to_line, records)))
        for n, value in enumerate(values):
            log = run.folder / "outputs" / "trials" / str(n) / "log.csv"
            log.parent.mkdir(parents=True)
            log.write_text(f"epoch,acc\n0,0.25\n1,{value}\n")
        return gather(run, None, list_trials(None, run))

    return make


def test_each_trial_has_its_own_curve_the_best_one_first(facts):
    shown = trials.view(facts(0.5, 0.75, 0.625), "x")
    over_time, curves = shown.charts
    assert shown.best == ("trial 1", "trial 2", "trial 0")
    assert [part.partition(":")[0] for part in curves.description.split(". ")[1].split("; ")] == [
        *shown.best
    ]
    assert "trial 1: from 0.25 to 0.75" in curves.description
    assert "the best so far: from 0.5 to 0.75" in over_time.description


def test_a_line_goes_through_each_parameter_to_the_objective(facts):
    shown = trials.view(facts(0.5, 0.75, 0.625), "x").parallel
    rate, net, objective = shown.axes
    assert [text for _, text in rate.ticks] == ["0.1", "0.01", "0.001"]
    heights = [height for height, _ in rate.ticks]
    assert heights[1] - heights[0] == heights[2] - heights[1]  # logarithmic
    assert [text for _, text in net.ticks] == ["b", "a"]
    assert objective.ticks[0] == (shown.top, "0.75")
    best = shown.trials[-1]
    assert (best.title, best.style) == ("trial 1: 0.75 with lr=0.1 net=b", 0)
    assert best.path == "M" + "L".join(f"{axis.x} {float(shown.top)}" for axis in shown.axes)


def test_the_smallest_value_is_at_the_top_if_it_is_best(facts):
    shown = trials.view(facts(0.5, 0.75, mode="min"), "x")
    assert shown.parallel.axes[-1].ticks[0][1] == "0.5"
    assert "the best so far: from 0.5 to 0.5" in shown.charts[0].description


def test_the_page_has_the_trials_and_no_curve_of_a_slot(facts):
    found = facts(0.5, None)
    text = page.render([found])
    assert "2 succeeded" not in text
    assert "3 trials: 1 succeeded, 1 failed, 1 waiting; best: trial 0 with 0.5" in text
    assert (found.scalars, found.log_losses) == ({}, {})
    assert "No event files" not in text


def test_a_run_without_values_has_a_table_and_no_picture(facts):
    shown = trials.view(facts(None, None), "x")
    assert (len(shown.rows), shown.parallel, shown.charts) == (3, None, ())


def test_the_value_of_a_secret_is_no_parameter_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "correct horse battery")
    top = "[trials]\nobjective = 'acc:max'\npoints = [{key = 'correct horse battery'}]\n"
    run = finished_run(tmp_path, top=top, training='secrets = ["KEY"]')
    record = TrialRecord(0, 1, SUCCEEDED, "worker:0", value=0.5, at=START)
    (run.folder / "logs/worker-0.trials.jsonl").write_bytes(to_line(record))
    text = page.render([gather(run, None, list_trials(None, run))])
    assert "correct" not in text
    assert "key=(hidden)" in text
