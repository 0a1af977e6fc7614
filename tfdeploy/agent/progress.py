"""Does training move? Read off TensorBoard's event files, without TensorFlow.

An event file is a chain of records `u64 length, u32 crc of the length, data, u32 crc of the data`,
little-endian, the crcs masked CRC-32C (source: tensorflow/core/lib/io/record_writer.h). Data is an
Event: field 1 the wall time as a double, field 2 the step, field 5 a summary (source:
tensorflow/core/util/event.proto). Nothing is ever read whole: a chain can be entered anywhere, for
the crc tells a length from other bytes.
"""

from __future__ import annotations

import math
import os
import re
import struct
import time
from dataclasses import dataclass
from functools import lru_cache

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Iterator, List, Optional, Tuple

    from .event_files import EventFile

FILES = 4
TAILS = (1 << 16, 1 << 20)  # an image or a graph is one record, and may fill the first
# The length of a record below 4 GiB, its crc, and the first byte of an Event: field 1, 64 bits.
HEADER = re.compile(rb"(.{4}\0{4})(.{4})(?=\x09)", re.S)
STEP, SUMMARY = b"\x10", b"\x2a"  # field 2, a varint; field 5, with a length


@dataclass(frozen=True)
class Progress:
    """The last step that training reached, and how many seconds ago it was written down.

    Of several events of that step the first one counts, among those that were read.
    """

    step: int
    age_s: float


def newest(files: List[EventFile]) -> Optional[Progress]:
    """The last step in the newest event file, or None where none tells one.

    A file that tells no step yet, as after a restart, is passed over for the one before it. Looks
    at FILES files and the last megabyte of each. Never raises.
    """
    for file in sorted(files, key=lambda file: (-file.changed, file.path))[:FILES]:
        for size in TAILS:
            reached = _reached(_tail(file.whole_path, size))
            if reached is not None:
                step, at = reached
                return Progress(step, max(0.0, time.time() - at))
    return None


def quiet_s(log: str, files: List[EventFile]) -> Optional[float]:
    """Seconds since the log or any event file changed; None where none exists."""
    changes = [file.changed for file in files]
    try:
        changes.append(os.stat(log).st_mtime)
    except OSError:
        pass
    return max(0.0, time.time() - max(changes)) if changes else None


def _tail(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read(size)
    except OSError:
        return b""


def _reached(data: bytes) -> Optional[Tuple[int, float]]:
    """The highest step and when it came first. Pure."""
    best: Optional[Tuple[int, float]] = None
    for event in events(data):
        step, at = _step(event), struct.unpack("<d", event[1:9])[0]
        if step is not None and math.isfinite(at) and (best is None or step > best[0]):
            best = step, at
    return best


def events(data: bytes) -> Iterator[bytes]:
    """The whole events of a piece of a chain that may begin and end within a record."""
    header = HEADER.search(data)
    while header:
        start = header.end()
        end = start + int.from_bytes(header[1], "little")
        whole = end + 4 <= len(data) and header[2] == _masked_crc(header[1])
        if whole and end - start > 9:
            yield data[start:end]
        header = HEADER.search(data, end + 4 if whole else header.start() + 1)


def _step(event: bytes) -> Optional[int]:
    """Step 0 is not written (proto3): a summary without a step is of step 0."""
    if event[9:10] == SUMMARY:
        return 0
    value = 0
    for place, byte in enumerate(event[10:19] if event[9:10] == STEP else b""):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value
    return None  # ten bytes: it is negative


@lru_cache(maxsize=1024)
def _masked_crc(data: bytes) -> bytes:
    """Source: RFC 3720, appendix B.4, and Mask() of tensorflow/core/lib/hash/crc32c.h."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (masked & 0xFFFFFFFF).to_bytes(4, "little")
