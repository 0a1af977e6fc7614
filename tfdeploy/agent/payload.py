"""Files on their way: for each its position in the manifest, its length in bytes, its content."""

from __future__ import annotations

import io
import struct
import zlib

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, BinaryIO, Iterator, Tuple

FRAME = struct.Struct("!IQ")
BLOCK = 1 << 18


def files(source: BinaryIO) -> Iterator[Tuple[int, Iterator[bytes]]]:
    """Each file's position and content, to be read in turn. Raises EOFError where it is cut off."""
    while True:
        header = source.read(FRAME.size)
        if not header:
            return
        if len(header) < FRAME.size:
            raise EOFError("cut off")
        index, length = FRAME.unpack(header)
        yield index, _content(source, length)


def _content(source: BinaryIO, left: int) -> Iterator[bytes]:
    while left:
        block = source.read(min(left, BLOCK))
        if not block:
            raise EOFError("cut off")
        left -= len(block)
        yield block


class Inflated(io.RawIOBase):
    """The first `size` bytes of `source`, a zlib stream, inflated."""

    def __init__(self, source: BinaryIO, size: int) -> None:
        self._source = source
        self._left = size
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._packed()
            if not packed:
                break
            data = self._inflate.decompress(packed, len(target))
        target[: len(data)] = data
        return len(data)

    def drain(self) -> None:
        """Whatever happened: the next question stands behind it."""
        while self._packed():
            pass

    def _packed(self) -> bytes:
        data = self._source.read(min(self._left, BLOCK))
        self._left = self._left - len(data) if data else 0
        return data
