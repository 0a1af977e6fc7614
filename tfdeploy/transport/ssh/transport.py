"""A host over SSH: Fabric connects with OpenSSH's settings, rsync transfers files."""

from __future__ import annotations

import platform
from contextlib import closing
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import Unreachable
from tfdeploy.transport.rsync import RsyncTransfers
from tfdeploy.transport.ssh import config
from tfdeploy.transport.ssh.config import resolve_route

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.ssh.channels import ChannelPool, SshStream
    from tfdeploy.transport.ssh.connection import SshConnection


# The defaults of OpenSSH before version 10: the first one takes about twice the CPU time for a byte
# if the processor has instructions for AES.
CHACHA, AES = "chacha20-poly1305@openssh.com", "aes128-ctr,aes192-ctr,aes256-ctr"
AES_GCM = "aes128-gcm@openssh.com,aes256-gcm@openssh.com"
DEFAULT, FASTER = f"{CHACHA},{AES},{AES_GCM}", f"{AES_GCM},{CHACHA},{AES}"
CPU_INFO = Path("/proc/cpuinfo")


class SshTransport(RsyncTransfers):
    """One host; connects on first use."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        super().__init__(host.name, lambda: transfer_command(host, inventory))
        self._host, self._inventory, self._accept_new = host, inventory, accept_new

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        with closing(self._channels.start(argv)) as stream:
            return stream.finish(stdin, timeout_s)

    def stream(self, argv: Sequence[str]) -> SshStream:
        return self._channels.start(argv)

    def route(self) -> str | None:
        """Return the route for the connection daemon; None if it must not connect: a ProxyCommand
        depends on the environment and the folder of this process. Raises HostError."""
        route = resolve_route(self._host, self._inventory)  # the settings may have changed
        return None if route.config.proxy_command else route.to_json()

    def close(self) -> None:
        if "_channels" in vars(self):
            self._channels.close()

    @cached_property
    def _channels(self) -> ChannelPool:
        # They load Paramiko: slow.
        from tfdeploy.transport.ssh.channels import ChannelPool
        from tfdeploy.transport.ssh.connection import connect

        def open_connection() -> SshConnection:
            return connect(resolve_route(self._host, self._inventory), self._accept_new)

        return ChannelPool(self.host, open_connection)


def transfer_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for large transfers, without the host's name: it prefers AES-GCM,
    unless ssh's configuration chooses ciphers."""
    command = config.ssh_command(host, inventory)
    try:
        ciphers = config.settings(config.answer(host, inventory))["ciphers"]
    except (Unreachable, KeyError):  # rsync's ssh says why
        return command
    if ciphers == [DEFAULT] and _has_aes():
        command += ["-o", f"Ciphers={FASTER}"]
    return command


@cache
def _has_aes() -> bool:
    """Return whether this machine's processor has instructions for AES, as all of Apple's have."""
    try:
        words = CPU_INFO.read_text().split()
    except OSError:
        return platform.system() == "Darwin"
    return "aes" in words
