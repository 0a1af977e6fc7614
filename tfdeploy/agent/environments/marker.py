"""The file that makes an environment complete: it is written last, and read first.

An environment is built at its final path, because its scripts and files name that path. A folder
without this file is what an interrupted build left.

Locks of files, which end with a process, say who uses an environment, and the cache of installers:
an environment's lock is for the process that builds it or removes it. All environments of all
projects use the cache.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Tuple

from ...shared import records
from .. import paths

NAME = "tfdeploy.json"
WORK = ".work"  # the end of the name of a folder with what installers read
DIST_INFO = ".dist-info"
VERSION = re.compile(r"^version(?:_info)? *= *([\d.]+)", re.M)


def read(folder: str) -> Optional[Tuple[Dict[str, str], str]]:
    """Return the packages and the Python version of a complete environment; None if it is not
    complete, or its Python is not that of the build any more."""
    try:
        found: Dict[str, Any] = records.read(file(folder))
        packages, version = dict(found["packages"]), str(found["version"])
        program = str(found["program"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if program != _program(folder) or not os.access(program, os.X_OK):
        return None
    return packages, version


def write(folder: str, wheels: str = "") -> None:
    """Declare an environment complete; `wheels` is the release that it was built from, if it was.
    Raises OSError."""
    found = {"packages": packages(folder), "version": version(folder), "program": _program(folder)}
    records.write(file(folder), {**found, "wheels": wheels})


def wheels(folder: str) -> str:
    """Return the release of wheels that an environment was built from, "" if there is none."""
    try:
        return str(records.read(file(folder))["wheels"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def file(folder: str) -> str:
    return os.path.join(folder, NAME)


def packages(folder: str) -> Dict[str, str]:
    """Return the version of each installed package, by its normalized name."""
    found = {}
    for site in _site_packages(folder):
        for name in os.listdir(site):
            if name.endswith(DIST_INFO):
                package, _, number = name[: -len(DIST_INFO)].rpartition("-")
                found[re.sub(r"[-_.]+", "-", package).lower()] = number
    return found


def version(folder: str) -> str:
    """Return the version of the environment's Python, "" if it is unknown."""
    try:
        with open(os.path.join(folder, "pyvenv.cfg"), encoding="utf-8") as file:
            match = VERSION.search(file.read())
    except OSError:
        return ""
    return match[1] if match else ""


def python(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def is_complete(project: str, environment: str) -> bool:
    return read(paths.environment(project, environment)) is not None


def leftovers(project: str) -> Iterator[str]:
    """Yield the folders that interrupted builds have left. Nobody builds them now."""
    folder = paths.environments(project)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        is_work = name.startswith(".") and name.endswith(WORK)
        environment = name[1 : -len(WORK)] if is_work else name
        if os.path.isdir(path) and (is_work or not name.startswith(".")):
            with lock_taken(paths.environment_lock(project, environment)) as is_free:
                if is_free and (is_work or not os.path.exists(file(path))):
                    yield path


def _program(folder: str) -> str:
    return os.path.realpath(python(folder))


def _site_packages(folder: str) -> Iterator[str]:
    lib = os.path.join(folder, "lib")
    for name in os.listdir(lib) if os.path.isdir(lib) else ():
        site = os.path.join(lib, name, "site-packages")
        if os.path.isdir(site):
            yield site


WAIT_S = 0.2
REPORT_S = 2.0


def open_lock(file: str) -> int:
    """Return a descriptor of the lock's file, which is created if it is missing."""
    return os.open(file, os.O_RDWR | os.O_CREAT, 0o600)


def wait_for_lock(descriptor: int) -> Iterator[None]:
    """Take the lock; yield every REPORT_S while another process has it."""
    reported = 0.0
    while not take_lock(descriptor):
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            yield
        time.sleep(WAIT_S)


def take_lock(descriptor: int) -> bool:
    """Take the lock, and return whether it was free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def lock_taken(file: str) -> Iterator[bool]:
    """Yield whether the lock is free: of an environment, or of the cache, which each build shares.
    If it is free, keep it until the context ends."""
    descriptor = open_lock(file)
    try:
        yield take_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def cache_in_use() -> Iterator[None]:
    """Keep others from emptying the cache until the context ends."""
    descriptor = open_lock(paths.cache_lock())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)
