"""Plots: the same data gives the same plot, lines look different, invalid input is refused."""

from __future__ import annotations

import math
import re

import matplotlib
import pytest

from tfdeploy.branches.measuring import plots
from tfdeploy.branches.measuring.plots import Line, Panel
from tfdeploy.errors import RunError


def lines(count, *, points=3):
    xs = [*range(1, points + 1)]
    return [Line(f"line {n}", xs, [x * (n + 1) for x in xs]) for n in range(count)]


def svg(panel):
    return plots.to_web_svg(panel, [line.label for line in panel.lines], "a")


def texts_of(svg_text):
    return re.findall(r"<text [^>]*>(.*?)</text>", svg_text)


def axes_of(panel):
    """Draw a panel, and return its axes."""
    figure = matplotlib.figure.Figure()
    axes = figure.subplots()
    plots._draw_panel(axes, panel, {line.label: n for n, line in enumerate(panel.lines)})
    return axes


def test_the_same_data_gives_the_same_plot_and_other_data_another():
    panel = Panel("title", "x", lines(9))
    assert svg(panel) == svg(panel)
    assert "date" not in svg(panel)
    assert svg(panel) != svg(Panel("title", "x", lines(9, points=4)))


def test_the_users_settings_of_matplotlib_do_not_matter():
    panel = Panel("title", "x", lines(2))
    text = svg(panel)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        assert svg(panel) == text
        assert matplotlib.rcParams["font.size"] == 30


def test_twenty_lines_look_different():
    drawn = axes_of(Panel("", "x", lines(20))).lines
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 20


def test_raw_values_are_drawn_pale_behind_the_line():
    line = Line("a", [1, 2, 3], [2, 2, 2], raw=[1, 2, 3])
    pale, smooth = axes_of(Panel("", "x", [line])).lines
    assert (list(pale.get_ydata()), list(smooth.get_ydata())) == ([1, 2, 3], [2, 2, 2])
    assert pale.get_alpha() < 0.5
    assert pale.get_color() == smooth.get_color()


def test_a_single_point_is_visible():
    assert axes_of(Panel("", "x", lines(1, points=1))).lines[0].get_marker() == "o"
    assert axes_of(Panel("", "x", lines(1))).lines[0].get_marker() == ""


def test_a_logarithmic_axis_is_labelled_with_plain_numbers():
    axes = axes_of(Panel("", "x", [Line("a", [1, 2], [0.5, 1e5])], log_y=True))
    axes.figure.draw_without_rendering()
    low, high = axes.get_ylim()
    assert {"1", "10", "100", "1000", "10000"} <= {
        tick.get_text() for tick in axes.get_yticklabels() if low <= tick.get_position()[1] <= high
    }


@pytest.mark.parametrize("log_y", [False, True])
def test_values_that_are_not_finite_leave_a_gap(log_y):
    odd = Line("odd", [1, 2, 3, 4, 5], [1, math.nan, math.inf, 0, -1], raw=[math.nan] * 5)
    assert "x" in texts_of(svg(Panel("", "x", [odd], log_y=log_y)))


@pytest.mark.parametrize("found", [[], [Line("a", [], [])]])
def test_a_panel_without_points_is_drawn(found):
    assert "x" in texts_of(svg(Panel("", "x", found)))


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_too_large_for_a_plot_are_refused():
    huge = Panel("loss", "x", [Line("a", [1, 2], [1e308, -1e308])])
    with pytest.raises(RunError, match=r"loss can't be drawn: "):
        svg(huge)
