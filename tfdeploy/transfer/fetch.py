"""Fetch files of a host: small ones over the agent's open session, large ones that may change
meanwhile by rsync."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zlib
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.machine import hashing
from tfdeploy.agent.protocol.reports import Piece, ReadFiles
from tfdeploy.errors import AgentError, HostError, TransferFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.agent.protocol.message import Done, Request
    from tfdeploy.agent.protocol.outputs import HashedFile
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipelines.pipeline import Pipeline

# From this size on, files are sent and fetched on a connection of their own; smaller ones go over
# the agent's open session, which is faster.
BULK = 8 << 20
GROWTH_BYTES = 64 << 20
GIGA = 1e9
SILENCE_S = 60.0


class FileFetch:
    """Regular files of a host's folder, requested in a pipeline.

    Of a file that has grown since the last fetch, only the new part is sent. `total` is the size of
    all files in bytes, for the progress display (None: unknown).
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: str,
        dest: Path,
        files: Sequence[str],
        total: int | None = None,
    ) -> None:
        """Request `files` (relative to `source`), to be written into `dest`. Raises AgentError if a
        file name leads out of `dest`."""
        self._agent, self._dest, self._total = pipeline.agent, dest, total
        for name in files:
            if not is_safe_path(name):
                message = f"it names a file {name!r}, which is refused"
                raise AgentError(self._agent.host, message)
        self._present = {name: _size_and_hash(dest / name) for name in files}
        have = [(name, *present) for name, present in self._present.items()]
        request = ReadFiles(source, have, BULK)
        self._reply = pipeline.send(request, SILENCE_S) if files else None

    def receive(self) -> list[str]:
        """Write what arrives; return the names of the other files: from BULK on they are to be
        pulled. Raises AgentError if an answer was not requested, and HostError."""
        received: dict[str, int] = {}  # where the last piece of each file began
        with self._agent.transfers.begin(self._agent.host, self._total) as transfer:
            for piece in self._reply.answers() if self._reply else ():
                data = _unpack(self._agent, self._present, piece)
                if piece.begin <= received.get(piece.path, -1):  # it might send without end
                    raise AgentError(self._agent.host, f"it sent a piece of {piece.path} twice")
                _write(self._dest / piece.path, piece.begin, data, piece.mtime_ns)
                received[piece.path] = piece.begin
                transfer(piece.path, transfer.there + len(data))
        return [name for name in self._present if name not in received]


def pull_files(
    agent: Agent,
    source: str,
    dest: Path,
    files: Sequence[str],
    total: int | None = None,
) -> None:
    """Fetch large files over a connection of their own. `total` is as for FileFetch. Raises
    TransferFailed."""
    if not files:
        return
    max_bytes = None if total is None else pull_limit(total)
    with agent.transfers.begin(agent.host, total) as transfer:
        agent.transport.pull(source, dest, files, max_bytes=max_bytes, on_progress=transfer)


@contextmanager
def released_on_failure(agent: Agent, release: Request[Done]) -> Iterator[None]:
    """Have a host delete what it holds for a fetch, if the fetch fails; else it was asked already.

    The pipeline may be in the middle of an answer: another session is used.
    """
    try:
        yield
    except BaseException:
        with suppress(HostError):
            agent.ask(release)
        raise


def pull_limit(announced: int) -> int:
    """Return how many bytes are accepted of files of which a host announced this size.

    They may have grown since then. A host that sends without end must not fill the disk.
    """
    return 2 * announced + GROWTH_BYTES


def is_safe_path(name: Any) -> bool:
    """Return whether a file name from a host stays within the folder that it is joined to.

    Bytes that are no UTF-8 are lone surrogates, as os.fsdecode makes them: in JSON, and in a file's
    name here, they are the same as on the host.
    """
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # it is no file's name, or none in the controller's locale
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def difference(file: Path, expected: HashedFile, arrived: str | None = None) -> str:
    """Return how a local file differs from what its host reported; "" if it does not. `arrived` is
    its hash while it arrived, if that is known: rsync may have corrected the file since then."""
    size = _size(file)
    if size != expected.size:
        return f"{size} of {expected.size} bytes"
    same = arrived == expected.sha256 or hashing.sha256(str(file)) == expected.sha256
    return "" if same else "content that differs from the host's"


def verify_file(agent: Agent, file: Path, expected: HashedFile, arrived: str | None = None) -> None:
    """Delete the file and raise TransferFailed if it differs from what its host reported.

    If it stayed, the next fetch would skip it, because its size is the same.
    """
    differs = difference(file, expected, arrived)
    if differs:
        file.unlink(missing_ok=True)
        message = f"{file.name} arrived with {differs}"
        raise TransferFailed(agent.host, message, "tfdeploy collect fetches it again")


def check_free_space(agent: Agent, folder: Path, sizes: Mapping[str, int]) -> None:
    """Raise TransferFailed if what `folder` lacks of files of these sizes (bytes by name) does not
    fit on its disk."""
    needed = sum(max(0, size - _size(folder / name)) for name, size in sizes.items())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise TransferFailed(
            agent.host,
            f"its files take {needed / GIGA:.2f} GB, but {folder.parent} on the controller has "
            f"{free / GIGA:.2f} GB free",
            "free disk space on the controller",
        )


def _size(file: Path) -> int:
    """Return the size of a regular file; 0 for anything else."""
    return file.stat().st_size if file.is_file() and not file.is_symlink() else 0


def _size_and_hash(file: Path) -> tuple[int, str]:
    """Return what the controller has of a file; (0, "") if it is too large to read and hash."""
    if not file.is_file() or file.is_symlink() or file.stat().st_size > BULK:
        return 0, ""
    content = file.read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()


def _unpack(agent: Agent, requested: dict[str, tuple[int, str]], piece: Piece) -> bytes:
    """Return the data of a piece, if it was requested and is not too large."""
    name = piece.path
    if name not in requested:
        raise AgentError(agent.host, f"it sent {name!r}, which was not requested")
    if not 0 <= piece.begin <= 2 * BULK or piece.mtime_ns < 0:
        raise AgentError(agent.host, f"it sent {name} with an invalid position or time")
    unpacked = zlib.decompressobj()
    try:
        data = unpacked.decompress(base64.b64decode(piece.data), BULK + 1)
    except (ValueError, zlib.error):
        raise AgentError(agent.host, f"the data that it sent for {name} can't be read") from None
    if not unpacked.eof or len(data) > BULK:
        raise AgentError(agent.host, f"the data that it sent for {name} is incomplete or too long")
    return data


def _write(file: Path, begin: int, data: bytes, mtime_ns: int) -> None:
    """Write `data` at offset `begin`, to a temporary file that then replaces `file`.

    So an interruption between two writes loses nothing that the controller had.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.incoming")
    fresh.unlink(missing_ok=True)
    if begin:
        shutil.copyfile(file, fresh, follow_symlinks=False)
    with fresh.open("ab") as target:
        target.truncate(begin)
        target.write(data)
    os.utime(fresh, ns=(mtime_ns, mtime_ns))
    fresh.replace(file)
