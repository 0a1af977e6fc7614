"""Runs are found by id, folder or label, and their scalars are read from events or logs."""

from __future__ import annotations

import errno
import math
from dataclasses import replace
from pathlib import Path

from support.builders import make_run

from tfdeploy import run as runs

from .collected import ONE, TWO, collect_run, write_log
from .test_compare import compare, folder, refusal  # noqa: F401


def test_a_run_is_found_by_its_id_or_folder_and_may_have_a_label(folder):  # noqa: F811
    collect_run(folder, ONE, [1.0])
    elsewhere = collect_run(folder, TWO, [2.0]).rename(folder / "a=b")
    comparison = compare(folder, ONE, "a=b", f"again={ONE}", f"more={elsewhere}/")
    assert [each.label for each in comparison.runs] == [ONE, "a=b", "again", "more"]
    assert [each.run for each in comparison.runs] == [ONE, "a=b", ONE, "a=b"]
    assert [each.curve.value[0] for each in comparison.runs] == [1.0, 2.0, 1.0, 2.0]


def test_runs_are_searched_beside_the_hosts_file(folder, monkeypatch):  # noqa: F811
    collect_run(folder, ONE, [1.0])
    monkeypatch.chdir("/")
    assert compare(folder, ONE).runs[0].folder == folder / "runs" / ONE


def test_a_star_stands_for_all_runs_with_such_a_name(folder):  # noqa: F811
    for run_id, name in ((ONE, "adam-1"), (TWO, "adam-2"), ("third", "sgd")):
        collect_run(folder, run_id, [1.0])
        runs.save(replace(runs.read_folder(folder / "runs" / run_id), name=name))
    comparison = compare(folder, "adam-*")
    assert [each.label for each in comparison.runs] == ["adam-1", "adam-2"]


def test_an_unknown_run_is_refused_with_the_newest_ones(folder):  # noqa: F811
    assert refusal(folder, "x") == (
        'there is no run "x" in ~/runs, and no such folder\n'
        "  it has no runs yet; start one: tfdeploy run, or tfdeploy start"
    )
    collect_run(folder, ONE, [1.0])
    found = f'there is no run "nope" in ~/runs, and no such folder\n  its newest run is {ONE}'
    assert refusal(folder, ONE, "x=nope") == found


def test_an_uncollected_run_is_refused_with_the_command_that_collects_it(folder):  # noqa: F811
    runs.save(make_run(folder, run_id=ONE))
    found = f"run {ONE} was not collected yet\n  tfdeploy collect --run {ONE}"
    assert refusal(folder, ONE) == found
    runs.save(make_run(folder, "other.toml", run_id=TWO))
    assert refusal(folder, TWO).endswith(f"  tfdeploy collect --hosts other.toml --run {TWO}")


def test_a_folder_of_anything_else_is_refused(folder):  # noqa: F811
    (folder / "data").mkdir()
    assert refusal(folder, "x" * 300).startswith(f'there is no run "{"x" * 300}" in ~/runs')
    assert refusal(folder, "data") == "data has no record of a run"


def test_a_folder_that_can_not_be_read_is_named(folder, monkeypatch):  # noqa: F811
    events, is_dir = collect_run(folder, ONE, [1.0]) / "events", Path.is_dir

    def locked(path):
        if path == events:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", locked)
    assert refusal(folder, ONE) == f"~/runs/{ONE}/events can't be read: Permission denied"


# Events and logs


def test_a_run_without_scalars_and_losses_is_refused(folder):  # noqa: F811
    collected = collect_run(folder, ONE, [])
    write_log(collected, "worker-0.log", "trains")
    assert refusal(folder, ONE) == (
        f"run {ONE}: its event files have no scalar, and its chief's log has no losses"
    )


def test_without_scalars_the_chiefs_log_and_its_older_part_are_read(folder):  # noqa: F811
    collected = collect_run(folder, ONE, [])
    write_log(collected, "worker-0.log.1", "step 1 loss 3")
    write_log(collected, "worker-0.log", "step 2 loss 2", "done")
    write_log(collected, "worker-1.log", "step 9 loss 9")
    compared = compare(folder, ONE).runs[0]
    assert (compared.curve.step, compared.curve.value) == ((1, 2), (3.0, 2.0))
    assert math.isnan(compared.curve.seconds[0]) and math.isnan(compared.steps_per_s)
