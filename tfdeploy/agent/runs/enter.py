"""Run a command as a task runs: in its directory, with its environment. For `exec` and `ssh`.

The verb `enter` returns the command line that does it. Environment and secrets are read on this
host, where the task's launch stores them: neither is sent to the controller.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import sys
from typing import Dict, List

from ...shared.protocol.runs import TaskEntrance
from ...shared.records import Launch
from .. import children, paths
from ..machine import stored
from ..machine.logind import login_shell
from ..refusal import Refusal
from ..supervision import spawn

PYTHON_WORDS = ("python", "python3")
NOT_RUNNABLE, NOT_FOUND = 126, 127  # exit codes of a shell


def entrance(project: str, run: str, task: str) -> TaskEntrance:
    """Return how to enter a task, whether it runs or has ended. Raises Refusal if this host does
    not have its directory."""
    task_dir = paths.task(project, run, task)
    if not os.path.exists(paths.launch(task_dir)):
        raise Refusal(
            "it has no directory of {} of run {}".format(task, run),
            "the run was pruned, or its tasks were never started",
        )
    stored.launch(task_dir)  # raises Refusal if it can't be read
    words = [sys.executable, "-S", "-E", paths.agent(), "enter", task_dir]
    return TaskEntrance(words, paths.work(task_dir))


def enter(task_dir: str, encoded: str) -> int:
    """Become the program whose words are encoded (base64 of JSON); without words, a shell.

    Returns an exit code only if that fails. One plain word is the same in every login shell, unlike
    quotes.
    """
    words = json.loads(base64.b64decode(encoded)) or [os.environ.get("SHELL") or login_shell()]
    launch = stored.launch(task_dir)
    os.chdir(paths.work(task_dir))
    env = spawn.environment_of_user(launch, dict(os.environ), task_dir)
    # Without a terminal, sshd ends no command of a connection that is gone.
    ctypes.CDLL(None).prctl(children.PR_SET_PDEATHSIG, signal.SIGHUP)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and programs inherit that
    return _exec(_with_python_of_task(words, launch), env)


def _with_python_of_task(words: List[str], launch: Launch) -> List[str]:
    """Replace `python` by the task's own, as in training.command."""
    program = launch.process.argv[0]
    is_python = os.path.basename(program).startswith("python")
    return [program, *words[1:]] if words[0] in PYTHON_WORDS and is_python else words


def _exec(words: List[str], env: Dict[str, str]) -> int:
    try:
        os.execvpe(words[0], words, env)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        hint = "; for a shell's words: -- sh -c '...'" if is_missing and " " in words[0] else ""
        sys.stderr.write("{}: {}{}\n".format(words[0], error.strerror, hint))
        return NOT_FOUND if is_missing else NOT_RUNNABLE
