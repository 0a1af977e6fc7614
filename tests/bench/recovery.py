"""Measure where the time of a recovery goes: python -m bench.recovery.

Faults of the trainings in tests/support/scripts, which print with times; the host's history of
states has the others. Prints rows for results/recovery.csv. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.training import SCRIPTS, Training

from bench.supervising import own_home

if TYPE_CHECKING:
    from pathlib import Path

HEADER = """\
import builtins
import time
def print(*words, **_):
    builtins.print(*words, f"@{time.time():.3f}", flush=True)
print("python")
"""
IMPORT = "import tensorflow as tf\n"
TASK_STAMPS = ("python", "tensorflow")


@dataclass(frozen=True)
class Fault:
    """A signal to a task. `trains` is the task whose next step is the end of the recovery: the
    task itself, or the chief, which then has restored its checkpoint."""

    title: str
    script: str
    task: str
    number: signal.Signals = signal.SIGKILL
    trains: str = "worker:0"


ASYNC, MIRRORED = "train_async.py", "train_mirrored.py"
FAULTS = (
    Fault("a worker is killed", ASYNC, "worker:1", trains="worker:1"),
    Fault("the chief is killed", ASYNC, "worker:0"),
    Fault("the ps is killed", ASYNC, "ps:0"),
    Fault("a worker is frozen", ASYNC, "worker:1", signal.SIGSTOP, "worker:1"),
    Fault("a worker is killed (mirrored)", MIRRORED, "worker:1"),
)


def create(script: str, folder: Path) -> Training:
    """Create a training of which no task is in a crash loop: each restart is at once."""
    flags = ("--steps=1000000", "--save_steps=40")
    restart = {"frozen_timeout_s": 20, "delay_s": 0, "attempts": 1000}
    training = Training.create(script, folder, *flags, restart=restart)
    text = (SCRIPTS / script).read_text()
    docstring, rest = text.split("\n", 1)
    stamped = rest.replace(IMPORT, IMPORT + 'print("tensorflow")\n')
    assert stamped != rest
    (training.folder / "train.py").write_text(docstring + "\n" + HEADER + stamped)
    return training


def parts(run: Training, fault: Fault) -> dict[str, float]:
    """Inject the fault; return the seconds of the whole recovery and of each part."""
    run.wait_for_checkpoint()
    lengths = {task: len(run.log(task)) for task in run.tasks}
    count, at = run.restarts()[fault.task], time.time()
    run.send_signal(fault.number, fault.task)
    run.until(lambda: run.restarts()[fault.task] > count, "its restart")

    def log(task: str) -> str:
        return run.log(task)[lengths[task] :]

    # The chief of another task's fault makes steps all the time: only those after a restore count.
    mark = "tensorflow" if fault.task == fault.trains != run.chief else "restored step"
    trained_at = run.until(lambda: first_step(log(fault.trains), mark), "training again")
    changes = [each for each in history(run, fault.task) if each["at"] >= at]
    states = {each["state"]: each["at"] for each in reversed(changes)}  # the first of each
    started_at, imported_at = (stamps(log(fault.task), words)[-1] for words in TASK_STAMPS)
    return {
        "total": trained_at - at,
        "detection": states["BACKOFF"] - at,
        "backoff": states["RUNNING"] - states["BACKOFF"],
        "start and import": imported_at - states["RUNNING"],
        "of it Python": started_at - states["RUNNING"],
        "server, restore, first step": trained_at - imported_at,
    }


def first_step(log: str, mark: str) -> float | None:
    """Return the time of the first step after the last line that starts with `mark`."""
    marked = stamps(log, mark)
    return next((at for at in stamps(log, "step") if marked and at >= marked[-1]), None)


def stamps(log: str, words: str) -> list[float]:
    return [float(found) for found in re.findall(rf"^{words}\b.*@([\d.]+)$", log, re.M)]


def history(run: Training, task: str) -> list[dict[str, Any]]:
    logs = run.work(task).parent.parent / "logs"
    file = logs / f"{task.replace(':', '-')}.history.jsonl"
    return [each for each in map(json.loads, file.read_text().splitlines()) if "state" in each]


def measure(script: str, repeats: int) -> None:
    with own_home() as folder:
        run = create(script, folder / "training").start()
        try:
            for fault in [fault for fault in FAULTS if fault.script == script]:
                found = [parts(run, fault) for _ in range(repeats)]
                cells = (
                    f"{statistics.median(each[name] for each in found):.1f}" for name in found[0]
                )
                print(f"| {fault.title} | {' | '.join(cells)} |", flush=True)
        finally:
            run.stop()
            run.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    for script in (ASYNC, MIRRORED):
        measure(script, options.repeats)


if __name__ == "__main__":
    main()
