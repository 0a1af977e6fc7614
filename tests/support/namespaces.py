"""Machines on this one, in Linux's namespaces: each has its own name, home, processes and network.

A command that is run there prints what it prints on a user's machines: /home/ann, gpu-01, port
2222. All machines have the user ann, who is root, and bob, who has no home. The first one,
`laptop`, has tfdeploy. Each finds the others' names in /etc/hosts, and there is no DNS.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from support.networks import are_possible
from support.sshd import Keys, program, public

if TYPE_CHECKING:
    from collections.abc import Sequence

USER, HOME = "ann", "/home/ann"
RUNTIME = "/run/user/0"  # for sockets of the user's programs; /tmp is the same on all machines
LAPTOP, DESK = "laptop", "desk"  # controllers: tfdeploy is installed on them
# The switch is the laptop's.
ADDRESSES = {
    LAPTOP: "10.0.0.1", DESK: "10.0.0.2",
    "cpu-01": "10.0.0.10", "gpu-01": "10.0.0.11", "gpu-02": "10.0.0.12", "gpu-03": "10.0.0.13",
}  # fmt: skip
# What TensorFlow says about itself differs with its version and the processor.
QUIET = ("TF_CPP_MIN_LOG_LEVEL=2", "TF_ENABLE_ONEDNN_OPTS=0")
INIT = Path(__file__).with_name("machine_init.sh")
SSHD_CONFIG = """\
HostKey {host_key}
AuthorizedKeysFile {authorized}
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
SetEnv PATH=/home/ann/bin:/usr/bin:/bin {quiet}
Subsystem sftp internal-sftp
"""


class Machines:
    """Machines with these names, the laptop among them. `end` kills all of their processes."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = list(dict.fromkeys((LAPTOP, *names)))
        self._ends = ExitStack()
        self._keys = Keys(folder / "keys")
        self._write_etc()
        self._inits = {name: self._start(name) for name in self.names}
        self._connect()

    def home(self, name: str) -> Path:
        """Return the folder that is /home/ann on a machine."""
        return self.folder / name / "home"

    def enter(self, name: str, directory: str = HOME) -> list[str]:
        """Return the words before a command that is to run on a machine, with the environment of a
        new login."""
        namespaces = ("--mount", "--uts", "--net", "--pid")
        path = f"{HOME}/bin:{HOME}/venv/bin:/usr/bin:/bin"
        variables = (f"HOME={HOME}", f"USER={USER}", f"PATH={path}", "LANG=C.UTF-8", "TERM=dumb",
                     f"XDG_RUNTIME_DIR={RUNTIME}")  # fmt: skip
        nsenter = ["nsenter", f"--target={self._inits[name]}", *namespaces, "--"]
        return [*nsenter, "env", "-i", "-C", directory, *variables, *QUIET]

    def end(self) -> None:
        self._ends.close()

    def _write_etc(self) -> None:
        (self.folder / "etc").mkdir()
        others = "root:x:0:0:root:/root:/bin/bash\nsshd:x:102:65534::/run/sshd:/bin/false\n"
        passwd = f"{USER}:x:0:0:{USER}:{HOME}:/bin/bash\nbob:x:1001:1001::/:/bin/bash\n{others}"
        (self.folder / "etc/passwd").write_text(passwd)
        (self.folder / "etc/nsswitch.conf").write_text(
            "passwd: files\ngroup: files\nhosts: files\n"
        )
        lines = [f"{address} {name}\n" for name, address in ADDRESSES.items()]
        (self.folder / "etc/hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

    def _start(self, name: str) -> int:
        """Start a machine's init, and return its pid as this machine sees it."""
        home = self.home(name)
        (home / "bin").mkdir(parents=True)
        if name in (LAPTOP, DESK):
            (home / "bin/tfdeploy").symlink_to(Path(sys.executable).with_name("tfdeploy"))
            self._write_ssh_files(home)
        else:
            config = SSHD_CONFIG.format(
                host_key=self._keys.host, authorized=self._keys.authorized, quiet=" ".join(QUIET)
            )
            (self.folder / name / "sshd_config").write_text(config)
        unshare = ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--mount-proc",
                   "--kill-child"]  # fmt: skip
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*unshare, INIT, self.folder, name], stdin=pipe, stdout=pipe, start_new_session=True
        )
        self._ends.callback(_end, process)
        assert process.stdout.readline() == b"ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return int(children.read_text())

    def _write_ssh_files(self, home: Path) -> None:
        ssh = home / ".ssh"
        ssh.mkdir(mode=0o700)
        shutil.copy(self._keys.user, ssh / "id_ed25519")
        known = "".join(
            f"{name},{address} {public(self._keys.host)}" for name, address in ADDRESSES.items()
        )
        (ssh / "known_hosts").write_text(known)

    def _connect(self) -> None:
        switch = ["nsenter", f"--target={self._inits[LAPTOP]}", "--net"]
        lines = ["link add switch type bridge", f"addr add {ADDRESSES[LAPTOP]}/24 dev switch",
                 "link set switch up"]  # fmt: skip
        for name in self.names[1:]:
            lines += [f"link add {name} type veth peer name eth0 netns {self._inits[name]}",
                      f"link set {name} master switch up"]  # fmt: skip
        _ip(switch, lines)
        for name in self.names[1:]:
            inside = ["nsenter", f"--target={self._inits[name]}", "--net"]
            _ip(inside, [f"addr add {ADDRESSES[name]}/24 dev eth0", "link set eth0 up"])


def is_possible() -> bool:
    """Return whether this user can make such machines here."""
    return sys.platform == "linux" and are_possible() and program("sshd") is not None


def _ip(enter: list[str], lines: list[str]) -> None:
    command = [*enter, "ip", "-batch", "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.stdin.close()
    process.stdout.close()
    process.wait()
