"""What runs that wait in the queue cost their host: the CPU time and memory of their supervisors.

    python tests/bench/queueing.py RUNS [SECONDS]

Each run has two tasks, whose supervisors send heartbeats to each other; all runs wait for the same
two GPUs, of which only the names exist.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
sys.path[:0] = [os.fspath(PACKAGE), os.fspath(PACKAGE / "tests")]

from support.builders import make_heartbeat_settings, make_launch  # noqa: E402
from support.ports import free_port  # noqa: E402

from tfdeploy.agent import paths  # noqa: E402
from tfdeploy.agent.machine import leases  # noqa: E402
from tfdeploy.shared import records  # noqa: E402

SUPERVISOR = """
import os, sys
package, sys.argv[0], task_dir = sys.argv[1:]
sys.path.insert(0, package)
from tfdeploy.agent.machine import lock
from tfdeploy.agent.runs import supervise
supervise.supervise(task_dir, os.dup(1), lock.acquire(task_dir))
"""
SETTLE_S = 120.0  # until pauses between heartbeats have reached their full length


def submit(number: int, gpus: list[str]) -> list[subprocess.Popen[bytes]]:
    """Start the supervisors of a run."""
    run, tasks = secrets.token_hex(4), ["worker:0", "worker:1"]
    settings = make_heartbeat_settings(port=free_port(), tasks=tasks, needed=tasks[1:])
    started = []
    for index, gpu in enumerate(gpus):
        launch = make_launch(
            run=run, index=index, heartbeat=settings, ready="process", submitted=number, gpus=[0],
            waits_for=[gpu],
        )  # fmt: skip
        task_dir = paths.task("p", run, launch.task)
        os.makedirs(paths.work(task_dir))
        os.makedirs(paths.logs("p", run), exist_ok=True)
        records.write(paths.launch(task_dir), records.to_json(launch))
        words = [
            sys.executable,
            "-S",
            "-c",
            SUPERVISOR,
            os.fspath(PACKAGE),
            paths.agent(),
            task_dir,
        ]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE))
        assert started[-1].stdout
        started[-1].stdout.readline()
    return started


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    runs, seconds = int(sys.argv[1]), float([*sys.argv, "150"][2])
    with tempfile.TemporaryDirectory() as root:
        sys.argv[0] = f"{root}/agent/abc.pyz"
        gpus = [f"gpu/GPU-{secrets.token_hex(4)}" for _ in range(2)]
        leases.acquire(gpus)
        waiting = [each for number in range(1, runs + 1) for each in submit(number, gpus)]
        time.sleep(SETTLE_S)
        before, at = sum(cpu_s(each.pid) for each in waiting), time.monotonic()
        time.sleep(seconds)
        used = (sum(cpu_s(each.pid) for each in waiting) - before) / (time.monotonic() - at)
        print(f"{runs} runs, {len(waiting)} supervisors: {100 * used:.3f} % of a core")
        for each in waiting:
            each.kill()
            each.wait()


if __name__ == "__main__":
    main()
