"""Copy a release into a task's directory, so that a program may write beside its own files.

Each task has its own folders and its own copies: what it writes there is its own, and none can
change what another one trains with. Copies keep their times: unchanged ones are no outputs.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import Any, Dict, Iterable, List, NamedTuple, Set, Tuple

from ...shared import filesystem, parallel
from ...shared.records import Launch
from .. import paths
from . import release_files

# A copy has this mode until it is complete. The next start replaces one that never was.
INCOMPLETE = 0o200


class CopyLimits(NamedTuple):
    """How much of a release is copied for each task, the smallest files first.

    `always_bytes` are copied in any case: 1,000 files of code take 40 ms and 8 MB. The others are
    copied up to `most_bytes`, which takes seconds, if `free_bytes` of the disk stay free. The rest
    are hard links to the release: only root, or a program that makes it writable, can write into
    one, and so change the release.
    """

    always_bytes: int = 64 << 20
    most_bytes: int = 1 << 30
    free_bytes: int = 1 << 30


LIMITS = CopyLimits()


def copy_release(launch: Launch, work: str, limits: CopyLimits = LIMITS) -> None:
    """Copy the release of a task into its directory `work`. What the task wrote or changed there
    before stays. Raises OSError."""
    release = paths.release(launch.project, launch.directory.release)
    entries = release_files.of_launch(launch).entries()
    folders = _make_folders(work, entries)
    total, missing = 0, []
    for path, entry in sorted(entries.items(), key=lambda item: item[1][-3]):
        total += entry[-3]
        target, is_new = os.path.join(work, path), folders.get(os.path.dirname(path))
        if is_new or (is_new is not None and _is_missing(target, entry)):
            missing.append((os.path.join(release, path), target, entry, total))
    parallel.each_file(partial(_make_file, limits), missing)


def remove_copies(launch: Launch, work: str) -> None:
    """Remove the copies that the task has not changed, and the folders that are empty then. What is
    behind a link, which the task has put in the place of a folder, stays."""
    of_release = release_files.of_launch(launch)
    entries = of_release.entries()
    own = {folder for folder in ("", *_folders(entries)) if _is_real(work, folder)}
    for path in (path for path in entries if os.path.dirname(path) in own):
        target = os.path.join(work, path)
        stamp = filesystem.stamp(target)[:2]
        if stamp and (of_release.has(work, path, stamp) or of_release.has_link(work, path)):
            filesystem.remove_file(target)
    for folder in sorted(own - {""}, reverse=True):
        filesystem.remove_empty_folder(os.path.join(work, folder))


def _is_real(work: str, folder: str) -> bool:
    """Return whether a folder of the directory `work` is neither a link nor behind one."""
    real = os.path.join(os.path.realpath(work), folder)
    return os.path.realpath(os.path.join(work, folder)) == os.path.normpath(real)


def _folders(entries: Iterable[str]) -> Set[str]:
    """Return the folders of these paths, and those above them."""
    own = {os.path.dirname(path) for path in entries}
    return own.union(*map(filesystem.folders_above, own)) - {""}


def _make_folders(work: str, entries: Iterable[str]) -> Dict[str, bool]:
    """Make the folders of these paths. Return whether each is new; without those that the task has
    replaced by a file or a link, which stays as it is."""
    made = {"": not os.listdir(work)}
    for folder in sorted(_folders(entries)):
        target = os.path.join(work, folder)
        if os.path.dirname(folder) in made:
            is_new = not os.path.lexists(target)
            if is_new:
                os.mkdir(target)
            if is_new or (os.path.isdir(target) and not os.path.islink(target)):
                made[folder] = is_new
    return made


def _is_missing(target: str, entry: List[Any]) -> bool:
    """Return whether a file has to be made, after a copy was removed that was never complete, or
    that a power failure has cut off."""
    try:
        info = os.lstat(target)
    except FileNotFoundError:
        return True
    size, mtime_ns, _ = entry[-3:]
    is_incomplete = not info.st_mode & stat.S_IRUSR
    is_cut_off = info.st_mtime_ns == mtime_ns and info.st_size != size
    if stat.S_ISREG(info.st_mode) and (is_incomplete or is_cut_off):
        os.unlink(target)
        return True
    return False


def _make_file(limits: CopyLimits, missing: Tuple[str, str, List[Any], int]) -> None:
    source, target, entry, total = missing
    if entry[0] == "link":
        os.symlink(entry[1], target)
    elif total <= limits.always_bytes:
        _copy_file(source, target, entry)
    elif total > limits.most_bytes or not _copy_if_it_fits(source, target, entry, limits):
        _link_file(source, target)


def _copy_if_it_fits(source: str, target: str, entry: List[Any], limits: CopyLimits) -> bool:
    """Copy a file if enough of the disk stays free. Return whether it was copied."""
    disk = os.statvfs(os.path.dirname(target))
    if disk.f_bavail * disk.f_frsize - entry[-3] < limits.free_bytes:
        return False
    try:
        _copy_file(source, target, entry)
    except OSError as error:
        if not filesystem.is_disk_full(error):  # such as a quota, which statvfs does not know
            raise
        return False
    return True


def _copy_file(source: str, target: str, entry: List[Any]) -> None:
    _, _, is_program, size, mtime_ns, _ = entry
    incoming = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        outgoing = os.open(target, flags, INCOMPLETE)
        try:
            _copy_bytes(incoming, outgoing, size)
            os.utime(outgoing, ns=(mtime_ns, mtime_ns))
            os.fchmod(outgoing, 0o755 if is_program else 0o644)
        except OSError:
            os.unlink(target)
            raise
        finally:
            os.close(outgoing)
    finally:
        os.close(incoming)


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copy `size` bytes; file systems that can (XFS, Btrfs, NFS 4.2) share them, or copy them on
    the file server."""
    while size > 0:
        try:
            copied = os.copy_file_range(source, target, size)
        except (AttributeError, OSError):  # an old libc or kernel, or two file systems
            data = os.read(source, min(size, filesystem.CHUNK))
            filesystem.write_all(target, data)
            copied = len(data)
        if not copied:  # the file was changed since it was received
            return
        size -= copied


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        os.symlink(source, target)
