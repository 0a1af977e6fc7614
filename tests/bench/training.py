"""Measure what tfdeploy costs a training: python -m bench.training [--pairs N].

examples/digits with 1 ps and 2 workers, in pairs: under tfdeploy, and the same commands started by
hand in the same directories with the same environment, without supervisors, the preloaded library
and the folder inside/. Needs an idle machine. Prints rows for results/training.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.host_python import tf_python
from support.ports import free_ports
from support.projects import Project

from bench.supervising import own_home, process_cpu_s

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
TASKS = ("ps:0", "worker:0", "worker:1")
ENV = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
END = re.compile(r"^stopped at step (\d+) in ([\d.]+) s", re.M)


@dataclass(frozen=True)
class Result:
    """Steps per second of all workers, CPU seconds of the tasks, and of their supervisors: until
    all were READY, and as a share of the tasks' since then."""

    steps_per_s: float
    tasks_cpu_s: float
    start_cpu_s: float = 0.0
    share: float = 0.0


def create(folder: Path, flags: list[str]) -> Project:
    shutil.copytree(EXAMPLE, folder / "project")
    host = {
        "transport": "local", "python": tf_python(), "directory": str(folder / "host"),
        "ports": free_ports(4), "ps": 1, "workers": 2,
    }  # fmt: skip
    source = (EXAMPLE / "train.py").read_text()
    project = Project(
        folder / "project", {"here": host}, flags=flags,
        training={"env": ENV, "checkpoint_dir": "checkpoints", "ready_timeout_s": 300},
    )  # fmt: skip
    (project.folder / "train.py").write_text(source)  # instead of the tests' stub
    return project


def under_tfdeploy(project: Project) -> Result:
    project.ok("push")
    project.ok("start")
    supervisors = [project.supervisor(task) for task in TASKS]
    states = {task: json.loads(state_file(project, task).read_text()) for task in TASKS}
    tasks = [state["pid"] for state in states.values()]
    started_cpu_s, start_cpu_s = process_cpu_s(tasks), process_cpu_s(supervisors)
    tasks_cpu_s = own_cpu_s = 0.0
    while "SUCCEEDED" not in state_file(project, "worker:0").read_text():
        try:
            tasks_cpu_s, own_cpu_s = process_cpu_s(tasks), process_cpu_s(supervisors)
        except OSError:
            break
        time.sleep(0.1)
    while project.processes():
        time.sleep(0.1)
    log = project.work("worker:0").parent.parent / "logs" / "worker-0.log"
    share = (own_cpu_s - start_cpu_s) / (tasks_cpu_s - started_cpu_s)
    return Result(speed(log.read_text()), tasks_cpu_s, start_cpu_s, share)


def state_file(project: Project, task: str) -> Path:
    return project.work(task).parent / "state.json"


def by_hand(project: Project) -> Result:
    """Start what the last run has started, again."""
    processes = {}
    for task in TASKS:
        work = project.work(task)
        launch = json.loads((work.parent / "launch.json").read_text())
        process: dict[str, Any] = launch["process"]
        shutil.rmtree(work / "checkpoints", ignore_errors=True)
        (work / "checkpoints").mkdir()  # without inside/, the ps writes its part to its own
        env = {**os.environ, **process["env"], "PYTHONDONTWRITEBYTECODE": "1"}
        output = (work.parent / "by-hand.log").open("wb")
        processes[task] = subprocess.Popen(
            process["argv"], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        tasks_cpu_s = wait_by_hand(processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    log = project.work("worker:0").parent / "by-hand.log"
    return Result(speed(log.read_text()), tasks_cpu_s)


def wait_by_hand(processes: dict[str, subprocess.Popen[bytes]]) -> float:
    """Wait until the workers have ended; return the CPU seconds of all tasks."""
    tasks_cpu_s = 0.0
    pids = [process.pid for process in processes.values()]
    while processes["worker:0"].poll() is None:
        try:
            tasks_cpu_s = process_cpu_s(pids)
        except OSError:
            break
        time.sleep(0.1)
    processes["worker:1"].wait()
    return tasks_cpu_s


def speed(log: str) -> float:
    found = END.search(log)
    assert found, log[-2000:]
    return int(found[1]) / float(found[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("flags", nargs="*", help="of train.py")
    options = parser.parse_args()
    pairs = []
    with own_home() as folder:
        project = create(folder, [*options.flags, "--checkpoint_dir={checkpoint_dir}"])
        try:
            for number in range(options.pairs):
                ours, plain = under_tfdeploy(project), by_hand(project)
                pairs.append((ours, plain))
                ratio = ours.steps_per_s / plain.steps_per_s
                print(number, ours, plain, f"{ratio:.3f}", flush=True)
        finally:
            project.tf("stop")
            project.end()
    for title, results in zip(("tfdeploy", "by hand"), zip(*pairs, strict=True), strict=True):
        speeds = sorted(result.steps_per_s for result in results)
        cpu_s = statistics.median(result.tasks_cpu_s for result in results)
        start_cpu_s = statistics.median(result.start_cpu_s for result in results)
        share = 100 * statistics.median(result.share for result in results)
        print(f"| {title} | {statistics.median(speeds):.1f} ({speeds[0]:.1f}..{speeds[-1]:.1f}) "
              f"| {cpu_s:.1f} | {start_cpu_s:.2f} | {share:.2f} % |")  # fmt: skip


if __name__ == "__main__":
    main()
