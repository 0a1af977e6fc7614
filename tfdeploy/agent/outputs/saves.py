"""What a task's processes wrote outside of its directory, and left there.

inside/preload/files.c records each path. `collect` names these files; it fetches only those in the
absolute folders of `outputs`.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterable, List, Mapping, Tuple

from ...shared.event_records import EVENTS
from ...shared.filesystem import read_if_possible, walk
from ...shared.protocol.outputs import SavedPath
from ...shared.records import Launch
from ...shared.units import SKIPPED_FOLDER
from .. import paths

MAX_PATHS = 64
# Left out is what programs leave behind whatever they compute: files of the system, what is below
# the folders that variables name as caches, and paths with one of these names below the user's
# home: hidden files, caches of modules, compilers and downloads, locks, logs of absl and launchers.
# Empty files, links and sockets are left out, too.
SYSTEM = ("/dev/", "/proc/", "/run/", "/sys/", "/var/cache/")
CACHES = re.compile(r".*_CACHE(_HOME|_DIR|_PATH)?|MPLCONFIGDIR")  # such as XDG_CACHE_HOME
SHARED_FOLDERS = ("/", "/tmp/", "/var/tmp/")  # named as a cache, they are not one cache alone
NOISE = re.compile(
    r"\..*|__pycache__|.*\.py[co]|site-packages|dist-packages|matplotlib-.*"
    r"|__autograph_generated_file.*|torchinductor_.*|pymp-.*"
    r"|tensorflow_datasets|tfhub_modules|nltk_data|torchelastic_.*|tpu_logs"
    r"|.*\.lock(file)?|.*\.pid|.*\.log\.(INFO|WARNING|ERROR|FATAL)\..*"
)
# What a program keeps in a hidden folder until somebody uploads it: ClearML's offline sessions.
KEPT = re.compile(r"\.clearml/cache/offline/.+")
# A file that was deleted was a temporary one, unless its name says that it was a result.
RESULT = re.compile(r".*\.(keras|h5|hdf5|npz|ckpt|pth?|safetensors|onnx|index)|saved_model\.pb")
# What is collected from a checkpoint_dir that is no folder of `outputs`, or another task's.
CHECKPOINT = re.compile(r"checkpoint|.*\.(index|meta|data-\d+-of-\d+)")


class Saves:
    """The recorded paths of a task, newest first. Those of folders end with a slash."""

    def __init__(self, task_dir: str, launch: Launch) -> None:
        recorded = list(dict.fromkeys(reversed(_read(task_dir))))
        self._files = {path: None for path in recorded if not path.endswith("/")}
        self._folders = {path for path in recorded if path.endswith("/")}
        self._run, *self._above = _roots(
            # A program that may write into data sets has its results there, in a hidden folder.
            [os.path.dirname(task_dir), paths.releases(launch.project), os.path.expanduser("~")]
        )
        self._caches = _caches({**os.environ, **launch.process.env}, self._run)
        self._fetched = _roots(launch.outputs.folders)
        self._shared = _roots(
            [launch.directory.checkpoint_dir] if launch.directory.checkpoint_dir[:1] == "/" else []
        )
        self._is_chief = launch.is_chief
        self._started_ns = _started_ns(task_dir)
        self._saved = [path for path in recorded if not self._is_left_out(path)]

    def is_of_run(self, files: Dict[str, Tuple[int, int]]) -> bool:
        """Return whether any of these files, with their sizes and mtimes (ns), is younger than the
        run, or was written by the task, which may set an older time."""
        if any(mtime_ns >= self._started_ns for _, mtime_ns in files.values()):
            return True
        real_paths = map(os.path.realpath, files)
        return any(path in self._files or self._topmost(path) != path for path in real_paths)

    def left(self) -> List[str]:
        """Return what is in no folder that is fetched. A folder that the task made stands for all
        that it contains."""
        return [path for path in dict.fromkeys(map(self._topmost, self._saved)) if self._has(path)]

    def elsewhere(self) -> Tuple[List[SavedPath], int]:
        """Return what is left, and the number of further paths; if nothing is, the results that
        were deleted."""
        left = self.left()
        gone = [] if left else [path for path in self._saved if _is_result(path)]
        found = [*(SavedPath(path, True) for path in left), *(SavedPath(p, False) for p in gone)]
        return found[:MAX_PATHS], len(found[MAX_PATHS:])

    def _topmost(self, path: str) -> str:
        """Return the topmost folder, down to the path itself, that the task made and that exists;
        the path if there is none."""
        ends = [index + 1 for index, letter in enumerate(path) if letter == "/"]
        made = (path[:end] for end in ends if path[:end] in self._folders)
        return next((folder[:-1] for folder in made if os.path.isdir(folder)), path)

    def _has(self, path: str) -> bool:
        """Return whether a path is a file, or a folder with a file, that is not left out."""
        if _is_file(path):
            return True
        found = (entry.path for entry in walk(path) if _is_file(entry.path))
        return any(
            not self._is_left_out(file) and not _is_half_written(path, file) for file in found
        )

    def _is_left_out(self, path: str) -> bool:
        roots = (self._run, *self._above)
        above = next((root for root in roots if path.startswith(root)), "")
        name = path[len(above) :]
        if above == self._run and self._is_own_or_listed(name):
            return True
        is_cache = path.startswith((*SYSTEM, *self._caches))
        is_noise = any(map(NOISE.fullmatch, name.split("/"))) and not KEPT.match(name)
        return is_cache or is_noise or self._is_fetched(path)

    def _is_own_or_listed(self, name: str) -> bool:
        """Return whether a path in the run's folder is tfdeploy's, or is among the outputs of a
        task."""
        return name.split("/")[1:2] == [paths.WORK] or paths.is_own(self._run, self._run + name)

    def _is_fetched(self, path: str) -> bool:
        name = os.path.basename(path)
        is_collected = CHECKPOINT.fullmatch(name) or (self._is_chief and EVENTS in name)
        return path.startswith(self._fetched) or (
            path.startswith(self._shared) and bool(is_collected)
        )


def _read(task_dir: str) -> List[str]:
    """Return the recorded paths, the newest last. One is incomplete if the disk was full."""
    files = (paths.older_saves(task_dir), paths.saves(task_dir))
    found = b"\0".join(map(read_if_possible, files)).split(b"\0")
    return [os.fsdecode(path) for path in found if path.startswith(b"/")]


def _started_ns(task_dir: str) -> int:
    """Return when the run was first started, by this host's clock in ns; 0 if that is
    not known."""
    try:
        return os.stat(paths.started(task_dir)).st_mtime_ns
    except OSError:
        return 0


def _roots(folders: Iterable[str]) -> Tuple[str, ...]:
    return tuple(os.path.join(os.path.realpath(folder), "") for folder in folders)


def _caches(env: Mapping[str, str], run: str) -> Tuple[str, ...]:
    """Return the folders that variables of the environment name as caches."""
    named = (env[name] for name in env if CACHES.fullmatch(name) and env[name][:1] == "/")
    found = (folder for folder in _roots(named) if folder not in SHARED_FOLDERS)
    return tuple(folder for folder in found if not run.startswith(folder))


def _is_file(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size > 0


def _is_half_written(folder: str, file: str) -> bool:
    """Return whether `fetch` skips a file of a folder, because its saver has not completed it."""
    return any(map(SKIPPED_FOLDER.match, file[len(folder) + 1 :].split("/")))


def _is_result(path: str) -> bool:
    return bool(RESULT.fullmatch(os.path.basename(path)))
