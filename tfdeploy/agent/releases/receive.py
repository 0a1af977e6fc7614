"""The verbs `offer`, `see_release`, `lacks`, `add`, `take`, `abandon`: a release appears on a host
completely or not at all.

The files that an older release has are linked. The others follow the requests `add` and `take`.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ...shared.pack import BLOCK, InflatedStream, read_files
from ...shared.protocol.message import Done
from ...shared.protocol.releases import (
    FilesReceived,
    MissingFiles,
    ReleaseState,
    Seen,
    data_set_name,
)
from .. import paths
from ..machine import shared_directory
from ..refusal import Refusal
from . import changes
from .staging import StagedRelease, make_writable

Files = Iterator[Tuple[int, Iterator[bytes]]]


MAX_WRONG = 20  # paths in an answer
ALREADY_PRESENT = MissingFiles(present=True, wanted=[], incoming="", base=None)
# What `lacks` has started, by project and release, for the requests that follow it.
staged: Dict[Tuple[str, str], StagedRelease] = {}


def offer(project: str, release: str) -> ReleaseState:
    """Report whether this host has the release as it was received, and the id of its directory,
    because several hosts may share one."""
    found = os.path.isdir(paths.release(project, release))
    changed = changes.changed_file(project, release) if found else ""
    return ReleaseState(found and not changed, shared_directory.store_id(), changed)


def see(project: str, release: str, digest: str) -> Seen:
    """Report how this host sees a release that another host has received; see SeeRelease."""
    found = shared_directory.wait_for_file(paths.manifest(project, release), digest)
    return Seen(found if os.path.isdir(paths.release(project, release)) else "")


def lacks(project: str, release: str, manifest: Dict[str, List[Any]]) -> MissingFiles:
    """Start or resume a release from what this host has already."""
    folder = paths.incoming(project, release)
    if changes.is_whole(project, release):  # another push was faster
        return ALREADY_PRESENT
    base = _newest_release(project, data_set_name(release))
    try:
        started = StagedRelease(folder, manifest)
        started.prepare(base, paths.manifest(project, os.path.basename(base or "")))
    except OSError:
        if not changes.is_whole(project, release):
            raise
        return ALREADY_PRESENT
    staged[project, release] = started
    return MissingFiles(present=False, wanted=started.missing(), incoming=folder, base=base)


def add(project: str, release: str, size: int) -> Done:
    """Read files from the next `size` bytes of standard input. More files will follow."""
    with _received_files(size) as files:
        _write(project, release, files)
    return Done()


def take(project: str, release: str, size: int) -> FilesReceived:
    """Read the last files from the next `size` bytes of standard input. Answer as `complete`."""
    with _received_files(size) as files:
        return complete(project, release, files)


def complete(project: str, release: str, files: Files) -> FilesReceived:
    """Write the files, and publish the release if it is complete."""
    _write(project, release, files)
    try:
        wrong = _publish(project, release)
    except OSError:
        if not changes.is_whole(project, release):
            raise
    if changes.is_whole(project, release):  # from this push, or from another of the same release
        abandon(project, release)
        return FilesReceived([])
    return FilesReceived(wrong[:MAX_WRONG])


def _publish(project: str, release: str) -> List[str]:
    """Show the release if it is complete, or repair the one that was changed. Return the paths that
    are missing or wrong."""
    received, final = staged[project, release], paths.release(project, release)
    wrong = received.finish()
    if not wrong and os.path.isdir(final):
        changes.repair(project, release, received.folder, received.manifest)
    elif not wrong:
        received.publish(final, paths.manifest(project, release))
    return wrong


def abandon(project: str, release: str) -> Done:
    """Delete what has arrived of a release that is not complete."""
    staged.pop((project, release), None)  # a manifest may need much memory
    folder = paths.incoming(project, release)
    abandoned = "{}.{}".format(folder, os.getpid())
    try:
        os.rename(folder, abandoned)  # in one step, because another push of it may be running
    except OSError:
        return Done()
    make_writable(abandoned)
    shutil.rmtree(abandoned, ignore_errors=True)
    return Done()


def not_started(release: str) -> Refusal:
    return Refusal(
        "no push of release {} is in progress on this host".format(release), "run tfdeploy push"
    )


@contextmanager
def _received_files(size: int) -> Iterator[Files]:
    stream = InflatedStream(sys.stdin.buffer, size)
    try:
        yield read_files(io.BufferedReader(stream, BLOCK))
    finally:
        stream.drain()


def _write(project: str, release: str, files: Files) -> None:
    """Write the files. If writing fails because another push has completed the release, return."""
    if (project, release) not in staged:
        raise not_started(release)
    try:
        for index, content in files:
            staged[project, release].write(index, content)
    except OSError:
        if not changes.is_whole(project, release):
            raise


def _newest_release(project: str, name: str) -> Optional[str]:
    """Return the folder of the newest complete release of this data set ("": code), or None."""
    paths.make_private(project)
    folder = paths.releases(project)
    os.makedirs(folder, exist_ok=True)
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    candidates = [entry for entry in visible if data_set_name(entry.name) == name]
    newest = max(candidates, key=lambda entry: entry.stat().st_ctime, default=None)
    return newest.path if newest else None
