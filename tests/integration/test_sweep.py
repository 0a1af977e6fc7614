"""`tfdeploy sweep` on a stub whose pace is known: grids, going on, Ctrl-C, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .projects import Project
from .sshd import until

if TYPE_CHECKING:
    from .conftest import World

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
STUB = Path(__file__).parent / "stub" / "steps.py"
ONCE = pytest.mark.parametrize("lasting", ["local"], indirect=True)
SHORT = ("--seconds", "1")


def sweepable(world: World, *flags: str) -> Project:
    """A ps and two workers that tell their steps."""
    hosts = {name: {**host, "ports": "auto"} for name, host in world.hosts().items()}
    training = {"command": ["python", "steps.py", *flags], "ready": "port"}
    project = world.project(hosts=hosts, training=training)
    shutil.copy(STUB, project.folder)
    return project


def record(project: Project, folder: str = "sweep") -> dict[tuple[int, int], dict]:
    """What was written of each cell, by its ps and workers."""
    told = json.loads((project.folder / folder / "sweep.json").read_text())
    return {(cell["ps"], cell["workers"]): cell for cell in told["cells"]}


def on_hosts(project: Project) -> set[str]:
    """The runs that the hosts hold."""
    return {folder.name for host in project.hosts for folder in project.on(host).glob("runs/*")}


def test_a_grid_is_measured_told_and_drawn(world):
    project = sweepable(world)
    said = project.ok("sweep", "--ps", "1,2", "--workers", "1,2", "--seconds", "3")
    cells = record(project)
    rates = {cell: told["steps_per_s"] for cell, told in cells.items()}
    assert min(rates[1, 2], rates[2, 2]) > max(rates[1, 1], rates[2, 1])
    assert cells[2, 2]["speedup"] == pytest.approx(rates[2, 2] / rates[1, 1])
    told = [line.split(":")[0] for line in said.splitlines() if "steps/s," in line]
    assert told == ["1 ps, 1 worker", "2 ps, 1 worker", "1 ps, 2 workers", "2 ps, 2 workers"]
    assert "as fast as any number here" in said
    assert "<svg" in (project.folder / "sweep/speedup.svg").read_text()
    assert on_hosts(project) == set()
    assert project.processes() == {}


@pytest.fixture(scope="module")
def swept(lasting):
    """One that has measured two cells."""
    project = sweepable(lasting)
    project.ok("sweep", "--workers", "1,2", *SHORT)
    return project


@ONCE
def test_two_workers_are_faster_than_one(swept):
    cells = record(swept)
    assert {cell: told["result"] for cell, told in cells.items()} == {
        (1, 1): "measured", (1, 2): "measured",
    }  # fmt: skip
    assert 10 < cells[1, 1]["steps_per_s"] < cells[1, 2]["steps_per_s"] < 240
    assert "<svg" in (swept.folder / "sweep/speedup.svg").read_text()


@ONCE
def test_each_cell_comes_home_and_leaves_its_hosts(swept):
    assert on_hosts(swept) == set()
    for told in record(swept).values():
        home = swept.folder / "runs" / told["run"]
        assert "step" in (home / "logs/worker-0.log").read_text()
        assert list((home / "events").iterdir())
    assert "no run was started from" in swept.tf("status").stderr


@ONCE
def test_the_load_of_ps_workers_and_network_is_told(swept):
    load = record(swept)[1, 2]["load"]
    assert 0 <= load["ps_cores"] < 2
    assert 0 <= load["worker_cores"] < 2
    assert load["network_bytes_per_s"] >= 0


@ONCE
def test_the_same_again_measures_nothing_and_more_cells_are_added(swept):
    before = record(swept)
    assert "1 ps, 2 workers: " in swept.ok("sweep", "--workers", "1,2", *SHORT)
    assert record(swept) == before
    swept.ok("sweep", "--workers", "3", *SHORT)
    after = record(swept)
    assert set(after) == {(1, 1), (1, 2), (1, 3)}
    assert {cell: after[cell] for cell in before} == before


@ONCE
def test_examples_are_counted_without_measuring_again(swept):
    runs = {cell: told["run"] for cell, told in record(swept).items()}
    words = ("--examples-per-step", "100", "--synchronous", "--json")
    told = json.loads(swept.ok("sweep", "--workers", "1,2", *SHORT, *words))
    cells = {(cell["ps"], cell["workers"]): cell for cell in told["cells"]}
    assert {cell: each["run"] for cell, each in cells.items()} == runs
    steps = cells[1, 2]["steps_per_s"]
    assert cells[1, 2]["examples_per_s"] == pytest.approx(steps * 200)
    assert cells[1, 2]["speedup"] == pytest.approx(2 * steps / cells[1, 1]["steps_per_s"])


@ONCE
def test_another_measurement_is_refused_with_what_differs(swept):
    before = (swept.folder / "sweep/sweep.json").read_bytes()
    other = swept.tf("sweep", "--workers", "1,2", "--seconds", "3")
    assert other.returncode == 2
    assert "measured with seconds = 1.0, and now it is 3.0" in other.stderr
    assert "--out" in other.stderr
    assert (swept.folder / "sweep/sweep.json").read_bytes() == before


@ONCE
def test_other_code_and_other_hosts_are_refused(swept):
    script = swept.folder / "steps.py"
    code = script.read_text()
    script.write_text(code + "# changed\n")
    assert "measured with release = " in swept.tf("sweep", "--workers", "1", *SHORT).stderr
    script.write_text(code)
    swept.training["orphan_timeout_s"] = 60.0
    swept.write()
    refused = swept.tf("sweep", "--workers", "1", *SHORT)
    del swept.training["orphan_timeout_s"]
    swept.write()
    differs = "hosts.toml.training.orphan_timeout_s = 1800.0, and now it is 60.0"
    assert differs in refused.stderr


@ONCE
def test_two_sweeps_stand_beside_each_other(swept):
    swept.ok("sweep", "--workers", "1", "--seconds", "2", "--out", "other [1]")
    assert set(record(swept, "other [1]")) == {(1, 1)}
    swept.ok("sweep", "--workers", "1", *SHORT)  # the other one is no part of the source


def test_ctrl_c_stops_the_cell_and_the_next_one_goes_on(world):
    project = sweepable(world)
    words = ("sweep", "--workers", "1,2", "--seconds", "5")  # long enough to be met in it
    with project.begun(*words) as sweeping:
        sweeping.says("1 ps, 1 worker: ")
        until(lambda: len(project.processes()) >= 6, "the second cell")
        assert sweeping.interrupted() == 130
    assert f"tfdeploy {' '.join(words)}" in sweeping.said
    assert project.processes() == {}
    assert on_hosts(project) == set()
    [kept] = record(project).values()
    project.ok(*words)
    assert record(project)[1, 1] == kept
    assert record(project)[1, 2]["result"] == "measured"


@ONCE
def test_what_a_killed_sweep_left_is_stopped_first(world):
    project = sweepable(world)
    words = ("sweep", "--workers", "2", "--seconds", "5")
    with project.begun(*words) as sweeping:
        until(lambda: len(project.processes()) >= 6, "the run")
        os.killpg(sweeping.process.pid, signal.SIGKILL)
        sweeping.process.wait()
    [left] = record(project).values()
    assert (left["result"], left["run"]) == ("going", project.runs[-1])
    assert project.processes()
    assert on_hosts(project) == {left["run"]}
    project.ok(*words)
    assert on_hosts(project) == set()
    assert record(project)[1, 2]["run"] != left["run"]
    assert project.processes() == {}


@ONCE
def test_two_sweeps_in_one_folder_are_refused(world):
    project = sweepable(world)
    with project.begun("sweep", "--workers", "1", *SHORT) as sweeping:
        until(lambda: (project.folder / "sweep/sweep.json").exists(), "the first run")
        refused = project.tf("sweep", "--workers", "1", *SHORT)
        assert sweeping.process.wait(timeout=30) == 0
    assert refused.returncode == 2
    assert "another sweep is at work in" in refused.stderr


@ONCE
def test_a_task_that_falls_is_a_result_and_the_others_go_on(world):
    project = sweepable(world, "--breaks=2")
    said = project.ok("sweep", "--workers", "1,2,3", "--seconds", "4")
    cells = record(project)
    assert [told["result"] for told in cells.values()] == ["measured", "failed", "measured"]
    assert "worker:1 on here: it ended" in cells[1, 2]["reason"]
    assert "it is broken" in cells[1, 2]["reason"]
    assert "it is broken" in project.ok("logs", "--run", cells[1, 2]["run"])
    assert on_hosts(project) == {cells[1, 2]["run"]}
    assert "1 ps, 2 workers: failed: worker:1 on here: it ended" in said
    assert project.processes() == {}


@ONCE
def test_one_that_ends_by_itself_is_measured_to_its_end(world):
    project = sweepable(world, "--ends=3")
    project.ok("sweep", "--workers", "1", "--seconds", "100")
    told = record(project)[1, 1]
    assert told["result"] == "measured"
    assert told["seconds"] < 50


@ONCE
def test_steps_are_read_off_the_log_by_a_pattern(world):
    project = sweepable(world)
    pattern = ("--pattern", r"^step (?P<step>\d+)")
    project.ok("sweep", "--workers", "1", "--seconds", "3", *pattern)
    assert 10 < record(project)[1, 1]["steps_per_s"] < 160


@ONCE
@pytest.mark.parametrize(
    ("flag", "words", "reason"),
    [
        ("--silent", (), "no events of its chief tell a step: say --pattern"),
        ("--coarse", (), "told only 1 step: give it more --seconds"),
        ("--silent", ("--pattern", r"step (?P<step>\d+)"), "no line of its chief's log matches"),
    ],
)
def test_one_that_tells_too_little_says_so(world, flag, words, reason):
    project = sweepable(world, flag)
    done = project.tf("sweep", "--workers", "1", "--seconds", "1", *words)
    assert done.returncode == 1
    assert record(project)[1, 1]["reason"].startswith(reason)
    assert f"failed: {reason}" in done.stdout


@ONCE
def test_without_ps_the_workers_are_alone(world):
    project = sweepable(world)
    project.hosts["here"]["ps"] = 0
    project.write()
    project.ok("sweep", "--workers", "1,2", "--seconds", "3")
    assert record(project)[0, 2]["speedup"] > 1.2


@pytest.fixture
def digits(tmp_path):
    """The example's own script, with steps enough."""
    missing = [name for name in ("tensorflow", "sklearn") if not find_spec(name)]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"{missing} missing")
    here = {"transport": "local", "ps": 1, "workers": 1, "ports": "auto", "python": sys.executable}
    command = ["python", "train.py", "--checkpoint_dir={checkpoint_dir}", "--steps=1000000"]
    training = {"command": command, "ready_timeout_s": 120, "stop_grace_s": 10}
    project = Project(tmp_path / "digits", {"here": here}, training=training)
    for script in DIGITS.glob("*.py"):
        shutil.copy(script, project.folder)
    yield project
    project.end()


@pytest.mark.timeout(600)
def test_the_digits_are_measured_as_they_are(digits):
    words = ("--ps", "1,2", "--workers", "1,2", "--seconds", "10", "--examples-per-step", "128")
    done = digits.tf("sweep", *words, timeout_s=500)
    assert done.returncode == 0, done.stdout + done.stderr
    for told in record(digits).values():
        assert told["result"] == "measured", told["reason"]
        assert told["seconds"] > 3
        assert told["examples_per_s"] == pytest.approx(told["steps_per_s"] * 128)
        assert told["load"]["worker_cores"] > told["load"]["ps_cores"] > 0
        moved = 86_000 * told["steps_per_s"]  # the net's weights; the gradients go the other way
        assert told["load"]["network_bytes_per_s"] > moved / 2
    assert record(digits)[1, 1]["speedup"] == 1.0
    assert digits.processes() == {}
