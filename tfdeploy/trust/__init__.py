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
