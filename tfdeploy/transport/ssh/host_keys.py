"""Check a host's key: compare it with known_hosts, refuse it, or accept a new one."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paramiko

from tfdeploy.transport.ssh.client_transport import ClientTransport

if TYPE_CHECKING:
    from tfdeploy.transport.ssh.known_hosts import KnownKeys

_writing = threading.Lock()


class RefusedHostKey(paramiko.SSHException):
    """A host's key was refused; the subclass is the reason."""

    def __init__(self, known: KnownKeys, key: paramiko.PKey) -> None:
        super().__init__(f"{known.name} {key.get_name()} {key.fingerprint}")
        self.known = known


class UnknownHostKey(RefusedHostKey):
    """known_hosts has no key of the host."""


class ChangedHostKey(RefusedHostKey):
    """known_hosts has another key of the host."""


class RevokedHostKey(RefusedHostKey):
    """known_hosts marks this key as revoked."""


class HostKeyNotAdded(RefusedHostKey):
    """A new key can't be added to known_hosts; `reason` names the file."""

    def __init__(self, known: KnownKeys, key: paramiko.PKey, reason: str) -> None:
        super().__init__(known, key)
        self.reason = reason


class HostKeyPolicy(paramiko.MissingHostKeyPolicy):
    """Check every host key as OpenSSH does with StrictHostKeyChecking=yes; with `new_keys_file`,
    the file for new keys, as with =accept-new.

    Paramiko's own store of host keys stays empty, so that it passes every key to this class.
    """

    def __init__(self, known: KnownKeys, new_keys_file: Path | None) -> None:
        self._known = known
        self._new_keys_file = new_keys_file

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        known, blob = self._known, key.asbytes()
        if blob in known.revoked:
            raise RevokedHostKey(known, key)
        if any(line.blob == blob for line in known.keys):
            return
        if known.keys:
            raise ChangedHostKey(known, key)
        if self._new_keys_file is None:
            raise UnknownHostKey(known, key)
        line = f"{known.name} {key.get_name()} {key.get_base64()}\n"
        try:
            _append_line(self._new_keys_file, line)
        except OSError as error:
            reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise HostKeyNotAdded(known, key, f"{self._new_keys_file}: {reason}") from None


def transport_factory(known: KnownKeys) -> Any:
    """Return a factory of Paramiko transports that prefer the types of the known keys, as ssh does:
    a host with several keys would otherwise show another one."""
    kinds = {line.kind for line in known.keys}

    def create(*args: Any, **kwargs: Any) -> paramiko.Transport:
        transport = ClientTransport(*args, **kwargs)
        options = transport.get_security_options()
        options.key_types = sorted(options.key_types, key=lambda kind: _key_type(kind) not in kinds)
        return transport

    return create


def _key_type(kind: str) -> str:
    """Return the type of key of an algorithm: RSA keys have three signature algorithms."""
    return "ssh-rsa" if kind.startswith("rsa-sha2-") else kind


def _append_line(file: Path, line: str) -> None:
    """Add a line to the user's own file, which is created if it does not exist. Raises OSError.

    Links are followed in ~/.ssh only: in somebody else's repository, one may lead to a file whose
    lines a shell runs.
    """
    is_in_home = file.is_relative_to(Path.home() / ".ssh") and ".." not in file.parts
    no_link = 0 if is_in_home else os.O_NOFOLLOW
    with _writing:
        for each in reversed((file.parent, *file.parent.parents)):
            each.mkdir(0o700, exist_ok=True)  # with parents=True those above get the umask's mode
        with open(os.open(file, os.O_RDWR | os.O_CREAT | no_link, 0o600), "r+b") as target:  # noqa: PTH123
            info = os.fstat(target.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                raise OSError(errno.EPERM, "it is not a file of your own")
            content = target.read()
            separator = "" if not content or content.endswith(b"\n") else "\n"
            target.write((separator + line).encode())
