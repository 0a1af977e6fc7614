"""The cells of a sweep: how they are written, and grids that are refused before anything runs."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.errors import PlanError
from tfdeploy.experiments.grid import cells, default_ps
from tfdeploy.experiments.speed.results import Cell
from unit.cli.test_cli import tfdeploy  # noqa: F401


def test_the_smallest_cell_comes_first():
    assert cells("2, 1", "4,1,1") == (Cell(1, 1), Cell(1, 2), Cell(4, 1), Cell(4, 2))
    assert str(Cell(4, 1)) == "1 ps, 4 workers"


@pytest.mark.parametrize(
    ("ps", "workers"), [("", "1"), ("1", "0"), ("-1", "1"), ("1,", "1"), ("1", "1.5"), ("1", "²")]
)
def test_numbers_that_are_not_whole_are_refused(ps, workers):
    with pytest.raises(PlanError, match="expected whole numbers from"):
        cells(ps, workers)


def test_the_default_is_no_ps_if_the_hosts_file_has_none():
    assert default_ps(make_inventory("[hosts.a]\nps = 1\n[hosts.b]\nworkers = 1\n")) == "1"
    assert default_ps(make_inventory("[hosts.b]\nworkers = 2\n")) == "0"


# The command

HOSTS_TOML = """
project = "p"
[training]
command = "python train.py"
role = "flags"
checkpoint_dir = "{checkpoints}"
[hosts.here]
transport = "local"
python = "python3.99"
ps = 1
workers = 2
ports = "2222-2225"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "hosts.toml").write_text(HOSTS_TOML.format(checkpoints="checkpoints"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "1,x"), '--workers: found "1,x", expected whole numbers from 1 to 1024'),
        (("--workers", "0"), '--workers: found "0", expected whole numbers from 1'),
        (("--workers", "1", "--ps", ""), '--ps: found "", expected whole numbers from 0'),
        (("--workers", "1", "--pattern", "step"), 'the pattern "step" has no group (?P<step>…)'),
        (("--workers", "1", "--seconds", "nan"), "Invalid value for '--seconds'"),
        (("--workers", "1", "--seconds", "inf"), "Invalid value for '--seconds'"),
        (("--workers", "1", "--out", "."), "already exists and is not a sweep's folder"),
    ],
)
def test_invalid_options_are_refused(folder, tfdeploy, options, message):  # noqa: F811
    code, _, err = tfdeploy("sweep", *options)
    assert (code, message in err) == (2, True), err
    assert not (folder / "runs").exists()


def test_all_cells_that_do_not_fit_are_named_before_anything_runs(folder, tfdeploy):  # noqa: F811
    code, _, err = tfdeploy("sweep", "--workers", "1,2,3,4")
    assert code == 2
    assert "1 ps, 3 workers: the ports and GPUs of here suffice for only 2 workers" in err
    assert "1 ps, 4 workers: the ports and GPUs of here suffice for only 2 workers" in err
    assert "1 ps, 2 workers" not in err
    assert not (folder / "runs").exists()


def test_runs_that_would_share_a_checkpoint_folder_are_refused(folder, tfdeploy):  # noqa: F811
    (folder / "hosts.toml").write_text(HOSTS_TOML.format(checkpoints="/tmp/shared"))
    code, _, err = tfdeploy("sweep", "--workers", "1")
    assert code == 2
    assert "training.checkpoint_dir is /tmp/shared: each run would continue from" in err
