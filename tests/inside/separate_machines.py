"""Clusters of real processes, each in its own directory, as on machines without a shared disk."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support import evidence, warm
from support.evidence import end_of
from support.host_python import tf_python
from support.ports import free_addresses
from support.waiting import until

SCRIPTS = Path(__file__).parent / "scripts"
INSIDE = Path(__file__).parents[2] / "tfdeploy" / "inside"


def environment(*path, device=None, **more):
    """Return the environment without variables of a cluster, and with `path` on PYTHONPATH."""
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    for name in ("TF_CONFIG", "TFDEPLOY_CHECKPOINT_DEVICE", "TFDEPLOY_SAVE_ON_STOP", "PYTHONPATH"):
        env.pop(name, None)
    env.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="2", GRPC_FAIL_FAST="use_caller")
    if path:
        env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    if device:
        env["TFDEPLOY_CHECKPOINT_DEVICE"] = device
    return {**env, **more}


class Fresh:
    """A script in an interpreter of its own, with what `Cluster` uses of a `warm.Script`."""

    errors = ""

    def __init__(self, *words, cwd, **env):
        self._log = cwd.with_suffix(".log")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [tf_python(), *words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.poll, self.kill, self.wait = (
            self._process.poll, self._process.kill, self._process.wait
        )  # fmt: skip

    @property
    def output(self):
        return self._log.read_text()


class Cluster:
    """Tasks by name, such as ps-0. Each runs in its own directory, as on its own disk."""

    start_script = staticmethod(warm.start)

    def __init__(self, root, inside, **jobs):
        self.root, self.inside = root, inside
        self.jobs = {job: free_addresses(count) for job, count in jobs.items()}
        self.processes = {}

    def start(self, script, *arguments, device, **more):
        """Start every task. Without a device the patch is on the path, but off."""
        for job, addresses in self.jobs.items():
            for index in range(len(addresses)):
                self.start_task(script, job, index, *arguments, device=device, **more)

    def start_task(self, script, job, index, *arguments, device, **more):
        evidence.used(self)
        home = self.home(f"{job}-{index}")
        home.mkdir(parents=True, exist_ok=True)
        config = {"cluster": self.jobs, "task": {"type": job, "index": index}}
        more = {**more, "TF_CONFIG": json.dumps(config)}
        words = [SCRIPTS / script, *self._role(script, job, index), *arguments]
        env = environment(self.inside, device=device, **more)
        self.processes[home.name] = self.start_script(*words, cwd=home, **env)

    def _role(self, script, job, index):
        if not script.endswith("_v1.py"):
            return []
        hosts = [f"--{name}_hosts={','.join(hosts)}" for name, hosts in self.jobs.items()]
        return [f"--job_name={job}", f"--task_index={index}", *hosts]

    def wait_until_logged(self, what, *tasks):
        """Wait until each of these tasks has logged a line that starts with `what`."""
        until(
            lambda: all(re.search(f"^{what}", self.log(task), re.MULTILINE) for task in tasks),
            f"{what!r} of {tasks}",
            self._logs,
        )

    def wait(self, *tasks):
        """Wait for these tasks; return their exit codes."""
        processes = [self.processes[task] for task in tasks]
        until(
            lambda: all(p.poll() is not None for p in processes), f"the end of {tasks}", self._logs
        )
        return [process.poll() for process in processes]

    def evidence(self):
        return {f"{task}.log": end_of(self.log(task)) for task in self.processes}

    def _logs(self):
        return [self.log(task) for task in self.processes]

    def stop(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()

    def home(self, task):
        return self.root / task

    def log(self, task):
        process = self.processes[task]
        return process.output + process.errors

    def logged(self, task, what):
        """Return the rest of the first line that starts with these words."""
        for line in self.log(task).splitlines():
            if line.startswith(what + " "):
                return line[len(what) + 1 :]
        pytest.fail(f"{task} never logged {what!r}:\n{self.log(task)[-3000:]}")

    def files(self, task):
        """Return the paths of all files of the task, relative to its directory."""
        home = self.home(task)
        return {str(f.relative_to(home)) for f in home.rglob("*") if f.is_file()}


class FreshCluster(Cluster):
    """For tests that measure memory: a fork needs more, as it copies pages that it changes."""

    start_script = Fresh
