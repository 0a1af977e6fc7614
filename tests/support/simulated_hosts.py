"""Hosts that are folders: the real agent answers in this process, and supervisors are files.

So a sequence of commands takes milliseconds, and a fault happens at a chosen operation of the file
system: an audit hook sees each one. Real are the command line, the requests, and everything that
the agent reads, writes and deletes. Simulated are connections, supervisors and tasks: a supervisor
is a file in its task's folder, and a test writes what a task would write.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import signal
import sys
import threading
import time
import zlib
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from tfdeploy import cli
from tfdeploy import run as runs
from tfdeploy.agent import paths, verbs
from tfdeploy.agent.machine import grpc_health, lock, process
from tfdeploy.agent.machine.devices import nvidia
from tfdeploy.agent.outputs import hold, verify
from tfdeploy.agent.preflight import reachability
from tfdeploy.agent.queue import places, resources
from tfdeploy.agent.reports import follow
from tfdeploy.agent.runs import start, start_and_follow
from tfdeploy.commands import start as start_command
from tfdeploy.commands import stop as stop_command
from tfdeploy.errors import Unreachable
from tfdeploy.hosts import fleet, parallel
from tfdeploy.shared import parallel as agent_parallel
from tfdeploy.shared import records
from tfdeploy.shared.protocol.message import Message, to_answer
from tfdeploy.shared.protocol.preflight import StillRunning
from tfdeploy.shared.records import ENDED, READY, STOPPED, TaskState
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.local import LocalTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.shared.records import Launch

SUPERVISOR = "simulated-supervisor"  # the file in a task's folder that holds its pid
FIRST_PID = 1 << 23  # larger than any pid of Linux (proc(5): pid_max is at most 2**22)
WRITES = frozenset({
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.utime",
    "os.truncate", "os.chmod",
})  # fmt: skip
PIDS = itertools.count(FIRST_PID)
KILLED_S = 5.0  # for a thread of a killed command; one that waits for a host changes nothing


class Killed(BaseException):
    """Stands for SIGKILL: a process that is killed changes nothing any more."""


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit code; None if it was killed."""

    code: int | None
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Faults:
    """What is wrong now. `cut` are names of hosts that do not answer. `kill_after` is the number of
    changes of files after which the command is killed (its own changes, or if `kills_agents` those
    of the agents, which then exit). Nothing can be written below the folders `read_only` and
    `full`."""

    cut: set[str] = field(default_factory=set)
    kill_after: int | None = None
    kills_agents: bool = False
    read_only: set[str] = field(default_factory=set)
    full: set[str] = field(default_factory=set)


class Simulation:
    """All hosts of one test; `open` installs it in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults = Faults()
        self._here = threading.local()
        self._supervisors: dict[int, str] = {}
        self.defects: list[Exception] = []  # of agents: a command takes them for a host's failure

    # Commands

    def tfdeploy(self, controller: Path, *words: str) -> Done:
        """Run a command in the folder of a controller, to its end or until it is killed."""
        out, err = io.StringIO(), io.StringIO()
        before, threads = (os.getcwd(), sys.argv), set(threading.enumerate())
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            os.chdir(controller)
            sys.argv = ["tfdeploy", *words]
            with redirect_stdout(out), redirect_stderr(err), open(os.devnull) as sys.stdin:
                code = _exit_code()
        except Killed:
            code = None
            for thread in set(threading.enumerate()) - threads:
                thread.join(KILLED_S)  # it is killed as well, at its next change
        finally:
            os.chdir(before[0])
            sys.argv, sys.stdin = before[1], sys.__stdin__
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self.faults.kill_after = None
        if self.defects:
            raise self.defects[0]
        return Done(code, out.getvalue(), err.getvalue())

    # Hosts

    @property
    def agent_folder(self) -> str:
        return self._here.agent

    @property
    def is_agent(self) -> bool:
        return bool(getattr(self._here, "agent", ""))

    @property
    def stream(self) -> AgentStream:
        return self._here.stream

    @contextmanager
    def on_host(self, agent_folder: str, stream: AgentStream) -> Iterator[None]:
        """Answer as the agent in this folder."""
        self._here.agent, self._here.stream = agent_folder, stream
        try:
            yield
        finally:
            self._here.agent = ""

    # Supervisors

    def live_tasks(self, run: str, left_out: Collection[str] = ()) -> dict[str, str]:
        """Return the names of the tasks of a run whose supervisors live, and their hosts, without
        those on hosts that are `left_out`."""
        found = self.folder.glob(f"*/*/runs/{run}/*/{SUPERVISOR}")
        hosts = {file: file.relative_to(self.folder).parts[0] for file in found}
        return {
            file.parent.name.replace("-", ":"): host
            for file, host in hosts.items()
            if host not in left_out
        }

    def supervise(self, launch: Launch, inherited: list[int]) -> None:
        task_dir, pid = paths.task(launch.project, launch.run, launch.task), next(PIDS)
        state = TaskState(READY, time.time(), boot=paths.boot_id(), pid=pid)
        records.write(paths.state(task_dir), records.to_json(state))
        Path(task_dir, SUPERVISOR).write_text(str(pid))
        self._supervisors[pid] = task_dir

    def signal(self, pid: int, number: int) -> None:
        """End a supervisor. It writes its last state, unless it is killed or can't write."""
        task_dir = self._supervisors.get(pid)
        if task_dir and number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            self.end(task_dir, STOPPED)
        elif task_dir and number == signal.SIGKILL:
            Path(task_dir, SUPERVISOR).unlink(missing_ok=True)

    def end(self, task_dir: str, state: str) -> None:
        file = Path(task_dir, SUPERVISOR)
        if not file.exists():
            return
        if read_state(task_dir).state not in ENDED:
            with suppress(OSError):
                ended = records.to_json(TaskState(state, time.time(), exit=0))
                records.write(paths.state(task_dir), ended)
        with _unchecked():
            file.unlink()

    # Faults

    def check(self, event: str, details: tuple[Any, ...]) -> None:
        """Raise what a fault makes of a change of files."""
        if getattr(_UNCHECKED, "count", 0) or not _is_change(event, details):
            return
        agent, faults = self.is_agent, self.faults
        if agent:
            path = next((each for each in details if isinstance(each, str)), "")
            self._check_disk(path)
        if faults.kill_after is None or agent != faults.kills_agents:
            return
        if faults.kill_after > 0:
            faults.kill_after -= 1
        else:
            raise AgentKilled if agent else Killed

    def _check_disk(self, path: str) -> None:
        for folders, number in (
            (self.faults.read_only, errno.EROFS),
            (self.faults.full, errno.ENOSPC),
        ):
            if any(path.startswith(f"{folder}/") for folder in folders):
                raise OSError(number, os.strerror(number), path)


class AgentKilled(BaseException):
    """Stands for the end of an agent in the middle of an answer."""


class SimulatedTransport(LocalTransport):
    """The connection to a folder."""

    def __init__(self, host: str, simulation: Simulation) -> None:
        super().__init__(host)
        self._simulation = simulation

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> AgentStream:
        return AgentStream(self.host, argv[4], self._simulation)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        raise AssertionError(f"the simulation has no {argv}")


class AgentStream:
    """An agent that answers in the threads of those who read. It answers a request when somebody
    reads the answer."""

    def __init__(self, host: str, agent_folder: str, simulation: Simulation) -> None:
        self._host, self._folder, self._simulation = host, agent_folder, simulation
        self._input = b""
        self._answers: Iterator[None] = iter(())
        self._output = io.StringIO()
        self._changed = threading.Condition()
        self._is_closed = self._has_exited = False

    def send(self, data: bytes | memoryview) -> None:
        self._check()
        with self._changed:
            self._input += bytes(data)
            self._changed.notify_all()

    def read(self, timeout_s: float | None = None) -> bytes:
        self._check()
        while not self._output.tell() and not self._is_closed and not self._has_exited:
            self._work()
        self._check()
        text, self._output = self._output.getvalue(), io.StringIO()
        return text.encode()

    def result(self) -> CompletedCommand:
        return CompletedCommand(1, b"", b"Killed")

    def park(self) -> None:
        self.close()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def interrupts(self, wait_s: float) -> bool:
        """Stand in for `caller_interrupts`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._input, wait_s)
            return self._is_closed or bool(self._input)

    def _check(self) -> None:
        faults = self._simulation.faults
        if faults.kill_after == 0 and not faults.kills_agents:
            raise Killed
        if self._host in faults.cut:
            raise Unreachable(self._host, "the connection was lost")

    def _work(self) -> None:
        """Make one answer, or begin with the next request."""
        try:
            with self._simulation.on_host(self._folder, self):
                next(self._answers)
        except StopIteration:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._input)
            if not self._is_closed:
                self._answers = self._serve(*self._next_request())
        except AgentKilled:
            self._has_exited = True

    def _next_request(self) -> tuple[str, dict[str, Any]]:
        line, _, self._input = self._input.partition(b"\n")
        if not line.strip():
            return "", {}
        verb, body = json.loads(line)
        if verb == verbs.COMPRESSED:
            packed, self._input = self._input[: body["size"]], self._input[body["size"] :]
            verb, body = json.loads(zlib.decompress(packed))
        return verb, body

    def _serve(self, verb: str, body: dict[str, Any]) -> Iterator[None]:
        """Answer as `verbs._answer` does, one answer at a time."""
        if not verb:
            return
        try:
            function, named = verbs._call(verb, body)
            found = function(**named)
            answers = [found] if isinstance(found, Message) else found
            for answer in answers:
                yield self._print(to_answer(answer))
            if answers is found:
                yield self._print({"end": True})
        except verbs.Refusal as refusal:
            yield self._print(verbs._refused(refusal))
        except Exception as error:
            if not isinstance(error, OSError):  # of a disk that is full, for example
                self._simulation.defects.append(error)
            known = verbs._removed(body) or verbs.shortage.find(error)
            failed = {"failed": f"{type(error).__name__}: {error}"}
            yield self._print(verbs._refused(known) if known else failed)

    def _print(self, answer: dict[str, Any]) -> None:
        self._output.write(verbs.MARK + json.dumps(answer) + "\n")


@contextmanager
def simulated(folder: Path) -> Iterator[Simulation]:
    """Replace what is simulated in this process. The folder of host `a` is `folder / "a"`."""
    simulation = Simulation(folder)
    with pytest.MonkeyPatch.context() as patch:
        for module, name, replacement in _replacements(simulation):
            patch.setattr(module, name, replacement)
        _hooked.append(simulation)
        try:
            yield simulation
        finally:
            _hooked.clear()


def _replacements(simulation: Simulation) -> Iterator[tuple[object, str, object]]:
    def make_transport(host: Host, inventory: Inventory, accept_new: bool) -> SimulatedTransport:
        return SimulatedTransport(host.name, simulation)

    def unfinished(project: str, run: str, task: str, timeout_s: float) -> StillRunning:
        return StillRunning([*simulation.live_tasks(run)])

    numbers = itertools.count(1)
    yield runs, "new_id", lambda _: f"20260101-000000-{next(numbers):04x}"
    yield start_command, "secrets", SimpleNamespace(token_hex=lambda _: f"secret {next(numbers)}")
    yield fleet, "make_transport", make_transport
    yield start_command, "check_reachability", lambda *_: None
    yield paths, "agent", lambda: simulation.agent_folder
    yield lock, "holder", _holder
    yield lock, "acquire", _acquire
    yield process, "send_signal", simulation.signal
    yield process, "task_processes", lambda *_: []
    yield process, "end_all", lambda *_: []
    yield start, "_fork_supervisor", simulation.supervise
    yield resources, "acquire", lambda launches, *_: (launches, {x.task: [] for x in launches})
    yield places, "held_places", list
    yield start, "_require_lasting_session", lambda: None
    yield start_and_follow, "_refuse_without_caller", lambda: None
    yield reachability, "unfinished_tasks", unfinished
    yield follow, "caller_interrupts", lambda wait_s: simulation.stream.interrupts(wait_s)
    yield nvidia, "gpu_count", lambda: 0
    yield grpc_health, "task_health", lambda *_: READY
    yield verify, "find_errors", _find_no_errors
    yield hold, "PAUSE_S", 0.0
    yield stop_command, "HEARTBEAT_WAIT_S", 0.0
    yield stop_command, "LINGER_S", 0.0
    yield stop_command, "POLL_S", 0.0
    yield agent_parallel, "each", lambda function, items, threads=None: [*map(function, items)]
    yield agent_parallel, "begin", _begin
    yield parallel, "call_each", _each
    yield typer.main, "get_command", _get_command


def read_state(task_dir: str) -> TaskState:
    try:
        return records.load(TaskState, paths.state(task_dir))
    except (OSError, ValueError):
        return TaskState(READY, 0.0)


def _holder(task_dir: str) -> int | None:
    try:
        return int(Path(task_dir, SUPERVISOR).read_text())
    except FileNotFoundError:
        return None


def _acquire(task_dir: str) -> int:
    if _holder(task_dir) is not None:
        raise BlockingIOError
    return os.open(paths.lock(task_dir), os.O_RDWR | os.O_CREAT, 0o600)


def _find_no_errors(prefixes: list[str]) -> Iterator[tuple[str, str]]:
    yield from ((prefix, "") for prefix in prefixes)


def _each(do: Callable[[Any], Any], of: Any, threads: int, check: Any = None) -> list[Any]:
    """Stand in for threads: the order of what happens must not depend on them."""
    return [do(one) for one in of]


def _get_command(application: typer.Typer) -> Any:
    """Build what a command parses its words with once, as one process does."""
    names = tuple(command.name for command in application.registered_commands)
    if names not in _parsers:
        _parsers[names] = _build_command(application)
    return _parsers[names]


def _begin(function: Callable[[], Any]) -> Callable[[], Any]:
    result = function()
    return lambda: result


def _exit_code() -> int:
    try:
        cli.main()
    except SystemExit as exited:
        return exited.code if isinstance(exited.code, int) else int(exited.code is not None)
    return 0


_parsers: dict[tuple[str | None, ...], Any] = {}
_build_command = typer.main.get_command
_hooked: list[Simulation] = []
_UNCHECKED = threading.local()


@contextmanager
def _unchecked() -> Iterator[None]:
    _UNCHECKED.count = getattr(_UNCHECKED, "count", 0) + 1
    try:
        yield
    finally:
        _UNCHECKED.count -= 1


def _is_change(event: str, details: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool((details[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    return event in WRITES


def _hook(event: str, details: tuple[Any, ...]) -> None:
    if _hooked and (event in WRITES or event == "open"):
        _hooked[0].check(event, details)


sys.addaudithook(_hook)  # it can't be removed
