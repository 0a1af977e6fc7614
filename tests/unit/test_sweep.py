"""A sweep's record: what it holds, what it goes on with, and what it refuses to mix."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tfdeploy import documents, release
from tfdeploy.errors import HostError, PlanError, RunError
from tfdeploy.logbook import Logbook, alone
from tfdeploy.speedup import FAILED, GOING, MEASURED, Cell, Load, Rate, Result, Sweep
from tfdeploy.steps import sweep as steps
from tfdeploy.steps.sweep import PICTURE, cells, draw, usual_ps
from unit.made import inventory
from unit.test_cli import tfdeploy  # noqa: F401
from unit.test_run import made as run_of

TERMS = {"project": "p", "release": "f00d", "hosts.toml": {"training": {"role": "flags"}}}
ONE, TWO = Cell(1, 1), Cell(2, 1)
MEASURED_ONE = Result(ONE, "r1", MEASURED, "", Rate(10.0, 45.0), Load(0.5, 1.0, 2e6))


def asked(**terms):
    return Sweep({}, {**TERMS, **terms})


def book(folder, sweep=None, *results):
    made = Logbook(folder, sweep or asked())
    for result in results:
        made.put(result)
    return made


def refused(folder, **terms):
    with pytest.raises(RunError) as error:
        Logbook(folder, asked(**terms))
    assert "--out" in error.value.hint
    return error.value.message


# The grid


def test_a_grid_begins_with_what_all_others_are_compared_with():
    assert cells("2, 1", "4,1,1") == (Cell(1, 1), Cell(1, 2), Cell(4, 1), Cell(4, 2))
    assert str(Cell(4, 1)) == "1 ps, 4 workers"


@pytest.mark.parametrize(
    ("ps", "workers"), [("", "1"), ("1", "0"), ("-1", "1"), ("1,", "1"), ("1", "1.5"), ("1", "²")]
)
def test_what_is_no_number_is_refused(ps, workers):
    with pytest.raises(PlanError, match="expected whole numbers from"):
        cells(ps, workers)


def test_without_a_ps_in_the_hosts_file_there_is_none():
    assert usual_ps(inventory("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\n")) == "1"
    assert usual_ps(inventory("[hosts.b]\nworkers = 2\n")) == "0"


HERE = """
project = "p"
[training]
command = "python train.py"
role = "flags"
checkpoint_dir = "{checkpoints}"
[hosts.here]
transport = "local"
python = "/opt/py"
ps = 1
workers = 2
ports = "2222-2225"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(HERE.format(checkpoints="checkpoints"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--workers", "1,x"), '--workers: found "1,x", expected whole numbers from 1 to 1024'),
        (("--workers", "0"), '--workers: found "0", expected whole numbers from 1'),
        (("--workers", "1", "--ps", ""), '--ps: found "", expected whole numbers from 0'),
        (("--workers", "1", "--pattern", "step"), 'the pattern "step" names no step'),
        (("--workers", "1", "--seconds", "nan"), "Invalid value for '--seconds'"),
        (("--workers", "1", "--seconds", "inf"), "Invalid value for '--seconds'"),
        (("--workers", "1", "--out", "."), "is there, and is no sweep's"),
    ],
)
def test_what_is_no_grid_is_refused(folder, tfdeploy, words, sentence):  # noqa: F811
    code, _, err = tfdeploy("sweep", *words)
    assert (code, sentence in err) == (2, True), err
    assert not (folder / "runs").exists()


def test_what_does_not_fit_is_told_of_all_cells_before_anything_runs(folder, tfdeploy):  # noqa: F811
    code, _, err = tfdeploy("sweep", "--workers", "1,2,3,4")
    assert code == 2
    assert "1 ps, 3 workers: found room for 2 workers on here" in err
    assert "1 ps, 4 workers: found room for 2 workers on here" in err
    assert "1 ps, 2 workers" not in err
    assert not (folder / "runs").exists()


def test_runs_that_would_share_their_checkpoints_are_refused(folder, tfdeploy):  # noqa: F811
    (folder / "hosts.toml").write_text(HERE.format(checkpoints="/tmp/shared"))
    code, _, err = tfdeploy("sweep", "--workers", "1")
    assert code == 2
    assert "training.checkpoint_dir is /tmp/shared: each run would go on" in err


# A cell


@pytest.fixture
def sweeping(tmp_path, monkeypatch):
    """One whose run is about to be measured. `did` is what was done with it then; `measured` and
    `stopped` are what to meet there."""
    known = run_of(tmp_path)
    intent = SimpleNamespace(inventory=known.inventory, plan=known.plan)
    made = SimpleNamespace(did=[], book=book(tmp_path), known=known, stopped=None, saved=None)

    def started(fleet, run, on_report):
        made.saved = run
        return run

    def measure(fleet, run, *_):
        if isinstance(made.measured, BaseException):
            raise made.measured
        return made.measured

    def stop(fleet, run):
        made.did.append(("stop", run.id))
        if made.stopped:
            raise made.stopped

    monkeypatch.setattr(steps, "push", lambda *_: None)
    monkeypatch.setattr(steps, "planned", lambda *_: known)
    monkeypatch.setattr(steps, "start_planned", started)
    monkeypatch.setattr(steps, "measure", measure)
    monkeypatch.setattr(steps, "stop", stop)
    monkeypatch.setattr(
        steps, "remove", lambda fleet, project, run, hosts: made.did.append(("remove", run))
    )
    cell = steps._Sweeping(None, made.book, steps.Watcher(), 1.0, None)
    made.measure = lambda: cell.measure(ONE, intent)
    return made


def test_a_measured_run_leaves_the_hosts_and_one_that_failed_stays(sweeping):
    sweeping.measured = Result(ONE, sweeping.known.id, FAILED, "it fell")
    sweeping.measure()
    assert sweeping.did == []
    assert sweeping.saved.of_sweep
    sweeping.measured = Result(ONE, "second", MEASURED, "", Rate(1.0, 1.0))
    sweeping.measure()
    assert sweeping.did == [("remove", sweeping.known.id), ("remove", "second")]


def test_at_ctrl_c_whatever_runs_is_stopped_before_it_is_forgotten(sweeping):
    sweeping.measured = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        sweeping.measure()
    assert sweeping.did == [("stop", sweeping.known.id), ("remove", sweeping.known.id)]
    assert sweeping.book.sweep.results == {}


def test_what_can_not_be_stopped_at_ctrl_c_is_not_forgotten(sweeping):
    sweeping.measured, sweeping.stopped = KeyboardInterrupt(), HostError("p", "it is gone")
    with pytest.raises(HostError):
        sweeping.measure()
    assert sweeping.book.sweep.results[ONE].result == GOING


# The record


def test_what_was_written_is_read_again(tmp_path):
    fallen = Result(TWO, "r2", FAILED, "worker:1 fell\n  | Traceback")
    written = book(tmp_path, None, MEASURED_ONE, fallen, Result(Cell(4, 1), "r3"))
    assert book(tmp_path).sweep == written.sweep
    assert [each.result for each in written.sweep] == [MEASURED, FAILED, GOING]


def test_the_record_is_what_json_prints(tmp_path):
    written = book(tmp_path, replace(asked(), examples_per_step=128), MEASURED_ONE)
    told = json.loads((tmp_path / "sweep.json").read_text())
    assert told == documents.swept(written.sweep)
    assert told["base"] == {"ps": 1, "workers": 1}
    assert told["cells"][0]["examples_per_s"] == 1280.0


def test_a_new_result_takes_the_place_of_the_old_and_one_can_go(tmp_path):
    made = book(tmp_path, None, Result(ONE, "r0"), MEASURED_ONE, Result(TWO, "r2"))
    made.drop(TWO)
    assert book(tmp_path).sweep.results == {ONE: MEASURED_ONE}


def test_another_way_to_count_needs_no_other_measurement(tmp_path):
    book(tmp_path, None, MEASURED_ONE)
    again = book(tmp_path, replace(asked(), examples_per_step=10, synchronous=True))
    assert again.sweep.examples_per_s(MEASURED_ONE) == 100.0


def test_what_was_measured_of_something_else_is_refused_with_what_differs(tmp_path):
    book(tmp_path, None, MEASURED_ONE)
    assert refused(tmp_path, release="beef") == (
        f'what {tmp_path} holds was measured with release = "f00d", and now it is "beef"'
    )
    other = {"training": {"role": "tf_config"}}
    assert 'hosts.toml.training.role = "flags"' in refused(tmp_path, **{"hosts.toml": other})
    more = {"training": {"role": "flags", "ready": "port"}}
    assert refused(tmp_path, **{"hosts.toml": more}).endswith(
        'hosts.toml.training.ready = null, and now it is "port"'
    )


def test_what_only_failed_binds_nobody(tmp_path):
    book(tmp_path, None, Result(ONE, "r0", FAILED, "it fell"))
    assert book(tmp_path, asked(release="beef")).sweep.terms["release"] == "beef"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": [{}], "terms": {}}', '{"cells": 1}'])
def test_a_broken_record_is_refused(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    assert str(tmp_path / "sweep.json") in refused(tmp_path)


def test_a_folder_is_for_one_sweep_at_a_time(tmp_path):
    with alone(tmp_path / "sweep"), pytest.raises(RunError, match="another sweep is at work"), \
            alone(tmp_path / "sweep"):  # fmt: skip
        pass
    with alone(tmp_path / "sweep"):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="can't be written"), alone(tmp_path / "file/sweep"):
        pass


# The source


def test_what_a_sweep_writes_is_no_source(tmp_path):
    (tmp_path / "train.py").touch()
    before = release.snapshot(tmp_path, ()).id
    for folder in ("sweep", "a/b"):
        with alone(tmp_path / folder):
            book(tmp_path / folder, None, MEASURED_ONE)
    assert release.snapshot(tmp_path, ()).id == before


def test_a_folder_with_anything_else_is_refused(tmp_path):
    (tmp_path / "train.py").touch()
    with pytest.raises(RunError, match="is there, and is no sweep's"), alone(tmp_path):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


# The picture


def test_a_line_a_ps_count_and_the_ideal_one(tmp_path):
    two = Result(TWO, "r2", MEASURED, "", Rate(18.0, 45.0))
    draw(book(tmp_path, None, MEASURED_ONE, two).sweep, tmp_path / PICTURE)
    text = (tmp_path / PICTURE).read_text()
    assert "times as fast as 1 ps, 1 worker" in text
    assert "ideal" in text


def test_nothing_measured_is_no_picture(tmp_path):
    draw(asked(), tmp_path / PICTURE)
    assert not (tmp_path / PICTURE).exists()
