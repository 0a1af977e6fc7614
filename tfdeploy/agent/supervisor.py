"""One task's keeper: starts it, watches it to its end, ends what it left, writes the truth."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
import traceback
from typing import Any, Callable, Dict, Optional, Tuple

from . import health, lock, outcome, paths, process, records
from .records import Launch, TaskState

WATCHED = (signal.SIGCHLD, signal.SIGTERM)
PROBE_S = 0.25
PROBE_TIMEOUT_S = 3.0
PR_SET_PDEATHSIG = 1  # source of both: linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36


def supervise(task_dir: str, announce: Callable[[], None]) -> None:
    """Keep the task of `task_dir` until it has ended. `announce` is called once it is ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    # What the task leaves behind becomes our child, not init's: so all of it can be found.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    held = lock.hold(task_dir)
    launch = records.load(Launch, paths.launch(task_dir))
    _write(task_dir, records.STARTING)
    announce()
    try:
        _keep(launch, task_dir)
    except Exception:
        _write(task_dir, records.FAILED, reason="its supervisor failed, see supervisor.log")
        traceback.print_exc()
    finally:
        os.close(held)


def _keep(launch: Launch, task_dir: str) -> None:
    mark = process.mark(launch.project, launch.run, launch.task)
    try:
        child = _spawn(launch, task_dir, mark)
    except OSError as error:
        reason = "{} can't be run: {}".format(launch.argv[0], error.strerror)
        _write(task_dir, records.FAILED, exit=127, reason=reason)
        return
    exit_code, stopped = _watch(child, launch, task_dir, mark)
    left = process.end(mark, child.pid, launch.stop_grace_s, os.getpid())
    state, reason = outcome.judge(exit_code, stopped)
    if left:
        reason += "; processes {} could not be ended".format(left)
    _write(task_dir, state, pid=child.pid, exit=exit_code, reason=reason)


def _spawn(launch: Launch, task_dir: str, mark: str) -> subprocess.Popen:  # type: ignore[type-arg]
    log = paths.log(launch.project, launch.run, launch.task)
    with open(log, "ab") as output:
        return subprocess.Popen(
            launch.argv,
            cwd=paths.work(task_dir),
            env=environment(launch, dict(os.environ), mark, paths.agent()),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )


def environment(launch: Launch, base: Dict[str, str], mark: str, agent: str) -> Dict[str, str]:
    """The task's whole environment: the host's own, under what the launch says. Pure."""
    env = {**base, **launch.env, process.MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    # A proxy between tasks breaks TensorFlow's traffic, yet the script may need it for the world.
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        env[name] = ",".join(filter(None, [env.get(name, ""), *launch.no_proxy]))
    if "TFDEPLOY_CHECKPOINT_DEVICE" in env:
        inside = os.path.join(agent, "inside")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [inside, env.get("PYTHONPATH", "")]))
    return env


def _dies_with(supervisor: int) -> Callable[[], None]:
    """Run in the child: a supervisor that is killed takes its task with it, and no GPU is held."""
    libc = ctypes.CDLL(None)

    def before_exec() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return before_exec


def _watch(
    child: subprocess.Popen,  # type: ignore[type-arg]
    launch: Launch,
    task_dir: str,
    mark: str,
) -> Tuple[int, bool]:
    """Wait for the end; returns the exit code and whether it was asked for."""
    probing: Optional[int] = launch.port
    _write(task_dir, records.RUNNING if probing else records.READY, pid=child.pid)
    while True:
        caught = signal.sigtimedwait(WATCHED, PROBE_S if probing else 3600)
        code = child.poll()
        if code is not None:
            return code, False
        if caught and caught.si_signo == signal.SIGTERM:
            process.end(mark, child.pid, launch.stop_grace_s, os.getpid())
            return child.wait(), True
        if probing and is_ready(probing, launch.task, mark, child.pid):
            _write(task_dir, records.READY, pid=child.pid)
            probing = None


def is_ready(port: int, task: str, mark: str, leader: int) -> bool:
    """The port answers as this task, and it is our own process that answers: not a stale twin."""
    if health.ask("localhost", port, task, PROBE_TIMEOUT_S).verdict != health.READY:
        return False
    return process.holder(port) in process.members(mark, leader)


def _write(task_dir: str, state: str, **more: Any) -> None:
    records.write(
        paths.state(task_dir), records.to_json(TaskState(state=state, since=time.time(), **more))
    )
