"""Tasks under their real supervisors, each in its own process, with much shorter intervals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from support import evidence
from support.builders import eventually, make_launch, start_python
from support.ports import free_port

from tfdeploy.agent import paths
from tfdeploy.agent.machine import lock
from tfdeploy.shared import records
from tfdeploy.shared.records import TaskState

PACKAGE = os.fspath(Path(__file__).parents[3])
# Intervals of seconds become tenths of a second; a tick is still shorter than all of them. Limits
# that only a failure reaches stay long, so that a busy machine does not exceed them.
SUPERVISOR = """
import os, sys
package, root, task_dir, lease = sys.argv[1:]
sys.path.insert(0, package)
sys.argv[0] = root + "/agent/abc.pyz"
from tfdeploy.agent.machine import guard, leases, lock, process
from tfdeploy.agent.machine.devices import nvidia
from tfdeploy.agent.reports import history
from tfdeploy.agent.runs import supervise
from tfdeploy.agent.supervision import membership, supervisor, termination, turn, watch
from tfdeploy.agent.supervision.heartbeat import client
for module in (watch, supervisor, membership):
    module.TICK_S = 0.03
watch.READY_TICK_S = float(os.environ.get("READY_TICK_S", 0.03))
watch.PROBE_TIMEOUT_S, watch.PROBE_EVERY_S = 1.0, 1.0
watch.SETTLED_S = float(os.environ.get("SETTLED_S", 0.1))
watch.STALL_CHECK_EVERY_S, watch.READY_MARGIN_S = 0.1, 0.1
watch.EXPOSED_CHECK_EVERY_S = 0.1
guard.LOWEST, guard.HIGHEST = 20_000, 32_767  # no other test has a port there
nvidia.SAMPLE_CPU_SHARE = 1.0
history.EVERY_S, history.TICK_S = 0.1, 0.05
client.INTERVAL_S, turn.POLL_S, turn.BEHIND_POLL_S = 0.05, 0.2, 0.2
client.QUEUED_INTERVAL_S = membership.QUEUED_INTERVAL_S = 0.5
termination.PS_MARGIN_S, termination.REFUSED_S = 60.0, 0.5
inherited = [lock.acquire(task_dir), *leases.acquire(lease.split())]
supervise.supervise(task_dir, os.dup(1), *inherited)
"""
# Functions for the scripts of tasks. A task is READY when its port answers with its own name.
SCRIPT = """
import os, signal, socket, struct, subprocess, sys, threading, time
def wait_until(state, *tasks):
    for task in tasks:
        path = "../../{}/state.json".format(task)
        while not os.path.exists(path) or '"{}"'.format(state) not in open(path).read():
            time.sleep(0.01)
def become_ready():
    threading.Thread(target=serve, daemon=True).start()
    wait_until("READY", os.path.basename(os.path.dirname(os.getcwd())))
def attempt():
    with open("attempts", "a") as file:
        file.write("x")
    return os.path.getsize("attempts")
def serve(index=os.environ["TFDEPLOY_TASK"].split(":")[1]):
    job = os.environ["TFDEPLOY_TASK"].split("/")[-1].split(":")[0]
    name = "/job:{}/replica:0/task:{}/device:CPU:0".format(job, index).encode()
    message = struct.pack(">BI", 0, len(name)) + name
    answer = struct.pack(">I", len(message))[1:] + bytes([0, 1, 0, 0, 0, 1]) + message
    with socket.create_server(("", int(os.environ["PORT"]))) as listener:
        while True:
            with listener.accept()[0] as connection:
                try:
                    connection.recv(9999)
                    connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(9999):
                        pass
                except OSError:
                    pass  # the probe has timed out and hung up; the next one is answered
"""
RUN_FOREVER = "become_ready(); time.sleep(600)"  # longer than any test waits for its end
# Run until the test calls `SupervisedTask.let_end`.
RUN_UNTIL_LET_END = "while not os.path.exists('end'): time.sleep(0.01)"
TIMEOUT_S = 120.0


class SupervisedTask:
    """One task and the process of its supervisor.

    `code` is the task's script after SCRIPT, `lease` the resources to hold, `files` what its
    directory contains, `changes` the fields of the launch that differ from `make_launch`.
    """

    def __init__(self, root, code, lease="", files=(), **changes):
        changes.setdefault("argv", [sys.executable, "-S", "-c", SCRIPT + code])
        changes.setdefault("stop_grace_s", 0.5)
        changes.setdefault("ready_timeout_s", TIMEOUT_S)
        port = changes.setdefault("port", free_port())
        changes["env"] = {"PORT": str(port), **changes.get("env", {})}
        self.launch = make_launch(**changes)
        self.task_dir = paths.task("p", self.launch.run, self.launch.task)
        os.makedirs(paths.work(self.task_dir))
        for name, text in dict(files).items():
            Path(paths.work(self.task_dir), name).write_text(text)
        os.makedirs(paths.logs("p", self.launch.run), exist_ok=True)
        records.write(paths.launch(self.task_dir), records.to_json(self.launch))
        evidence.used(self)
        self.process = start_python(SUPERVISOR, PACKAGE, os.fspath(root), self.task_dir, lease)

    def evidence(self):
        return {"state.txt": f"{self.state}", "log.txt": self.log}

    @property
    def state(self):
        return records.load(TaskState, paths.state(self.task_dir))

    @property
    def log(self):
        path = paths.log("p", self.launch.run, self.launch.task)
        return Path(path).read_text(errors="replace")

    @property
    def attempts(self):
        return os.path.getsize(os.path.join(paths.work(self.task_dir), "attempts"))

    def reaches(self, state, restarts=None):
        """Return whether the task reaches a state, after this number of restarts if given."""

        def is_reached():
            current = self.state
            return current.state == state and restarts in (None, current.restarts)

        return eventually(is_reached, TIMEOUT_S)

    def wait_for_end(self):
        """Wait until the supervisor has exited, and return the task's last state."""
        self.process.wait(TIMEOUT_S)
        assert lock.holder(self.task_dir) is None
        return self.state

    def is_alive(self):
        return is_alive(self.state.pid)

    def let_end(self):
        Path(paths.work(self.task_dir), "end").touch()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def is_alive(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid):
    """Return {pid: state} of the children of a process."""
    states = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if parent == str(pid):
            states[int(stat.parent.name)] = state
    return states
