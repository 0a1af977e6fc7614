"""The transport of each host: this machine, or SSH with Fabric or with OpenSSH; connections outlive
the command if the connection daemon keeps them."""

from __future__ import annotations

import logging
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from tfdeploy.errors import AuthenticationFailed, HostError, Note
from tfdeploy.transport import ignore_progress, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import CompletedCommand, FileStream, OnProgress, Stream, Transport
    from tfdeploy.transport.openssh.transport import OpenSshTransport

T = TypeVar("T")
_log = logging.getLogger(__name__)


def has_daemon(inventory: Inventory, accept_new: bool) -> bool:
    """Return whether hosts are reached through the connection daemon."""
    from tfdeploy.transport.daemon.locate import IS_SUPPORTED

    return bool(inventory.keep_connections_s) and not accept_new and IS_SUPPORTED


def pause_while_ssh_asks(display: Callable[[], AbstractContextManager[None]]) -> None:
    """Enter a context of `display` while ssh asks something on the terminal."""
    from tfdeploy.transport.openssh.terminal import displays

    displays.append(display)


def make_transport(host: Host, inventory: Inventory, accept_new: bool) -> Transport:
    """Return the transport of a host; it connects on first use."""
    if host.is_local:
        from tfdeploy.transport.local import LocalTransport

        return LocalTransport(host.name)
    return SshHost(host, inventory, accept_new)


class SshHost:
    """A host over SSH, with Fabric, or with OpenSSH where only that can log in."""

    def __init__(self, host: Host, inventory: Inventory, accept_new: bool) -> None:
        self.host = host.name
        self._host, self._inventory, self._accept_new = host, inventory, accept_new
        self._uses_daemon = bool(inventory.keep_connections_s) and not accept_new

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        return self._log_in(lambda by: by.run(argv, stdin=stdin, timeout_s=timeout_s))

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> Stream:
        return self._log_in(lambda by: by.stream(argv, repeatable=repeatable))

    def push(
        self,
        source: Path,
        dest: str,
        files: Sequence[str],
        *,
        base: str | None = None,
        checksum: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        by = self._chosen()
        by.push(source, dest, files, base=base, checksum=checksum, on_progress=on_progress)

    def send_files(self, source: str, files: Sequence[tuple[str, int]]) -> FileStream:
        return self._chosen().send_files(source, files)

    def close(self) -> None:
        for name in ("_fabric", "_openssh"):
            if name in vars(self):
                getattr(self, name).close()

    def _chosen(self) -> Transport:
        from tfdeploy.transport.openssh.choice import why_openssh

        reason = why_openssh(self._host, self._inventory)
        if reason:
            _log.debug("%s: OpenSSH connects to it: %s", self.host, reason)
        return self._openssh if reason else self._fabric

    def _log_in(self, act: Callable[[Transport], T]) -> T:
        """Act with the chosen transport. If the host refuses Fabric's login, try OpenSSH."""
        chosen = self._chosen()
        try:
            return act(chosen)
        except AuthenticationFailed as refused:
            if self._host.transport != "ssh" or chosen is self._openssh:
                raise
            self._try_openssh(refused)
        return act(self._openssh)

    def _try_openssh(self, refused: AuthenticationFailed) -> None:
        """Log in with OpenSSH, and remember that. If it is refused, too, raise its error, or
        Fabric's if it says only that no key was accepted."""
        try:
            master = self._direct_openssh.open()
        except HostError as error:
            raise (refused if words.REFUSED in error.message else error) from None
        master.remember_refusal()
        note = f"{self.host}: OpenSSH connects to it; with Fabric, {refused.message}"
        warnings.warn(note, Note, stacklevel=2)

    @cached_property
    def _fabric(self) -> Transport:
        if self._uses_daemon:
            from tfdeploy.transport.daemon.client import DaemonTransport

            return DaemonTransport(self._host, self._inventory)
        from tfdeploy.transport.ssh.transport import SshTransport

        return SshTransport(self._host, self._inventory, accept_new=self._accept_new)

    @cached_property
    def _openssh(self) -> Transport:
        if not self._uses_daemon:
            return self._direct_openssh
        from tfdeploy.transport.daemon.client import DaemonTransport

        return DaemonTransport(self._host, self._inventory, self._direct_openssh)

    @cached_property
    def _direct_openssh(self) -> OpenSshTransport:
        from tfdeploy.transport.openssh.transport import OpenSshTransport

        return OpenSshTransport(self._host, self._inventory, accept_new=self._accept_new)
