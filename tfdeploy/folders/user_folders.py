"""The user's own folders outside of projects: of the configuration, of state, and of sockets."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

from tfdeploy.shared import own_folders


class ReplaceableFolder(PermissionError):
    """Another user could replace a folder; `hint` says how to mend that."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(errno.EPERM, message)
        self.hint = hint


def config_folder() -> Path:
    """Return the folder of tfdeploy in the user's configuration."""
    return Path.home() / (os.environ.get("XDG_CONFIG_HOME") or ".config") / "tfdeploy"


def state_folder() -> Path:
    """Return the folder of tfdeploy for what may be lost, such as logs of its own."""
    return Path.home() / (os.environ.get("XDG_STATE_HOME") or ".local/state") / "tfdeploy"


def make_private(folder: Path) -> None:
    """Create a folder, and those above it, for this user alone.

    Raises ReplaceableFolder, and PermissionError in the home of another user, as root with `sudo`
    may have: that user could not store anything in a folder of root.
    """
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    allowed = (os.geteuid(),) if nearest == folder else (0, os.geteuid())
    if nearest.stat().st_uid not in allowed:
        raise PermissionError(errno.EPERM, "its folder belongs to another user")
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):  # mkdir(parents=True) would leave those above to the umask
        each.mkdir(0o700, exist_ok=True)
    unsafe, hint = find_unsafe(folder)
    if unsafe:
        raise ReplaceableFolder(unsafe, hint)


def find_unsafe(folder: Path) -> tuple[str, str]:
    """Return how another user could replace a folder and what is in it, and how to mend that; two
    texts, which are empty if only this user and root can. Raises OSError."""
    return own_folders.find_unsafe(os.fspath(folder), "set XDG_CONFIG_HOME to a folder of your own")


def socket_folder() -> Path | None:
    """Return the folder for sockets, which no other user can enter or replace. Return None if
    another user owns it, or could."""
    uid = os.geteuid()
    try:
        path = _own_runtime_dir(uid) or Path(tempfile.gettempdir(), f"tfdeploy-{uid}")
        path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
        is_own = stat.S_ISDIR(info.st_mode) and info.st_uid == uid
        is_private = is_own and not info.st_mode & 0o077
        return path if is_private and not find_unsafe(path)[0] else None
    except OSError:
        return None


def _own_runtime_dir(uid: int) -> Path | None:
    """Return the runtime folder unless it is another user's, as after `su` and `sudo -E`: that user
    could replace what tfdeploy creates there."""
    path = os.environ.get("XDG_RUNTIME_DIR")
    return Path(path, "tfdeploy") if path and os.stat(path).st_uid == uid else None  # noqa: PTH116
