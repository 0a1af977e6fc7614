"""Takes the place of ssh, and of the rsync on a host that lies: `KIND HOST rsync --server …`.

The protocol is that of rsync 3.0 to 3.4 (rsync's io.c): a version, flags and a seed, then blocks
with a header of 4 bytes, of which the highest is 7 and the kind of the block.
"""

from __future__ import annotations

import os
import struct
import sys

VERSION, NO_FLAGS, SEED = struct.pack("<I", 31), b"\0", struct.pack("<I", 1)
BASE = 7
DATA, INFO, ERROR = 0, 2, 3
FEW, MANY = 1 << 10, 1 << 16
MOST = 64 << 20


def block(kind: int, data: bytes) -> bytes:
    return struct.pack("<I", (BASE + kind) << 24 | len(data)) + data


def flood(descriptor: int, data: bytes) -> None:
    for _ in range(MOST // len(data)):
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]


kind = sys.argv[1]
os.set_blocking(1, True)  # rsync has made its end of the pair not wait
if kind == "stderr":
    flood(2, b"x" * MANY)
else:
    os.write(1, VERSION + NO_FLAGS + SEED)
    if kind == "errors":
        flood(1, block(ERROR, b"\x1b]0;evil\x07" * 100 + b"\n"))
    elif kind == "lines":
        flood(1, block(INFO, b"\x1b]0;evil\x07" * 100 + b"\n"))
    elif kind == "line":
        flood(1, block(INFO, b"x" * FEW))
    elif kind == "indices":  # files that were never offered
        flood(1, block(DATA, b"\xff\x7f\xff\xff\xff" * 100))
while os.read(0, MANY):  # until rsync ends
    pass
