"""How files of a host come home: large ones by rsync, all others over the session there is."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.remote import Agent

# From so many missing bytes on a connection of its own is worth it.
BULK = 8 << 20
HUGE = 1 << 63
SILENCE_S = 60.0


def bring(agent: Agent, source: str, dest: Path, files: Sequence[str]) -> None:
    """Fetch regular `files` (relative to `source` on the host) into `dest`; of one that has grown,
    what is new. Raises AgentError for a name that leads elsewhere, or an answer that was not asked
    for, and TransferFailed."""
    for name in files:
        if not is_plain(name):
            raise AgentError(agent.host, f"it names a file {name!r}, which is refused")
    wanted = {name: _held(dest / name) for name in files}
    body = {"folder": source, "files": [[n, *held] for n, held in wanted.items()], "limit": BULK}
    given: set[str] = set()
    for answer in agent.answers("give", body, SILENCE_S):
        if "end" not in answer:
            name, data = _checked(agent, wanted, answer)
            _write(dest / name, answer["begin"], data, answer["mtime_ns"])
            given.add(name)
    left = [name for name in files if name not in given]
    if left:
        agent.transport.pull(source, dest, left)


def is_plain(name: Any) -> bool:
    """Whether what a host calls a file stays within the folder that is meant for it."""
    if not isinstance(name, str) or not name.isprintable():
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _held(file: Path) -> tuple[int, str]:
    """The size of what is here already, and its hash; nothing of what is too large to be read."""
    if not file.is_file() or file.is_symlink() or file.stat().st_size > BULK:
        return 0, ""
    content = file.read_bytes()
    return len(content), hashlib.sha256(content).hexdigest()


def _checked(
    agent: Agent, wanted: dict[str, tuple[int, str]], answer: dict[str, Any]
) -> tuple[str, bytes]:
    """A host may lie: only what was asked for is written, and no more than that."""
    name, numbers = answer.get("path"), [answer.get("begin"), answer.get("mtime_ns")]
    sound = all(isinstance(number, int) and 0 <= number < HUGE for number in numbers)
    if not isinstance(name, str) or name not in wanted or not sound or answer["begin"] > 2 * BULK:
        raise AgentError(agent.host, f"it gives {name!r}, which it was not asked for")
    unpacked = zlib.decompressobj()
    try:
        data = unpacked.decompress(base64.b64decode(answer["data"]), BULK + 1)
    except (KeyError, TypeError, ValueError, zlib.error):
        raise AgentError(agent.host, f"what it gives of {name} can't be read") from None
    if not unpacked.eof or len(data) > BULK:
        raise AgentError(agent.host, f"it gives more or less of {name} than it said")
    return name, data


def _write(file: Path, begin: int, data: bytes, mtime_ns: int) -> None:
    """Beside it first, so that an end between two writes loses nothing that was here."""
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
