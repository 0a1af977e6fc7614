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


@BY_SSH
def test_a_grid_is_measured_and_reported(world):
    project = make_project(world)
    output = project.ok("sweep", "--ps", "1,2", "--workers", "1,2", "--seconds", "3", *ONE_RUN)
    cells = read_record(project)
    rates = {cell: document["steps_per_s"] for cell, document in cells.items()}
    assert min(rates[1, 2], rates[2, 2]) > max(rates[1, 1], rates[2, 1])
    assert cells[2, 2]["speedup"] == pytest.approx(rates[2, 2] / rates[1, 1])
    reported = [line.split(":")[0] for line in output.splitlines() if "(repeat 1)" in line]
    assert reported == ["1 ps, 1 worker", "2 ps, 1 worker", "1 ps, 2 workers", "2 ps, 2 workers"]
    assert "a cell with fewer than 3 runs is not compared: raise --repeats" in output
    assert runs_on_hosts(project) == set()
    assert project.processes() == {}


@pytest.fixture(scope="module")
def measured_project(lasting):
    """A project whose sweep has measured two cells."""
    project = make_project(lasting)
    project.ok("sweep", "--workers", "1,2", *SHORT)
    return project


@ONCE
def test_two_workers_are_faster_than_one(measured_project):
    cells = read_record(measured_project)
    assert {cell: document["result"] for cell, document in cells.items()} == {
        (1, 1): "measured", (1, 2): "measured",
    }  # fmt: skip
    assert 10 < cells[1, 1]["steps_per_s"] < cells[1, 2]["steps_per_s"] < 240


@ONCE
def test_the_run_of_each_cell_is_collected_and_deleted_from_the_hosts(measured_project):
    assert runs_on_hosts(measured_project) == set()
    for cell in read_record(measured_project).values():
        folder = measured_project.folder / "runs" / cell["runs"][0]["run"]
        assert "step" in (folder / "logs/worker-0.log").read_text()
        assert list((folder / "events").iterdir())
    assert "no run was started from" in measured_project.tf("status").stderr


@ONCE
def test_a_repeated_sweep_measures_only_new_cells(measured_project):
    before = read_record(measured_project)
    assert "1 ps, 2 workers: " in measured_project.ok("sweep", "--workers", "1,2", *SHORT)
    assert read_record(measured_project) == before
    measured_project.ok("sweep", "--workers", "3", *SHORT)
    after = read_record(measured_project)
    assert set(after) == {(1, 1), (1, 2), (1, 3)}
    assert {cell: after[cell] for cell in before} == before


@ONCE
def test_batches_of_all_workers_are_counted_without_measuring_again(measured_project):
    runs = measured_runs(measured_project)
    options = ("--synchronous", "--json")
    document = json.loads(measured_project.ok("sweep", "--workers", "1,2", *SHORT, *options))
    cells = cells_of(document)
    assert measured_runs(measured_project) == runs
    steps = cells[1, 2]["steps_per_s"]
    assert cells[1, 2]["speedup"] == pytest.approx(2 * steps / cells[1, 1]["steps_per_s"])


@ONCE
def test_a_sweep_with_other_terms_is_refused_with_what_differs(measured_project):
    before = (measured_project.folder / "sweep/sweep.json").read_bytes()
    other = measured_project.tf("sweep", "--workers", "1,2", "--seconds", "3", *ONE_RUN)
    assert other.returncode == 2
    assert "measured with seconds = 1.0; now it is 3.0" in other.stderr
    assert "--out" in other.stderr
    assert (measured_project.folder / "sweep/sweep.json").read_bytes() == before


@ONCE
def test_other_code_and_other_hosts_are_refused(measured_project):
    script = measured_project.folder / "steps.py"
    code = script.read_text()
    script.write_text(code + "# changed\n")
    assert (
        "measured with release = " in measured_project.tf("sweep", "--workers", "1", *SHORT).stderr
    )
    script.write_text(code)
    measured_project.training["orphan_timeout_s"] = 60.0
    measured_project.write()
    refused = measured_project.tf("sweep", "--workers", "1", *SHORT)
    del measured_project.training["orphan_timeout_s"]
    measured_project.write()
    differs = "measured without hosts.toml.training.orphan_timeout_s; now it is 60.0"
    assert differs in refused.stderr


@ONCE
def test_two_sweeps_in_different_folders_do_not_disturb_each_other(measured_project):
    measured_project.ok("sweep", "--workers", "1", "--seconds", "2", *ONE_RUN, "--out", "other [1]")
    assert set(read_record(measured_project, "other [1]")) == {(1, 1)}
    measured_project.ok(
        "sweep", "--workers", "1", *SHORT
    )  # the other folder is not part of the source


@BY_SSH
def test_ctrl_c_stops_the_cell_and_the_same_command_continues(world):
    project = make_project(world)
    # Long enough to be interrupted.
    arguments = ("sweep", "--workers", "1,2", "--seconds", "5", *ONE_RUN)
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
    output = project.ok("sweep", "--workers", "1,2,3", "--seconds", "4", *ONE_RUN)
    cells = read_record(project)
    assert [cell["result"] for cell in cells.values()] == ["measured", "failed", "measured"]
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
    process = project.tf("sweep", "--workers", "1,2", "--seconds", "100")
    assert process.returncode == 1
    cells = read_record(project)
    for cell in cells.values():
        [run] = cell["runs"]  # it would end early again, so it is not repeated
        assert (cell["result"], run["result"], cell["speedup"]) == ("ended", "ended", None)
        assert run["seconds"] < 50
        assert "of 100 s: give it more steps, or lower --seconds" in cell["reason"]
    assert re.search("1 ps, 2 workers: not compared: worker:[01] ended after", process.stdout)
    assert runs_on_hosts(project) == set()


@ONCE
def test_repeats_are_interleaved_continued_and_compared(world):
    project = make_project(world)
    sweep = ("sweep", "--workers", "1,2", "--seconds", "2")
    project.ok(*sweep, "--repeats", "2")
    first = measured_runs(project)
    assert sorted(first, key=lambda run: run[3]) == sorted(first, key=lambda run: run[2])
    output = project.ok(*sweep, "--repeats", "3")
    assert set(first) < set(measured_runs(project))
    assert len(measured_runs(project)) == 6
    assert "with 1 ps: 2 workers after 1: faster" in output
    low, high = read_record(project)[1, 2]["speedup_range"]
    assert 1 < low <= read_record(project)[1, 2]["speedup"] <= high


@ONCE
def test_a_training_without_events_is_measured_by_its_log(world):
    project = make_project(world, "--no-events")
    output = project.ok("sweep", "--workers", "1", "--seconds", "3", *ONE_RUN)
    [run] = read_record(project)[1, 1]["runs"]
    assert run["source"] == "log"
    assert 10 < run["steps_per_s"] < 160
    assert "the steps of 1 run are those in the chief's log" in output


@ONCE
def test_workers_without_ps_are_measured(world):
    project = make_project(world)
    project.hosts["here"]["ps"] = 0
    project.write()
    project.ok("sweep", "--workers", "1,2", "--seconds", "3", *ONE_RUN)
    assert read_record(project)[0, 2]["speedup"] > 1.2


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


def test_the_digits_example_is_measured_unchanged(digits):
    options = ("--seconds", "10", *ONE_RUN)
    digits.ok("sweep", "--ps", "1", "--workers", "1", *options)
    cell = read_record(digits)[1, 1]
    assert cell["result"] == "measured", cell["reason"]
    assert cell["runs"][0]["seconds"] > 3
    assert cell["speedup"] == 1.0
    assert digits.processes() == {}
