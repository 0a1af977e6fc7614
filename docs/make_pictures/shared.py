"""Make the pictures of machines that several people share, from runs of five users on this machine.

The users and runs are real; the GPUs are those of the tests' stand-in for nvidia-smi. Needs root.
`python -m make_pictures.shared` makes only these pictures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from make_pictures.drawing import still
from make_pictures.files import HOSTS, QUEUE
from support import lab

if TYPE_CHECKING:
    from support.lab import Lab
    from support.projects import Project

NAMES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
USERS = {"alice": "digits", "bob": "mnist", "carol": "speech", "dave": "wide", "erin": "census"}
BUSY, MEMORY_MIB = 97, 70_000
LONGEST_S = 8 * 3600
PROGRAM = "import time\ntime.sleep(600)\n"


def main() -> None:
    with lab.lab(NAMES, [*USERS]) as place, patch.dict(os.environ, _homes(place.folder)):
        started = {user: _project(place, user) for user in USERS}
        _start(place, started["alice"], ("gpu-01", [0, 1]), ("gpu-02", [0]))
        _start(place, started["carol"], ("gpu-03", [1]))
        by_hand = _compute_by_hand(place, "carol", "gpu-04", 0)
        try:
            _submit(started["bob"], ("gpu-01", lab.GPUS))
            _submit(started["dave"], ("gpu-02", [0]), ("gpu-03", [0]))
            _submit(started["erin"], ("gpu-01", [0, 1]), flags=("--priority", "high"))
            folder = started["dave"].folder
            _write(started["dave"], *((name, [0]) for name in NAMES))
            still(folder, HOSTS, "tfdeploy hosts")
            still(folder, QUEUE, "tfdeploy queue")
        finally:
            by_hand.kill()
            by_hand.wait()


def _homes(folder: Path) -> dict[str, str]:
    """Return variables with which no setting of the user matters."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config"), "PATH": path}


def _project(place: Lab, user: str) -> Project:
    training = {
        "command": ["python3", "train.py"], "role": "tf_config", "ready": "process",
        "max_duration_s": LONGEST_S,
    }  # fmt: skip
    project = place.project(user, name=USERS[user], training=training)
    (project.folder / "train.py").write_text(PROGRAM)
    project.ok("push")
    return project


def _write(project: Project, *needs: tuple[str, list[int] | int]) -> None:
    tables: dict[str, Any] = project.hosts
    for name, table in tables.items():
        gpus = dict(needs).get(name, [])
        count = len(gpus) if isinstance(gpus, list) else 1
        tables[name] = {**table, "gpus": gpus, "workers": count}
    project.write()


def _submit(
    project: Project, *needs: tuple[str, list[int] | int], flags: tuple[str, ...] = ()
) -> None:
    _write(project, *needs)
    project.ok("start", "--queue", *flags)


def _start(place: Lab, project: Project, *needs: tuple[str, list[int]]) -> None:
    _write(project, *needs)
    project.ok("start")
    for host, gpus in needs:
        for gpu in gpus:
            place.smi[host].set(gpu, used=MEMORY_MIB, busy=BUSY)


def _compute_by_hand(place: Lab, user: str, host: str, gpu: int) -> subprocess.Popen[bytes]:
    """Let a user start a program without tfdeploy."""
    uid, script = place.uids[user], place.folder / "train.py"
    script.write_text(PROGRAM)
    words = ["python3", script.name]
    process = subprocess.Popen(words, user=uid, group=uid, cwd=place.folder)
    place.smi[host].use(gpu, process.pid)
    place.smi[host].set(gpu, busy=BUSY - 9)
    return process


if __name__ == "__main__":
    main()
