"""Real sshd processes on loopback, with their own keys and ssh_config."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from support.ports import ADDRESS, free_ports
from support.waiting import until

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


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def program(name: str) -> str | None:
    """Return the path of a program; sshd is outside of PATH, and requires its absolute path."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


class Keys:
    """The keys of a user, an unauthorized user, an sshd and another sshd."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.user, self.stranger = self.create("user"), self.create("stranger")
        self.host, self.other_host = self.create("host"), self.create("other_host")
        self.authorized = folder / "authorized_keys"
        self.authorized.write_text(public(self.user))

    def create(self, name: str, passphrase: str = "") -> Path:
        file = self.folder / name
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", file]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        return file


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


class Sshd:
    """One sshd, with `folder` as its users' home; `lines` precede its configuration."""

    address = ADDRESS

    def __init__(self, folder: Path, keys: Keys, *lines: str) -> None:
        self.port = free_ports(1)[0]
        self.keys = keys
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = folder / f"sshd_config.{self.port}"
        base_config = CONFIG.format(
            address=self.address, host_key=keys.host, authorized=keys.authorized, home=folder
        )
        config.write_text("".join(f"{line}\n" for line in lines) + base_config)
        self._log_file = folder / f"sshd.{self.port}.log"
        self._command = [program("sshd"), "-D", "-e", "-f", config, "-p", str(self.port)]
        self.start()

    def start(self) -> None:
        self._log = self._log_file.open("a+b")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        until(self._listens, f"sshd on port {self.port}")

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log_file.read_text()
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    @property
    def known_hosts_line(self) -> str:
        return f"[{self.address}]:{self.port} {public(self.keys.host)}"

    def entry(self, **more: str) -> dict[str, str]:
        """Return its entry for an ssh_config."""
        return {"HostName": self.address, "Port": str(self.port), **more}

    @property
    def connections(self) -> list[int]:
        """Return the processes of its connections, accepted or not yet."""
        return descendants(self._process.pid)

    def drop_connections(self) -> None:
        """Kill every connection, and so the commands that run in it."""
        for pid in self.connections:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze_connections(self) -> None:
        """Stop every connection, as if its machine were gone."""
        for pid in self.connections:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def stop(self) -> None:
        self.drop_connections()
        self._process.terminate()
        self._process.wait()
        self._log.close()


class PrivateEtcSshd(Sshd):
    """An sshd that finds the files of its folder `etc` in /etc. Only root can start one."""

    def start(self) -> None:
        if self._command[0] != "unshare":
            etc = self._log_file.parent / "etc"
            self._command = with_private_etc(etc, *self._command)
        super().start()


def with_private_etc(etc: Path, *command: object) -> list[object]:
    """Return a command that has each entry of a folder in place of /etc's entry of its name."""
    script = 'for each in "$0"/*; do mount --bind "$each" "/etc/${each##*/}"; done; exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, etc, *command]


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, children) for each in (child, *descendants(child))]


def write_ssh_config(file: Path, keys: Keys, known_hosts: Path, hosts: dict[str, dict]) -> None:
    """Write a configuration for ssh; by default a host is offered the user's key."""
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
