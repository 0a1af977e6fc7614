"""What happens when a host shows a key that is not in known_hosts: refused, or trusted once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import paramiko

if TYPE_CHECKING:
    from pathlib import Path

ACCEPTING = threading.Lock()


class AcceptNew(paramiko.MissingHostKeyPolicy):
    """--accept-new-host-keys: trust on first use, by one more line in the user's known_hosts."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        with ACCEPTING:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = self._file.read_bytes() if self._file.exists() else b""
            begin = "" if not held or held.endswith(b"\n") else "\n"
            with self._file.open("a") as file:
                file.write(f"{begin}{hostname} {key.get_name()} {key.get_base64()}\n")


class UnknownHostKey(paramiko.SSHException):
    """Raised by our policy, so that the reason is a type and not a sentence."""


class RefuseUnknown(paramiko.MissingHostKeyPolicy):
    """What OpenSSH's StrictHostKeyChecking=yes does."""

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise UnknownHostKey(f"{hostname} {key.get_name()} {key.fingerprint}")
