"""The files of a release that hosts lack, packed once for all hosts that lack the same."""

from __future__ import annotations

import mmap
import tempfile
import threading
import zlib
from typing import TYPE_CHECKING, BinaryIO

from tfdeploy.agent.payload import BLOCK, FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.release import Release

KEPT = 8  # what most hosts lack is packed once; a slow one may have it packed again
LEVEL = 1  # source code to a quarter, at the speed of a fast network


class Vanished(Exception):
    """A file of the release can't be read any more: `path`, as the manifest has it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Payloads:
    """What has been packed of one release. Several threads may ask."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._made: dict[tuple[int, ...], Payload] = {}
        self._making = threading.Lock()

    def of(self, wanted: Sequence[int]) -> Payload:
        """The files at these positions of the manifest. Raises Vanished, and OSError where there
        is no room for them."""
        key = tuple(wanted)
        with self._making:
            if key not in self._made:
                self._made[key] = _pack(self._release, key)
            made = self._made[key]
            if len(self._made) > KEPT:
                del self._made[next(iter(self._made))]
            return made


class Payload:
    """`size` bytes, on this machine's disk."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = file.tell()
        file.flush()
        self._data = memoryview(mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ))

    def parts(self) -> Iterator[memoryview]:
        for begin in range(0, self.size, BLOCK):
            yield self._data[begin : begin + BLOCK]


def _pack(release: Release, wanted: Sequence[int]) -> Payload:
    paths, packer = list(release.manifest), zlib.compressobj(LEVEL)
    with tempfile.TemporaryFile() as file:
        for index in wanted:
            content = _content(release, paths[index])
            file.write(packer.compress(FRAME.pack(index, len(content))))
            file.write(packer.compress(content))
        file.write(packer.flush())
        return Payload(file)


def _content(release: Release, path: str) -> bytes:
    try:
        return (release.root / path).read_bytes()
    except OSError:
        raise Vanished(path) from None
