"""Plots: the same data gives the same file, lines look different, invalid input is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path

import matplotlib
import pytest

from tfdeploy.errors import RunError
from tfdeploy.experiments import plots
from tfdeploy.experiments.plots import Line, Panel
from tfdeploy.release.snapshot import is_by_product


def lines(count, *, points=3):
    xs = [*range(1, points + 1)]
    return [Line(f"line {n}", xs, [x * (n + 1) for x in xs]) for n in range(count)]


def svg(tmp_path, *panels, name="a.svg"):
    plots.draw(tmp_path / name, panels)
    return (tmp_path / name).read_text()


def texts_of(svg_text):
    """Return the texts in a plot: matplotlib draws letters, and writes the text in a comment."""
    return re.findall(r"<!-- (.*?) -->", svg_text)


@pytest.mark.parametrize("name", ["a.svg", "a.png"])
def test_a_plot_is_no_part_of_a_release(tmp_path, name):
    plots.draw(tmp_path / name, [Panel("", "x", "y", lines(2))])
    assert is_by_product(tmp_path / name)


def figure(*panels):
    return plots._figure(panels)


def test_the_same_data_gives_the_same_file(tmp_path):
    panel = Panel("title", "x", "y", lines(9))
    assert svg(tmp_path, panel) == svg(tmp_path, panel, name="b.svg")
    assert "<dc:date>" not in svg(tmp_path, panel)
    for name in ("a.png", "b.png"):
        plots.draw(tmp_path / name, [panel])
    content = (tmp_path / "a.png").read_bytes()
    assert content == (tmp_path / "b.png").read_bytes()
    assert content.startswith(b"\x89PNG")


def test_the_users_settings_of_matplotlib_do_not_matter(tmp_path):
    panel = Panel("title", "x", "y", lines(2))
    text = svg(tmp_path, panel)
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "none", "axes.grid": True}):
        assert svg(tmp_path, panel, name="b.svg") == text
        assert matplotlib.rcParams["font.size"] == 30


def test_other_data_gives_another_file(tmp_path):
    other = Line("line 0", [1, 2, 3], [1, 2, 3.5])
    text = svg(tmp_path, Panel("", "x", "y", lines(1)))
    assert text != svg(tmp_path, Panel("", "x", "y", [other]), name="b.svg")


def test_titles_axes_and_labels_are_written(tmp_path):
    ideal = Line("ideal", [1, 3], [1, 3])
    first = Panel("Speed", "workers", "times", lines(2), ideal)
    words = texts_of(svg(tmp_path, first, Panel("Time", "seconds", "loss", lines(3))))
    for word in ("Speed", "Time", "workers", "seconds", "times", "loss"):
        assert words.count(word) == 1
    assert [words.count(f"line {n}") for n in range(3)] == [1, 1, 1]
    assert words.count("ideal") == 1


def test_dollar_signs_are_not_set_as_formulas(tmp_path):
    assert "$x_{ $" in texts_of(svg(tmp_path, Panel("", "$x_{ $", r"\y", [Line("$", [1], [1])])))


def test_twenty_lines_look_different():
    [axes] = figure(Panel("", "x", "y", lines(20))).axes
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 20


def test_a_line_looks_the_same_in_all_panels():
    one, two = lines(2)
    left, right = figure(Panel("", "x", "y", [one, two]), Panel("", "x", "y", [two])).axes
    assert left.lines[1].get_color() == right.lines[0].get_color()
    assert left.lines[1].get_marker() == right.lines[0].get_marker()
    assert left.lines[0].get_color() != right.lines[0].get_color()


def test_raw_values_are_drawn_pale_behind_the_line():
    line = Line("a", [1, 2, 3], [2, 2, 2], raw=[1, 2, 3])
    pale, smooth = figure(Panel("", "x", "y", [line])).axes[0].lines
    assert (list(pale.get_ydata()), list(smooth.get_ydata())) == ([1, 2, 3], [2, 2, 2])
    assert pale.get_alpha() < 0.5
    assert pale.get_color() == smooth.get_color()


def test_few_points_are_all_marked_and_many_points_in_part():
    few, many = lines(1, points=5), lines(1, points=1000)
    assert figure(Panel("", "x", "y", few)).axes[0].lines[0].get_markevery() == (0, 1)
    begin, every = figure(Panel("", "x", "y", many)).axes[0].lines[0].get_markevery()
    assert begin < every == 125


def test_an_axis_may_be_logarithmic_and_have_given_ticks():
    panel = Panel("", "x", "y", lines(1), log="xy", ticks=[1, 2, 4])
    [axes] = figure(panel).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    [axes] = figure(Panel("", "x", "y", lines(1))).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")


def test_ranges_are_drawn_as_bars_around_the_points():
    line = Line("a", [1, 2], [10, 20], ranges=[(9, 12), (20, 20)])
    [axes] = figure(Panel("", "x", "y", [line])).axes
    [bars] = axes.collections
    assert [[list(point) for point in bar] for bar in bars.get_segments()] == [
        [[1, 9], [1, 12]],
        [[2, 20], [2, 20]],
    ]


@pytest.mark.parametrize(
    ("highest", "expected"), [(2.0, ["0.5", "1", "2"]), (1e5, ["1", "10", "100", "1000", "10000"])]
)
def test_a_logarithmic_axis_is_labelled_with_plain_numbers(highest, expected):
    shown = figure(Panel("", "x", "y", [Line("a", [1, 2], [0.5, highest])], log="y"))
    shown.canvas.draw()
    [axes] = shown.axes
    low, high = axes.get_ylim()
    assert {*expected} <= {
        tick.get_text() for tick in axes.get_yticklabels() if low <= tick.get_position()[1] <= high
    }
    assert not any(tick.get_text() for tick in axes.get_yticklabels(minor=True))


def test_a_band_is_filled_and_a_note_is_in_the_legend(tmp_path):
    line = Line("a", [1, 2], [2, 2], low=[1, 1], high=[3, 3], note="3 runs")
    shown = figure(Panel("", "x", "y", [line]))
    [band] = shown.axes[0].collections
    assert band.get_datalim(shown.axes[0].transData).intervaly.tolist() == [1, 3]
    assert [text.get_text() for text in shown.legends[0].get_texts()] == ["a\n3 runs"]


@pytest.mark.parametrize("log", ["", "y"])
def test_values_that_are_not_finite_leave_a_gap(tmp_path, log):
    odd = Line("odd", [1, 2, 3, 4, 5], [1, math.nan, math.inf, 0, -1], raw=[math.nan] * 5)
    assert "odd" in texts_of(svg(tmp_path, Panel("", "x", "y", [odd], log=log)))


@pytest.mark.parametrize(
    "panel", [Panel("", "x", "y", []), Panel("", "x", "y", [Line("a", [], [])])]
)
def test_a_panel_without_points_is_drawn(tmp_path, panel):
    assert "x" in texts_of(svg(tmp_path, panel))


def test_a_file_that_can_not_be_written_is_refused(tmp_path):
    with pytest.raises(
        RunError, match=r"'a.gif', expected a file name that ends in .svg or .png\n  use .*svg"
    ):
        plots.draw(tmp_path / "a.gif", [])
    with pytest.raises(RunError, match=r"can't be written: there is no folder .*/missing"):
        plots.check_file(tmp_path / "missing" / "a.svg")
    for nameless in ("", "/"):
        with pytest.raises(RunError, match=r"found '', expected a .*\n  use NAME.svg"):
            plots.check_file(Path(nameless))
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(RunError, match=r"folder.svg can't be written: Is a directory"):
        plots.draw(tmp_path / "folder.svg", [Panel("", "x", "y", lines(1))])


@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_are_too_large_for_a_plot_are_refused(tmp_path):
    huge = Panel("", "x", "y", [Line("a", [1, 2], [1e308, -1e308])])
    with pytest.raises(RunError, match=r"a.svg can't be drawn: "):
        plots.draw(tmp_path / "a.svg", [huge])
    assert not (tmp_path / "a.svg").exists()
