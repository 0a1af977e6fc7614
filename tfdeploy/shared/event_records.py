"""Where the whole records of an event file end. The file may be growing.

A file is a chain of records `u64 length, u32 crc of the length, data, u32 crc of the data`,
little-endian; the crcs are masked CRC-32C (source: tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import re
from functools import lru_cache

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import BinaryIO, Iterator, Tuple

EVENTS = "events.out.tfevents."  # in the name of each event file
HEADER, FOOTER = 12, 4  # bytes before and after the data of a record
BLOCK = 1 << 20
MAX_RECORD = 32 << 20
# Only the end of a file can be unfinished, so the data of a block's last record is checked, and a
# longer one is not: this takes 0.1 s for a megabyte.
MAX_CHECKED = 1 << 20
# The length of a record below 4 GiB, its crc, and the first byte of an Event: field 1, 64 bits.
RECORD_HEADER = re.compile(rb"(.{4}\0{4})(.{4})(?=\x09)", re.S)


class Damaged(Exception):
    """What follows is not a record, or one that is too long."""


def read(file: BinaryIO, start: int, end: int) -> bytes:
    """Return whole records from byte `start` on: about BLOCK bytes, or the next record if it is
    longer. Return b"" if the next record is not whole in the first `end` bytes of the file.

    Raises Damaged if no record starts at `start`, or one that is longer than MAX_RECORD, or one
    whose data was changed.
    """
    file.seek(start)
    block = file.read(min(BLOCK, end - start))
    size = whole_size(block)
    if size or len(block) < BLOCK:
        return block[:size]
    needed = _record_size(block, 0)
    if needed > MAX_RECORD:
        raise Damaged("has a record of {} MB; up to {} MB are read".format(
            needed >> 20, MAX_RECORD >> 20))  # fmt: skip
    block += file.read(max(0, min(needed, end - start) - len(block)))
    size = whole_size(block)
    if not size and needed < end - start:  # it is not the last one, which may be unfinished
        raise Damaged("has a record with a wrong checksum")
    return block[:size]


def whole_size(block: bytes) -> int:
    """Return the size of the whole records with which `block` starts. Pure.

    A last record with a wrong checksum of its data counts as not written yet. Raises Damaged if
    `block` starts with something else than a record.
    """
    before = end = 0
    while len(block) - end >= HEADER:
        if not _is_header(block, end):
            if not end:
                raise Damaged("has no record there")
            break
        size = _record_size(block, end)
        if end + size > len(block):
            break
        before, end = end, end + size
    data = block[before + HEADER : end - FOOTER]
    if end and len(data) <= MAX_CHECKED and masked_crc(data) != block[end - FOOTER : end]:
        return before
    return end


def masked_crc(data: bytes) -> bytes:
    """Return the checksum of a record's length or data. Source: RFC 3720, appendix B.4, and Mask()
    of tensorflow/core/lib/hash/crc32c.h."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (masked & 0xFFFFFFFF).to_bytes(4, "little")


def _is_header(block: bytes, at: int) -> bool:
    return block[at + 8 : at + HEADER] == masked_crc(block[at : at + 8])


def _record_size(block: bytes, at: int) -> int:
    return HEADER + int.from_bytes(block[at : at + 8], "little") + FOOTER


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
