"""Run tfdeploy with OpenSSH's ControlMaster instead of its own connections: python THIS COMMAND…

The agent, its protocol and its bundle are the same. The environment variable CONTROL_PATH is ssh's
option ControlPath. Each stream is an ssh process, which exits with the command.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from tfdeploy.cli import main
from tfdeploy.errors import Unreachable
from tfdeploy.hosts import fleet
from tfdeploy.transport import CompletedCommand
from tfdeploy.transport.local import LocalStream
from tfdeploy.transport.rsync import RsyncTransfers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.config.inventory import Host, Inventory

MASTER = ("ControlMaster=auto", "ControlPersist=300", f"ControlPath={os.environ['CONTROL_PATH']}")
SSH_ERROR = 255


class ControlMasterStream(LocalStream):
    """An ssh process. A command does not wait until its agent has exited: that is a round trip per
    host, one after the other."""

    def park(self) -> None:
        self._process.kill()
        self.close()


class ControlMasterTransport(RsyncTransfers):
    """The transport to a host through ssh processes that share one connection."""

    def __init__(self, host: Host, inventory: Inventory, accept_new: bool) -> None:
        options = [word for option in MASTER for word in ("-o", option)]
        super().__init__(host.name, lambda: self._ssh_command)
        self._ssh_command = ["ssh", "-F", str(inventory.ssh_config), *options]

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> CompletedCommand:
        done = subprocess.run(
            self._command(argv), input=stdin, capture_output=True, timeout=timeout_s
        )
        if done.returncode == SSH_ERROR:
            raise Unreachable(self.host, done.stderr.decode(errors="replace"))
        return CompletedCommand(done.returncode, done.stdout, done.stderr)

    def stream(self, argv: Sequence[str]) -> LocalStream:
        return ControlMasterStream(self.host, self._command(argv))

    def close(self) -> None:
        """Do nothing: the master continues to run."""

    def _command(self, argv: Sequence[str]) -> list[str]:
        return [*self._ssh_command, self.host, shlex.join(argv)]


fleet.make_transport = ControlMasterTransport
main()
