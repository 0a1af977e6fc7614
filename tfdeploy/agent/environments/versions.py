"""What is installed where a task runs: its Python, the packages of it, and the drivers.

Names and versions are read from the names of folders: no Python starts, and no nvidia-smi.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from contextlib import suppress
from typing import Dict, Iterable, List, Tuple

from ...shared.filesystem import read_if_possible
from ...shared.records import Launch, Process

DISTRIBUTION = re.compile(r"([\w.]+?)-(\d[\w.+!]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$", re.ASCII)
MAX_PACKAGES = 1000
LIBRARIES, PACKAGES = ("lib", "local/lib"), ("site-packages", "dist-packages")
# The packages that contain a framework's module.
FRAMEWORKS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm"),
    "jax": ("jax",),
    "torch": ("torch",),
}
NVIDIA = "/proc/driver/nvidia/version"  # it has "NVIDIA UNIX x86_64 Kernel Module  550.54.15"


def installed(launch: Launch) -> Dict[str, str]:
    """Return versions by name. Packages are only known of a task whose program is a Python."""
    found = {"Linux": os.uname().release}
    with suppress(OSError), open(NVIDIA) as file:
        driver = re.search(r"Module\s+([\d.]+)", file.readline())
        found.update({"NVIDIA driver": driver[1]} if driver else {})
    python = shutil.which(launch.process.argv[0], path=launch.process.env.get("PATH")) or ""
    if not os.path.basename(python).startswith("python"):
        return found
    name = os.path.basename(os.path.realpath(python))
    found["Python"] = name[len("python") :]
    for folder in [*_added_folders(launch), *_folders(python, name)]:
        for match in map(DISTRIBUTION.match, _names_in(folder)):
            if match and len(found) < MAX_PACKAGES:
                found.setdefault(match[1].lower().replace("_", "-"), match[2])
    return found


def of_frameworks(launches: Iterable[Launch]) -> Dict[str, str]:
    """Return the versions of the frameworks that tasks with peers have, by module."""
    found: Dict[str, str] = {}
    # Most tasks of a host have the same Python, whose packages are listed once.
    pythons = {
        _variables_of_python(launch.process): launch for launch in launches if launch.has_peers
    }
    for packages in map(installed, pythons.values()):
        for module, names in FRAMEWORKS.items():
            found.update((module, packages[name]) for name in names if name in packages)
    return found


def _variables_of_python(process: Process) -> Tuple[str, str, str]:
    env = process.env
    return process.argv[0], env.get("PATH", ""), env.get("PYTHONPATH", "")


def _names_in(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:  # it is none, or may not be read
        return []


def _added_folders(launch: Launch) -> List[str]:
    """Return the folders that the task's environment adds to Python's path."""
    variable = launch.process.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return [folder for folder in variable.split(os.pathsep) if os.path.isabs(folder)]


def _folders(python: str, name: str) -> List[str]:
    """Return the folders with packages that a Python imports, the first ones first; `name` is
    python3.11, for example."""
    prefixes = [os.path.dirname(os.path.dirname(python))]
    settings = read_if_possible(os.path.join(prefixes[0], "pyvenv.cfg"))  # of a virtual environment
    if not settings or re.search(rb"(?mi)^include-system-site-packages *= *true", settings):
        real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
        prefixes = [os.path.expanduser("~/.local"), *prefixes, real]
    places = itertools.product(prefixes, LIBRARIES, (name, "python3"), PACKAGES)
    return [*filter(os.path.isdir, dict.fromkeys(os.path.join(*each) for each in places))]
