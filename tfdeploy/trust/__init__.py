"""What a hosts.toml may use without a question, and what its user has to trust first.

A hosts.toml can come with somebody else's repository, and people look before they run: `plan`,
`check` and `status` must not run or read what such a file names outside of its own repository.
Those values are used only after the user has trusted them once, as direnv does it.
"""

from __future__ import annotations

import os
from pathlib import Path


def config_folder() -> Path:
    """Return the folder of tfdeploy in the user's configuration."""
    return Path.home() / (os.environ.get("XDG_CONFIG_HOME") or ".config") / "tfdeploy"


def make_private(folder: Path) -> None:
    """Create a folder of the configuration, for this user alone. Raises PermissionError in the home
    of another user, as root with `sudo` may have: that user could not store anything in a folder of
    root."""
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    allowed = (os.geteuid(),) if nearest == folder else (0, os.geteuid())
    if nearest.stat().st_uid not in allowed:
        raise PermissionError(1, "its folder belongs to another user")
    folder.mkdir(0o700, parents=True, exist_ok=True)
