"""The folder for the sockets of the connection daemon and of ssh's masters."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


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
