"""The records of event files, which may be growing.

A file is a chain of records `u64 length, u32 crc of the length, data, u32 crc of the data`,
little-endian; the crcs are masked CRC-32C (source: tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Iterator, Tuple

EVENTS = "events.out.tfevents."  # in the name of each event file
# The length of a record below 4 GiB, its crc, and the first byte of an Event: field 1, 64 bits.
RECORD_HEADER = re.compile(rb"(.{4}\0{4})(.{4})(?=\x09)", re.S)


def masked_crc(data: bytes) -> bytes:
    """Return the checksum of a record's length or data. Source: RFC 3720, appendix B.4, and Mask()
    of tensorflow/core/lib/hash/crc32c.h."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (masked & 0xFFFFFFFF).to_bytes(4, "little")


@lru_cache(maxsize=1)
def _table() -> Tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def events(data: bytes) -> Iterator[bytes]:
    """Yield the complete events of a part of a chain, which may start and end within a record."""
    header = RECORD_HEADER.search(data)
    while header:
        start = header.end()
        end = start + int.from_bytes(header[1], "little")
        complete = end + 4 <= len(data) and header[2] == masked_crc(header[1])
        if complete and end - start > 9:
            yield data[start:end]
        header = RECORD_HEADER.search(data, end + 4 if complete else header.start() + 1)


def read_varint(message: bytes, offset: int) -> Tuple[int, int]:
    """Return the integer that is encoded at `offset` in groups of seven bits, and where it ends.

    Raises IndexError if the message ends before it, ValueError if it has more than ten bytes.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError("a varint has more than ten bytes")
