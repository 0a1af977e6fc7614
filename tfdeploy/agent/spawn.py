"""Begin a task's process: with its whole environment, in its own session, bound to its keeper."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess

from . import TYPE_CHECKING, paths, process

if TYPE_CHECKING:
    from typing import Callable, Dict

    from .records import Launch

PR_SET_PDEATHSIG = 1  # source: linux/prctl.h
NEEDS_INSIDE = ("TFDEPLOY_CHECKPOINT_DEVICE", "TFDEPLOY_SAVE_ON_STOP", "TFDEPLOY_END_AT_EXIT")


def spawn(launch: Launch, task_dir: str, mark: str, output: int) -> subprocess.Popen:  # type: ignore[type-arg]
    """Begin the task's process in a session of its own. Raises OSError where it can't be run."""
    return subprocess.Popen(
        launch.argv,
        cwd=paths.work(task_dir),
        env=environment(launch, dict(os.environ), mark, paths.agent()),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=_dies_with(os.getpid()),
    )


def environment(launch: Launch, base: Dict[str, str], mark: str, agent: str) -> Dict[str, str]:
    """The task's whole environment: the host's own, under what the launch says. Pure."""
    env = {**base, **launch.env, process.MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"}
    # A proxy between tasks breaks TensorFlow's traffic, yet the script may need it for the world.
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        env[name] = ",".join(filter(None, [env.get(name, ""), *launch.no_proxy]))
    if any(name in env for name in NEEDS_INSIDE):
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
