"""The transport of each host: this machine, SSH through the connection daemon, or SSH alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport import Transport


def has_daemon(inventory: Inventory, accept_new: bool) -> bool:
    """Return whether hosts are reached through the connection daemon."""
    from tfdeploy.transport.daemon.locate import IS_SUPPORTED

    return bool(inventory.keep_connections_s) and not accept_new and IS_SUPPORTED


def make_transport(host: Host, inventory: Inventory, accept_new: bool) -> Transport:
    """Return the transport of a host; it connects on first use."""
    if host.is_local:
        from tfdeploy.transport.local import LocalTransport

        return LocalTransport(host.name)
    if inventory.keep_connections_s and not accept_new:
        from tfdeploy.transport.daemon.client import DaemonTransport

        return DaemonTransport(host, inventory)
    from tfdeploy.transport.ssh.transport import SshTransport

    return SshTransport(host, inventory, accept_new=accept_new)
