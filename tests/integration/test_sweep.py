"""`tfdeploy sweep` with a stub of known speed: grids, repeats, resuming, Ctrl-C, and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
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
SHORT = ("--seconds", "1", *ONE_RUN)
SWEEP = ("sweep", "--workers", "1,2", "--seconds", "1")
CELLS = ("1 ps, 1 worker", "1 ps, 2 workers")


def make_project(world: World, *flags: str) -> Project:
    """Return a project of one ps and two workers that report their steps."""
    hosts = {name: {**host, "ports": "auto"} for name, host in world.hosts().items()}
    training = {"command": ["python", "steps.py", *flags], "ready": "port"}
    project = world.project(hosts=hosts, training=training)
    shutil.copy(STUB, project.folder)
    return project


def read_record(project: Project, folder: str = "sweep") -> dict[tuple[int, int], dict]:
    """Return the recorded cells by their ps and workers."""
    document = json.loads((project.folder / folder / "sweep.json").read_text())
    return cells_of(document)


def cells_of(document: dict) -> dict[tuple[int, int], dict]:
    return {(cell["ps"], cell["workers"]): cell for cell in document["cells"]}


def measured_runs(project: Project) -> list[tuple[int, int, int, str]]:
    """Return the ps, the workers, the repeat and the id of each run in the record."""
    cells = read_record(project).values()
    return [
        (cell["ps"], cell["workers"], run["repeat"], run["run"])
        for cell in cells
        for run in cell["runs"]
    ]


def runs_on_hosts(project: Project) -> set[str]:
    return {folder.name for host in project.hosts for folder in project.on(host).glob("runs/*")}


@pytest.fixture(scope="module")
def measured_project(lasting):
    """A project whose sweep has measured two cells, each twice."""
    project = make_project(lasting)
    project.ok(*SWEEP, "--repeats", "2")
    assert runs_on_hosts(project) == set()
    assert project.processes() == {}
    return project


@BY_SSH
def test_two_workers_are_faster_than_one(measured_project):
    cells = read_record(measured_project)
    assert {cell: document["result"] for cell, document in cells.items()} == {
        (1, 1): "measured", (1, 2): "measured",
    }  # fmt: skip
    rates = {cell: document["steps_per_s"] for cell, document in cells.items()}
    assert 10 < rates[1, 1] < rates[1, 2] < 240
    assert cells[1, 2]["speedup"] == pytest.approx(rates[1, 2] / rates[1, 1])


@BY_SSH
def test_repeats_are_interleaved_and_reported(measured_project):
    lines = measured_project.ok(*SWEEP, "--repeats", "2").splitlines()
    assert [line.split(": ")[0] for line in lines if "(repeat " in line] == [*CELLS, *CELLS]
    assert any("a cell with fewer than 3 runs is not compared: raise --repeats" in x for x in lines)
    runs = measured_runs(measured_project)
    assert sorted(runs, key=lambda run: run[3]) == sorted(runs, key=lambda run: run[2])


@BY_SSH
def test_the_run_of_each_cell_is_collected(measured_project):
    for cell in read_record(measured_project).values():
        folder = measured_project.folder / "runs" / cell["runs"][0]["run"]
        assert "step" in (folder / "logs/worker-0.log").read_text()
        assert list((folder / "events").iterdir())
    assert "no run was started from" in measured_project.tf("status").stderr


@BY_SSH
def test_batches_of_all_workers_are_counted_without_measuring_again(measured_project):
    runs = measured_runs(measured_project)
    words = (*SWEEP, "--repeats", "2", "--synchronous", "--json")
    cells = cells_of(json.loads(measured_project.ok(*words)))
    assert measured_runs(measured_project) == runs
    steps = cells[1, 2]["steps_per_s"]
    assert cells[1, 2]["speedup"] == pytest.approx(2 * steps / cells[1, 1]["steps_per_s"])


@BY_SSH
def test_other_terms_are_refused_with_what_differs(measured_project):
    before = (measured_project.folder / "sweep/sweep.json").read_bytes()
    other = measured_project.tf(*SWEEP[:3], "--seconds", "3")
    assert other.returncode == 2
    assert "measured with seconds = 1.0; now it is 3.0" in other.stderr
    assert "--out" in other.stderr
    script = measured_project.folder / "steps.py"
    code = script.read_text()
    script.write_text(code + "# changed\n")
    assert "measured with release = " in measured_project.tf(*SWEEP).stderr
    script.write_text(code)
    measured_project.training["orphan_timeout_s"] = 60.0
    measured_project.write()
    refused = measured_project.tf(*SWEEP)
    del measured_project.training["orphan_timeout_s"]
    measured_project.write()
    differs = "measured without hosts.toml.training.orphan_timeout_s; now it is 60.0"
    assert differs in refused.stderr
    assert (measured_project.folder / "sweep/sweep.json").read_bytes() == before


@BY_SSH
def test_a_repeated_sweep_measures_only_what_is_new(measured_project):
    """Another folder of results is not part of the source, and does not change the release."""
    first = measured_runs(measured_project)
    measured_project.ok("sweep", "--workers", "1", *SHORT, "--out", "other [1]")
    assert set(read_record(measured_project, "other [1]")) == {(1, 1)}
    output = measured_project.ok(*SWEEP, "--repeats", "3")
    assert set(first) < set(measured_runs(measured_project))
    assert len(measured_runs(measured_project)) == 6
    assert "with 1 ps: 2 workers after 1: faster" in output
    low, high = read_record(measured_project)[1, 2]["speedup_range"]
    assert 1 < low <= read_record(measured_project)[1, 2]["speedup"] <= high


@BY_SSH
def test_ctrl_c_stops_the_cell_and_the_same_command_continues(world):
    project = make_project(world)
    # Long enough to be interrupted.
    arguments = ("sweep", "--workers", "1,2", "--seconds", "4", *ONE_RUN)
    with project.start_command(*arguments) as sweeping:
        sweeping.wait_for_output("1 ps, 1 worker: ")
        until(lambda: len(project.processes()) >= 6, "the second cell")
        assert sweeping.interrupt() == 130
    assert f"tfdeploy {' '.join(arguments)}" in sweeping.output
    assert project.processes() == {}
    assert runs_on_hosts(project) == set()
    [first] = read_record(project).values()
    project.ok(*arguments)
    assert read_record(project)[1, 1] == first
    assert read_record(project)[1, 2]["result"] == "measured"


@ONCE
def test_the_run_of_a_killed_sweep_is_stopped_first(world):
    project = make_project(world)
    arguments = ("sweep", "--workers", "2", "--seconds", "5", *ONE_RUN)
    with project.start_command(*arguments) as sweeping:
        until(lambda: len(project.processes()) >= 6, "the run")
        os.killpg(sweeping.process.pid, signal.SIGKILL)
        sweeping.process.wait()
    [orphan] = read_record(project).values()
    [run] = orphan["runs"]
    assert (run["result"], run["run"]) == ("running", project.runs[-1])
    assert project.processes()
    assert runs_on_hosts(project) == {run["run"]}
    project.ok(*arguments)
    assert runs_on_hosts(project) == set()
    assert read_record(project)[1, 2]["runs"][0]["run"] != run["run"]
    assert project.processes() == {}


@ONCE
def test_two_sweeps_in_one_folder_are_refused(world):
    project = make_project(world)
    arguments = ("sweep", "--workers", "1", "--seconds", "600")
    with project.start_command(*arguments) as sweeping:
        until(lambda: (project.folder / "sweep/sweep.json").exists(), "the first run")
        refused = project.tf(*arguments)
        assert sweeping.interrupt() == 130
    assert refused.returncode == 2
    assert "another sweep is running in" in refused.stderr


@ONCE
def test_a_failed_task_is_a_result_and_the_other_cells_are_measured(world):
    project = make_project(world, "--breaks=2")
    output = project.ok("sweep", "--workers", "2,3", "--seconds", "4", *ONE_RUN)
    cells = read_record(project)
    assert [cell["result"] for cell in cells.values()] == ["failed", "measured"]
    assert "worker:1 on here: it ended" in cells[1, 2]["reason"]
    assert "it is broken" in cells[1, 2]["reason"]
    [failed] = cells[1, 2]["runs"]
    assert "it is broken" in project.ok("logs", "--run", failed["run"])
    assert runs_on_hosts(project) == {failed["run"]}
    assert "1 ps, 2 workers: failed: worker:1 on here: it ended" in output
    assert project.processes() == {}


@ONCE
def test_a_training_that_ends_before_its_time_is_not_compared(world):
    project = make_project(world, "--ends=3")
    process = project.tf("sweep", "--workers", "2", "--seconds", "100")
    assert process.returncode == 1
    [cell] = read_record(project).values()
    [run] = cell["runs"]  # it would end early again, so it is not repeated
    assert (cell["result"], run["result"], cell["speedup"]) == ("ended", "ended", None)
    assert run["seconds"] < 50
    assert "of 100 s: give it more steps, or lower --seconds" in cell["reason"]
    assert re.search("1 ps, 2 workers: not compared: worker:[01] ended after", process.stdout)
    assert runs_on_hosts(project) == set()


@ONCE
def test_workers_without_ps_and_events_are_measured_by_the_chiefs_log(world):
    project = make_project(world, "--no-events")
    project.hosts["here"]["ps"] = 0
    project.write()
    output = project.ok("sweep", "--workers", "1,2", "--seconds", "2", *ONE_RUN)
    cells = read_record(project)
    assert [run["source"] for cell in cells.values() for run in cell["runs"]] == ["log"] * 2
    assert 10 < cells[0, 1]["steps_per_s"] < 160
    assert cells[0, 2]["speedup"] > 1.2
    assert "the steps of 2 runs are those in the chief's log" in output


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
    options = ("--ps", "1", "--workers", "1", *ONE_RUN)
    for seconds in ("5", "30", "120"):
        done = project.tf("sweep", *options, "--seconds", seconds, "--out", f"of-{seconds}")
        if done.returncode == 0:
            break
        assert re.search("raise --seconds|have no step", done.stdout), done.stdout + done.stderr
    [cell] = read_record(project, f"of-{seconds}").values()
    return cell


def test_the_digits_example_is_measured_unchanged(digits):
    cell = measure_digits(digits)
    assert cell["result"] == "measured", cell["reason"]
    assert cell["speedup"] == 1.0
    assert digits.processes() == {}
