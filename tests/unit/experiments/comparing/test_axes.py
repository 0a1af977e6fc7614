"""Repeated runs as one line, other x axes, and the scale of the y axis."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tfdeploy import run as runs
from tfdeploy.errors import RunError
from tfdeploy.experiments.comparing import axes as plot
from tfdeploy.experiments.comparing.axes import parse_examples
from tfdeploy.experiments.repeats import Curve, summarize
from unit.cli.test_cli import tfdeploy  # noqa: F401

from .collected import LOG, ONE, TWO, collect_run, write_log
from .test_compare import compare, folder, lines_of, refusal  # noqa: F401

THREE = "20260103-000000-cccc"


def name_run(folder_of_run, name):
    runs.save(replace(runs.read_folder(folder_of_run), name=name))


@pytest.fixture
def named(folder):  # noqa: F811
    """Three runs: seed-1 and seed-2, and another one."""
    for run_id, name, losses in ((ONE, "seed-1", [4.0, 2.0]), (TWO, "seed-2", [4.0, 1.0]),
                                 (THREE, "other", [4.0, 3.0])):  # fmt: skip
        name_run(collect_run(folder, run_id, losses), name)
    return folder


# Names and groups


def test_a_run_is_found_by_its_name_and_labelled_with_it(named):
    found = compare(named, "seed-1", THREE)
    assert [(each.label, each.run) for each in found.runs] == [("seed-1", ONE), ("other", THREE)]


def test_a_name_means_the_newest_run_with_it_and_a_pattern_all_of_them(named):
    name_run(named / "runs" / ONE, "seed-2")
    assert [each.run for each in compare(named, "seed-2").runs] == [TWO]
    [group] = compare(named, "seed-2*").groups
    assert [each.label for each in group.runs] == [ONE, TWO]


def test_a_pattern_and_a_list_are_one_line_each(named):
    by_pattern, by_list = compare(named, "seed-*", f"mixed={ONE},other").groups
    assert (by_pattern.label, [each.run for each in by_pattern.runs]) == ("seed-*", [ONE, TWO])
    assert (by_list.label, [each.label for each in by_list.runs]) == ("mixed", ["seed-1", "other"])
    assert (by_pattern.points, by_list.points) == (4, 4)


def test_a_pattern_does_not_match_runs_without_a_name(named):
    name_run(named / "runs" / ONE, "")
    assert [each.run for each in compare(named, "all=*").runs] == [TWO, THREE]


def test_a_run_that_is_twice_in_a_line_is_refused(named):
    found = f"x={ONE},seed-1 has a run twice\n  name each run once"
    assert refusal(named, f"x={ONE},seed-1") == found
    assert refusal(named, "lone-*").startswith('there is no run "lone-*" in ~/runs')
    assert refusal(named, f"x={ONE},").startswith('there is no run "" in ~/runs')


# Bands


def test_a_band_has_the_median_and_the_range_of_all_runs():
    band = summarize([Curve([0, 1], [1.0, 5.0]), Curve([0, 1], [3.0, 1.0]), Curve([0, 1], [2, 3])])
    assert (band.median, band.low, band.high) == ((2.0, 3.0), (1.0, 1.0), (3.0, 5.0))


def test_a_band_ends_with_the_shortest_run_and_joins_points_by_lines():
    band = summarize([Curve([0, 10, 20], [0.0, 10.0, 20.0]), Curve([5, 15], [5.0, 35.0])])
    assert band.xs == (5, 10, 15)
    assert (band.low, band.high) == ((5.0, 10.0, 15.0), (5.0, 20.0, 35.0))
    assert summarize([Curve([0, 1], [1, 1]), Curve([2, 3], [1, 1])]).xs == ()


def test_a_band_has_a_gap_if_a_run_has_one():
    band = summarize([Curve([0, 1, 2], [1.0, math.nan, 1.0]), Curve([0, 1, 2], [2.0, 2.0, 2.0])])
    assert [math.isnan(value) for value in band.median] == [False, True, False]


def test_a_band_of_many_points_is_thinned_and_keeps_its_ends():
    xs = range(10_000)
    band = summarize([Curve(xs, [float(x) for x in xs])] * 2)
    assert len(band.xs) <= 502
    assert (band.xs[0], band.xs[-1]) == (0, 9999)


def test_repeated_runs_are_drawn_as_their_median_and_say_how_many_points(named):
    over_steps, over_time = plot.panels(compare(named, "seed-*", "other", smooth=0))
    repeated, single = over_steps.lines
    assert (repeated.ys, repeated.low, repeated.high) == ((4.0, 1.5), (4.0, 1.0), (4.0, 2.0))
    assert repeated.note == "median and range of\n2 runs, 4 points"
    assert (single.low, single.note) == ((), "2 points")
    assert over_time.lines[0].xs == (0.0, 1.0)


def test_repeated_runs_without_a_common_step_are_refused(named):
    late = [0.5, 0.5]
    name_run(collect_run(named, THREE, late, every=1000), "seed-3")
    events = named / "runs" / THREE / "events"
    assert events.is_dir()
    comparison = compare(named, f"x={ONE},{THREE}", smooth=0)
    shifted = tuple(p._replace(step=p.step + 5000) for p in comparison.runs[1].series)
    moved = replace(comparison.runs[1], series=shifted)
    group = replace(comparison.groups[0], runs=(comparison.runs[0], moved))
    with pytest.raises(RunError, match="the runs of x have no step in common"):
        plot.panels(replace(comparison, groups=(group,)), "step")


def test_the_table_has_a_row_for_each_run_and_each_line(named, tfdeploy):  # noqa: F811
    words = ["compare", "seeds=seed-*", "other", "--smooth", "0", "--target", "2"]
    code, out, err = tfdeploy(*words)
    assert (code, err) == (0, "")
    table = lines_of(out)
    assert table[0][:4] == ["RUN", "LINE", "TASKS", "POINTS"]
    assert [row[:2] for row in table[1:4]] == [
        ["seed-1", "seeds"], ["seed-2", "seeds"], ["other", "other"]
    ]  # fmt: skip
    assert table[5] == ["median (lowest to highest run):"]
    assert table[6:9] == [
        ["LINE", "RUNS", "POINTS", "LAST", "LOWEST", "REACHED 2"],
        ["seeds", "2", "4", "1.5 (1 to 2)", "1.5 (1 to 2)", "2 of 2, step 10"],
        ["other", "1", "2", "3", "3", "0 of 1"],
    ]


def test_the_document_has_the_lines_of_the_plot(named, tfdeploy):  # noqa: F811
    _, out, _ = tfdeploy("compare", "seeds=seed-*", "other", "--smooth", "0", "--json")
    document = json.loads(out)
    assert [(line["label"], line["runs"], line["points"]) for line in document["lines"]] == [
        ("seeds", 2, 4), ("other", 1, 2)
    ]  # fmt: skip
    assert document["lines"][0]["last"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert [each["line"] for each in document["runs"]] == ["seeds", "seeds", "other"]


# Axes


def examples(*texts, synchronous=False):
    return parse_examples(texts, synchronous)


def test_examples_are_steps_times_those_of_a_step(named):
    found = compare(named, "seed-1", "other", examples=examples("32", "other=8"))
    assert [each.examples for each in found.runs] == [(0, 320), (0, 80)]
    assert [panel.xlabel for panel in plot.panels(found)][2] == "examples, of all workers"
    [only] = plot.panels(found, "examples")
    assert [line.xs for line in only.lines] == [(0, 320), (0, 80)]


def test_a_synchronous_step_takes_its_examples_from_every_worker(named):
    found = compare(named, "seed-1", examples=examples("32", synchronous=True))
    assert found.runs[0].examples == (0, 10 * 32 * 2)
    (named / "runs" / ONE / "run.json").unlink()
    message = refusal(named, f"a={ONE}", examples=examples("32", synchronous=True))
    assert message.startswith(f"run {ONE} has no record that says how many workers it had")


@pytest.mark.parametrize("text", ["0", "x", "-1", "1.5", "a=", "=5=", "٣", "9" * 30])
def test_an_invalid_number_of_examples_is_refused(text):
    with pytest.raises(RunError, match=r"--examples-per-step: found .*; expected N or LABEL=N"):
        examples(text)


def test_numbers_of_examples_must_fit_the_lines(named):
    found = refusal(named, "seed-1", examples=examples("x=3"))
    assert found == '--examples-per-step: found label "x"; expected one of seed-1'
    found = refusal(named, "seed-1", "other", examples=examples("other=3"))
    assert found.startswith("--examples-per-step: seed-1 has no number")
    with pytest.raises(RunError, match='label "a" occurs twice'):
        examples("a=1", "a=2")
    with pytest.raises(RunError, match="--synchronous says what --examples-per-step means"):
        examples(synchronous=True)


def test_an_axis_that_no_run_has_is_refused(named, tfdeploy):  # noqa: F811
    code, out, err = tfdeploy("compare", "seed-1", "--x", "examples")
    assert (code, out) == (2, "")
    assert err == (
        "error: --x examples: the examples of a step are unknown\n  add --examples-per-step N\n"
    )
    write_log(named / "runs" / ONE, "worker-0.log", "step 1 loss 2.5")
    code, _, err = tfdeploy("compare", "seed-1", "--x", "time", "--pattern", LOG)
    assert (code, err.splitlines()[0]) == (2, "error: --x time: the runs have no times")
    assert not (named / "runs" / "compare.svg").exists()
    assert tfdeploy("compare", "seed-1", "--x", "steps")[0] == 2


def test_one_axis_may_be_chosen(named, tfdeploy):  # noqa: F811
    assert tfdeploy("compare", "seed-1", "--x", "time")[0] == 0
    assert "<!-- step -->" not in (named / "runs" / "compare.svg").read_text()


# The scale of the y axis


def test_a_loss_has_a_logarithmic_axis_unless_it_is_not_positive(folder):  # noqa: F811
    collect_run(folder, ONE, [2.0, math.nan, 1.0])
    collect_run(folder, TWO, [2.0, -1.0])
    collect_run(folder, THREE, [0.5, 0.9], tag="accuracy")
    scales = [plot.panels(compare(folder, each))[0].log for each in (ONE, TWO, THREE)]
    assert scales == ["y", "", ""]
    assert plot.panels(compare(folder, ONE), log=False)[0].log == ""
    assert plot.panels(compare(folder, THREE), log=True)[0].log == "y"


def test_the_scale_may_be_chosen(named, tfdeploy):  # noqa: F811
    drawn = []
    for option in ("--log", "--linear"):
        assert tfdeploy("compare", "seed-1", option, "--picture", f"{option[2:]}.svg")[0] == 0
        drawn.append((named / f"{option[2:]}.svg").read_text())
    assert drawn[0] != drawn[1]
