"""Pictures: the timeline and the charts show what there is, within their frames."""

from __future__ import annotations

import math
import re

from tfdeploy.branches.measuring.history import Change, Pause
from tfdeploy.branches.measuring.run_report import charts, timeline
from tfdeploy.branches.measuring.run_report.over_time import TrainedRun
from tfdeploy.branches.measuring.scalars import Point

# The timeline


def test_bars_are_placed_by_time_and_short_ones_stay_visible():
    changes = [Change(0, "READY"), Change(500, "BACKOFF"), Change(500.1, "READY"),
               Change(1000, "SUCCEEDED")]  # fmt: skip
    line = timeline.lay_out({"worker:0": changes, "worker:1": []}, 5000.0)
    [row] = line.rows
    assert [bar.x for bar in row.bars][:2] == [0.0, 500.0]
    assert row.bars[1].width == timeline.MIN_WIDTH
    assert all(bar.x + bar.width <= timeline.SCALE for bar in row.bars)
    assert line.end == 1000  # all tasks have ended: not the time of the report
    assert [text for _, text in line.states][-1] == "succeeded"


def test_the_axis_of_a_live_run_ends_now():
    assert timeline.lay_out({"w": [Change(100, "READY")]}, 160.0).ticks[-1] == "1m 00s"


def test_without_a_history_there_is_no_timeline():
    assert timeline.lay_out({"worker:0": []}, 1.0) is None


def test_one_moment_is_a_timeline_too():
    assert timeline.lay_out({"w": [Change(100, "FAILED")]}, 100.0).rows[0].bars[0].x < 1000


# Charts


def series(*values, at=1000.0, every=10):
    return tuple(Point(n * every, at + n, value) for n, value in enumerate(values))


def drawn(*runs):
    return charts.draw([TrainedRun(label, 1000.0, found) for label, found in runs], "x")


def test_the_loss_comes_first_then_the_speed_then_others():
    found, more = drawn(("a", {"accuracy": series(1, 2), "loss": series(3, 2), "z": series(1, 1)}))
    assert [chart.title for chart in found] == ["loss", "steps/s", "accuracy", "z"]
    assert more == ()
    assert found[0].description == "loss over time. a: from 3 to 2, lowest 2, highest 3"


def test_no_line_is_drawn_across_a_pause_and_it_has_no_speed():
    steps = (*series(3, 2, 1), *series(0.9, 0.8, at=1500.0))
    found = tuple(Point(10 * n, point.time_s, point.value) for n, point in enumerate(steps))
    run = TrainedRun("a", 1000.0, {"loss": found}, pauses=[Pause(1002.5, 1490.0)])
    [loss] = charts._scalar_lines([run], "loss")
    assert loss.xs == [0.0, 1.0, 2.0, 2.5, 500.0, 501.0]
    assert [math.isnan(y) for y in loss.ys] == [False, False, False, True, False, False]
    [speed] = charts._speed_lines([run])
    assert [y for y in speed.ys if not math.isnan(y)] == [10.0, 10.0, 10.0]


def test_only_the_first_scalars_are_drawn_and_the_others_named():
    found, more = drawn(("a", {f"s{n:02}": series(1, 2) for n in range(12)}))
    assert len(found) == charts.MAX_CHARTS + 1
    assert more == ("s08", "s09", "s10", "s11")


def test_a_long_series_is_thinned_and_keeps_its_last_value():
    found, _ = drawn(("a", {"loss": series(*range(20000, 0, -1))}))
    assert len(found[0].svg) < 100_000
    assert "from 2e+04 to" in found[0].description


def test_without_scalars_and_with_only_odd_numbers_there_is_no_crash():
    assert drawn(("a", {})) == ((), ())
    found, _ = drawn(("a", {"loss": series(float("nan"), float("inf"))}))
    assert found[0].title == "loss"


def test_the_names_of_scalars_and_runs_cannot_be_markup():
    evil = "<script>alert(1)</script>$x_{$&\x1b"
    found, _ = drawn((evil, {evil: series(1, 2)}), ("b", {evil: series(1, 2)}))
    assert all("<script" not in chart.svg for chart in found)


def test_charts_of_a_page_share_no_id_and_use_the_colours_of_its_theme():
    found, _ = drawn(("a", {"loss": series(1, 2)}), ("b", {"loss": series(2, 3)}))
    ids = [id_ for chart in found for id_ in re.findall(r' id="([^"]+)"', chart.svg)]
    assert len(ids) == len(set(ids)) > 0
    targets = {
        id_ for chart in found for id_ in re.findall(r'(?:url\(#|href="#)([^")]+)', chart.svg)
    }
    assert targets <= set(ids)
    svg = found[0].svg
    assert "var(--line-0)" in svg and "var(--line-1)" in svg
    assert not re.search(r"#0072b2|#000000|http", svg, re.I)


def test_a_curve_is_the_running_mean_over_a_twentieth_of_its_values_with_these_pale_behind_it():
    values = [1e300, *range(1, 40), math.nan]
    run = TrainedRun("a", 1000.0, {"loss": series(*values)})
    [line] = charts._scalar_lines([run], "loss")
    assert line.raw[:-1] == values[:-1]
    assert (line.ys[0], line.ys[2], line.ys[39]) == (1e300, 1.5, 38.5)
    assert math.isnan(line.ys[40])
