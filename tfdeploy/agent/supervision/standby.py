"""A standby process of a task: it has imported TensorFlow, and waits to replace the task's process.

inside/tfdeploy_standby.py says what it does, and why it trains as any other process does.
"""

from __future__ import annotations

import json
import os
import time

from .. import TYPE_CHECKING, paths
from ..machine import filesystem
from .spawn import spawn

if TYPE_CHECKING:
    import subprocess
    from typing import List, Optional

    from ..records import Launch
    from .restart import Attempt

    Process = subprocess.Popen[bytes]

MIN_AVAILABLE_BYTES = 1 << 30  # five times what a standby process needs
NONE = "tfdeploy: there is no standby process: {}\n"
ENDED = "it has ended, perhaps for lack of memory"
FOREIGN = "its process has not imported TensorFlow yet, or is not Python with the task's command"
NO_MEMORY = "this host has less than 1 GiB of memory left"
NO_AGENT = "the agent was deleted from this host"


class Standby:
    """The standby process of one task, if its policy asks for one.

    It is started once the task has been READY and has run for `max_delay_s`: in a crash loop it
    would cost more than it saves. `output` is the descriptor of the task's log.
    """

    def __init__(self, launch: Launch, task_dir: str, mark: str, output: int) -> None:
        self._launch = launch
        self._task_dir = task_dir
        self._mark = mark
        self._output = output
        self._process: Optional[Process] = None
        self._pipe = -1  # if it is closed, also by this process's end, the standby process ends
        self._decided_at = 0.0  # the start of the last attempt that was decided on

    @property
    def pids(self) -> List[int]:
        """The standby process, which stays when the other processes of the task are ended."""
        self._note_end()
        return [self._process.pid] if self._process else []

    def start_if_due(self, attempt: Attempt, task: Process) -> None:
        """Start it if `attempt`, whose process is `task`, has run for long enough."""
        self._note_end()
        policy = self._launch.policy
        if not policy.standby or not attempt.ready or attempt.started_at == self._decided_at:
            return
        if time.monotonic() < attempt.started_at + policy.max_delay_s:
            return
        self._decided_at = attempt.started_at
        try:
            why_not = self._why_not(task.pid) or self._start()
        except Exception as error:  # training continues without
            why_not = repr(error)
        if why_not:
            self._say(why_not)

    def take(self) -> Optional[Process]:
        """Make the standby process the task's and return it; None if there is none."""
        self._note_end()
        task = self._process
        if task is None:
            return None
        try:
            os.write(self._pipe, b"!")
        except BrokenPipeError:  # it ends
            return None
        finally:
            self._forget()
        return task

    def end(self) -> None:
        self._note_end()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _note_end(self) -> None:
        """Forget it if it has ended: its pid may be that of another process soon."""
        if self._process is not None and self._process.poll() is not None:
            self._forget()
            self._say(ENDED)

    def _forget(self) -> None:
        self._process = None
        os.close(self._pipe)

    def _say(self, why_not: str) -> None:
        os.write(self._output, NONE.format(why_not).encode())

    def _why_not(self, task: int) -> str:
        """Return why there can be none beside the process `task`; "" if there can.

        A process of another command must not be started here: it would do what the command does
        before it starts Python, or would be a second training.
        """
        try:
            record = json.loads(filesystem.read_bytes(paths.standby(self._task_dir)))
        except (OSError, ValueError):
            return FOREIGN
        if [record["pid"], record["command"]] != [task, self._launch.argv]:
            return FOREIGN
        if not os.path.exists(paths.agent()):
            return NO_AGENT
        from ..reports import usage  # most supervisors never need it

        _, available = usage.memory_bytes("/proc/meminfo")
        return NO_MEMORY if available < MIN_AVAILABLE_BYTES else ""

    def _start(self) -> str:
        """Start it. Return "", or why it could not be started."""
        read, write = os.pipe()
        try:
            self._process = spawn(self._launch, self._task_dir, self._mark, self._output, wait=read)
            self._pipe = write
        except Exception as error:
            os.close(write)
            return str(error)
        finally:
            os.close(read)
        return ""
