"""Real sshd processes on loopback, with keys and an ssh_config of their own."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

ADDRESS = "127.0.0.1"
CONFIG = """\
ListenAddress {address}
HostKey {host_key}
AuthorizedKeysFile {authorized}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PidFile none
MaxStartups 100
LogLevel ERROR
SetEnv HOME={home}
"""
GIVEN: set[int] = set()
# Below the ports that the kernel gives to outgoing connections; each of pytest-xdist's has its own.
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORTS = range(20000 + WORKER, 32000, WORKERS)


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens, each given out once."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in GIVEN and probe.connect_ex((ADDRESS, port)) != 0:
                GIVEN.add(port)
                found.append(port)
    return found


def until(holds, what: str, timeout_s: float = 20.0):
    """Poll until `holds()` is true, and give what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """A zombie, which only waits for its parent to look, is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def program(name: str) -> str | None:
    """Where it is: sshd's folder is in no user's PATH, and sshd wants to be called by its whole."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


class Keys:
    """Who is who: the user, an sshd, another sshd, and a user whom nobody knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.user, self.stranger = self.made("user"), self.made("stranger")
        self.host, self.other_host = self.made("host"), self.made("other_host")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text(public(self.user))

    def made(self, name: str, passphrase: str = "") -> Path:
        file = self.folder / name
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", file]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return file


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


class Sshd:
    """One sshd, with `folder` as its users' home; `lines` go before its configuration."""

    def __init__(self, folder: Path, keys: Keys, *lines: str) -> None:
        self.port = free_ports(1)[0]
        self.keys = keys
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = folder / f"sshd_config.{self.port}"
        fixed = CONFIG.format(
            address=ADDRESS, host_key=keys.host, authorized=keys.authorized, home=folder
        )
        config.write_text("".join(f"{line}\n" for line in lines) + fixed)
        self._log = (folder / f"sshd.{self.port}.log").open("w+b")
        command = [program("sshd"), "-D", "-e", "-f", config, "-p", str(self.port)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        until(self._listens, f"sshd on port {self.port}")

    def _listens(self) -> bool:
        assert self._process.poll() is None, Path(self._log.name).read_text()
        with socket.socket() as probe:
            return probe.connect_ex((ADDRESS, self.port)) == 0

    @property
    def known(self) -> str:
        """Its line in known_hosts."""
        return f"[{ADDRESS}]:{self.port} {public(self.keys.host)}"

    def entry(self, **more: str) -> dict[str, str]:
        """Its entry in an ssh_config."""
        return {"HostName": ADDRESS, "Port": str(self.port), **more}

    @property
    def connections(self) -> list[int]:
        """The processes of those that are open, or not yet let in."""
        return descendants(self._process.pid)

    def hang_up(self) -> None:
        """Every connection is lost at once, and what runs in it ends."""
        for pid in self.connections:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self.hang_up()
        self._process.terminate()
        self._process.wait()
        self._log.close()


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def write_ssh_config(file: Path, keys: Keys, known_hosts: Path, hosts: dict[str, dict]) -> None:
    """An OpenSSH client configuration; without a word on it, a host is offered the user's key."""
    common = {
        "User": pwd.getpwuid(os.getuid()).pw_name,
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
    }
    text = ""
    own = {name: {"IdentityFile": str(keys.user), **entry} for name, entry in hosts.items()}
    for pattern, settings in [*own.items(), ("*", common)]:
        text += f"Host {pattern}\n" + "".join(f"  {k} {v}\n" for k, v in settings.items())
    file.write_text(text)
