"""A command line on a terminal, with answers that are typed at once."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def on_terminal(
    words: Sequence[str], answers: str, folder: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Run `tfdeploy WORDS` in a folder on a terminal, type the answers, and return its exit code
    and its output."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tfdeploy", *words],
        cwd=folder, env=env, stdin=terminal, stdout=terminal, stderr=terminal,
        start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    os.write(controller, answers.encode())
    output = b""
    try:
        while chunk := os.read(controller, 1 << 16):
            output += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(controller)
    return process.wait(), output.decode()
