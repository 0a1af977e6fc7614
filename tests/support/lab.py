"""A lab on this machine: hosts with a network, an sshd and two GPUs each, and users with an account
on all of them. The GPUs are those of the stand-in for nvidia-smi.

Only root can make one. Users' programs run under ids of their own, so folders are open for all.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import networks
from support.nvidia_smi import StubNvidiaSmi
from support.projects import Project
from support.sshd import Keys, PrivateEtcSshd, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.networks import Network

GPUS = 2
FIRST_UID = 70_001
PYTHON = "/usr/bin/python3"  # other users can't read the one of the tests
PASSWD = """\
root:x:0:0:root:/root:/bin/sh
sshd:x:102:65534::/run/sshd:/bin/false
"""
USER = "{name}:x:{uid}:{uid}::{home}:/bin/sh\n"


class HostSshd(PrivateEtcSshd):
    """The sshd of a host, which finds the users of the lab in its /etc/passwd."""

    def __init__(self, folder: Path, keys: Keys, network: Network, *lines: str) -> None:
        self._network = network
        self.address = network.address
        super().__init__(folder, keys, *lines)

    def start(self) -> None:
        self._command = self._network.enter(*self._command)
        super().start()


class Lab:
    """`folder` is open for all users; `smi` has the GPUs of each host."""

    def __init__(self, folder: Path, hosts: dict[str, Network], users: Sequence[str]) -> None:
        self.folder = folder
        self.uids = {name: FIRST_UID + number for number, name in enumerate(users)}
        self.projects: list[Project] = []
        self._keys = Keys(folder / "keys")
        self._keys.folder.chmod(0o755)  # sshd reads authorized keys as the user
        (folder / "etc").mkdir()
        homes = [USER.format(name=n, uid=uid, home=folder) for n, uid in self.uids.items()]
        (folder / "etc/passwd").write_text("".join([PASSWD, *homes]))
        self.smi = {name: self._install_gpus(name) for name in hosts}
        self._sshds: dict[str, HostSshd] = {}
        for name, network in hosts.items():
            path = f"SetEnv PATH={self.smi[name].folder}:/usr/bin:/bin"
            self._sshds[name] = HostSshd(folder, self._keys, network, path)

    def _install_gpus(self, host: str) -> StubNvidiaSmi:
        (self.folder / host).mkdir()
        smi = StubNvidiaSmi(self.folder / host / "smi", GPUS, PYTHON)
        calls = smi.folder / "calls"
        calls.touch()
        calls.chmod(0o666)
        return smi

    def project(self, user: str, **more: Any) -> Project:
        """Return a project of a user, with a table for each host; the test says what runs there."""
        home = self.folder / "controllers" / user
        home.mkdir(parents=True)
        config, known_hosts = home / "ssh_config", home / "known_hosts"
        known_hosts.write_text("".join(sshd.known_hosts_line for sshd in self._sshds.values()))
        entries = {name: sshd.entry(User=user) for name, sshd in self._sshds.items()}
        write_ssh_config(config, self._keys, known_hosts, entries)
        tables = {name: self._table(name, user) for name in self._sshds}
        top = {"ssh_config": str(config), "source": {"exclude": ["/*.toml"]}}
        name = more.pop("name", f"{user}-{os.getpid()}")
        self.projects.append(Project(home / "project", tables, top, name=name, **more))
        return self.projects[-1]

    def _table(self, host: str, user: str) -> dict[str, Any]:
        directory = self.folder / host / user
        directory.mkdir()
        os.chown(directory, self.uids[user], self.uids[user])
        address = self._sshds[host].address
        return {
            "address": address,
            "python": PYTHON,
            "directory": str(directory),
            "ports": "auto",
            "workers": 1,
        }

    def close(self) -> None:
        for project in self.projects:
            project.end()
        for sshd in self._sshds.values():
            sshd.stop()


@contextmanager
def lab(hosts: Sequence[str], users: Sequence[str]) -> Iterator[Lab]:
    """Yield a lab; end everything that runs there after that."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-")))
        folder.chmod(0o755)
        own = stack.enter_context(networks.networks(len(hosts)))
        made = Lab(folder, dict(zip(hosts, own, strict=True)), users)
        stack.callback(made.close)
        yield made


def is_possible() -> bool:
    """Return whether this user can make a lab here."""
    return sys.platform == "linux" and networks.are_possible() and Path(PYTHON).exists()
