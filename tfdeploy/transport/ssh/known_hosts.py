"""Parse known_hosts files as sshd(8) describes them: markers, patterns, hashed names.

Paramiko's own parser stops at an invalid line, mistakes a marker for a name, and supports no
patterns.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import functools
import hashlib
import hmac
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

AUTHORITY, REVOKED = "@cert-authority", "@revoked"
HASHED = "|1|"
WILDCARDS = frozenset("*?")
MAX_PATTERN = 1022  # characters; a line with a longer one matches nothing, as in ssh's match.c


@dataclass(frozen=True)
class KeyLine:
    """One line: its `marker` or "", the patterns of host `names`, the type of the key, `kind`, and
    its binary form, `blob`."""

    marker: str
    names: tuple[str, ...]
    kind: str
    blob: bytes

    def names_host(self, host: str) -> bool:
        """Return whether a pattern matches the host, and no negated one does."""
        if any(len(name.removeprefix("!")) > MAX_PATTERN for name in self.names):
            return False
        matching = [name for name in self.names if _matches(name.removeprefix("!"), host)]
        return bool(matching) and not any(name.startswith("!") for name in matching)


@dataclass(frozen=True)
class KnownKeys:
    """The content of known_hosts files about one host.

    name: the first name under which ssh looks for it.
    keys: its keys, under the first name that has any.
    revoked: the keys that are marked as revoked.
    authority: whether a certificate authority signs its keys.
    unreadable_lines: lines that can't be parsed, such as `FILE line 3`.
    """

    name: str
    keys: tuple[KeyLine, ...]
    revoked: frozenset[bytes]
    authority: bool
    unreadable_lines: tuple[str, ...]


def look_up_keys(files: Iterable[Path], names: Sequence[str]) -> KnownKeys:
    """Look up a host in `files`; `names` are those that ssh looks for, in its order: an alias, or
    `[host]:2200` and then `host`."""
    parsed = {file: _parse_file(file) for file in files}
    lines = [line for file_lines, _ in parsed.values() for line in file_lines]
    lines = [line for line in lines if any(line.names_host(name) for name in names)]
    keys: list[KeyLine] = []
    for name in names:
        keys = keys or [line for line in lines if not line.marker and line.names_host(name)]
    return KnownKeys(
        names[0],
        tuple(keys),
        frozenset(line.blob for line in lines if line.marker == REVOKED),
        any(line.marker == AUTHORITY for line in lines),
        tuple(f"{file} line {n}" for file, (_, unreadable) in parsed.items() for n in unreadable),
    )


def has_authority(files: Iterable[Path], names: Sequence[str]) -> bool:
    """Return whether a certificate authority signs the keys of a host. It hashes no name for the
    lines of other hosts' keys."""
    lines = [line for file in files for line in _parse_file(file)[0] if line.marker == AUTHORITY]
    return any(line.names_host(name) for line in lines for name in names)


def _parse_file(file: Path) -> tuple[tuple[KeyLine, ...], tuple[int, ...]]:
    """Return a file's lines, and the numbers of unreadable ones. A file that can't be read has
    none, as for ssh; nor has a device, which may have no end."""
    try:
        info = file.stat()
        if not stat.S_ISREG(info.st_mode):
            return (), ()
        return _parse_cached(file, info.st_mtime_ns, info.st_size)
    except OSError:
        return (), ()


@functools.lru_cache(maxsize=8)
def _parse_cached(file: Path, *_: int) -> tuple[tuple[KeyLine, ...], tuple[int, ...]]:
    lines: list[KeyLine] = []
    unreadable_lines: list[int] = []
    for number, text in enumerate(file.read_bytes().decode(errors="replace").splitlines(), 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        try:
            lines.append(_parse_line(text.split()))
        except (ValueError, struct.error):
            unreadable_lines.append(number)
    return tuple(lines), tuple(unreadable_lines)


def _parse_line(words: list[str]) -> KeyLine:
    """Parse the words of a line. Raises ValueError or struct.error if it is invalid."""
    marker = words.pop(0) if words[0].startswith("@") else ""
    names, kind, key = words[:3]
    if marker not in ("", AUTHORITY, REVOKED):
        raise ValueError(marker)
    try:
        blob = base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise ValueError(key) from error
    size = struct.unpack_from(">I", blob)[0]
    if blob[4 : 4 + size] != kind.encode():
        raise ValueError(kind)
    return KeyLine(marker, tuple(names.split(",")), kind, blob)


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith(HASHED):
        return _is_hash_of(pattern, host)
    pattern, host = pattern.lower(), host.lower()
    if WILDCARDS.isdisjoint(pattern):
        return pattern == host
    return fnmatch.fnmatchcase(host, pattern.replace("[", "[[]"))  # takes linear time


def _is_hash_of(pattern: str, host: str) -> bool:
    """Compare with `|1|salt|HMAC-SHA1 of the name`, both in base64."""
    try:
        salt, digest = (base64.b64decode(part) for part in pattern[len(HASHED) :].split("|"))
    except ValueError:
        return False
    expected = hmac.new(salt, host.lower().encode(), hashlib.sha1).digest()
    return hmac.compare_digest(expected, digest)
