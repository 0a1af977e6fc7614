"""Replace a file at once, link it or copy it, remove a folder; recognize a full disk."""

from __future__ import annotations

import errno
import os

# What programs print if the disk is full: strerror of ENOSPC and EDQUOT.
NO_SPACE = ("No space left on device", "Disk quota exceeded")


def replace_file(path: str, content: bytes, mode: int = 0o666) -> None:
    """Write a file beside `path` and rename it: a reader sees the old content or the new one.

    `mode` is that of open(2), limited by the umask. Raises OSError; the old content is
    unchanged then.
    """
    folder, name = os.path.split(path)
    # Collecting outputs skips names that start like this, should a crash leave the file behind.
    fresh = os.path.join(folder, ".tfdeploy-{}.{}.new".format(name, os.getpid()))
    try:
        with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
        os.replace(fresh, path)
    except OSError:
        _remove(fresh)
        raise


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def link_or_copy(source: str, target: str) -> None:
    """Link a regular file, or copy it if the file system has no hard links. Raises OSError."""
    if not os.path.isfile(source) or os.path.islink(source):
        raise FileNotFoundError(source)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        import shutil  # as in remove_folder

        shutil.copy2(source, target)


def remove_folder(folder: str) -> None:
    """Remove a folder with its content; ignore errors."""
    import shutil  # costs 2 ms, and neither `follow` nor most supervisors need it

    shutil.rmtree(folder, ignore_errors=True)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass
