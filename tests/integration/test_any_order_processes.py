"""The invariants of any_order.py with real hosts: sshd, supervisors, tasks, and SIGKILL.

A sequence takes seconds here, so there are few. The simulation tries the many.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.projects import Project
from support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SOAK = "TFDEPLOY_FUZZ_PROCESS_SEQUENCES"
SEQUENCES, SEQUENCES_A_TEST = int(os.environ.get(SOAK, "3")), 10
STEPS = 8
CONTROLLERS = st.sampled_from((0, 1))
KILLS = st.one_of(st.none(), st.none(), st.floats(0.0, 1.5))  # seconds after the command's start

pytestmark = pytest.mark.slow


class AnyOrderOfProcesses(RuleBasedStateMachine):
    """`written` has the content of each file that a task wrote, by its path on its host."""

    def __init__(self, world: Any) -> None:
        super().__init__()
        first = world.project("--hold")
        copy = first.folder.with_name("copy")
        shutil.copytree(first.folder, copy)
        second = Project(copy, first.hosts, first.top, flags=first.flags, name=first.name)
        self.controllers = (first, second)
        self.written: dict[Path, bytes] = {}
        first.ok("push")

    def teardown(self) -> None:
        try:
            for controller in self.controllers if self.runs else ():
                self.stop(controller, None)
            assert self.controllers[0].processes() == {}
        finally:
            self.controllers[0].end()

    @precondition(lambda self: not self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def start(self, controller: int, kill: float | None) -> None:
        self._tf(controller, kill, "start", "--push")

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS, words=st.sampled_from((
        ("resume",), ("scale", "workers=1"), ("scale", "workers=2"), ("collect",), ("status",),
        ("prune", "--keep", "0"),
    )))  # fmt: skip
    def command(self, controller: int, kill: float | None, words: tuple[str, ...]) -> None:
        self._tf(controller, kill, *words)

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def stop_one(self, controller: int, kill: float | None) -> None:
        self.stop(self.controllers[controller], kill)

    @precondition(lambda self: self._works())
    @rule(data=st.data(), size=st.sampled_from((10, 10, 3000)))
    def write(self, data: st.DataObject, size: int) -> None:
        file = data.draw(st.sampled_from(self._works())) / "result.bin"
        self.written[file] = os.urandom(size)
        file.write_bytes(self.written[file])

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(0, 5))
    def kill(self, number: int) -> None:
        """Kill a task or a supervisor, if that many live."""
        for pid in sorted(self.controllers[0].processes())[number : number + 1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @invariant()
    def every_file_is_somewhere(self) -> None:
        folders = [controller.folder / "runs" for controller in self.controllers]
        for path, content in self.written.items():
            files = [path, *(file for folder in folders for file in folder.rglob(path.name))]
            found = any(file.is_file() and file.read_bytes() == content for file in files)
            assert found, f"nowhere any more: {path}"

    def stop(self, controller: Project, kill: float | None) -> None:
        code, output = self._tf(self.controllers.index(controller), kill, "stop")
        if code == 0 or (code is not None and "have exited" in output):
            assert controller.processes() == {}, output

    def _tf(self, controller: int, kill: float | None, *words: str) -> tuple[int | None, str]:
        """Run a command to its end, or kill it; return its exit code (None: killed)."""
        with self.controllers[controller].start_command(*words) as command:
            if kill is not None:
                end = time.monotonic() + kill
                until(lambda: time.monotonic() > end or command.process.poll() is not None, "kill")
                command.process.send_signal(signal.SIGKILL)
            code = command.process.wait()
            assert "Traceback" not in command.output, command.output
            return (None if code == -signal.SIGKILL else code), command.output

    @property
    def runs(self) -> set[str]:
        folders = [controller.folder / "runs" for controller in self.controllers]
        return {file.parent.name for folder in folders for file in folder.glob("*/run.json")}

    def _works(self) -> list[Path]:
        first = self.controllers[0]
        return sorted(path for host in first.hosts for path in first.on(host).glob("runs/*/*/work"))


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
@pytest.mark.parametrize("first", range(0, SEQUENCES, SEQUENCES_A_TEST))
def test_nothing_is_lost_and_stopped_means_stopped_in_any_order(world, first):
    run_state_machine_as_test(
        lambda: AnyOrderOfProcesses(world),
        settings=settings(
            max_examples=min(SEQUENCES_A_TEST, SEQUENCES - first), stateful_step_count=STEPS,
            deadline=None, database=None,
            phases=[Phase.generate],  # moments of real processes can't be shrunk
            derandomize=SOAK not in os.environ,
        ),
    )  # fmt: skip
