"""What is installed where a task runs: its Python, the packages of it, and the drivers.

Names and versions are read from the names of folders: no Python starts, and no nvidia-smi.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from contextlib import suppress
from typing import Dict, List

from ...shared.records import Launch

DISTRIBUTION = re.compile(r"([\w.]+?)-(\d[\w.+!]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$", re.ASCII)
MAX_PACKAGES = 1000
LIBRARIES, PACKAGES = ("lib", "local/lib"), ("site-packages", "dist-packages")
NVIDIA = "/proc/driver/nvidia/version"  # it has "NVIDIA UNIX x86_64 Kernel Module  550.54.15"


def installed(launch: Launch) -> Dict[str, str]:
    """Return versions by name. Packages are only known of a task whose program is a Python."""
    found = {"Linux": os.uname().release}
    with suppress(OSError), open(NVIDIA) as file:
        driver = re.search(r"Module\s+([\d.]+)", file.readline())
        found.update({"NVIDIA driver": driver[1]} if driver else {})
    python = shutil.which(launch.argv[0], path=launch.env.get("PATH")) or ""
    if not os.path.basename(python).startswith("python"):
        return found
    name = os.path.basename(os.path.realpath(python))
    found["Python"] = name[len("python") :]
    for folder in _folders(python, name):
        for match in map(DISTRIBUTION.match, os.listdir(folder)):
            if match and len(found) < MAX_PACKAGES:
                found.setdefault(match[1].lower().replace("_", "-"), match[2])
    return found


def _folders(python: str, name: str) -> List[str]:
    """Return the folders with packages that a Python imports, the first ones first; `name` is
    python3.11, for example."""
    prefixes = [os.path.dirname(os.path.dirname(python))]
    try:
        with open(os.path.join(prefixes[0], "pyvenv.cfg"), errors="replace") as file:
            is_alone = not re.search(r"(?mi)^include-system-site-packages *= *true", file.read())
    except OSError:  # no virtual environment
        is_alone = False
    if not is_alone:
        real = os.path.dirname(os.path.dirname(os.path.realpath(python)))
        prefixes = [os.path.expanduser("~/.local"), *prefixes, real]
    places = itertools.product(prefixes, LIBRARIES, (name, "python3"), PACKAGES)
    return [*filter(os.path.isdir, dict.fromkeys(os.path.join(*each) for each in places))]
