"""However a run ends, all that speaks of its end says the same: `run`, `attach`, `status`, `runs`,
`watch`, the notification, and their exit codes."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from support.waiting import until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from support.projects import Project

pytestmark = pytest.mark.slow

# Each worker is READY and knows that the others are before it ends as its words say.
PROGRAM = """
import json, os, pathlib, signal, socket, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
task = f"{config['task']['type']}:{config['task']['index']}"
here = pathlib.Path(sys.argv[1], task)
address = config["cluster"]["worker"][config["task"]["index"]]
server = socket.create_server(("", int(address.rpartition(":")[2])))
here.write_text("")
while len(list(here.parent.glob("worker:?"))) < 2:
    time.sleep(0.01)
run = pathlib.Path.cwd().parent.parent
def wait_for(state, *numbers):
    while any(state not in (run / f"worker-{n}/state.json").read_text() for n in numbers):
        time.sleep(0.01)
how = dict(word.split("=") for word in sys.argv[2:]).get(task, "")
if how == "import":
    import nothing
wait_for("READY", 0, 1)
if how == "late":
    wait_for("SUCCEEDED", 0)
    os.abort()
if how.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, how))
elif how == "raise":
    raise ValueError("no such column")
elif how == "hold":
    time.sleep(600)
sys.exit(int(how or 0))
"""
NOTE = """
import pathlib, sys
pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())
"""


def run(project: Project) -> subprocess.CompletedProcess[str]:
    return project.tf("run", "--json")


@dataclass
class Case:
    """How the tasks of a run end, and what must be said of it."""

    name: str
    result: str
    exit: int
    words: tuple[str, ...] = ()
    end: Callable[[Project], subprocess.CompletedProcess[str]] = run
    training: dict[str, Any] | None = None
    restart: dict[str, Any] | None = None
    reason: str = ""


def start_and_stop(project: Project) -> subprocess.CompletedProcess[str]:
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    return project.tf("attach", "--json")


def fail_to_start(project: Project) -> subprocess.CompletedProcess[str]:
    assert project.tf("run").returncode == 1
    return project.tf("attach", "--json")


def start_and_kill(project: Project) -> subprocess.CompletedProcess[str]:
    project.ok("push")
    project.ok("start")
    os.kill(project.supervisor("worker:0"), signal.SIGKILL)
    return project.tf("attach", "--json")


SILENT = (fail_to_start, start_and_kill)  # the command itself says it, or nobody is left to
HELD = "worker:1=hold"
RESTARTED = {"attempts": 1, "delay_s": 0.1}
CASES = (
    Case("all succeed", "succeeded", 0),
    Case("the chief exits with 3", "failed", 3, ("worker:0=3", HELD), reason="exit 3"),
    Case("the chief raises", "failed", 1, ("worker:0=raise", HELD), reason="ValueError"),
    Case("its child was killed", "failed", 137, ("worker:0=137", HELD), reason="exit 137"),
    Case("SIGSEGV", "failed", 139, ("worker:0=SIGSEGV", HELD), reason="killed by SIGSEGV"),
    Case("SIGTERM", "failed", 143, ("worker:0=SIGTERM", HELD), reason="killed by SIGTERM"),
    Case("a worker fails", "failed", 1, ("worker:0=hold", "worker:1=4"), reason="exit 4"),
    Case("both fail", "failed", 5, ("worker:0=5", "worker:1=5"), reason="exit 5"),
    Case(
        "no restart is left", "failed", 137, ("worker:0=SIGKILL", HELD), restart=RESTARTED,
        reason="its one restart within an hour is used up",
    ),
    Case("a worker fails after the chief", "succeeded", 0, ("worker:1=late",)),
    Case("it is stopped", "stopped", 143, ("worker:0=hold", HELD), start_and_stop),
    Case("its start fails", "failed", 1, ("worker:0=hold", "worker:1=import"), fail_to_start),
    Case("its supervisor is killed", "lost", 1, ("worker:0=hold", HELD), start_and_kill),
    Case("its time is over", "ended", 0, ("worker:0=hold", HELD), training={"max_duration_s": 12}),
)  # fmt: skip


@pytest.fixture
def project(local, tmp_path):
    """Return a function that makes the project of a case, with a folder for what it leaves."""

    def make(case: Case) -> Project:
        met = tmp_path / "met"
        met.mkdir()
        hosts = {name: {**keys, "ps": 0} for name, keys in local.hosts().items()}
        found = local.project(
            *[str(met), *case.words],
            hosts=hosts,
            training={
                "role": "tf_config", "ready": "port", "imports": [], **(case.training or {}),
            },
            top={
                "restart": case.restart or {"attempts": 0},
                "notify": {"on_end": ["python", "note.py", str(tmp_path / "note")]},
            },
        )  # fmt: skip
        (found.folder / "train.py").write_text(PROGRAM)
        (found.folder / "note.py").write_text(NOTE)
        return found

    return make


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_all_that_speaks_of_an_end_says_the_same(project, tmp_path, case):
    made = project(case)
    done = case.end(made)
    document = json.loads(done.stdout)
    assert (document["result"], document["exit"], done.returncode) == (
        case.result, case.exit, case.exit
    ), done.stderr  # fmt: skip
    assert case.reason in json.dumps(document["error"])
    if case.result == "ended":
        assert "ended after max_duration_s" in done.stderr
        assert "error" not in done.stderr

    status = made.tf("status", "--json")
    assert json.loads(status.stdout)["result"] == case.result
    assert made.tf("status", "--exit-code").returncode == (0 if case.result == "succeeded" else 3)
    [listed] = json.loads(made.ok("runs", "--json"))["runs"]
    assert listed["result"] == case.result
    attached = made.tf("attach", "--json")
    assert (json.loads(attached.stdout)["result"], attached.returncode) == (case.result, case.exit)
    watched = made.tf("watch")
    assert watched.returncode == case.exit
    if case.end in SILENT:
        return
    until((tmp_path / "note").exists, "the notification")
    summary = json.loads((tmp_path / "note").read_text())
    assert (summary["result"], summary["exit"]) == (case.result, case.exit)
    assert case.reason in summary["reason"]
