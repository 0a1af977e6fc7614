"""A stored older version of tfdeploy, to start a run that this version must collect and stop.

When the form of records or of the agent's answers changes, it stays as it is. It was made with

    git archive COMMIT tfdeploy ':!tfdeploy/live' | xz -9e
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from support.projects import environment

if TYPE_CHECKING:
    from support.projects import Project

ARCHIVE = Path(__file__).with_name("older_version.tar.xz")


def unpack(folder: Path) -> Path:
    """Unpack the older version; return the folder that Python imports it from."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder)
    with (folder / "tfdeploy/agent/__init__.py").open("a") as file:
        file.write("# another agent, also if nothing has changed since\n")
    return folder


def run(version: Path, project: Project, *words: str) -> str:
    """Run `tfdeploy WORDS` of the older version in the project's folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tfdeploy", *words],
        cwd=project.folder,
        env={**environment(project.folder), "PYTHONPATH": str(version)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
