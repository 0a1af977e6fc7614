"""A host over OpenSSH itself: what ssh can reach, tfdeploy reaches."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tfdeploy.transport.openssh import choice, master
from tfdeploy.transport.openssh.sessions import SessionPool
from tfdeploy.transport.rsync import RsyncTransfers
from tfdeploy.transport.ssh import config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import CompletedCommand
    from tfdeploy.transport.openssh.master import Master
    from tfdeploy.transport.openssh.sessions import SshProcess


class OpenSshTransport(RsyncTransfers):
    """One host; opens its master on first use, unless another command has left it open."""

    def __init__(self, host: Host, inventory: Inventory, *, accept_new: bool = False) -> None:
        super().__init__(host.name, lambda: self.open().session)
        self._host, self._inventory, self._accept_new = host, inventory, accept_new
        self._pools: dict[str, SessionPool] = {}  # by the arguments of each

    def open(self) -> Master:
        """Return the master, open: the user's own if there is one. Raises HostError."""
        is_users = choice.has_users_master(self._host, self._inventory)
        find = master.find_users if is_users else master.find
        found = find(self._host, self._inventory)
        found.open(accept_new=self._accept_new)
        return found

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        with closing(self._start(argv)) as session:
            return session.finish(stdin, timeout_s)

    def stream(self, argv: Sequence[str], *, repeatable: bool = False) -> SshProcess:
        return self._start(argv)

    def route(self) -> str | None:
        """Return what the connection daemon needs to start commands; None if it must not: a
        ProxyCommand depends on the environment and the folder of this process."""
        found = self.open()
        if "proxycommand" in config.settings(found.answer):
            return None
        return json.dumps(_session_table(found))

    def close(self) -> None:
        """End what still runs. The master stays for `keep_connections_s`."""
        for pool in self._pools.values():
            pool.close()

    def _start(self, argv: Sequence[str]) -> SshProcess:
        table = _session_table(self.open())
        pool = self._pools.setdefault(json.dumps(table), SessionPool(**table))
        return pool.start(argv)


def _session_table(found: Master) -> dict[str, Any]:
    """Return the arguments of SessionPool, also for the connection daemon."""
    path = str(found.path) if found.path else None
    return {"name": found.name, "ssh": found.session, "path": path}


def login_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for a command of the user on a host, without the host's name: over
    the open master of a host that OpenSSH connects to. Raises HostError."""
    if choice.why_openssh(host, inventory):
        return OpenSshTransport(host, inventory).open().session
    return config.ssh_command(host, inventory)
