"""Clusters of real processes, each in a directory of its own, as on separate disks."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
INSIDE = Path(__file__).parents[2] / "tfdeploy" / "inside"
LIMIT_S = 60


def free_ports(count):
    """Held open together while they are picked, so that no two are the same."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def environment(*path, device=None, **more):
    """Ours, less what would name a cluster, with these directories on the path."""
    mine = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    for name in ("TF_CONFIG", "TFDEPLOY_CHECKPOINT_DEVICE", "TFDEPLOY_SAVE_ON_STOP", "PYTHONPATH"):
        mine.pop(name, None)
    mine.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2", GRPC_FAIL_FAST="use_caller")
    if path:
        mine["PYTHONPATH"] = os.pathsep.join(map(str, path))
    if device:
        mine["TFDEPLOY_CHECKPOINT_DEVICE"] = device
    return {**mine, **more}


class Cluster:
    """Tasks by name, such as ps-0. A relative path means another place to each of them: so do
    their disks on separate machines."""

    def __init__(self, root, inside, **jobs):
        self.root, self.inside = root, inside
        ports = iter(free_ports(sum(jobs.values())))
        self.jobs = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items()
        }
        self.processes = {}

    def start(self, script, *arguments, device, **more):
        """Every task of the cluster; with no device the patch is on the path, but off."""
        for job, addresses in self.jobs.items():
            for index in range(len(addresses)):
                self.start_task(script, job, index, *arguments, device=device, **more)

    def start_task(self, script, job, index, *arguments, device, **more):
        home = self.home(f"{job}-{index}")
        home.mkdir(parents=True, exist_ok=True)
        config = {"cluster": self.jobs, "task": {"type": job, "index": index}}
        more = {**more, "TF_CONFIG": json.dumps(config)}
        command = [sys.executable, str(SCRIPTS / script), *self._role(script, job, index)]
        with (home / "log").open("w") as log:
            self.processes[home.name] = subprocess.Popen(
                [*command, *arguments],
                cwd=home,
                env=environment(self.inside, device=device, **more),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _role(self, script, job, index):
        if not script.endswith("_v1.py"):
            return []
        hosts = [f"--{name}_hosts={','.join(hosts)}" for name, hosts in self.jobs.items()]
        return [f"--job_name={job}", f"--task_index={index}", *hosts]

    def wait_until_said(self, what, *tasks):
        """Each of these has written a line that begins so."""
        until = time.monotonic() + LIMIT_S
        while not all(re.search(f"^{what}", self.log(task), re.MULTILINE) for task in tasks):
            assert time.monotonic() < until, "\n".join(self.log(task)[-3000:] for task in tasks)
            time.sleep(0.05)

    def wait(self, *tasks):
        """The exit status of each, in order; a task that outlives the limit fails the test."""
        until = time.monotonic() + LIMIT_S
        try:
            return [self.processes[t].wait(max(0, until - time.monotonic())) for t in tasks]
        except subprocess.TimeoutExpired:
            pytest.fail("\n".join(f"== {t}\n{self.log(t)[-3000:]}" for t in self.processes))

    def stop(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def home(self, task):
        return self.root / task

    def log(self, task):
        return (self.home(task) / "log").read_text()

    def said(self, task, what):
        """The rest of the first line that begins with these words."""
        for line in self.log(task).splitlines():
            if line.startswith(what + " "):
                return line[len(what) + 1 :]
        pytest.fail(f"{task} never said {what!r}:\n{self.log(task)[-3000:]}")

    def files(self, task):
        """Every file of the task but its log, relative to its directory."""
        home = self.home(task)
        every = {str(f.relative_to(home)) for f in home.rglob("*") if f.is_file()}
        return every - {"log"}
