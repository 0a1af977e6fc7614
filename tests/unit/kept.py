"""Tasks with their real supervisors, each a process of its own, all in a hurry."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from tfdeploy.agent import lock, paths, records
from tfdeploy.agent.records import TaskState
from unit.made import eventually, launch, python

PACKAGE = os.fspath(Path(__file__).parents[2])
# What takes seconds on a host takes tenths of one here; a tick is still shorter than all of them.
KEEPER = """
import os, sys
package, root, task_dir, lease = sys.argv[1:]
sys.path.insert(0, package)
sys.argv[0] = root + "/agent/abc.pyz"
from tfdeploy.agent import circle, fate, kin, leases, lock, process, supervisor, watch
for module in (watch, supervisor, kin):
    module.TICK_S = 0.03
watch.PROBE_TIMEOUT_S, watch.LIVE_PROBE_S, watch.SETTLED_S = 0.25, 0.5, 0.1
watch.LOOK_EVERY_S, watch.READY_MARGIN_S = 0.1, 0.1
circle.ASK_EVERY_S, circle.TIMEOUT_S = 0.05, 1.0
fate.PS_MARGIN_S = 0.5
held = [lock.take(task_dir), *leases.hold([lease] if lease else [])]
supervisor.supervise(task_dir, os.dup(1), *held)
"""
# What a task's script may call. It is READY once it answers on its port as itself.
SCRIPT = """
import os, signal, socket, struct, subprocess, sys, threading, time
def until(state, *tasks):
    for task in tasks:
        path = "../../{}/state.json".format(task)
        while not os.path.exists(path) or '"{}"'.format(state) not in open(path).read():
            time.sleep(0.01)
def until_ready():
    threading.Thread(target=serve, daemon=True).start()
    until("READY", os.path.basename(os.path.dirname(os.getcwd())))
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
                connection.recv(9999)
                connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(9999):
                    pass
"""
GO_ON = "until_ready(); time.sleep(60)"
PATIENCE_S = 20.0


def free_port():
    with socket.create_server(("", 0)) as listener:
        return listener.getsockname()[1]


class Kept:
    """One task and the process of its supervisor."""

    def __init__(self, root, code, lease="", **changes):
        changes.setdefault("argv", [sys.executable, "-S", "-c", SCRIPT + code])
        changes.setdefault("stop_grace_s", 0.5)
        port = changes.setdefault("port", free_port())
        changes["env"] = {"PORT": str(port), **changes.get("env", {})}
        self.launch = launch(**changes)
        self.task_dir = paths.task("p", self.launch.run, self.launch.task)
        os.makedirs(paths.work(self.task_dir))
        os.makedirs(paths.logs("p", self.launch.run), exist_ok=True)
        records.write(paths.launch(self.task_dir), records.to_json(self.launch))
        self.process = python(KEEPER, PACKAGE, os.fspath(root), self.task_dir, lease)

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

    def comes_to(self, state, restarts=None):
        """Whether the task comes to a state, after so many restarts."""

        def has_come():
            seen = self.state
            return seen.state == state and restarts in (None, seen.restarts)

        return eventually(has_come, PATIENCE_S)

    def ends(self):
        """The task's last state, once its supervisor has gone."""
        self.process.wait(PATIENCE_S)
        assert lock.holder(self.task_dir) is None
        return self.state

    def is_alive(self):
        return is_alive(self.state.pid)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def is_alive(pid):
    """Whether a process lives: a zombie doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children(pid):
    """{pid: state} of the processes whose parent this is."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if parent == str(pid):
            found[int(stat.parent.name)] = state
    return found
