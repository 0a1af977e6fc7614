"""Sign what this user's tfdeploy has written, so that it is used later as it is.

~/.config/tfdeploy/key    32 random bytes, which only this user can read

Without a valid signature, as in a repository of somebody else, a record is validated as hosts.toml
is. To lose the key costs nothing else.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.folders.user_folders import config_folder, find_unsafe, make_private

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32


def sign(*texts: str) -> str:
    """Return the signature of these texts; "" if the user's key can't be stored, or not in
    private."""
    try:
        key = _make_key()
    except OSError:
        return ""
    return _signature(key, texts) if key else ""


def is_signed(signature: str, *texts: str) -> bool:
    """Return whether it is the signature of these texts."""
    key = _read_key()
    return bool(key) and hmac.compare_digest(_signature(key, texts), signature)


def _signature(key: bytes, texts: tuple[str, ...]) -> str:
    return hmac.digest(key, json.dumps(texts).encode(), "sha256").hex()


def _file() -> Path:
    return config_folder() / "key"


def _read_key() -> bytes:
    """Return the key; b"" if there is none, or another user could know it."""
    with suppress(OSError):
        descriptor = os.open(_file(), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            key = file.read(KEY_BYTES)
        is_private = info.st_uid == os.geteuid() and not info.st_mode & 0o077
        is_private = is_private and not find_unsafe(_file().parent)[0]
        return key if is_private and len(key) == KEY_BYTES else b""
    return b""


def _make_key() -> bytes:
    """Return the key, a new one if there is none; of two commands that create it, the first
    decides. Raises OSError."""
    file = _file()
    if not _read_key():
        _create_key(file)
    for left in file.parent.glob("key.*"):  # of a command that was killed, or is too late
        left.unlink(missing_ok=True)
    return _read_key()


def _create_key(file: Path) -> None:
    make_private(file.parent)
    new = file.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as written:
            written.write(secrets.token_bytes(KEY_BYTES))
        with suppress(OSError):  # there is one already, or this disk has no hard links
            os.link(new, file)
        if not _read_key():
            new.replace(file)
    finally:
        new.unlink(missing_ok=True)
