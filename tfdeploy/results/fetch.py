"""Fetch small files of a host over the agent's open session, and what each fetch must respect:
names that stay in their folder, budgets, and the space of the disk."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.folders.disk_errors import describe_full, where_space_is
from tfdeploy.folders.own_folder import MAX_NAMES, Budget, parts_below
from tfdeploy.formatting.humanize import format_size
from tfdeploy.hosts.agent_session import BULK
from tfdeploy.shared.protocol.reports import Piece, ReadFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline
    from tfdeploy.shared.protocol.outputs import HashedFile

GROWTH_BYTES = 64 << 20
MIN_PIECE = 1 << 16  # bytes of all pieces of a file but the last one
MISSING = "is gone, or larger than one transfer takes"
SILENCE_S = 60.0
# A host copies, reads and hashes what it holds before it answers: 100 GB, twice, at 100 MB/s.
HOLD_TIMEOUT_S = 2000.0


class FileFetch:
    """Regular files of a host's folder, requested in a pipeline.

    Of a file that has grown since the last fetch, only the new part is sent, and written in place:
    programs of the controller read files while they grow. `total` is the size of all files in
    bytes, for the progress display (None: unknown).
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: str,
        dest: OwnFolder,
        files: Sequence[str],
        total: int | None = None,
    ) -> None:
        """Request `files` (relative to `source`), to be written into `dest`, within its budget.
        Raises AgentError if a file name leads out of `dest`."""
        self._agent, self._dest, self._total = pipeline.agent, dest, total
        if len(files) > MAX_NAMES:
            raise AgentError(self._agent.host, f"it names more than {MAX_NAMES} files")
        for name in files:
            if not is_safe_path(name):
                message = f"it names a file {name!r}, which is refused"
                raise AgentError(self._agent.host, message)
        self._present = {name: self._size_and_hash(name) for name in files}
        have = [(name, *present) for name, present in self._present.items()]
        self._limit = dest.budget.bytes if dest.budget else GROWTH_BYTES
        request = ReadFiles(source, have, self._limit)
        self._reply = pipeline.send(request, SILENCE_S) if files else None

    def receive(self) -> dict[str, str]:
        """Write what arrives; return why the other files did not come, by their names.

        Raises AgentError if an answer was not requested, and HostError."""
        problems: dict[str, str] = {}
        received: dict[str, int] = {}  # where the next piece of each file begins
        with self._agent.transfers.begin(self._agent.host, self._total) as transfer:
            for piece in self._reply.answers() if self._reply else ():
                data = self._unpack(piece)
                if piece.begin != received.get(piece.path, piece.begin):
                    # It might send without end, or have the file written once for each byte.
                    message = f"it sent a piece of {piece.path} twice, or not in order"
                    raise AgentError(self._agent.host, message)
                if piece.problem:
                    problems[piece.path], received[piece.path] = piece.problem, -1
                    continue
                self._write(piece, data)
                is_last = len(data) < MIN_PIECE
                received[piece.path] = -1 if is_last else piece.begin + len(data)
                transfer(piece.path, transfer.there + len(data))
        absent = {name: MISSING for name in self._present if name not in received}
        return {**absent, **problems}

    def _unpack(self, piece: Piece) -> bytes:
        """Return the data of a piece, if it was requested and is not too large."""
        host, name = self._agent.host, piece.path
        if name not in self._present:
            raise AgentError(host, f"it sent {name!r}, which was not requested")
        last = self._present[name][0] + self._limit
        if not 0 <= piece.begin <= last or piece.mtime_ns < 0:
            raise AgentError(host, f"it sent {name} with an invalid position or time")
        if piece.problem:
            return b""
        unpacked = zlib.decompressobj()
        try:
            data = unpacked.decompress(base64.b64decode(piece.data), BULK + 1)
        except (ValueError, zlib.error):
            raise AgentError(host, f"the data that it sent for {name} can't be read") from None
        if not unpacked.eof or len(data) > BULK:
            raise AgentError(host, f"the data that it sent for {name} is incomplete or too long")
        return data

    def _write(self, piece: Piece, data: bytes) -> None:
        """Write data after what is there: an interruption between two pieces loses nothing. A file
        that has another name, too, is not changed in place."""
        info = self._dest.stat(piece.path)
        if not (piece.begin and info and (info.st_size, info.st_nlink) == (piece.begin, 1)):
            before = self._dest.head(piece.path, piece.begin) if piece.begin else ()
            self._dest.write(piece.path, (*before, data), piece.mtime_ns)
        elif data:
            self._dest.append(piece.path, data)
            self._dest.set_time(piece.path, piece.mtime_ns)

    def _size_and_hash(self, name: str) -> tuple[int, str]:
        """Return what the controller has of a file."""
        size = self._dest.size(name)
        return (size, self._dest.sha256(name)) if size else (0, "")


def pull_limit(announced: int) -> int:
    """Return how many bytes are accepted of files of which a host announced this size.

    They may have grown since then. A host that sends without end must not fill the disk.
    """
    return 2 * announced + GROWTH_BYTES


def announced(sizes: int) -> Budget:
    """Return the budget for files of which a host announced this size."""
    return Budget(pull_limit(sizes))


def is_safe_path(name: object) -> bool:
    """Return whether a file name from a host stays within the folder that it is joined to.

    Bytes that are no UTF-8 are lone surrogates, as os.fsdecode makes them: in JSON, and in a file's
    name here, they are the same as on the host.
    """
    try:
        return isinstance(name, str) and bool(parts_below(name))
    except OSError:
        return False


def difference(folder: OwnFolder, expected: HashedFile, arrived: str | None = None) -> str:
    """Return how a file in `folder` differs from what its host reported; "" if it does not.
    `arrived` is its hash while it arrived, if that is known."""
    size = folder.size(expected.path)
    if size != expected.size:
        return f"{size} of {expected.size} bytes"
    try:
        same = arrived == expected.sha256 or folder.sha256(expected.path) == expected.sha256
    except OSError as error:
        return f"no content: {error.strerror}"
    return "" if same else "content that differs from the host's"


def check_free_space(agent: Agent, folder: OwnFolder, sizes: Mapping[str, int]) -> None:
    """Raise TransferFailed if what `folder` lacks of files of these sizes (bytes by name) does not
    fit on its disk."""
    needed = sum(max(0, size - folder.size(name)) for name, size in sizes.items())
    if needed > folder.free_bytes():
        raise TransferFailed(
            agent.host,
            f"{format_size(needed)} of its files do not fit on the controller: "
            f"{describe_full(folder.path)}",
            where_space_is(folder.path),
        )
