"""Wait with TensorFlow imported, so that a task that has to restart need not import it again.

What a script does before it imports TensorFlow can change what is imported: it sets variables,
sys.path or the working directory. So the task's process records these when it imports TensorFlow.
A standby process, which the supervisor starts later with the same command, applies them, imports
TensorFlow, takes them back, and waits. When it becomes the task, its script runs as in any other
process. When the script then imports TensorFlow, what is in force is compared with the record. If
it differs, the process executes its command again, and imports TensorFlow with what is in force.
"""

import json
import os
import sys
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

TENSORFLOW = "tensorflow"
WAIT = "TFDEPLOY_STANDBY_WAIT"
NAME = "standby"  # what ps and top show instead of "python" while it waits
# Without memory the kernel ends first what only waits; source: proc(5), /proc/pid/oom_score_adj.
ENDED_FIRST = "1000"
READY = "tfdeploy: this attempt goes on in the standby process, which has imported TensorFlow"
AGAIN = "tfdeploy: %s, so the standby process is of no use: the script starts again"

Changes = Dict[str, Optional[str]]  # variables and their new values; None removes one


class Settings(NamedTuple):
    """What an import of TensorFlow depends on, beside the command: what the script has changed in
    the environment, sys.path, and the working directory."""

    changes: Changes
    path: List[str]
    directory: str

    @classmethod
    def in_force(cls, environment: Dict[str, str]) -> "Settings":
        """Return the present ones of a process that had this environment at first."""
        return cls(_changes(environment, os.environ.copy()), list(sys.path), os.getcwd())

    def apply(self) -> None:
        _change(self.changes)
        sys.path[:] = self.path
        os.chdir(self.directory)


def prepare(record: str) -> None:
    """Make the task's process write the file `record` when it imports TensorFlow; make a standby
    process import TensorFlow now, and return when it has become the task.

    Only the process that the supervisor has started does either, not those that it starts itself. A
    standby process that cannot wait ends: its script must not run beside the task's.
    """
    if os.getsid(0) != os.getpid():
        return
    pipe = os.environ.pop(WAIT, "")
    finder: Any = Recorder(record) if not pipe else _wait(record, int(pipe))
    sys.meta_path.insert(0, finder)


def _wait(record: str, pipe: int) -> "Handover":
    try:
        os.set_inheritable(pipe, False)
        with open(record, encoding="utf-8") as file:
            settings = Settings(**json.load(file)["settings"])
        with _output_held():
            handover = Handover(record, settings)
            with _shown_as_standby():
                if not os.read(pipe, 1):  # the supervisor has ended
                    os._exit(0)
            os.close(pipe)
            print(READY, file=sys.stderr)
    except BaseException as error:
        print("tfdeploy: there is no standby process: %r" % error, file=sys.stderr)
        os._exit(1)
    return handover


@contextmanager
def _shown_as_standby() -> Iterator[None]:
    files = {"/proc/self/comm": NAME, "/proc/self/oom_score_adj": ENDED_FIRST}
    before = {path: _exchange(path, text) for path, text in files.items()}
    try:
        yield
    finally:
        for path, text in before.items():
            _exchange(path, text)


def _exchange(path: str, text: str) -> str:
    """Write a file of /proc, and return what it had. Some containers forbid it."""
    with suppress(OSError), open(path, "r+", encoding="utf-8") as file:
        before = file.read()
        file.write(text)
        return before
    return text


@contextmanager
def _output_held() -> Iterator[None]:
    """Hold back what the import prints: it belongs to the attempt in which the process is used."""
    _flush()
    outputs = {number: os.dup(number) for number in (1, 2)}
    held = os.memfd_create(NAME)
    for number in outputs:
        os.dup2(held, number)
    try:
        yield
    finally:
        _flush()
        for number, output in outputs.items():
            os.dup2(output, number)
            os.close(output)
        with open(held, "rb") as file:
            file.seek(0)
            sys.stderr.buffer.write(file.read())
        _flush()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class Recorder:
    """Finds TensorFlow where the finders behind it do, and records what its import depends on."""

    def __init__(self, record: str) -> None:
        self._record = record
        self._environment = os.environ.copy()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name != TENSORFLOW:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                self._record_before(spec.loader)
                return spec
        return None

    def _record_before(self, loader: Any) -> None:
        # A method of this one loader, until it is called, as in sitecustomize.
        def create_module(spec: ModuleSpec) -> Any:
            del loader.create_module
            sys.meta_path.remove(self)
            _write(self._record, Settings.in_force(self._environment))
            return loader.create_module(spec)

        with suppress(AttributeError):  # a loader of another kind: it records nothing
            loader.create_module = create_module


class Handover:
    """Finds the TensorFlow that a standby process has imported. It imports it when created."""

    def __init__(self, record: str, settings: Settings) -> None:
        self._record = record
        self._settings = settings
        self._environment = os.environ.copy()
        self._own = Settings({}, list(sys.path), os.getcwd())
        settings.apply()
        applied = os.environ.copy()
        import tensorflow

        # The script must find neither what was applied nor what TensorFlow has set, nor TensorFlow
        # itself, until it imports it.
        imported = os.environ.copy()
        self._effects = _changes(applied, imported)
        _change(_changes(imported, self._environment))
        self._own.apply()
        self._module: ModuleType = sys.modules.pop(TENSORFLOW, tensorflow)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        spec = self._module.__spec__
        if name != TENSORFLOW or spec is None:
            return None
        loader: Any = spec.loader

        def create_module(_: ModuleSpec) -> ModuleType:
            self._compare()
            return self._module

        def exec_module(_: ModuleType) -> None:
            del loader.create_module, loader.exec_module
            sys.meta_path.remove(self)

        loader.create_module, loader.exec_module = create_module, exec_module
        return spec

    def _compare(self) -> None:
        now = Settings.in_force(self._environment)
        if now != self._settings:
            print(AGAIN % self._difference(now), file=sys.stderr)
            self._execute_again()
        _change(self._effects)
        _write(self._record, now)  # for this process's own standby

    def _execute_again(self) -> None:
        _flush()
        os.chdir(self._own.directory)
        command = _command()
        os.execvpe(command[0], command, self._environment)

    def _difference(self, now: Settings) -> str:
        variables = now.changes.items() ^ self._settings.changes.items()
        if variables:
            return "the script has set %s to another value" % min(name for name, _ in variables)
        return "the script has changed %s" % (
            "sys.path" if now.path != self._settings.path else "its working directory"
        )


def _write(record: str, settings: Settings) -> None:
    """Write what the supervisor needs to know before it starts a standby process: that this process
    runs the task's own command, not a program that the command has started."""
    content = {"pid": os.getpid(), "command": _command(), "settings": settings._asdict()}
    fresh = record + ".new"
    try:
        with open(fresh, "w", opener=_open_private, encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(fresh, record)
    except OSError as error:
        print("tfdeploy: there will be no standby process: %s" % error, file=sys.stderr)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # a script may put a secret into a variable


def _command() -> List[str]:
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def _changes(before: Dict[str, str], after: Dict[str, str]) -> Changes:
    names = {name for name, _ in before.items() ^ after.items()}
    return {name: after.get(name) for name in sorted(names)}


def _change(changes: Changes) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
