"""The verb `give`: files that are not large go home as answers, with no connection of their own."""

from __future__ import annotations

import base64
import os
import stat
import zlib

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, Iterator, List, Optional

PIECE = 1 << 20


def give(folder: str, files: List[List[Any]], limit: int) -> Iterator[Dict[str, Any]]:
    """For each `[path, size, sha256]`, what the caller has of it: `{path, mtime_ns, begin, data}`,
    piece by piece, from the byte `begin` on; an empty piece where nothing is missing. What has the
    same beginning goes on from there, else it begins anew.

    Left out is what can't be given so: more than `limit` bytes are missing, or it is no regular
    file.
    """
    for path, size, sha256 in files:
        file = _opened(os.path.join(folder, path))
        if file is None:
            continue
        with file:
            found = os.fstat(file.fileno())
            begin = size if size and _begins_with(file, size, sha256) else 0
            if found.st_size - begin <= limit:
                for piece in _pieces(file, begin, found.st_size):
                    yield {"path": path, "mtime_ns": found.st_mtime_ns, **piece}


def _opened(path: str) -> Optional[BinaryIO]:
    try:
        # A fifo that nobody writes to must not hold us up.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


def _begins_with(file: BinaryIO, size: int, sha256: str) -> bool:
    import hashlib  # only where the caller has some of it

    return hashlib.sha256(file.read(size)).hexdigest() == sha256


def _pieces(file: BinaryIO, begin: int, end: int) -> Iterator[Dict[str, Any]]:
    """At least one. What is written meanwhile is left for the next time."""
    file.seek(begin)
    while True:
        piece = file.read(min(PIECE, end - begin))
        data = base64.b64encode(zlib.compress(piece, 1)).decode()
        yield {"begin": begin, "data": data}
        begin += len(piece)
        if begin >= end or not piece:
            return
