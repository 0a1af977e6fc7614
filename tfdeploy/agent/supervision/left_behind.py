"""What a task's process leaves running when it exits: its training may go on in the background.

A script starts the training with `&`, nohup or setsid and exits; a program becomes a daemon. Such a
process is the task's life: it is followed to its end. The rule: it, or a descendant of it, runs a
script or an executable of the task's directory, in which the release is. If the task is a shell
script, it may also be a package's program that gets a file of the release, such as its settings.
Everything else ends with the task, and is named: TensorBoard, services and trackers of packages, a
loop of nvidia-smi, `tail -f`. So does a process that was only forked, in the task's session: a
worker of a program that has exited.
"""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Iterator, List, Optional, Sequence, Set, Tuple

from ...shared import filesystem
from ...shared.records import Launch
from .. import paths
from ..machine import process
from ..releases import release_files
from .restart import CRASHES

PARENT, SESSION, FLAGS = 1, 3, 6  # proc(5), stat, after the name
FORKED_NO_EXEC = 0x40  # source: linux/sched.h, PF_FORKNOEXEC
SCRIPTS = (".py", ".pyc", ".pyz", ".sh", ".bash", ".jl", ".R", ".pl", ".rb", ".js", ".lua", ".jar")
# What a shell's text, or a program's, may put around the name of a file.
SEPARATORS = re.compile(r"[\s;&|()<>'\"`=]+")
MODULES = re.compile(r"\bfrom +([\w.]+) +import\b|(?:-m|\bimport) +([\w., ]+)")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # a folder that has one is an environment of Python
# Programs and modules that are surely no training, whatever file of the release they get.
HELPERS = re.compile(
    r"(?:^|/)(?:awk|cat|gawk|grep|mawk|nginx|nvidia-smi|prometheus|redis|sed|sleep|tail|tee"
    r"|tensorboard|wandb)(?:[.-][^/]*)?$"
    r"|compile_worker|resource_tracker|semaphore_tracker|tensorboard_data_server"
)
EXEC_S, LET_END_S, RECENT_S = 3.0, 1.0, 10.0
MAX_NAMED, MAX_COMMAND = 3, 80
FOLLOWS = "{} exited and left {} running; following {}"
HAS_ENDED = "{} exited and left {}, which ended at once"
ENDS = "ended {}, left running"


class LeftBehind:
    """Processes that are followed after the task's first one, with the interface of Popen: they
    have ended when all have, and their exit code is the first one that is not 0.

    They must be children of this process. `description` is a sentence about them.
    """

    def __init__(self, pids: Sequence[int], program: str) -> None:
        live = [pid for pid in pids if process.stat(pid)[:1] != [b"Z"]]
        self.pid = (live or pids)[0]
        text, them = FOLLOWS if live else HAS_ENDED, "them" if len(live) > 1 else "it"
        self.description = text.format(program, describe(live or pids), them)
        self.running = [*pids]
        self._code = 0

    def poll(self) -> Optional[int]:
        """Return the exit code, negative for a signal; None while one of them runs."""
        return self._collect(os.WNOHANG)

    def wait(self) -> int:
        """Wait for the end of all, and return the exit code."""
        return self._collect(0) or 0

    def _collect(self, options: int) -> Optional[int]:
        for pid in [*self.running]:
            ended, status = os.waitpid(pid, options)
            if ended:
                self.running.remove(pid)
                self._code = self._code or _exit_code(status)
        return None if self.running else self._code


def find(
    launch: Launch, task_dir: str, mark: str, leaders: Sequence[int], age_s: float
) -> List[int]:
    """Return the children of this process that are the life of a task whose process has exited.

    `mark` is the task's; `leaders` are that process, started `age_s` seconds ago, and those that
    were followed after it. A child that a shell has just forked gets EXEC_S seconds to start a
    program. Programs that have just failed are among the children: if no program has been found,
    any child that has failed, as nobody can know any more what it ran.
    """
    is_first = age_s < RECENT_S and len(leaders) == 1
    started = time.monotonic()
    last: Optional[List[int]] = None
    seen: Set[Optional[int]] = set()
    while True:
        running = programs(launch, task_dir, mark, leaders)
        roots = {pid: _root(pid) for pid in running}
        found = {roots[pid] for pid in running if not _is_forked(pid, leaders)} - {None}
        # One that starts a program or becomes a daemon: its parent may exit during a look.
        is_clear = running == last and all(root in found for root in roots.values())
        last, seen, elapsed_s = running, seen | found, time.monotonic() - started
        if is_clear or elapsed_s > EXEC_S:
            ended = _ended(seen, is_first and not seen and _is_shell(launch.process.argv))
            return sorted({*filter(None, found), *ended} - {*leaders})
        time.sleep(process.pause_s(elapsed_s))


def programs(launch: Launch, task_dir: str, mark: str, leaders: Sequence[int]) -> List[int]:
    """Return the task's processes that run something of its directory."""
    folders = [paths.work(task_dir), paths.releases(launch.project)]
    inside = tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)
    is_copy = _of_release(launch, task_dir) if _is_shell(launch.process.argv) else None

    def is_program(pid: int) -> bool:
        named = {os.path.realpath(path) for path in _named_by(pid)}
        if any(_is_program(path, inside) for path in named):
            return True
        return is_copy is not None and not is_helper(pid) and any(map(is_copy, named))

    return [pid for pid in running(mark, leaders) if is_program(pid)]


def running(mark: str, leaders: Sequence[int]) -> List[int]:
    """Return all live processes of the task, also those that have cleared their environment. What
    the supervisor itself has started is in its session."""
    own = str(os.getsid(0)).encode()
    found = process.task_processes(mark, leaders[0], os.getpid())
    return [pid for pid in found if process.stat(pid)[SESSION : SESSION + 1] not in ([own], [])]


def is_helper(pid: int) -> bool:
    """Return whether a process is one that often goes on after a training, and never is one, or has
    just ended by itself, as trackers of resources do with their program."""
    words = _words(pid)
    if not words[0]:
        return True
    if os.path.basename(words[0]).startswith("python"):
        words = [word for word in words[1:] if not word.startswith("-")] or words
    return bool(HELPERS.search(words[0]))


def describe_ended(pids: Sequence[int]) -> str:
    """Return which processes were ended, as the end of a sentence; "" if there are none."""
    return ENDS.format(describe(pids)) if pids else ""


def describe(pids: Sequence[int]) -> str:
    """Return for example `python train.py (pid 71)`; of many processes the first ones."""
    named = ["{} (pid {})".format(_command(pid), pid) for pid in pids[:MAX_NAMED]]
    more = len(pids) - len(named)
    return " and ".join([*named, *(["{} more".format(more)] if more else [])])


def program_name(argv: Sequence[str]) -> str:
    """Return the name of the program of a command: `run.sh` for `bash run.sh --all`."""
    script = next((word for word in argv if word.endswith(SCRIPTS)), argv[0])
    return os.path.basename(script)


def let_end(mark: str, leaders: Sequence[int]) -> None:
    """Wait up to LET_END_S for what ends with what was followed, such as the `tee` of a pipe."""
    deadline = time.monotonic() + LET_END_S
    while running(mark, leaders) and time.monotonic() < deadline:
        time.sleep(process.POLL_S)


def _named_by(pid: int) -> Iterator[str]:
    """Yield the paths of files that the command line of a process may name, if they exist."""
    folder = _link(pid, "cwd")
    yield _link(pid, "exe")
    words = _words(pid)[1:]
    text = " ".join(words)
    for word in {*words, *SEPARATORS.split(text)}:
        yield os.path.join(folder, word)
    for module in _modules(text):
        path = module.replace(".", os.sep)
        for place in (folder, *_python_path(pid, folder)):
            yield os.path.join(place, path + ".py")
            yield os.path.join(place, path, "__main__.py")


def _words(pid: int) -> List[str]:
    return [os.fsdecode(word) for word in process.read(pid, "cmdline").split(b"\0")]


def _modules(text: str) -> Iterator[str]:
    """Yield the modules that a command line runs or imports."""
    for imported_from, names in MODULES.findall(text):
        yield from (name.split()[0] for name in (imported_from or names).split(",") if name.strip())


def _python_path(pid: int, folder: str) -> List[str]:
    found = re.search(rb"(?:^|\0)PYTHONPATH=([^\0]+)", process.read(pid, "environ"))
    places = os.fsdecode(found[1]).split(os.pathsep) if found else []
    return [os.path.join(folder, place) for place in places]


def _of_release(launch: Launch, task_dir: str) -> Callable[[str], bool]:
    """Return a function that returns whether a real path is a file of the release, unchanged."""
    release, work = release_files.of_launch(launch), os.path.realpath(paths.work(task_dir))

    def is_copy(real: str) -> bool:
        stamp = filesystem.stamp(real)
        return bool(stamp) and release.has(work, os.path.relpath(real, work), stamp)

    return is_copy


def _is_program(real: str, inside: Tuple[str, ...]) -> bool:
    """Return whether a file in one of the folders `inside` is a script or can be run."""
    if not real.startswith(inside) or not os.path.isfile(real):
        return False
    can_run = real.endswith(SCRIPTS) or os.access(real, os.X_OK)
    return can_run and not _is_installed(real)


def _is_installed(path: str) -> bool:
    """Return whether a file belongs to an environment, which the task may have made itself."""
    return any(
        os.path.exists(os.path.join(folder, name))
        for folder in filesystem.folders_above(path)
        for name in ENVIRONMENTS
    )


def _is_forked(pid: int, leaders: Sequence[int]) -> bool:
    """Return whether a process was forked, has not started another program, and has not left the
    session of a process of the task: a daemon has."""
    fields = process.stat(pid)
    if len(fields) <= FLAGS:
        return True  # it has just ended
    is_forked = int(fields[FLAGS]) & FORKED_NO_EXEC
    return bool(is_forked) and int(fields[SESSION]) in leaders


def _is_shell(argv: Sequence[str]) -> bool:
    return os.path.basename(argv[0]) in SHELLS or program_name(argv).endswith((".sh", ".bash"))


def _ended(seen: Set[Optional[int]], all_count: bool) -> Iterator[int]:
    """Yield the children of this process that have ended and were `seen` as programs while they
    ran. With `all_count` also others that have failed. A shell that has just started a program and
    exited leaves none that ended before it did."""
    for pid in process.pids():
        fields = process.stat(pid)
        is_own = len(fields) > PARENT and int(fields[PARENT]) == os.getpid()
        if is_own and fields[0] == b"Z" and (pid in seen or (all_count and _has_failed(pid))):
            yield pid


def _has_failed(pid: int) -> bool:
    """Return whether a child has ended with an error code of its own, or has crashed."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return False
    if ended.si_code == os.CLD_EXITED:
        return 0 < ended.si_status <= 128
    return ended.si_status in CRASHES


def _root(pid: int) -> Optional[int]:
    """Return the ancestor of a process that is a child of this one; None if there is none."""
    while True:
        fields = process.stat(pid)
        parent = int(fields[PARENT]) if len(fields) > PARENT else 0
        if parent == os.getpid():
            return pid
        if parent <= 1:
            return None
        pid = parent


def _command(pid: int) -> str:
    first, _, rest = process.read(pid, "cmdline").partition(b"\0")
    words = b" ".join([os.path.basename(first), *rest.split(b"\0")]).strip()
    return (words or process.read(pid, "comm").strip()).decode(errors="replace")[:MAX_COMMAND]


def _link(pid: int, name: str) -> str:
    try:
        return os.readlink("/proc/{}/{}".format(pid, name))
    except OSError:
        return ""


def _exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
