"""The hash of a file's content, by which two machines know whether they have the same file."""

from __future__ import annotations

BLOCK = 1 << 20
THREADS = 8  # for several files: hashlib releases the interpreter's lock


def sha256(path: str) -> str:
    """Return the hash of a file's content in hex. Raises OSError."""
    import hashlib  # costs 2 ms, and most requests need none

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
