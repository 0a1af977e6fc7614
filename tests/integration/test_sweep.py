"""`tfdeploy sweep` with a stub of known speed: grids, repeats, Ctrl-C, and failures."""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.host_python import tf_python
from support.projects import Project
from support.waiting import until

if TYPE_CHECKING:
    from .conftest import World

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
STUB = Path(__file__).parents[1] / "support" / "stub" / "steps.py"
ONCE = pytest.mark.parametrize("lasting", ["local"], indirect=True)
BY_SSH = pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
ONE_RUN = ("--repeats", "1")
SWEEP = ("sweep", "--workers", "1,2", "--seconds", "1", "--repeats", "2", "--json")


def make_project(world: World, *flags: str) -> Project:
    """Return a project of one ps and two workers that report their steps."""
    hosts = {name: {**host, "ports": "auto"} for name, host in world.hosts().items()}
    training = {"command": ["python", "steps.py", *flags], "ready": "port"}
    project = world.project(hosts=hosts, training=training)
    shutil.copy(STUB, project.folder)
    return project


def cells_of(output: str) -> dict[tuple[int, int], dict]:
    """Return the cells of a document by their ps and workers."""
    return {(cell["ps"], cell["workers"]): cell for cell in json.loads(output)["cells"]}


def runs_on_hosts(project: Project) -> set[str]:
    return {folder.name for host in project.hosts for folder in project.on(host).glob("runs/*")}


@BY_SSH
def test_two_workers_are_faster_than_one_and_repeats_are_interleaved(world):
    project = make_project(world)
    cells = cells_of(project.ok(*SWEEP))
    assert runs_on_hosts(project) == set()
    assert project.processes() == {}
    assert {cell: document["result"] for cell, document in cells.items()} == {
        (1, 1): "measured", (1, 2): "measured",
    }  # fmt: skip
    rates = {cell: document["steps_per_s"] for cell, document in cells.items()}
    assert 10 < rates[1, 1] < rates[1, 2] < 240
    assert cells[1, 2]["speedup"] == pytest.approx(rates[1, 2] / rates[1, 1])
    runs = [run for cell in cells.values() for run in cell["runs"]]
    by_time = sorted(runs, key=lambda run: run["run"])
    assert [run["repeat"] for run in by_time] == [1, 1, 2, 2]
    for run in runs:
        folder = project.folder / "runs" / run["run"]
        assert "step" in (folder / "logs/worker-0.log").read_text()
        assert list((folder / "events").iterdir())
    assert "no run was started from" in project.tf("status").stderr


@BY_SSH
def test_ctrl_c_stops_the_run_and_prints_what_was_measured(world):
    project = make_project(world)
    # Long enough to be interrupted.
    with project.start_command("sweep", "--workers", "1,2", "--seconds", "4") as sweeping:
        sweeping.wait_for_output("1 ps, 1 worker: ")
        until(lambda: len(project.processes()) >= 6, "the second cell")
        assert sweeping.interrupt() == 130
    assert project.processes() == {}
    assert runs_on_hosts(project) == set()
    assert "interrupted: the current run is stopped and does not count" in sweeping.output
    assert re.search(r"^1 +1 +1 +[\d.]+ +1.00x", sweeping.output, re.MULTILINE)


@ONCE
def test_a_failed_task_is_a_result_and_the_other_cells_are_measured(world):
    project = make_project(world, "--breaks=2")
    done = project.tf("sweep", "--workers", "2,3", "--seconds", "4", "--json", *ONE_RUN)
    cells = cells_of(done.stdout)
    assert [cell["result"] for cell in cells.values()] == ["failed", "measured"]
    assert "worker:1 on here: it ended" in cells[1, 2]["reason"]
    assert "it is broken" in cells[1, 2]["reason"]
    [failed] = cells[1, 2]["runs"]
    assert "it is broken" in project.ok("logs", "--run", failed["run"])
    assert runs_on_hosts(project) == {failed["run"]}
    assert "1 ps, 2 workers: failed: worker:1 on here: it ended" in done.stderr
    assert project.processes() == {}


@ONCE
def test_a_training_that_ends_before_its_time_is_not_compared(world):
    project = make_project(world, "--ends=3")
    process = project.tf("sweep", "--workers", "2", "--seconds", "100", "--json")
    assert process.returncode == 1
    [cell] = cells_of(process.stdout).values()
    [run] = cell["runs"]  # it would end early again, so it is not repeated
    assert (cell["result"], run["result"], cell["speedup"]) == ("ended", "ended", None)
    assert run["seconds"] < 50
    assert "of 100 s: give it more steps, or lower --seconds" in cell["reason"]
    assert re.search("1 ps, 2 workers: not compared: worker:[01] ended after", process.stderr)
    assert runs_on_hosts(project) == set()


@ONCE
def test_workers_without_ps_and_events_are_measured_by_the_chiefs_log(world):
    project = make_project(world, "--no-events")
    project.hosts["here"]["ps"] = 0
    project.write()
    done = project.tf("sweep", "--workers", "1,2", "--seconds", "2", "--json", *ONE_RUN)
    cells = cells_of(done.stdout)
    assert [run["source"] for cell in cells.values() for run in cell["runs"]] == ["log"] * 2
    assert 10 < cells[0, 1]["steps_per_s"] < 160
    assert cells[0, 2]["speedup"] > 1.2
    assert "the steps of 2 runs are those in the chief's log" in done.stderr


@pytest.fixture
def digits(tmp_path):
    """The example's script, with more steps than any measurement takes."""
    if not find_spec("tensorflow"):
        pytest.skip("tensorflow is missing")
    here = {"transport": "local", "ps": 1, "workers": 1, "ports": "auto", "python": tf_python()}
    command = ["python", "train.py", "--checkpoint_dir={checkpoint_dir}", "--steps=1000000"]
    training = {"command": command, "ready_timeout_s": 600, "stop_grace_s": 10}
    project = Project(tmp_path / "digits", {"here": here}, training=training)
    for file in (*DIGITS.glob("*.py"), *DIGITS.glob("*.gz")):
        shutil.copy(file, project.folder)
    yield project
    project.end()


def measure_digits(project: Project) -> dict:
    """Sweep for as long as a busy machine needs to make a few steps; return the cell."""
    options = ("--ps", "1", "--workers", "1", "--json", *ONE_RUN)
    for seconds in ("5", "30", "120"):
        done = project.tf("sweep", *options, "--seconds", seconds)
        if done.returncode == 0:
            break
        assert re.search("raise --seconds|have no step", done.stderr), done.stdout + done.stderr
    [cell] = cells_of(done.stdout).values()
    return cell


def test_the_digits_example_is_measured_unchanged(digits):
    cell = measure_digits(digits)
    assert cell["result"] == "measured", cell["reason"]
    assert cell["speedup"] == 1.0
    assert digits.processes() == {}
