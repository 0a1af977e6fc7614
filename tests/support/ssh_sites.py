"""One host behind an sshd of its own, and what a user's ssh needs to reach it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.host_python import tf_python
from support.ports import free_ports
from support.projects import Project, environment, without_tensorflow
from support.sshd import Sshd, write_ssh_config

if TYPE_CHECKING:
    from support.sshd import Keys

HOST = "gate"


class SshSite:
    """A project with one host, `gate`. `entry` is the host's part of ssh_config; `jumps` are those
    of other machines, by name."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys = folder, keys
        self.config, self.known_hosts = folder / "ssh_config", folder / "known_hosts"
        self.entry: dict[str, str] = {}
        self.jumps: dict[str, dict[str, str]] = {}
        self.known_lines: list[str] = []
        self.project: Project | None = None
        self._sshds: list[Sshd] = []
        self._others: list[subprocess.Popen[bytes]] = []

    def sshd(self, *lines: str, kind: type[Sshd] = Sshd, is_known: bool = True) -> Sshd:
        """Start the host's sshd with these lines of configuration; add its key to known_hosts."""
        started = kind(self.folder, self.keys, *lines)
        self._sshds.append(started)
        self.entry.update(started.entry())
        self.known_lines += [started.known_hosts_line] if is_known else []
        return started

    def jump(self, name: str, *lines: str, kind: type[Sshd] = Sshd) -> dict[str, str]:
        """Start the sshd of a jump host; return its part of ssh_config."""
        started = kind(self.folder, self.keys, *lines)
        self._sshds.append(started)
        self.known_lines.append(started.known_hosts_line)
        self.jumps[name] = started.entry(IdentityFile=str(self.keys.user))
        return self.jumps[name]

    def write(self) -> None:
        """Write ssh_config and known_hosts."""
        self.known_hosts.write_text("".join(self.known_lines))
        write_ssh_config(self.config, self.keys, self.known_hosts, {HOST: self.entry, **self.jumps})

    def make_project(self, **host: Any) -> Project:
        """Return the project; `host` are more keys of its host."""
        self.write()
        keys = {
            "ps": 1, "workers": 1, "ports": free_ports(3), "address": "127.0.0.1",
            "python": without_tensorflow(self.folder / "python"),
            "directory": str(self.folder / "gate"),
        }  # fmt: skip
        top = {"ssh_config": str(self.config), "source": {"exclude": ["/*.toml"]}}
        flags = ["--steps=20"]
        self.project = Project(self.folder / "project", {HOST: {**keys, **host}}, top, flags=flags)
        return self.project

    def add_twin(self) -> None:
        """Add the machine once more, as the host `twin`, with a worker."""
        self.jumps["twin"] = {"IdentityFile": str(self.keys.user), **self.entry}
        self.write()
        own = {"ports": free_ports(2), "directory": str(self.folder / "twin"), "ps": 0}
        self.project.hosts["twin"] = {**self.project.hosts[HOST], **own}
        self.project.write()

    def reason(self) -> str:
        """Return why OpenSSH connects to the host, as `plan --json` says; "" if Fabric does."""
        notes = json.loads(self.project.ok("plan", "--json"))["notes"]
        texts = [each["message"] for each in notes if each.get("host") == HOST]
        found = [text for text in texts if text.startswith("OpenSSH connects to it: ")]
        return found[0].partition(": ")[2] if found else ""

    def works(self) -> None:
        """Push, start, ask for the status, stop and collect."""
        self.project.ok("push")
        self.project.ok("start")
        assert {"ps:0", "worker:0"} <= set(self.project.status())
        self.project.ok("stop")
        self.project.ok("collect")

    def runs_what_init_wrote(self) -> None:
        """Run the script to its end with the hosts.toml that `init` wrote, and collect."""
        self.project.ok("run")
        self.project.ok("collect")
        assert (self.project.run_folder / "logs/worker-0.log").read_text()

    def error(self, *words: str) -> str:
        """Return the message of a command that fails on the host."""
        done = self.project.tf(*words or ("push",))
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    def ssh(self, *words: str, env: dict[str, str] | None = None) -> None:
        """Run ssh itself with the site's configuration; it must succeed."""
        argv = ["ssh", "-F", self.config, *words]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, env=env, timeout=60)

    def agent(self, *keys: Path, askpass: str = "", add: tuple[str, ...] = ()) -> Path:
        """Start an ssh-agent with these keys; return its socket."""
        socket = self.folder / f"agent-{len(self._others)}"
        env = {**os.environ, "SSH_ASKPASS": askpass, "SSH_ASKPASS_REQUIRE": "force"}
        agent = subprocess.Popen(
            ["ssh-agent", "-D", "-a", socket], env=env, stdout=subprocess.DEVNULL
        )
        self._others.append(agent)
        while not socket.exists():
            assert agent.poll() is None
        env["SSH_AUTH_SOCK"] = str(socket)
        subprocess.run(["ssh-add", "-q", *add, *keys], env=env, check=True)
        return socket

    @property
    def env(self) -> dict[str, str]:
        return environment(self.project.folder)

    def end(self) -> None:
        if self.project:
            self.project.end()
        for each in self._others:
            each.terminate()
            each.wait()
        for sshd in self._sshds:
            sshd.stop()


def with_tensorflow() -> str:
    """Return the line of sshd_config by which a host's `python` has TensorFlow: `init` writes it
    into hosts.toml, and nothing is installed."""
    return f"SetEnv PATH={Path(tf_python()).parent}:{os.environ['PATH']}"


def certify(authority: Path, public: Path, *words: str) -> None:
    """Sign a public key: the certificate of X.pub is X-cert.pub."""
    argv = ["ssh-keygen", "-q", "-s", authority, "-I", "test", *words, public]
    subprocess.run(argv, check=True, capture_output=True)
