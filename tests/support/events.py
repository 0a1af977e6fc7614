"""Write events as TensorFlow does, without TensorFlow. A training script can import it, too.

Formats: event.proto, summary.proto, and record_writer.h for the records.
"""

import struct

NAME = "events.out.tfevents.1793000000.host.1.v2"


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def version(at=1.0):
    """Return the record with which each file starts."""
    return record(b"\x09" + struct.pack("<d", at) + b"\x1a\x0dbrain.Event:2")


def scalar(step, value, tag="loss", at=1.0):
    content = field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    event = b"\x09" + struct.pack("<d", at) + b"\x10" + varint(step)
    return record(event + field(5, field(1, content)))


def field(number, content):
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
