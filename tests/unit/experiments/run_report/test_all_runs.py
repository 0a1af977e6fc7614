"""The page of all runs: its rows, its links, and what it hides."""

from __future__ import annotations

import math
import os
import re
import shutil
from dataclasses import replace

import pytest
from support.events import record, scalar_event, write
from support.finished import (
    ONE,
    START,
    TWO,
    change,
    finished_run,
    write_history,
)

from tfdeploy import run as runs
from tfdeploy.commands.following import run_end
from tfdeploy.errors import RunError
from tfdeploy.experiments.run_report import all_runs
from tfdeploy.experiments.run_report.all_runs import draw_sparkline
from tfdeploy.experiments.scalars import Point
from unit.cli.test_cli import tfdeploy  # noqa: F401

THREE = "20260103-000000-cccc"


def index_of(folder, file=None):
    """Return the index, and the runs whose reports were written for it."""
    written = []
    file = file or folder / "runs" / "index.html"
    return all_runs.gather_index(folder / "hosts.toml", file, written.append), written


def cells_of(html, number=0):
    """Return the text of each cell of a row."""
    row = re.findall(r"<tr>\n(.*?)</tr>", html, re.S)[number]
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
    return [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in cells]


def test_each_run_is_a_row_with_what_it_reached(tmp_path):
    finished_run(tmp_path, ONE, name="base", words=("--lr", "0.1", "--api-key=abcdef"))
    index, _ = index_of(tmp_path)
    assert cells_of(all_runs.render_index(index)) == [
        f"base {ONE}", "--lr 0.1 --api-key=(hidden)", "succeeded", "0.5", "0.5", "", "20",
        "2026-01-01 00:00", "1m 00s", "1 ps, 2 workers", "a, b",
    ]  # fmt: skip


def test_the_newest_run_is_first_and_a_failed_one_says_so(tmp_path):
    finished_run(tmp_path, ONE)
    failed = finished_run(tmp_path, TWO, losses=())
    write_history(failed, "worker-0", change(0, "STARTING"), change(9, "FAILED", reason="exit 1"))
    index, _ = index_of(tmp_path)
    assert [row.label for row in index.rows] == [TWO, ONE]
    assert cells_of(all_runs.render_index(index))[2:7] == ["failed", "–", "–", "–", "–"]


def test_the_metrics_of_keras_are_beside_those_of_its_validation(tmp_path):
    run = finished_run(tmp_path, ONE, losses=())
    finished_run(tmp_path, TWO, losses=(2.0, 1.0))
    for folder, losses in (("train", (0.5, 0.25)), ("validation", (0.3, 0.4))):
        points = [
            record(scalar_event(n, START + n, epoch_loss=loss, epoch_accuracy=1 - loss))
            for n, loss in enumerate(losses)
        ]
        write(run.folder / "events" / folder, *points)
    html = all_runs.render_index(index_of(tmp_path)[0])
    headings = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", html)
    reached = ["Last loss", "Best loss", "Last validation loss", "Best validation loss"]
    assert headings[1:7] == ["Words", "Result", *reached]
    assert cells_of(html, 1)[3:11] == ["0.25", "0.25", "0.4", "0.3", "0.75", "0.75", "0.6", "0.7"]
    assert cells_of(html, 0)[3:11] == ["1", "1", *["–"] * 6]


def test_a_run_that_was_stopped_here_is_stopped_until_it_is_started_again(tmp_path):
    run = finished_run(tmp_path, ONE, losses=())
    shutil.rmtree(run.folder / "logs")
    assert index_of(tmp_path)[0].rows[0].course.result == "unknown"
    run_end.save(run, {str(placement.task): "STOPPED" for placement in run.plan.placements})
    assert index_of(tmp_path)[0].rows[0].course.result == "stopped"
    runs.save(replace(run, launched="another"))
    assert index_of(tmp_path)[0].rows[0].course.result == "unknown"


def test_a_missing_report_is_written_and_linked_and_a_current_one_is_kept(tmp_path):
    run = finished_run(tmp_path, ONE)
    index, written = index_of(tmp_path)
    assert (written, index.rows[0].report) == ([ONE], f"{ONE}/report.html")
    assert "Plan" in (run.folder / "report.html").read_text()
    (run.folder / "report.html").write_text("the user's")
    assert index_of(tmp_path)[1] == []
    assert (run.folder / "report.html").read_text() == "the user's"


def test_a_report_that_is_older_than_what_was_collected_is_written_again(tmp_path):
    run = finished_run(tmp_path, ONE)
    (run.folder / "report.html").write_text("old")
    os.utime(run.folder / "report.html", (1, 1))
    assert index_of(tmp_path)[1] == [ONE]
    assert (run.folder / "report.html").read_text() != "old"


def test_links_are_relative_to_the_page(tmp_path):
    finished_run(tmp_path, ONE)
    (tmp_path / "a b").mkdir()
    index, _ = index_of(tmp_path, tmp_path / "a b" / "x.html")
    assert index.rows[0].report == f"../runs/{ONE}/report.html"
    index, _ = index_of(tmp_path, tmp_path / "x.html")
    assert f'href="runs/{ONE}/report.html"' in all_runs.render_index(index)


def test_a_run_that_was_not_collected_has_no_link(tmp_path):
    run = finished_run(tmp_path, ONE)
    shutil.rmtree(run.folder / "logs")
    index, written = index_of(tmp_path)
    assert (written, index.rows[0].report, index.rows[0].notes) == ([], "", ("not collected",))
    assert cells_of(all_runs.render_index(index))[0] == f"{ONE} not collected"


def test_a_run_of_a_sweep_is_marked(tmp_path):
    runs.save(replace(finished_run(tmp_path, ONE), of_sweep=True))
    assert index_of(tmp_path)[0].rows[0].notes == ("of a sweep",)


def test_a_broken_record_hides_no_other_run(tmp_path):
    finished_run(tmp_path, ONE)
    for name, text in ((TWO, "{"), (THREE, "{}")):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "run.json").write_text(text)
    (tmp_path / "runs" / THREE / "hosts.toml").write_text("")
    index, _ = index_of(tmp_path)
    assert [row.label for row in index.rows] == [ONE]
    assert len(index.unreadable) == 2
    assert all(text.replace("&#39;", "'") in all_runs.render_index(index).replace("&#39;", "'")
               for text in index.unreadable)  # fmt: skip


def test_values_of_a_run_are_escaped(tmp_path):
    finished_run(tmp_path, ONE, words=("</td><script>alert(1)</script>",))
    html = all_runs.render_index(index_of(tmp_path)[0])
    assert "<script>alert" not in html
    assert html.count("<script>") == 1


def test_without_a_run_nothing_is_written(tmp_path, monkeypatch, tfdeploy):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert tfdeploy("runs", "--html")[0] == 2
    (tmp_path / "hosts.toml").write_text("")
    with pytest.raises(RunError, match="there is no run in"):
        index_of(tmp_path)
    assert list(tmp_path.rglob("*.html")) == []


def test_the_command_prints_the_page_and_only_its_user_may_read_it(
    tmp_path, monkeypatch, tfdeploy  # noqa: F811
):  # fmt: skip
    finished_run(tmp_path, ONE)
    monkeypatch.chdir(tmp_path)
    assert tfdeploy("runs", "--html") == (0, "runs/index.html\n", "")
    assert (tmp_path / "runs" / "index.html").stat().st_mode & 0o777 == 0o600
    assert tfdeploy("runs", "--html", "-o", "all.html")[:2] == (0, "all.html\n")
    code, out, err = tfdeploy("runs", "--html", "-o", "absent/all.html")
    assert (code, out) == (2, "")
    assert "there is no folder absent" in err


@pytest.mark.parametrize("words", [["--out", "x.html"], ["--html", "--json"]])
def test_options_that_exclude_each_other_are_refused(tmp_path, monkeypatch, tfdeploy, words):  # noqa: F811
    finished_run(tmp_path, ONE)
    monkeypatch.chdir(tmp_path)
    assert tfdeploy("runs", *words)[0] == 2
    assert list(tmp_path.rglob("*.html")) == []


# Losses


def series(*values):
    return tuple(Point(10 * number, 0.0, value) for number, value in enumerate(values))


def test_the_line_of_the_loss_is_described():
    found = draw_sparkline(series(4.0, 1.0, 2.0))
    assert found.description == "loss from 4 to 2"
    assert found.points.startswith("0.0,2.0 50.0,22.0 100.0,")


def test_losses_without_numbers_are_unknown():
    for values in ((), (math.nan, math.inf), (None,)):
        assert draw_sparkline(series(*values)).points == ""


def test_a_loss_that_ends_as_nan_has_a_line():
    assert len(draw_sparkline(series(2.0, 1.0, math.nan)).points.split()) == 2


def test_a_line_has_few_points_and_negative_values_are_drawn():
    assert len(draw_sparkline(series(*range(1, 1000))).points.split()) <= 60
    assert draw_sparkline(series(-1.0, 1.0)).points == "0.0,22.0 100.0,2.0"
