"""A host's Python: it has what the tasks import, and no packages of the controller.

The controller's environment would work, but Keras imports matplotlib if it is installed: each start
of TensorFlow would take longer than on a host.
"""

from __future__ import annotations

import re
import tempfile
import venv
from functools import cache
from importlib import metadata
from pathlib import Path

# The garbage collector runs after this number of new objects (default: 700), which saves a fifth of
# the CPU time of `import tensorflow`. The hosts' image does the same.
OBJECTS = 50_000


@cache
def tf_python() -> str:
    """Return the path of a Python with TensorFlow and tf_keras, the same one in each call."""
    return make(Path(_folder().name) / "python", "tensorflow-cpu", "tf_keras")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Create a folder that is deleted when this process exits."""
    return tempfile.TemporaryDirectory(prefix="host-python-")


def make(folder: Path, *distributions: str) -> str:
    """Create a virtual environment with links to these distributions and to what they require."""
    if not folder.exists():
        venv.create(folder, symlinks=True)
        [packages] = folder.glob("lib/python3*/site-packages")
        for entry in {entry for name in _closure(distributions) for entry in _entries(name)}:
            (packages / entry.name).symlink_to(entry)
        (packages / "seldom_collected.pth").write_text(f"import gc; gc.set_threshold({OBJECTS})\n")
    return str(folder / "bin" / "python")


def add_folder(environment: Path, folder: Path) -> None:
    """Let a virtual environment have what is installed in a folder."""
    [packages] = environment.glob("lib/python3*/site-packages")
    for entry in folder.iterdir():
        (packages / entry.name).symlink_to(entry)


def _closure(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        name = re.split(r"[^\w.-]", waiting.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if name not in found and _installed(name):
            found.add(name)
            required = metadata.requires(name) or []
            waiting += [each for each in required if "extra ==" not in each]
    return found


def _installed(name: str) -> bool:
    """Return False for a missing requirement, such as tensorflow, which tensorflow-cpu replaces."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _entries(name: str) -> set[Path]:
    """Return the top-level files and folders of a distribution in site-packages."""
    files = metadata.files(name) or []
    tops = {Path(file.parts[0]) for file in files if file.parts[0] not in ("..", "__pycache__")}
    return {Path(str(metadata.distribution(name).locate_file(top))) for top in tops}
