"""The user's own folders outside of projects: of the configuration, of state, and of sockets."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def config_folder() -> Path:
    """Return the folder of tfdeploy in the user's configuration."""
    return Path.home() / (os.environ.get("XDG_CONFIG_HOME") or ".config") / "tfdeploy"


def state_folder() -> Path:
    """Return the folder of tfdeploy for what may be lost, such as logs of its own."""
    return Path.home() / (os.environ.get("XDG_STATE_HOME") or ".local/state") / "tfdeploy"


def make_private(folder: Path) -> None:
    """Create a folder for this user alone. Raises PermissionError in the home
    of another user, as root with `sudo` may have: that user could not store anything in a folder of
    root."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    allowed = (os.geteuid(),) if nearest == folder else (0, os.geteuid())
    if nearest.stat().st_uid not in allowed:
        raise PermissionError(1, "its folder belongs to another user")
    folder.mkdir(0o700, parents=True, exist_ok=True)


def socket_folder() -> Path | None:
    """Return the folder for sockets, which no other user can enter. Return None if another user
    owns it."""
    uid = os.geteuid()
    try:
        path = _own_runtime_dir(uid) or Path(tempfile.gettempdir(), f"tfdeploy-{uid}")
        path.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(info.st_mode) and info.st_uid == uid
    return path if is_own and not info.st_mode & 0o077 else None


def _own_runtime_dir(uid: int) -> Path | None:
    """Return the runtime folder unless it is another user's, as after `su` and `sudo -E`: that user
    could replace what tfdeploy creates there."""
    path = os.environ.get("XDG_RUNTIME_DIR")
    return Path(path, "tfdeploy") if path and os.stat(path).st_uid == uid else None  # noqa: PTH116
