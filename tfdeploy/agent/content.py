"""What a file holds, as a hash: by it two machines know whether they have the same."""

from __future__ import annotations

BLOCK = 1 << 20


def sha256(path: str) -> str:
    """The hash of a file's content in hex. Raises OSError."""
    import hashlib  # costs 2 ms, and most questions need none

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()
