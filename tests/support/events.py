"""Write events as TensorFlow does, without TensorFlow. A training script can import it, too.

Formats: event.proto, summary.proto, and record_writer.h for the records.
"""

import os
import struct
import time

NAME = "events.out.tfevents.1793000000.host.1.v2"
SUMMARY = b"\x2a\x08\x0a\x06\x0a\x04loss"
VERSION = b"\x1a\x0dbrain.Event:2"


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def version(at=1.0):
    """Return the record with which each file starts."""
    return record(event(0, at, VERSION))


def scalar(step, value, tag="loss", at=1.0):
    return record(scalar_event(step, at, **{tag: value}))


def event(step, at, what=SUMMARY):
    """Return an Event as proto3 encodes it: a step of 0 is not written."""
    return b"\x09" + struct.pack("<d", at) + (b"\x10" + varint(step) if step else b"") + what


def scalar_event(step, at, **values_by_tag):
    """Return an event with values by their tags; a plain number is written as compat.v1 does."""
    values = b"".join(
        field(1, field(1, tag.encode()) + (v if isinstance(v, bytes) else simple_value(v)))
        for tag, v in values_by_tag.items()
    )
    return event(step, at, field(5, values))


def simple_value(number):
    """Return a scalar as compat.v1 writes it: a bare float."""
    return varint(2 << 3 | 5) + struct.pack("<f", number)


def field(number, content):
    """Return a field of a protobuf message: an integer, or bytes with their length."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value):
    groups = []
    while value >= 128:
        groups.append(value % 128 + 128)
        value //= 128
    return bytes([*groups, value])


def write(folder, *records, name=NAME, age_s=0.0):
    """Write an event file that was last changed `age_s` ago."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join(records))
    changed = time.time() - age_s
    os.utime(folder / name, (changed, changed))
    return folder / name


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ REMAINDERS[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _remainder(byte):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


REMAINDERS = [_remainder(byte) for byte in range(256)]  # CRC-32C of each byte
