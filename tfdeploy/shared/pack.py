"""The format in which files are sent: for each its position in the manifest, length and bytes."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, BinaryIO, Iterator, Tuple

FRAME = struct.Struct("!IQ")  # position, length in bytes
BLOCK = 1 << 18
CUT_OFF = "the connection closed before all files had arrived"


def read_files(source: BinaryIO) -> Iterator[Tuple[int, Iterator[bytes]]]:
    """Yield each file's position and content. Read the content before the next file.

    Raises EOFError if the source ends within a file.
    """
    while True:
        header = source.read(FRAME.size)
        if not header:
            return
        if len(header) < FRAME.size:
            raise EOFError(CUT_OFF)
        index, length = FRAME.unpack(header)
        yield index, _read_content(source, length)


def _read_content(source: BinaryIO, remaining: int) -> Iterator[bytes]:
    while remaining:
        block = source.read(min(remaining, BLOCK))
        if not block:
            raise EOFError(CUT_OFF)
        remaining -= len(block)
        yield block


class InflatedStream(io.RawIOBase):
    """The first `size` bytes of `source`, a zlib stream, inflated."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self._remaining = size
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._read_packed()
            if not packed:
                break
            data = self._inflate.decompress(packed, len(target))
        target[: len(data)] = data
        return len(data)

    def drain(self) -> None:
        """Read what is left of the `size` bytes, because the next request follows them."""
        while self._read_packed():
            pass

    def _read_packed(self) -> bytes:
        data = self._source.read(min(self._remaining, BLOCK))
        self._remaining = self._remaining - len(data) if data else 0
        return data
