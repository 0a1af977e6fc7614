"""The verbs `offer`, `lacks`, `add`, `take`, `abandon`: a release appears here whole or not at all.

What an older release holds is linked, what is missing comes behind the questions `add` and `take`.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager

from . import TYPE_CHECKING, paths, roots
from .incoming import Incoming, unseal
from .payload import BLOCK, Inflated, files
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional, Tuple

    Manifest = Dict[str, List[Any]]
    Arriving = Iterator[Tuple[int, Iterator[bytes]]]

# What `lacks` was told, for the questions that follow it.
growing: Dict[Tuple[str, str], Incoming] = {}


def offer(project: str, release: str) -> Dict[str, Any]:
    """Is the release here? And what is "here": several hosts may see one folder."""
    return {"present": os.path.isdir(paths.release(project, release)), "here": roots.name()}


def lacks(project: str, release: str, manifest: Manifest) -> Dict[str, Any]:
    """Begin it, or go on with it: from what is here already. Answers `{present, wanted, incoming,
    base}`: the positions in the manifest of what has to come, where to, and a neighbour that
    resembles it."""
    final, folder = paths.release(project, release), paths.incoming(project, release)
    if os.path.isdir(final):  # another push was faster
        return {"present": True}
    base = _newest(project, kind(release))
    try:
        grown = Incoming(folder, manifest)
        grown.begin(base, paths.manifest(project, os.path.basename(base or "")))
    except OSError:
        if not os.path.isdir(final):
            raise
        return {"present": True}
    growing[project, release] = grown
    return {"present": False, "wanted": grown.wanted(), "incoming": folder, "base": base}


def add(project: str, release: str, size: int) -> Dict[str, Any]:
    """Read files from the next `size` bytes of our input; others will follow."""
    with _arriving(size) as arriving:
        _write(project, release, arriving)
    return {}


def take(project: str, release: str, size: int) -> Dict[str, Any]:
    """Read the last files from the next `size` bytes of our input. Answers as `fill`."""
    with _arriving(size) as arriving:
        return fill(project, release, arriving)


def fill(project: str, release: str, arriving: Arriving) -> Dict[str, Any]:
    """Write what arrives, and show the release if it is whole then. Answers `{wrong}`: the paths
    that are missing, or whose content is another one than the manifest says."""
    _write(project, release, arriving)
    final = paths.release(project, release)
    try:
        wrong = growing[project, release].finish(final, paths.manifest(project, release))
    except OSError:
        if not os.path.isdir(final):
            raise
    if os.path.isdir(final):  # ours, or that of another push of the same release that was faster
        return {"wrong": [], **abandon(project, release)}
    return {"wrong": wrong[:20]}


def abandon(project: str, release: str) -> Dict[str, Any]:
    """Give up a release that grows here: what has arrived of it goes."""
    import shutil  # costs 2 ms, and few pushes need it

    growing.pop((project, release), None)  # what it holds may be much
    folder = paths.incoming(project, release)
    going = "{}.{}".format(folder, os.getpid())
    try:
        os.rename(folder, going)  # at one stroke, for another push of it may be at work
    except OSError:
        return {}
    unseal(going)
    shutil.rmtree(going, ignore_errors=True)
    return {}


@contextmanager
def _arriving(size: int) -> Iterator[Arriving]:
    inflated = Inflated(sys.stdin.buffer, size)
    try:
        yield files(io.BufferedReader(inflated, BLOCK))
    finally:
        inflated.drain()


def _write(project: str, release: str, arriving: Arriving) -> None:
    """Whatever arrives; another push of the same release may be done by now, and is as good."""
    if (project, release) not in growing:
        raise not_begun(release)
    try:
        for index, content in arriving:
            growing[project, release].write(index, content)
    except OSError:
        if not os.path.isdir(paths.release(project, release)):
            raise


def not_begun(release: str) -> Refusal:
    return Refusal("release {} was not begun here".format(release), "push it again")


def kind(release: str) -> str:
    """What it is a version of: a data set's name, or "" for the code."""
    return release.rpartition("-")[0]


def _newest(project: str, wanted: str) -> Optional[str]:
    """The whole release of this kind that came last, or None where there is none yet."""
    paths.make_private(project)
    folder = paths.releases(project)
    os.makedirs(folder, exist_ok=True)
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    whole = [entry for entry in visible if kind(entry.name) == wanted]
    newest = max(whole, key=lambda entry: entry.stat().st_ctime, default=None)
    return newest.path if newest else None
