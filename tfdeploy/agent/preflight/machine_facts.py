"""The verb `explore`: report what this machine is, before there is a hosts.toml for it."""

from __future__ import annotations

import glob
import json
import os
import shutil
from contextlib import suppress
from itertools import takewhile
from typing import Iterable, Iterator, List, Tuple

from ...shared.filesystem import folders_above
from ...shared.protocol.preflight import MachineFacts, PythonFound
from .. import children
from ..environments.build import libc
from ..machine import interfaces
from ..machine.devices import vendors
from ..machine.logind import login_shell

PYTHON_S = 20.0
LOGIN_S = 10.0
MAX_PYTHONS = 40
MAX_LIST = 100_000  # characters
# Where virtual environments and those of conda, mamba and pyenv are; ~ is the home directory.
ENVIRONMENTS = (
    *("~/*", "~/.venv", "~/*/.venv", "~/*/venv", "~/.virtualenvs/*", "~/*/envs/*"),
    *("~/.conda/envs/*", "~/.local/share/mamba/envs/*", "~/.pyenv/versions/*"),
    *("/opt/*", "/opt/*/envs/*", "/opt/*/*", "/opt/*/.venv", "/usr/local/*"),
)
# Of these, where no archive is unpacked and no repository cloned.
INSTALLED = (
    *("~/.virtualenvs/*", "~/.conda/envs/*", "~/.local/share/mamba/envs/*", "~/.pyenv/versions/*"),
    "/usr/local/*",
)
CONDA_LIST = "~/.conda/environments.txt"  # conda and mamba write what they have created, anywhere
# A framework is found, not imported: an import takes seconds. Distributions of TensorFlow have
# different names.
NAMES = {
    "tensorflow": (
        *("tensorflow", "tensorflow-cpu", "tensorflow-gpu"),
        "tf-nightly",
        "tensorflow-rocm",
    )
}
LOOK = """
import json, sys
from importlib import metadata, util
def version(names):
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return "?"
found = version(sys.argv[2:]) if util.find_spec(sys.argv[1]) else ""
print("\\n" + json.dumps([".".join(map(str, sys.version_info[:3])), found]))
"""


def explore(pythons: List[str], framework: str, is_controller: bool) -> MachineFacts:
    """Report what this machine has. `pythons` are more paths to look at for the `framework`. On the
    controller there may be folders of strangers, whose programs must not be run unasked."""
    environments = _installed() if is_controller else ENVIRONMENTS
    gpus, _ = vendors.listed_if_possible()
    return MachineFacts(
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus={str(gpu.index): gpu.name for gpu in gpus},
        addresses=[address for address, _ in interfaces.addresses()],
        pythons=[*_find_pythons([*pythons, *_with(framework, environments)], framework)],
        machine=os.uname().machine,
        libc=libc(),
    )


def _find_pythons(more: List[str], framework: str) -> Iterator[PythonFound]:
    """Yield each usable Python once: that of the PATH, that of a login, and `more`."""
    on_path = shutil.which("python3") or ""
    # A virtual environment is only on the PATH until the shell that activated it ends.
    default = {on_path: "python3"} if not _is_virtual(on_path) else {}
    seen = set()  # the folder, because all virtual environments link to the same program
    for path in [on_path, _login_python(), *more][:MAX_PYTHONS]:
        key = (os.path.realpath(os.path.dirname(path)), os.path.realpath(path))
        if not os.path.isabs(path) or key in seen:
            continue
        seen.add(key)
        version, found = _look(path, framework)
        if version:
            yield PythonFound(default.get(path) or _below_home(path), version, found)


def _with(framework: str, environments: Iterable[str]) -> Iterator[str]:
    """Yield the Pythons of those `environments`, patterns of folders, that have the framework."""
    for pattern in environments:
        packages = os.path.expanduser(pattern) + "/lib/python3*/site-packages/" + framework
        for folder in sorted(glob.glob(packages)):
            environment = folder[: folder.rindex("/lib/python3")]
            if not _is_in_clone(environment):
                yield os.path.join(environment, "bin", "python")


def _installed() -> Iterator[str]:
    yield from INSTALLED
    with suppress(OSError, ValueError), open(os.path.expanduser(CONDA_LIST)) as listed:
        yield from map(glob.escape, listed.read(MAX_LIST).splitlines())


def _is_in_clone(folder: str) -> bool:
    """Return whether a folder is in a clone of a repository, which could have brought it along: its
    Python must not be run unasked. In a hidden folder of the home directory, such as ~/.pyenv, and
    in the home directory itself, .git is the user's own."""
    home = os.path.expanduser("~")
    below = os.path.relpath(folder, home)
    if below.startswith(".") and not below.startswith("../"):
        return False
    above = takewhile(lambda each: each not in (home, "/"), (folder, *folders_above(folder)))
    return any(os.path.lexists(os.path.join(each, ".git")) for each in above)


def _is_virtual(python: str) -> bool:
    return os.path.exists(os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg"))


def _below_home(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path.startswith(home + "/") and home != "/" else path


def _login_python() -> str:
    """Return the python3 that a login of the user finds; "" if there is none."""
    lines = children.output([login_shell(), "-l", "-c", "command -v python3"], LOGIN_S).splitlines()
    return lines[-1].strip() if lines else ""


def _look(python: str, framework: str) -> Tuple[str, str]:
    """Return a Python's version and that of its framework; "" for what it does not have."""
    names = NAMES.get(framework, (framework,))
    lines = children.output([python, "-c", LOOK, framework, *names], PYTHON_S).splitlines()
    try:
        version, found = json.loads(lines[-1])
        return str(version), str(found)
    except (ValueError, IndexError, TypeError):
        return "", ""
