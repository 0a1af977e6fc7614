"""Pack the files of a release that hosts lack: once for all hosts that lack the same files."""

from __future__ import annotations

import mmap
import tempfile
import threading
import zlib
from typing import TYPE_CHECKING, BinaryIO

from tfdeploy.shared.pack import BLOCK, FRAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.release.snapshot import Release

MAX_PACKS = 8  # most hosts lack the same files; an unusual pack may have to be made again
LEVEL = 1  # source code shrinks to a quarter, at the speed of a fast network


class FileVanished(Exception):
    """A file of the release can't be read any more: `path`, as in the manifest."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Pack:
    """Packed files on the controller's disk, `size` bytes together."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = file.tell()
        file.flush()
        self._data = memoryview(mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ))

    def blocks(self) -> Iterator[memoryview]:
        for begin in range(0, self.size, BLOCK):
            yield self._data[begin : begin + BLOCK]


class PackCache:
    """The packs of one release. Thread-safe."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._packs: dict[tuple[int, ...], Pack] = {}
        self._lock = threading.Lock()

    def get(self, indices: Sequence[int]) -> Pack:
        """Return a pack of the files at these positions of the manifest.

        Raises FileVanished, and OSError if the temporary folder has no space for it.
        """
        key = tuple(indices)
        with self._lock:
            if key not in self._packs:
                self._packs[key] = _pack(self._release, key)
            pack = self._packs[key]
            if len(self._packs) > MAX_PACKS:
                del self._packs[next(iter(self._packs))]
            return pack


def _pack(release: Release, indices: Sequence[int]) -> Pack:
    paths, packer = list(release.manifest), zlib.compressobj(LEVEL)
    with tempfile.TemporaryFile() as file:
        for index in indices:
            content = _content(release, paths[index])
            file.write(packer.compress(FRAME.pack(index, len(content))))
            file.write(packer.compress(content))
        file.write(packer.flush())
        return Pack(file)


def _content(release: Release, path: str) -> bytes:
    try:
        return (release.root / path).read_bytes()
    except OSError:
        raise FileVanished(path) from None
