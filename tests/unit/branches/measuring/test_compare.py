"""Comparing collected runs: the common scalar, times, and the command."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
from support.events import record, scalar_event, write

from tfdeploy.branches.measuring import compare as compare_module
from tfdeploy.branches.measuring.output import print_comparison
from tfdeploy.documents import to_json
from tfdeploy.errors import RunError
from tfdeploy.output.console import Console
from tfdeploy.run import read_folder, save
from unit.cli.test_cli import tfdeploy  # noqa: F401

from .collected import ONE, TWO, collect_run, write_log


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(folder, *named, **options):
    return compare_module.compare(folder / "hosts.toml", named, **options)


def refusal(folder, *named, **options):
    with pytest.raises(RunError) as caught:
        compare(folder, *named, **options)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder), "~")


# Which scalar


def test_the_default_is_loss_or_the_only_scalar_that_all_runs_have(folder):
    collect_run(folder, ONE, [1.0])
    collect_run(folder, TWO, [1.0], tag="error")
    assert compare(folder, ONE).tag == "loss"
    assert compare(folder, TWO).tag == "error"
    message = f"the runs have no scalar in common\n  {ONE} has loss\n  {TWO} has error"
    assert refusal(folder, ONE, TWO) == message
    assert refusal(folder, ONE, TWO, tag="loss") == f'{TWO} has no scalar "loss"; it has error'


def collect_fit(folder, run_id, losses, **changes):
    """Collect a run of Keras's fit, with the callback TensorBoard."""
    collected = collect_run(folder, run_id, [], **changes)
    for part, factor in (("train", 1.0), ("validation", 1.5)):
        events = [
            record(scalar_event(n, 1000.0 + n, epoch_loss=factor * v, epoch_accuracy=1 - v))
            for n, v in enumerate(losses)
        ]
        write(collected / "events" / part, *events)
    return collected


def test_two_runs_of_keras_have_their_epoch_loss_in_common_and_all_metrics_are_shown(
    folder, tfdeploy  # noqa: F811
):  # fmt: skip
    collect_fit(folder, ONE, [0.5, 0.25])
    collect_fit(folder, TWO, [0.5, 0.125])
    comparison = compare(folder, ONE, TWO)
    assert comparison.tag == "epoch_loss"
    code, out, err = tfdeploy("compare", ONE, TWO)
    assert (code, err) == (0, "")
    assert lines_of(out)[4:9] == [
        ["METRIC", "RUN", "LAST", "BEST", "VALIDATION LAST", "VALIDATION BEST"],
        ["epoch_loss", ONE, "0.25", "0.25", "0.375", "0.375"],
        ["epoch_loss", TWO, "0.125", "0.125", "0.1875", "0.1875"],
        ["epoch_accuracy", ONE, "0.75", "0.75", "0.75", "0.75"],
        ["epoch_accuracy", TWO, "0.875", "0.875", "0.875", "0.875"],
    ]


def test_the_time_between_a_stop_and_a_resume_counts_nothing(folder):
    collected = collect_run(folder, ONE, [4.0, 3.0], at=1000.0)
    later = [record(scalar_event(20 + 10 * n, 1100.0 + n, loss=2.0 - n)) for n in (0, 1)]
    write(collected / "events", *later, name="events.out.tfevents.2")
    changes = ((990, "READY"), (1001.5, "STOPPED"), (1095, "STARTING"), (1099, "READY"))
    lines = [json.dumps({"at": at, "state": state}) for at, state in changes]
    write_log(collected, "worker-0.history.jsonl", *lines)
    [run] = compare(folder, ONE).runs
    assert (run.curve.seconds, run.steps_per_s) == ((0.0, 1.0, 1.0, 2.0), 10.0)


def test_words_that_differ_come_first(folder, tfdeploy):  # noqa: F811
    for run_id, rate in ((ONE, "0.1"), (TWO, "0.01")):
        folder_of_run = collect_run(folder, run_id, [2.0, 1.0])
        run = replace(read_folder(folder_of_run), words=("--steps", "100000", "--lr", rate))
        save(run)
    rows = lines_of(tfdeploy("compare", ONE, TWO)[1])[:3]
    assert [row[1] for row in rows] == ["WORDS", "--lr 0.1", "--lr 0.01"]


def test_the_speed_is_compared_only_on_request(folder):
    collected = collect_run(folder, ONE, [1.0], tag="error")
    speed = record(scalar_event(1, 1.0, **{"global_step/sec": 50.0}))
    write(collected / "events", speed, name="events.out.tfevents.2")
    assert compare(folder, ONE).tag == "error"
    assert compare(folder, ONE, tag="global_step/sec").tag == "global_step/sec"


def test_one_of_several_scalars_must_be_chosen(folder):
    collected = collect_run(folder, ONE, [1.0], tag="a")
    write(collected / "events", record(scalar_event(1, 1.0, b=1.0)), name="events.out.tfevents.2")
    found = 'the runs have no "loss" in common, but a, b\n  choose one: --tag NAME'
    assert refusal(folder, ONE) == found


def test_many_scalars_are_named_in_part(folder):
    collected = collect_run(folder, ONE, [1.0], tag="a")
    many = scalar_event(1, 1.0, **{f"x{n:02}": 1.0 for n in range(40)})
    write(collected / "events", record(many), name="events.out.tfevents.2")
    assert "a, x00, x01" in refusal(folder, ONE)
    assert "x10 and 29 more" in refusal(folder, ONE)


# Times and the best value


def test_seconds_count_from_the_first_scalar_of_any_tag(folder):
    collected = collect_run(folder, ONE, [3.0, 2.0, 1.0], at=1000.0)
    early = record(scalar_event(0, 990.0, other=1.0))
    write(collected / "events", early, name="events.out.tfevents.2")
    compared = compare(folder, ONE).runs[0]
    assert compared.curve.seconds == (10.0, 11.0, 12.0)
    assert compared.steps_per_s == 10.0


def test_seconds_count_by_the_clock_of_the_task_that_reports_the_scalar(folder):
    collected = collect_run(folder, ONE, [3.0, 2.0], at=1000.0)
    of_evaluator = [
        record(scalar_event(n, 5.0 + n, **{"loss": 9.0, "error": 0.5})) for n in (1, 2, 3)
    ]
    write(collected / "events" / "evaluator-0", *of_evaluator)
    assert compare(folder, ONE).runs[0].curve.seconds == (0.0, 1.0)
    assert compare(folder, ONE, tag="evaluator-0/error").runs[0].curve.seconds == (0.0, 1.0, 2.0)


def test_the_best_loss_is_the_lowest_and_the_best_accuracy_the_highest(folder):
    collect_run(folder, ONE, [4.0, 2.0, 0.5, 3.0])
    collect_run(folder, TWO, [0.1, 0.8, 0.95, 0.9], tag="accuracy")
    assert compare(folder, ONE).runs[0].best == 0.5
    comparison = compare(folder, TWO)
    assert comparison.best_is == "highest"
    assert comparison.runs[0].best == pytest.approx(0.95)


def test_a_rising_loss_is_not_better(folder):
    collect_run(folder, ONE, [1.0, 5.0])
    assert compare(folder, ONE).best_is == "lowest"


def test_one_point_has_no_speed(folder):
    collect_run(folder, ONE, [1.0])
    assert math.isnan(compare(folder, ONE).runs[0].steps_per_s)


# The document


def test_the_document_has_null_for_nan_and_infinity(folder):
    collect_run(folder, ONE, [2.0, math.nan, math.inf])
    comparison = compare(folder, ONE)
    document = json.loads(json.dumps(to_json(comparison), allow_nan=False))
    assert (document["tag"], document["best_is"]) == ("loss", "lowest")
    [one] = document["runs"]
    assert one["curve"] == {
        "step": [0, 10, 20],
        "seconds": [0.0, 1.0, 2.0],
        "value": [2.0, None, None],
    }
    assert (one["first"], one["last"], one["best"]) == (2.0, None, 2.0)
    assert (one["steps"], one["seconds"], one["steps_per_s"]) == (20, 2.0, 10.0)
    assert one["tasks"] == {"ps": 1, "worker": 2}


# The command


COLUMNS = ["RUN", "TASKS", "POINTS", "STEPS", "SECONDS", "STEPS/S", "FIRST", "LAST", "LOWEST"]


def lines_of(out):
    return [re.split(r"  +", line.strip()) for line in out.splitlines()]


def test_the_table_has_a_row_for_each_run(folder, tfdeploy):  # noqa: F811
    collect_run(folder, ONE, [4.0, 2.0, 1.0], every=100)
    collect_run(folder, TWO, [4.0, 1.0, 0.5], project="other", every=100)
    code, out, err = tfdeploy("compare", ONE, TWO)
    assert (code, err) == (0, "")
    assert lines_of(out) == [
        COLUMNS,
        [ONE, "1 ps, 2 workers", "3", "200", "2.0", "100.0", "4", "1", "1"],
        [TWO, "1 ps, 2 workers", "3", "200", "2.0", "100.0", "4", "0.5", "0.5"],
        [""],
        ["FIRST, LAST and LOWEST are values of loss"],
        ["the runs differ in project"],
    ]


def test_a_log_without_times_is_compared_over_steps(folder, tfdeploy):  # noqa: F811
    write_log(collect_run(folder, ONE, []), "worker-0.log", "step 1 loss 2.5", "step 9 loss nan")
    code, out, _ = tfdeploy("compare", ONE)
    assert code == 0
    assert lines_of(out)[1] == [ONE, "1 ps, 2 workers", "2", "9", "-", "-", "2.5", "nan", "2.5"]


def test_json_is_one_document(folder, tfdeploy):  # noqa: F811
    collect_run(folder, ONE, [2.0, 1.0])
    code, out, err = tfdeploy("compare", f"x={ONE}", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["runs"][0]["label"] == "x"


def test_control_characters_in_a_label_are_escaped(folder, capsys):
    collect_run(folder, ONE, [1.0])
    comparison = compare(folder, f"\x1b[31m[bold]={ONE}")
    print_comparison(Console(), comparison)
    assert r"\x1b[31m[bold]" in capsys.readouterr().out
