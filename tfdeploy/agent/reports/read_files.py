"""The verbs `logs` and `read_files`: send small files as answers, without another connection."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from typing import BinaryIO, Iterator, List, Tuple

from ...shared import filesystem
from ...shared.protocol.reports import LogFiles, Piece
from .. import paths
from ..outputs import held

PIECE = 1 << 20
TOO_LARGE = "is larger than one transfer takes"


def logs(project: str, run: str) -> LogFiles:
    """List the log files that this host has of a run."""
    folder = paths.logs(project, run)
    return LogFiles(folder, os.listdir(folder) if os.path.isdir(folder) else [])


def read_files(folder: str, files: List[Tuple[str, int, str]], limit: int) -> Iterator[Piece]:
    """Yield what the caller lacks of each file of `folder`.

    `files` are `(path, size, sha256)`: the caller has the first `size` bytes, with this hash. If
    the file still starts with these bytes, the pieces continue after them, otherwise they start at
    byte 0. A file of which nothing is missing yields one empty piece. Of a file that can't be read,
    is not regular, or lacks more than `limit` bytes, the piece only says so.
    """
    flags = 0 if held.has(folder) else os.O_NOFOLLOW  # there, links lead to what is held
    for path, size, sha256 in files:
        try:
            opened = filesystem.open_regular(os.path.join(folder, path), flags)
        except OSError as error:
            yield Piece(path, problem=filesystem.problem_of(error))
            continue
        with os.fdopen(opened, "rb") as file:
            info = os.fstat(file.fileno())
            start = size if size and _starts_with(file, size, sha256) else 0
            if info.st_size - start > limit:
                yield Piece(path, problem=TOO_LARGE)
            else:
                for begin, data in _pieces(file, start, info.st_size):
                    yield Piece(path, mtime_ns=info.st_mtime_ns, begin=begin, data=data)


def _starts_with(file: BinaryIO, size: int, sha256: str) -> bool:
    digest = hashlib.sha256()
    while size > 0:
        block = file.read(min(PIECE, size))
        if not block:
            return False
        digest.update(block)
        size -= len(block)
    return digest.hexdigest() == sha256


def _pieces(file: BinaryIO, start: int, end: int) -> Iterator[Tuple[int, str]]:
    """Yield where each piece begins, and its data; at least one piece. Bytes that are written
    meanwhile are left for the next call."""
    file.seek(start)
    while True:
        piece = file.read(min(PIECE, end - start))
        data = base64.b64encode(zlib.compress(piece, 1)).decode()
        yield start, data
        start += len(piece)
        if start >= end or not piece:
            return
