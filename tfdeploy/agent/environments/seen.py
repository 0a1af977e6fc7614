"""The verb `see_environment`: how this host sees an environment that another host has built."""

from __future__ import annotations

import os
import subprocess

from ...shared import TYPE_CHECKING
from ...shared.protocol.environments import EnvironmentSeen
from .. import paths
from ..machine import shared_directory
from . import marker
from .build import libc

if TYPE_CHECKING:
    from typing import Tuple

PRINT_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
TIMEOUT_S = 60.0


def see(project: str, environment: str, digest: str) -> EnvironmentSeen:
    """Report how this host sees an environment, and whether its Python runs here; see
    SeeEnvironment."""
    folder = paths.environment(project, environment)
    found = shared_directory.wait_for_file(marker.file(folder), digest)
    python, why = _run_python(folder) if found else ("", "")
    return EnvironmentSeen(found, python, why, os.uname().machine, libc())


def _run_python(folder: str) -> Tuple[str, str]:
    """Return the version that the environment's Python prints, or "" and why it does not run."""
    try:
        done = subprocess.run(
            [marker.python(folder), "-c", PRINT_VERSION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
        )
    except OSError as error:
        return "", str(error.strerror)
    except subprocess.TimeoutExpired:
        return "", "it does not end"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode != 0:
        return "", lines[-1] if lines else "exit {}".format(done.returncode)
    return done.stdout.decode(errors="replace").strip(), ""
