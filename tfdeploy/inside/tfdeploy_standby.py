"""Wait with TensorFlow imported, so that a task that has to restart need not import it again.

What a script does before it imports TensorFlow can change what is imported: it sets variables,
sys.path or the working directory. So the task's process records these when it imports TensorFlow
or Keras. A standby process, which the supervisor starts later with the same command, applies them,
imports TensorFlow, takes them back, and waits. When it becomes the task, its script runs as in any
other process. When the script then imports TensorFlow or Keras, what is in force is compared with
the record. If it differs, the process executes its command again, and imports TensorFlow with what
is in force.
"""

import json
import logging
import os
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

# What `import tensorflow` imports and a script may import first. All of it is taken away again.
PACKAGES = ("tensorflow", "keras", "tf_keras")
RECORD, WAIT = "TFDEPLOY_STANDBY", "TFDEPLOY_STANDBY_WAIT"
NAME = "standby"  # what `top` shows instead of "python" while it waits
# Without memory the kernel ends first what only waits; source: proc(5), /proc/pid/oom_score_adj.
ENDED_FIRST = "1000"
READY = "tfdeploy: this attempt goes on in the standby process, which has imported TensorFlow"
AGAIN = "tfdeploy: %s, so the standby process is of no use: the script starts again"
NONE = "tfdeploy: there will be no standby process: %r"

Changes = Dict[str, Optional[str]]  # variables and their new values; None removes one


class Settings(NamedTuple):
    """What an import of TensorFlow depends on, beside the command: what the script has changed in
    the environment, sys.path, and the working directory."""

    changes: Changes
    path: List[str]
    directory: str

    @classmethod
    def in_force(cls, environment: Dict[str, str]) -> "Settings":
        """Return the present ones of a process that had this environment at first. Raises OSError
        if the working directory was deleted."""
        # Python ignores what is no text in sys.path.
        path = [entry for entry in sys.path if isinstance(entry, str)]
        return cls(_changes(environment, os.environ.copy()), path, os.getcwd())

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
    os.environ.pop(RECORD)
    pipe = os.environ.pop(WAIT, "")
    finder: Any = Recorder(record) if not pipe else _wait(record, int(pipe))
    sys.meta_path.insert(0, finder)


def _wait(record: str, pipe: int) -> "Handover":
    os.set_inheritable(pipe, False)
    with open(record, encoding="utf-8") as file:
        settings = Settings(**json.load(file)["settings"])
    with _output_held(), _exchanged("/proc/self/oom_score_adj", ENDED_FIRST):
        handover = Handover(record, settings)
        with _exchanged("/proc/self/comm", NAME):
            if not os.read(pipe, 1):  # the supervisor has ended
                os._exit(0)
        os.close(pipe)
        print(READY, file=sys.stderr)
    return handover


@contextmanager
def _exchanged(path: str, text: str) -> Iterator[None]:
    """Have another text in a file of /proc. Some containers forbid it."""
    before = _exchange(path, text)
    try:
        yield
    finally:
        _exchange(path, before)


def _exchange(path: str, text: str) -> str:
    with suppress(OSError), open(path, "r+", encoding="utf-8") as file:
        before = file.read().rstrip("\n")
        file.write(text)
        return before
    return text


@contextmanager
def _output_held() -> Iterator[None]:
    """Hold back what the import prints: it belongs to the attempt in which the process is used."""
    _flush()
    outputs = {number: os.dup(number) for number in (1, 2)}
    with tempfile.TemporaryFile() as held:
        for number in outputs:
            os.dup2(held.fileno(), number)
        try:
            yield
        finally:
            _flush()
            for number, output in outputs.items():
                os.dup2(output, number)
                os.close(output)
            held.seek(0)
            sys.stderr.buffer.write(held.read())
            _flush()


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class Recorder:
    """Finds TensorFlow and Keras where the other finders do, and records what the first import of
    them depends on. A record is only written if TensorFlow is imported."""

    def __init__(self, record: str) -> None:
        self._record = record
        self._process = os.getpid()
        self._environment = os.environ.copy()
        self._settings: Optional[Settings] = None
        self._asks = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in PACKAGES or self._asks:
            return None
        self._asks = True  # the hook of sitecustomize asks this one, too
        try:
            spec = self._find_spec(name, path, target)
        finally:
            self._asks = False
        if spec is not None:
            self._note_before(spec.loader, name)
        return spec

    def _find_spec(self, name: str, path: Any, target: Any) -> Optional[ModuleSpec]:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _note_before(self, loader: Any, name: str) -> None:
        # A method of this one loader, until it is called, as in sitecustomize.
        def create_module(spec: ModuleSpec) -> Any:
            del loader.create_module
            # A child of fork may import it first, with settings of its own.
            if os.getpid() == self._process:
                self._note(name)
            return loader.create_module(spec)

        with suppress(AttributeError):  # a loader of another kind: it records nothing
            loader.create_module = create_module

    def _note(self, name: str) -> None:
        try:
            self._settings = self._settings or Settings.in_force(self._environment)
            if name == PACKAGES[0]:
                _remove(self)
                _write(self._record, self._settings)
        except Exception as error:  # the training must not fail because of this
            print(NONE % error, file=sys.stderr)


class Handover:
    """Finds what a standby process has imported. It imports it when created."""

    def __init__(self, record: str, settings: Settings) -> None:
        self._record = record
        self._settings = settings
        self._process = os.getpid()
        self._environment = os.environ.copy()
        self._own = Settings({}, list(sys.path), os.getcwd())
        settings.apply()
        applied = os.environ.copy()
        import tensorflow  # noqa: F401

        # The script must find neither what was applied nor what TensorFlow has set, nor TensorFlow
        # itself, until it imports it.
        imported = os.environ.copy()
        self._effects = _changes(applied, imported)
        self._handlers = logging.getLogger("tensorflow").handlers[:]
        _change(_changes(imported, self._environment))
        self._own.apply()
        names = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
        self._modules = {name: sys.modules.pop(name) for name in names}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        module = self._modules.get(name) if name in PACKAGES else None
        spec = module.__spec__ if module else None
        if module is None or spec is None:
            return None
        loader: Any = spec.loader

        def create_module(_: ModuleSpec) -> ModuleType:
            self._compare()
            sys.modules.update(self._modules)
            return module

        def exec_module(_: ModuleType) -> None:
            del loader.create_module, loader.exec_module
            _remove(self)

        loader.create_module, loader.exec_module = create_module, exec_module
        return spec

    def _compare(self) -> None:
        # A child of fork may be the first that imports it. It can't execute the task's command.
        if os.getpid() == self._process:
            difference = self._difference()
            if difference:
                print(AGAIN % difference, file=sys.stderr)
                self._execute_again()
            with suppress(OSError):
                _write(self._record, self._settings)  # for this process's own standby
        _change(self._effects)
        if logging.root.handlers:  # then TensorFlow, when it is imported, adds none of its own
            for handler in self._handlers:
                logging.getLogger("tensorflow").removeHandler(handler)

    def _difference(self) -> str:
        try:
            now = Settings.in_force(self._environment)
        except OSError as error:
            return "the working directory: %s" % error
        variables = now.changes.items() ^ self._settings.changes.items()
        if variables:
            return "the script has set %s to another value" % min(name for name, _ in variables)
        if now.path != self._settings.path:
            return "the script has changed sys.path"
        changed = now.directory != self._settings.directory
        return "the script has changed its working directory" if changed else ""

    def _execute_again(self) -> None:
        _flush()
        _end_children(os.getpid())
        os.chdir(self._own.directory)
        command = _command()
        os.execvpe(command[0], command, {**self._environment, RECORD: self._record})


def _remove(finder: Any) -> None:
    if finder in sys.meta_path:  # else somebody has replaced or wrapped it
        sys.meta_path.remove(finder)


def _end_children(process: int) -> None:
    """End what a process has started, as before any restart of a task. Source: proc(5),
    /proc/pid/task/tid/children."""
    with suppress(OSError):
        for thread in os.listdir("/proc/%d/task" % process):
            with open("/proc/%d/task/%s/children" % (process, thread), encoding="ascii") as file:
                for child in map(int, file.read().split()):
                    _end_children(child)
                    os.kill(child, signal.SIGKILL)
                    with suppress(ChildProcessError):  # not of this process
                        os.waitpid(child, 0)


def _write(record: str, settings: Settings) -> None:
    """Write what the supervisor needs to know before it starts a standby process: that this process
    runs the task's own command, not a program that the command has started. Raises OSError, and
    ValueError for text that is no Unicode."""
    content = {"pid": os.getpid(), "command": _command(), "settings": settings._asdict()}
    text = json.dumps(content)
    fresh = record + ".new"
    with open(fresh, "w", opener=_open_private, encoding="utf-8") as file:
        file.write(text)
    os.replace(fresh, record)


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
