"""The day of a lab: five users send thirty runs to the eight GPUs of four hosts."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from support import lab
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.lab import Lab
    from support.projects import Project

HOSTS = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
USERS = ("alice", "bob", "carol", "dave", "erin")
# A task notes its run in the file of its GPU, and whether another task is there; then it waits for
# the other tasks of its run.
TASK = """
import fcntl, glob, json, os, sys, time
notes, words = sys.argv[1], sys.argv[2:]
run, host = os.environ["TFDEPLOY_TASK"].split("/")[1], os.getcwd().split("/")[-7]
file = open("{}/{}.{}".format(notes, host, os.environ["CUDA_VISIBLE_DEVICES"]), "a")
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
except OSError:
    run += " beside another one"
print(run, file=file, flush=True)
own = json.loads(os.environ["TF_CONFIG"])
open("{}/met/{}.{}".format(notes, run, own["task"]["index"]), "w").close()
while len(glob.glob("{}/met/{}.*".format(notes, run))) < len(own["cluster"]["worker"]):
    time.sleep(0.05)
while "holds" in words and not os.path.exists(notes + "/go"):
    time.sleep(0.05)
time.sleep(0.2)
sys.exit(3 if "fails" in words else 0)
"""


class User:
    """A user of the lab with a project, whose runs need other hosts and GPUs each time."""

    def __init__(self, place: Lab, name: str, notes: Path) -> None:
        command = ["python3", "task.py", str(notes)]
        training = {"command": command, "role": "tf_config", "ready": "process"}
        self.project = place.project(name, training=training)
        self._tables = self.project.hosts
        (self.project.folder / "task.py").write_text(TASK)
        self.project.ok("push")

    def needing(self, *needs: tuple[str, list[int] | int]) -> Project:
        """Return the project whose next run needs these GPUs of some hosts: all in a list, or one
        of so many."""
        self.project.hosts = {
            host: {
                **self._tables[host],
                "gpus": gpus,
                "workers": len(gpus) if isinstance(gpus, list) else 1,
            }
            for host, gpus in needs
        }
        self.project.write()
        return self.project

    def needing_some(self, number: int) -> Project:
        first, second = (HOSTS[(number + n) % len(HOSTS)] for n in range(2))
        gpu = number % 2
        shapes = (
            [(first, [gpu])], [(first, lab.GPUS)], [(first, [0, 1])],
            [(first, [gpu]), (second, [gpu])], [(first, lab.GPUS), (second, [1 - gpu])],
        )  # fmt: skip
        return self.needing(*shapes[number % len(shapes)])

    def submit(self, numbers: range) -> None:
        for number in numbers:
            words = [] if number % 7 else ["--priority", "high"]
            if number == 10:
                words += ["--", "fails"]
            self.needing_some(number).ok("start", "--queue", *words)

    def leave_with_three_runs(self) -> None:
        """Let commands wait with their runs, and switch off the machine on which they do."""
        for number in range(3):
            with self.needing_some(number).start_command("start", "--wait", "1h") as command:
                command.wait_for_output("waiting: ")
                os.kill(command.process.pid, signal.SIGKILL)


@pytest.fixture
def place() -> Iterator[Lab]:
    with lab.lab(HOSTS, USERS) as made:
        yield made


@pytest.fixture
def notes(place: Lab) -> Path:
    """The folder with a file for each GPU."""
    folder = place.folder / "notes"
    (folder / "met").mkdir(parents=True)
    (folder / "met").chmod(0o777)
    for file in [folder / f"{host}.{gpu}" for host in HOSTS for gpu in range(lab.GPUS)]:
        file.touch()
        file.chmod(0o666)
    return folder


def task_folder(place: Lab, run: str) -> Path:
    [folder] = place.folder.glob(f"*/*/*/runs/{run}/worker-0")
    return folder


def rank(place: Lab, run: str) -> tuple[bool, int, str]:
    """Return what the hosts order a run by."""
    turn = json.loads((task_folder(place, run) / "launch.json").read_text())["turn"]
    return turn["priority"] != "high", turn["submitted"], run


@pytest.mark.slow
@pytest.mark.skipif(not lab.is_possible(), reason="only root can make a lab")
def test_the_day_of_a_lab(place, notes):
    users = {name: User(place, name, notes) for name in USERS}
    everything = [(host, [*range(lab.GPUS)]) for host in HOSTS]
    users["alice"].needing(*everything).ok("start", "--", "holds")
    [holder] = users["alice"].project.runs
    with ThreadPoolExecutor(len(USERS)) as at_once:
        shares = enumerate(users.values())
        at_once.map(lambda each: each[1].submit(range(5 * each[0], 5 * each[0] + 5)), shares)
    users["erin"].leave_with_three_runs()
    moved, lost = users["bob"].project.runs[-3], users["dave"].project.runs[-2]
    users["bob"].project.ok("queue", moved, "--priority", "high")
    urgent = users["carol"].needing_some(2)
    urgent.ok("start", "--queue", "--priority", "high")
    waiting = json.loads(users["erin"].needing(*everything).ok("queue", "--json"))["waiting"]
    high = [run["run"] for run in waiting if run["priority"] == "high"]
    assert [run["run"] for run in waiting][: len(high)] == high
    assert {urgent.runs[-1], moved} < {*high}
    assert len(waiting) == 29
    ranks = {run["run"]: rank(place, run["run"]) for run in waiting}
    os.kill(int((task_folder(place, lost) / "lock").read_text()), signal.SIGKILL)

    (notes / "go").touch()
    projects = [user.project for user in users.values()]
    until(
        lambda: not any(project.processes() for project in projects),
        "the end of all runs",
        lambda: [file.stat().st_size for file in notes.iterdir()],
        every_s=2.0,
    )
    on_all = (user.needing(*everything) for user in users.values())
    runs = [run for each in on_all for run in json.loads(each.ok("runs", "--json"))["runs"]]
    assert Counter(run["result"] for run in runs) == {"succeeded": 28, "failed": 1, "lost": 1}
    assert [run["id"] for run in runs if run["result"] == "lost"] == [lost]
    for host, gpu in ((host, gpu) for host in HOSTS for gpu in range(lab.GPUS)):
        first, *others = (notes / f"{host}.{gpu}").read_text().splitlines()
        assert first == holder
        assert len(others) > 1
        assert others == sorted(others, key=ranks.__getitem__), f"the order at GPU {gpu} of {host}"
