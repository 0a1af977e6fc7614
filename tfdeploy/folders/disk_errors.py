"""Say what an error of the controller's disk means: which file system is full, or which folder may
not be used, and what mends it."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from tfdeploy.folders.user_folders import ReplaceableFolder
from tfdeploy.formatting.humanize import format_size
from tfdeploy.shared.filesystem import is_disk_full


def explain(error: OSError, path: Path) -> tuple[str, str]:
    """Return what an error of reading or writing a path means, and what to type next. The error may
    name a more exact path."""
    named = error.filename if isinstance(error.filename, str) else ""
    path = Path(named) if os.path.isabs(named) else path  # noqa: PTH117 - it may be no path
    if is_disk_full(error):
        return f"can't write {path}: {describe_full(path, error)}", where_space_is(path)
    if error.errno == errno.EACCES:
        denied = _denied(path)
        return f"{denied} can't be used: permission denied", _permit(denied)
    hint = error.hint if isinstance(error, ReplaceableFolder) else ""
    return f"can't write {path}: {error.strerror}", hint


def _permit(path: Path) -> str:
    """Return the command that lets this user use a path: of a folder of this user, one that belongs
    to somebody else was made by a command with sudo."""
    foreign = next((each for each in (path, *path.parents) if _is_foreign(each)), None)
    if foreign and _is_own(foreign.parent):
        return f"sudo chown -R {os.geteuid()} {_quoted(foreign)}"
    if foreign:
        return f"{_quoted(foreign)} belongs to another user, who can permit it"
    command = "chmod u+rwx" if _is_folder(path) else "chmod u+rw"
    return f"{command} {_quoted(path)}"


def _is_foreign(path: Path) -> bool:
    """Return whether a folder or file belongs to somebody else, and this user may not use it."""
    try:
        is_foreign = path.stat().st_uid != os.geteuid()
    except OSError:
        return False
    return is_foreign and not os.access(path, os.R_OK | (os.X_OK if _is_folder(path) else 0))


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - the method of Path raises PermissionError


def describe_full(path: Path, error: OSError | None = None) -> str:
    """Return how full the file system of a path is, which may not exist."""
    folder = _existing(path)
    info, mount = os.statvfs(folder), _mount(folder)
    if error and error.errno == errno.EDQUOT:
        return f"your disk quota on {mount} is used up"
    if info.f_files and not info.f_favail:
        return f"the file system {mount} has room for no more files (df -i {_quoted(mount)})"
    free, total = info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize
    return f"the file system {mount} has {format_size(free)} free of {format_size(total)}"


def where_space_is(path: Path) -> str:
    """Return what to type if a file system is full."""
    mount = _quoted(_mount(_existing(path)))
    return f"free space on the controller; what uses it: du -xh {mount} | sort -h | tail"


def _existing(path: Path) -> Path:
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))


def _mount(folder: Path) -> Path:
    """Return where the file system of a folder is mounted."""
    absolute = folder.absolute()
    return next(each for each in (absolute, *absolute.parents) if each.is_mount())


def _denied(path: Path) -> Path:
    """Return the topmost part of a path that this user may not use, or else the path."""
    for each in reversed((path, *path.parents)):
        wanted = os.R_OK | os.W_OK | (os.X_OK if _is_folder(each) else 0)
        owned = _is_own(each)
        if owned and not os.access(each, wanted):
            return each
    return path


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
